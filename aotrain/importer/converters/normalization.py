"""ONNX normalisations and Dropout in; Relax norms, or our own training operators, out."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.builder import shape_of
from aotrain.importer.node import Converter, Node, np_dtype
from aotrain.importer.problems import Unsupported
from aotrain.ops.batch_norm import batch_norm_train
from aotrain.ops.dropout import dropout


def _batch_norm(n: Node) -> tuple[relax.Expr, ...]:
    """Training form in `train` where both statistics are buffers, inference form otherwise.

    running' = momentum * running + (1 - momentum) * batch, with the population variance (ONNX,
    BatchNormalization-15). Outputs after Y are the running statistics; before opset 14 two more,
    the saved ones, which nothing may use.
    """
    n.reject("spatial", 1)
    mean, var = n.x(3), n.x(4)
    buffers = [n.walker.buffer_of.get(getattr(v, "name", "")) for v in (mean, var)]
    if not n.train or buffers[0] is None or buffers[1] is None:
        return _normalise(n, mean, var), mean, var, mean, var
    y, batch_mean, batch_var = _untuple(
        n, batch_norm_train(n.x(0), n.x(1), n.x(2), epsilon=_epsilon(n)), 3
    )
    momentum = float(n.attr("momentum", 0.9))
    dtype = str(mean.ty.dtype)
    running = []
    names = (buffers[0], buffers[1])
    for name, old, new in zip(names, (mean, var), (batch_mean, batch_var), strict=True):
        # A statistic that two nodes share is updated by one after the other.
        old = n.walker.new_buffers.get(name, old)
        kept = n.emit(R.multiply(old, n.scalar(momentum, dtype)))
        moved = n.emit(R.multiply(new, n.scalar(1 - momentum, dtype)))
        n.walker.new_buffers[name] = n.emit(R.add(kept, moved))
        running.append(n.walker.new_buffers[name])
    return y, running[0], running[1], batch_mean, batch_var


def _epsilon(n: Node) -> float:
    return float(n.attr("epsilon", 1e-5))


def _untuple(n: Node, call: relax.Expr, count: int) -> list[relax.Expr]:
    results = n.emit(call)
    return [n.emit(relax.TupleGetItem(results, i)) for i in range(count)]


def _normalise(n: Node, mean: relax.Expr, var: relax.Expr) -> relax.Expr:
    """(x - mean) * (gamma / sqrt(var + eps)) + beta along axis 1."""
    shape = [1, n.shape()[1]] + [1] * (n.rank() - 2)
    if n.rank() == 1:
        shape = [n.shape()[0]]
    epsilon = n.scalar(_epsilon(n), str(var.ty.dtype))
    scale = n.emit(R.divide(n.x(1), n.emit(R.sqrt(n.emit(R.add(var, epsilon))))))
    parts = [n.emit(R.reshape(v, shape)) for v in (mean, scale, n.x(2))]
    centred = n.emit(R.subtract(n.x(0), parts[0]))
    return n.emit(R.add(n.emit(R.multiply(centred, parts[1])), parts[2]))


def _layer_norm(n: Node) -> relax.Expr | tuple[relax.Expr, ...]:
    """Over the dimensions from `axis` on; outputs Mean and InvStdDev where they are used."""
    axis, epsilon = n.axis(-1), _epsilon(n)
    axes, shape = list(range(axis, n.rank())), n.shape()[axis:]
    scale, bias = (_spread(n, i, shape) for i in (1, 2))
    if _is_wide(n):
        y = n.emit(R.multiply(_standardised(n, n.x(0), axes), scale))
        y = n.emit(R.add(y, bias))
    else:
        y = n.emit(R.nn.layer_norm(n.x(0), scale, bias, axes, epsilon))
    if not (n.wants(1) or n.wants(2)):
        return y
    mean = n.emit(R.mean(n.x(0), axes, True))
    centred = n.emit(R.subtract(n.x(0), mean))
    var = n.emit(R.mean(n.emit(R.multiply(centred, centred)), axes, True))
    deviation = n.emit(R.sqrt(n.emit(R.add(var, n.scalar(epsilon)))))
    return y, mean, n.emit(R.divide(n.scalar(1), deviation))


def _spread(n: Node, index: int, shape: tuple[int, ...]) -> relax.Expr:
    """Scale or bias in the normalised shape; zeros for an absent bias."""
    if not n.has(index):
        return n.builder.constant(np.zeros(shape, np_dtype(n.dtype())))
    x = n.x(index)
    return x if shape_of(x) == tuple(shape) else n.emit(R.broadcast_to(x, list(shape)))


def _is_wide(n: Node) -> bool:
    """Whether the input is of 64 bits: TVM's norms compute in 32, or refuse."""
    return n.dtype() == "float64"


def _standardised(n: Node, x: relax.Expr, axes: list[int]) -> relax.Expr:
    """(x - mean) / sqrt(variance + epsilon), both over `axes`."""
    centred = n.emit(R.subtract(x, n.emit(R.mean(x, axes, True))))
    var = n.emit(R.mean(n.emit(R.multiply(centred, centred)), axes, True))
    return n.emit(R.divide(centred, n.emit(R.sqrt(n.emit(R.add(var, n.scalar(_epsilon(n))))))))


def _per_channel(n: Node, x: relax.Expr, scale: relax.Expr, bias: relax.Expr) -> relax.Expr:
    """x * scale + bias, both [C], of x [N, C, ...]."""
    shape = [n.shape()[1]] + [1] * (n.rank() - 2)
    scale, bias = (n.emit(R.reshape(v, shape)) for v in (scale, bias))
    return n.emit(R.add(n.emit(R.multiply(x, scale)), bias))


