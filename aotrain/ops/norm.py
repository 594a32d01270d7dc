"""Layer normalisation and its gradient, fused: row kernels that keep nothing but x.

    layer_norm(x, gamma, beta; axis, epsilon)           -> y
    layer_norm_grad(dy, x, gamma; axis, epsilon)        -> (dx, dgamma, dbeta)

x, dy, y [rows.., features..] with features from `axis` on; gamma, beta [features..]. Of any float
dtype, where TVM's layer_norm knows 16 and 32 bits only. The variance is the mean of squared
deviations: E[x²] - E[x]² loses all digits where the mean is large beside the deviation. With
x̂ = (x - mean)/std and g = dy·gamma per row of n features (Ba et al. 2016, "Layer Normalization",
differentiated):

    dx = (g - Σg/n - x̂·Σ(g·x̂)/n) / std,   dgamma = Σ_rows dy·x̂,   dbeta = Σ_rows dy
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from aotrain.ops.registry import define

Index = tuple[Any, ...]


def _row_sum(x: te.Tensor, axis: int, term: Callable[[Index], Any], name: str) -> te.Tensor:
    """Σ over the features of term(index) for each row."""
    features = [te.reduce_axis((0, d), name=f"k{i}") for i, d in enumerate(x.shape[axis:])]
    return te.compute(
        x.shape[:axis], lambda *row: te.sum(term((*row, *features)), axis=features), name=name
    )


def _column_sum(x: te.Tensor, axis: int, term: Callable[[Index], Any], name: str) -> te.Tensor:
    """Σ over the rows of term(index) for each feature."""
    rows = [te.reduce_axis((0, d), name=f"m{i}") for i, d in enumerate(x.shape[:axis])]
    return te.compute(x.shape[axis:], lambda *f: te.sum(term((*rows, *f)), axis=rows), name=name)


def _statistics(x: te.Tensor, axis: int, epsilon: float) -> tuple[te.Tensor, te.Tensor]:
    """Mean and 1/√(variance + epsilon) of each row."""
    inverse = tirx.const(1.0 / math.prod(int(d) for d in x.shape[axis:]), x.dtype)
    total = _row_sum(x, axis, lambda i: x(*i), "x_sum")
    mean = te.compute(total.shape, lambda *row: total(*row) * inverse, name="mean")

    def square(i: Index) -> Any:
        return (x(*i) - mean(*i[:axis])) * (x(*i) - mean(*i[:axis]))

    squares = _row_sum(x, axis, square, "square_sum")
    one, floor = tirx.const(1.0, x.dtype), tirx.const(epsilon, x.dtype)
    rstd = te.compute(
        squares.shape,
        lambda *row: one / tirx.sqrt(squares(*row) * inverse + floor),
        name="rstd",
    )
    return mean, rstd


def _layer_norm(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axis: int, epsilon: float
) -> te.Tensor:
    mean, rstd = _statistics(x, axis, epsilon)

    def y(*i: Any) -> Any:
        row, feature = i[:axis], i[axis:]
        return (x(*i) - mean(*row)) * rstd(*row) * gamma(*feature) + beta(*feature)

    return te.compute(x.shape, y, name="layer_norm")


def _layer_norm_grad(
    dy: te.Tensor, x: te.Tensor, gamma: te.Tensor, axis: int, epsilon: float
) -> list[te.Tensor]:
    mean, rstd = _statistics(x, axis, epsilon)
    inverse = tirx.const(1.0 / math.prod(int(d) for d in x.shape[axis:]), x.dtype)

    def centred(i: Index) -> Any:
        return x(*i) - mean(*i[:axis])

    def g(i: Index) -> Any:
        return dy(*i) * gamma(*i[axis:])

    g_sum = _row_sum(x, axis, g, "g_sum")
    g_dot = _row_sum(x, axis, lambda i: g(i) * centred(i), "g_dot")

    def dx(*i: Any) -> Any:
        row = i[:axis]
        slope = g_dot(*row) * rstd(*row) * rstd(*row) * inverse
        return rstd(*row) * (g(i) - g_sum(*row) * inverse - centred(i) * slope)

    return [
        te.compute(x.shape, dx, name="dx"),
        _column_sum(x, axis, lambda i: dy(*i) * centred(i) * rstd(*i[:axis]), "dgamma"),
        _column_sum(x, axis, lambda i: dy(*i), "dbeta"),
    ]


def _define(name: str, body: Callable[..., Any], infer: Callable[[relax.Call], Any]) -> Any:
    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        axis, epsilon = int(call.attrs["axis"]), float(call.attrs["epsilon"])
        return bb.call_te(body, *call.args, axis, epsilon, primfunc_name_hint=name)

    return define(f"aotrain.{name}", inputs=3, infer=infer, legalize=legalize)


def _grad_type(call: relax.Call) -> relax.Type:
    x, gamma = call.args[1].ty, call.args[2].ty
    return relax.TupleType([x, gamma, gamma])


layer_norm = _define("layer_norm", _layer_norm, lambda call: call.args[0].ty)
layer_norm_grad = _define("layer_norm_grad", _layer_norm_grad, _grad_type)
