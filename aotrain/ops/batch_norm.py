"""BatchNorm with the batch's own statistics, and its gradient, as Relax operators.

    batch_norm_train(x, gamma, beta; epsilon)           -> (y, mean, var)
    batch_norm_grad(dy, x, gamma, mean, var; epsilon)   -> (dx, dgamma, dbeta)

x is [N, C, spatial...] of any rank >= 2; gamma, beta, mean and var are [C]; var is the population
variance. The passes over the data are kept apart (mean first, then the mean of squared deviations):
E[x^2] - E[x]^2 loses all digits where the mean is large beside the deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from tvm import relax, te, tirx

from aotrain.ops.registry import define


def _train_type(call: relax.Call) -> Any:
    x, gamma, beta = (a.ty for a in call.args)
    _check_channels("aotrain.batch_norm_train", x, (gamma, beta))
    return relax.TupleType([x, gamma, gamma])


def _grad_type(call: relax.Call) -> Any:
    dy, x, gamma, mean, var = (a.ty for a in call.args)
    _check_channels("aotrain.batch_norm_grad", x, (gamma, mean, var))
    if [int(d) for d in dy.shape] != [int(d) for d in x.shape]:
        raise ValueError(f"aotrain.batch_norm_grad: dy is {dy}, x is {x}")
    return relax.TupleType([x, gamma, gamma])


def _check_channels(name: str, x: Any, vectors: Sequence[Any]) -> None:
    if len(x.shape) < 2:
        raise ValueError(f"{name}: x must be [N, C, ...], not {x}")
    for vector in vectors:
        if len(vector.shape) != 1 or int(vector.shape[0]) != int(x.shape[1]):
            raise ValueError(f"{name}: {int(x.shape[1])} channels, but a vector of {vector}")


def _over_channel(x: te.Tensor, value: Any, name: str) -> te.Tensor:
    """Sum of value(index) over every axis but the channel: [C]."""
    others = [i for i in range(len(x.shape)) if i != 1]

    def body(channel: tirx.Var) -> Any:
        axes = [te.reduce_axis((0, x.shape[i]), f"k{i}") for i in others]
        index = [axes[0], channel, *axes[1:]]
        return te.sum(value(index, channel), axis=axes)

    return te.compute((x.shape[1],), body, name=name)


def _count(x: te.Tensor) -> Any:
    sizes = [d for i, d in enumerate(x.shape) if i != 1]
    return tirx.const(float(int(reduce(lambda a, b: a * b, sizes))), x.dtype)


def _scaled(sums: te.Tensor, count: Any, name: str) -> te.Tensor:
    return te.compute(sums.shape, lambda c: sums[c] / count, name=name)


def train_body(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, epsilon: float) -> list[te.Tensor]:
    """The forward computation, as TE: [y, mean, var]."""
    count, eps = _count(x), tirx.const(epsilon, x.dtype)
    mean = _scaled(_over_channel(x, lambda i, c: x(*i), "sum"), count, "mean")

    def squared(i: Sequence[Any], c: Any) -> Any:
        return (x(*i) - mean[c]) * (x(*i) - mean[c])

    var = _scaled(_over_channel(x, squared, "squares"), count, "var")
    scale = te.compute(gamma.shape, lambda c: gamma[c] / te.sqrt(var[c] + eps), name="scale")
    y = te.compute(
        x.shape, lambda *i: (x(*i) - mean[i[1]]) * scale[i[1]] + beta[i[1]], name="normalized"
    )
    return [y, mean, var]


def grad_body(
    dy: te.Tensor, x: te.Tensor, gamma: te.Tensor, mean: te.Tensor, var: te.Tensor, epsilon: float
) -> list[te.Tensor]:
    """The backward computation, as TE: [dx, dgamma, dbeta].

    With xhat = (x - mean) / s, s = sqrt(var + eps), m elements a channel (Ioffe and Szegedy 2015):
    dbeta = sum dy; dgamma = sum dy xhat; dx = gamma / s (dy - dbeta / m - xhat dgamma / m).
    """
    count, eps = _count(x), tirx.const(epsilon, x.dtype)
    one = tirx.const(1.0, x.dtype)
    inverse = te.compute(var.shape, lambda c: one / te.sqrt(var[c] + eps), name="inverse")
    dbeta = _over_channel(x, lambda i, c: dy(*i), "dbeta")
    dgamma = _over_channel(x, lambda i, c: dy(*i) * ((x(*i) - mean[c]) * inverse[c]), "dgamma")

    def body(*i: Any) -> Any:
        c = i[1]
        xhat = (x(*i) - mean[c]) * inverse[c]
        return gamma[c] * inverse[c] * (dy(*i) - (dbeta[c] + xhat * dgamma[c]) / count)

    return [te.compute(x.shape, body, name="dx"), dgamma, dbeta]


def _legalize_train(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return bb.call_te(
        train_body, *call.args, float(call.attrs["epsilon"]), primfunc_name_hint="batch_norm_train"
    )


def _legalize_grad(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return bb.call_te(
        grad_body, *call.args, float(call.attrs["epsilon"]), primfunc_name_hint="batch_norm_grad"
    )


batch_norm_train = define(
    "aotrain.batch_norm_train", inputs=3, infer=_train_type, legalize=_legalize_train
)
batch_norm_grad = define(
    "aotrain.batch_norm_grad", inputs=5, infer=_grad_type, legalize=_legalize_grad
)

__all__ = ["batch_norm_grad", "batch_norm_train", "grad_body", "train_body"]