def _rms_norm(n: Node) -> relax.Expr:
    axis = n.axis(-1)
    axes, shape = list(range(axis, n.rank())), n.shape()[axis:]
    if axis == 0 or _is_wide(n):  # TVM's lowering needs a dimension that is not reduced
        square = n.emit(R.mean(n.emit(R.multiply(n.x(0), n.x(0))), axes, True))
        root = n.emit(R.sqrt(n.emit(R.add(square, n.scalar(_epsilon(n))))))
        return n.emit(R.multiply(n.emit(R.divide(n.x(0), root)), n.x(1)))
    return n.emit(R.nn.rms_norm(n.x(0), _spread(n, 1, shape), axes, _epsilon(n)))


def _instance_norm(n: Node) -> relax.Expr:
    axes = list(range(2, n.rank()))
    if _is_wide(n):
        return _per_channel(n, _standardised(n, n.x(0), axes), n.x(1), n.x(2))
    return n.emit(R.nn.instance_norm(n.x(0), n.x(1), n.x(2), 1, axes, _epsilon(n)))


def _group_norm(n: Node) -> relax.Expr:
    """Scale and bias per channel since opset 21, per group in opset 18."""
    groups, channels = int(n.attr("num_groups")), n.shape()[1]
    scale, bias = n.x(1), n.x(2)
    if n.shape(1)[0] != channels:
        scale, bias = (n.emit(R.repeat(v, channels // groups, 0)) for v in (scale, bias))
    if _is_wide(n):
        apart = n.emit(R.reshape(n.x(0), (n.shape()[0], groups, -1)))
        whole = n.emit(R.reshape(_standardised(n, apart, [2]), n.shape()))
        return _per_channel(n, whole, scale, bias)
    axes = list(range(2, n.rank()))
    return n.emit(R.nn.group_norm(n.x(0), scale, bias, groups, 1, axes, _epsilon(n)))


def _lp_norm(n: Node) -> relax.Expr:
    """x / ||x||_p along an axis; 0 where the norm is 0."""
    axis, p, x = n.axis(-1), int(n.attr("p", 2)), n.x(0)
    if p == 1:
        norm = n.emit(R.sum(n.emit(R.abs(x)), [axis], True))
    else:
        norm = n.emit(R.sqrt(n.emit(R.sum(n.emit(R.multiply(x, x)), [axis], True))))
    empty = n.emit(R.equal(norm, n.scalar(0)))
    return n.emit(R.divide(x, n.emit(R.where(empty, n.scalar(1), norm))))


def _mean_variance(n: Node) -> relax.Expr:
    """(x - mean) / (std + 1e-9). ONNX's function body of it holds a float32 for any dtype."""
    axes, x = list(n.attr("axes", [0, 2, 3])), n.x(0)
    centred = n.emit(R.subtract(x, n.emit(R.mean(x, axes, True))))
    variance = n.emit(R.mean(n.emit(R.multiply(centred, centred)), axes, True))
    std = n.emit(R.sqrt(variance))
    return n.emit(R.divide(centred, n.emit(R.add(std, n.scalar(1e-9)))))


def _lrn(n: Node) -> relax.Expr:
    """x / (bias + alpha / size * sum of squares over `size` neighbouring channels)^beta.

    The sum over a window of channels is a product with a constant band matrix [C, C].
    """
    size, channels = int(n.attr("size")), n.shape()[1]
    alpha, beta = float(n.attr("alpha", 1e-4)), float(n.attr("beta", 0.75))
    offset = np.arange(channels)[None] - np.arange(channels)[:, None]  # [out, in]
    inside = (offset >= -((size - 1) // 2)) & (offset <= size // 2)
    band = n.builder.constant(inside.astype(np_dtype(n.dtype())))
    x, shape = n.x(0), n.shape()
    flat = n.emit(R.reshape(x, (shape[0], channels, math.prod(shape[2:]))))
    total = n.emit(R.matmul(band, n.emit(R.multiply(flat, flat))))
    scaled = n.emit(R.multiply(n.emit(R.reshape(total, shape)), n.scalar(alpha / size)))
    base = n.emit(R.add(scaled, n.scalar(float(n.attr("bias", 1.0)))))
    return n.emit(R.divide(x, n.emit(R.power(base, n.scalar(beta)))))


def _dropout(n: Node) -> tuple[relax.Expr, ...]:
    """Active in `train` whatever the file's training_mode says, identity in `infer`."""
    ratio = 0.5
    if n.attr("ratio") is not None:
        ratio = float(n.attr("ratio"))
    elif n.has(1):
        ratio = float(n.known(1, "ratio").reshape(()))
    if not 0 <= ratio < 1:
        raise Unsupported(f"Dropout with ratio={ratio} is not supported")
    salt = n.walker.salt
    n.walker.salt += 1
    kept = n.builder.constant(np.ones(n.shape(), bool)) if n.wants(1) else None
    if not n.train or ratio == 0:
        return n.x(0), kept
    y = n.emit(dropout(n.x(0), n.walker.rng, ratio=ratio, salt=salt))
    if kept is not None:
        ones = n.builder.constant(np.ones(n.shape(), np_dtype(n.dtype())))
        drawn = n.emit(dropout(ones, n.walker.rng, ratio=ratio, salt=salt))
        kept = n.emit(R.not_equal(drawn, n.scalar(0)))
    return y, kept


TABLE: dict[str, Converter] = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_norm,
    "LRN": _lrn,
    "MeanVarianceNormalization": _mean_variance,
    "Dropout": _dropout,
}
