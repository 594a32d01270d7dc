"""Rules of normalisations. gamma, beta: one value a channel or feature; dy has x's shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax

from aotrain.autodiff.vjp import (
    Gradients,
    NoGradientError,
    Vjp,
    const,
    normal_axes,
    rule,
    shape,
)
from aotrain.ops.batch_norm import batch_norm_grad
from aotrain.ops.norm import layer_norm_grad

op = relax.op


def _trailing(v: Vjp) -> int:
    """The first of the normalised axes, which must be the last ones."""
    ndim = len(shape(v.x))
    axes = normal_axes(v.attrs.axes, ndim)
    if axes != list(range(axes[0], ndim)):
        raise NoGradientError(f"has a gradient over the last axes only, not over {axes}")
    return axes[0]


@rule("relax.nn.layer_norm")
def _layer_norm(v: Vjp) -> Gradients:
    axis, epsilon = _trailing(v), float(v.attrs.epsilon)
    found = layer_norm_grad(v.dy, v.x, v.args[1], axis=axis, epsilon=epsilon)
    return [relax.TupleGetItem(found, i) for i in range(3)]


@rule("aotrain.layer_norm")
def _own_layer_norm(v: Vjp) -> Gradients:
    axis, epsilon = int(v.attrs["axis"]), float(v.attrs["epsilon"])
    found = layer_norm_grad(v.dy, v.x, v.args[1], axis=axis, epsilon=epsilon)
    return [relax.TupleGetItem(found, i) for i in range(3)]


@rule("relax.nn.rms_norm")
def _rms_norm(v: Vjp) -> Gradients:
    x, gamma = v.args
    axis, dims = _trailing(v), shape(x)
    axes = list(range(axis, len(dims)))
    square = op.mean(x * x, axis=axes, keepdims=True)
    scale = const(1.0, x) / op.sqrt(square + const(float(v.attrs.epsilon), x))  # [rows.., 1..]
    g = v.dy * gamma
    dot = op.mean(g * x, axis=axes, keepdims=True)
    dx = scale * (g - x * (scale * scale * dot))
    dgamma = v.dy * x * scale
    return [dx, op.sum(dgamma, axis=list(range(axis))) if axis else dgamma]


def _grouped(v: Vjp, groups: int, channel_axis: int, axes: Sequence[int]) -> Gradients:
    """Normalise each of `groups` runs of channels over all positions: x [N, C, spatial..]."""
    x, gamma, _ = v.args
    dims = shape(x)
    ndim = len(dims)
    if channel_axis % ndim != 1 or normal_axes(axes, ndim) != list(range(2, ndim)):
        raise NoGradientError("has a gradient for N, C, spatial... layout only")
    runs = (dims[0], groups, math.prod(dims[1:]) // groups)
    along_channel = [1, dims[1]] + [1] * (ndim - 2)
    reduced = [i for i in range(ndim) if i != 1]
    xr = op.reshape(x, runs)
    centred = xr - op.mean(xr, axis=2, keepdims=True)
    variance = op.mean(centred * centred, axis=2, keepdims=True)
    rstd = const(1.0, x) / op.sqrt(variance + const(float(v.attrs.epsilon), x))
    xhat = centred * rstd
    g = op.reshape(v.dy * op.reshape(gamma, along_channel), runs)
    mean_g = op.mean(g, axis=2, keepdims=True)
    mean_gx = op.mean(g * xhat, axis=2, keepdims=True)
    dx = op.reshape(rstd * (g - mean_g - xhat * mean_gx), dims)
    dgamma = op.sum(v.dy * op.reshape(xhat, dims), axis=reduced)
    return [dx, dgamma, op.sum(v.dy, axis=reduced)]


@rule("relax.nn.group_norm")
def _group_norm(v: Vjp) -> Gradients:
    return _grouped(v, int(v.attrs.num_groups), int(v.attrs.channel_axis), v.attrs.axes)


@rule("relax.nn.instance_norm")
def _instance_norm(v: Vjp) -> Gradients:
    return _grouped(v, shape(v.x)[1], int(v.attrs.channel_axis), v.attrs.axes)


@rule("relax.nn.batch_norm")
def _batch_norm(v: Vjp) -> Gradients:
    """With given statistics, which are also the results 1 and 2: y = gamma·x̂ + beta."""
    if v.attrs.training:
        raise NoGradientError("has a gradient with given statistics only (training=False)")
    x, gamma, _, mean, variance = v.args
    dims, axis = shape(x), int(v.attrs.axis) % len(shape(x))
    reduced = [i for i in range(len(dims)) if i != axis]
    along = [d if i == axis else 1 for i, d in enumerate(dims)]

    def spread(channel: relax.Expr) -> relax.Expr:
        return op.reshape(channel, along)

    rstd = const(1.0, variance) / op.sqrt(variance + const(float(v.attrs.epsilon), variance))
    scale = gamma * rstd if v.attrs.scale else rstd  # [C]
    dot = op.sum(v.dy * (x - spread(mean)), axis=reduced)
    total = op.sum(v.dy, axis=reduced)
    dmean = op.negative(total * scale)
    dvariance = const(-0.5, variance) * dot * scale * rstd * rstd
    given = v.cotangents[1:]
    return [
        v.dy * spread(scale),
        dot * rstd if v.attrs.scale else None,
        total if v.attrs.center else None,
        dmean + given[0] if given[0] is not None else dmean,
        dvariance + given[1] if given[1] is not None else dvariance,
    ]


@rule("aotrain.batch_norm_train")
def _batch_norm_train(v: Vjp) -> Gradients:
    """Batch statistics: (y, mean, variance) of x [N, C, spatial..]."""
    x, gamma, _ = v.args
    dims = shape(x)
    along = [d if i == 1 else 1 for i, d in enumerate(dims)]
    mean, variance = relax.TupleGetItem(v.y, 1), relax.TupleGetItem(v.y, 2)
    epsilon = float(v.attrs["epsilon"])
    found = batch_norm_grad(v.dy, x, gamma, mean, variance, epsilon=epsilon)
    dx: relax.Expr = relax.TupleGetItem(found, 0)
    count = math.prod(dims) // dims[1]
    if v.cotangents[1] is not None:
        dx = dx + op.reshape(v.cotangents[1] * const(1.0 / count, x), along)
    if v.cotangents[2] is not None:
        slope = op.reshape(v.cotangents[2] * const(2.0 / count, x), along)
        dx = dx + (x - op.reshape(mean, along)) * slope
    return [dx, relax.TupleGetItem(found, 1), relax.TupleGetItem(found, 2)]
