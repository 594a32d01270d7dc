"""Gradients of normalisations, fused: one kernel that reads x twice and keeps only row statistics.

    layer_norm_grad(dy, x, gamma; axis, epsilon) -> (dx, dgamma, dbeta)

x, dy [rows.., features..] with features from `axis` on, gamma [features..]. With x̂ = (x - mean)/std
and g = dy·gamma per row of n features (Ba et al. 2016, "Layer Normalization", differentiated):

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


def _layer_norm_grad(
    dy: te.Tensor, x: te.Tensor, gamma: te.Tensor, axis: int, epsilon: float
) -> list[te.Tensor]:
    count = math.prod(int(d) for d in x.shape[axis:])

    def number(value: float) -> Any:
        return tirx.const(value, x.dtype)

    inverse = number(1.0 / count)
    total = _row_sum(x, axis, lambda i: x(*i), "x_sum")
    mean = te.compute(total.shape, lambda *row: total(*row) * inverse, name="mean")

    def centred(i: Index) -> Any:
        return x(*i) - mean(*i[:axis])

    squares = _row_sum(x, axis, lambda i: centred(i) * centred(i), "square_sum")
    rstd = te.compute(
        squares.shape,
        lambda *row: number(1.0) / tirx.sqrt(squares(*row) * inverse + number(epsilon)),
        name="rstd",
    )

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


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return bb.call_te(
        _layer_norm_grad,
        *call.args,
        int(call.attrs["axis"]),
        float(call.attrs["epsilon"]),
        primfunc_name_hint="layer_norm_grad",
    )


def _infer(call: relax.Call) -> relax.Type:
    x, gamma = call.args[1].ty, call.args[2].ty
    return relax.TupleType([x, gamma, gamma])


layer_norm_grad = define("aotrain.layer_norm_grad", inputs=3, infer=_infer, legalize=_legalize)
