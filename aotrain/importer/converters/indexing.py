"""ONNX gathers, scatters and slices in, Relax calls out; negative indices are made positive."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.builder import Value
from aotrain.importer.node import Converter, Node, normal_axis
from aotrain.importer.problems import BadShape, Dynamic, Unsupported


def _wrapped(n: Node, index: int, size: int) -> relax.Expr:
    """Input `index` with negative indices counted from `size`, as int64."""
    value: Value = n.inputs[index]
    if isinstance(value, np.ndarray):
        if np.any((value < -size) | (value >= size)):
            raise BadShape(f"{n.op_type}: an index is outside a dimension of {size}")
        wrapped = np.where(value < 0, value + size, value).astype(np.int64)
        return n.builder.constant(wrapped)
    x = n.x(index)
    if n.dtype(index) != "int64":
        x = n.emit(R.astype(x, "int64"))
    zero = n.scalar(0, "int64")
    below = n.emit(R.less(x, zero))
    return n.emit(R.where(below, n.emit(R.add(x, n.scalar(size, "int64"))), x))


def _gather(n: Node) -> relax.Expr:
    axis = n.axis(0)
    return n.emit(R.take(n.x(0), _wrapped(n, 1, n.shape()[axis]), axis, "clip"))


def _gather_elements(n: Node) -> relax.Expr:
    axis = n.axis(0)
    return n.emit(R.gather_elements(n.x(0), _wrapped(n, 1, n.shape()[axis]), axis))


def _nd_indices(n: Node, sizes: tuple[int, ...]) -> relax.Expr:
    """Indices [..., k] into the dimensions `sizes`, made non-negative."""
    limit = np.array(sizes, np.int64)
    value = n.inputs[1]
    if isinstance(value, np.ndarray):
        return n.builder.constant(np.where(value < 0, value + limit, value).astype(np.int64))
    below = n.emit(R.less(n.x(1), n.scalar(0, "int64")))
    return n.emit(R.where(below, n.emit(R.add(n.x(1), n.builder.constant(limit))), n.x(1)))


def _gather_nd(n: Node) -> relax.Expr:
    batch = int(n.attr("batch_dims", 0))
    depth = n.shape(1)[-1]
    indices = _nd_indices(n, n.shape()[batch : batch + depth])
    return n.emit(R.gather_nd(n.x(0), indices, batch))


REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _scatter_elements(n: Node) -> relax.Expr:
    axis = n.axis(0)
    indices = _wrapped(n, 1, n.shape()[axis])
    how = REDUCTIONS[n.attr("reduction", "none")]
    return n.emit(R.scatter_elements(n.x(0), indices, n.x(2), axis, how))


def _scatter_nd(n: Node) -> relax.Expr:
    indices = _nd_indices(n, n.shape()[: n.shape(1)[-1]])
    how = REDUCTIONS[n.attr("reduction", "none")]
    return n.emit(R.scatter_nd(n.x(0), indices, n.x(2), how))


def _slice(n: Node) -> relax.Expr:
    """starts, ends, axes, steps: attributes before opset 10, inputs since."""
    starts, ends = n.ints("starts", 1), n.ints("ends", 2)
    if starts is None or ends is None:
        raise Unsupported("Slice without starts or ends")
    axes = n.ints("axes", 3) or list(range(len(starts)))
    steps = n.ints("steps", 4) or [1] * len(starts)
    x = n.x(0)
    shape = n.shape()
    plan = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = normal_axis(axis, len(shape))
        # Python's own rule for clamping is ONNX's, but for an `end` before the first element.
        low, high, step = slice(start, _end(end, step, shape[axis]), step).indices(shape[axis])
        if step < 0:
            indices = np.arange(low, high, step, dtype=np.int64)
            x = n.emit(R.take(x, n.builder.constant(indices), axis, "clip"))
        elif (low, max(high, low), step) != (0, shape[axis], 1):
            plan.append((axis, low, max(high, low), step))
    if not plan:
        return x
    axes, begin, stop, steps = (list(column) for column in zip(*plan, strict=True))
    return n.emit(R.strided_slice(x, axes, begin, stop, steps))


def _end(end: int, step: int, size: int) -> int | None:
    """ONNX: an end below -size with a negative step means "to the first element"."""
    return None if step < 0 and end < -size else end


def _one_hot(n: Node) -> relax.Expr:
    """values = (off, on), which may be computed; indices outside the depth give all off."""
    depth = int(n.known(1, "depth").reshape(-1)[0])
    axis = n.axis(-1, rank=n.rank() + 1)
    indices = n.x(0)
    if n.dtype() != "int64":
        indices = n.emit(R.astype(indices, "int64"))
    below = n.emit(R.less(indices, n.scalar(0, "int64")))
    indices = n.emit(R.where(below, n.emit(R.add(indices, n.scalar(depth, "int64"))), indices))
    shape = [1] * (n.rank() + 1)
    shape[axis] = depth
    classes = n.builder.constant(np.arange(depth, dtype=np.int64).reshape(shape))
    hit = n.emit(R.equal(n.emit(R.expand_dims(indices, axis)), classes))
    off, on = (n.emit(R.strided_slice(n.x(2), [0], [i], [i + 1])) for i in (0, 1))
    return n.emit(R.where(hit, on, off))


def _compress(n: Node) -> relax.Expr:
    keep = np.flatnonzero(n.known(1, "condition")).astype(np.int64)
    if n.attr("axis") is None:
        flat = n.emit(R.reshape(n.x(0), (-1,)))
        return n.emit(R.take(flat, n.builder.constant(keep), 0, "clip"))
    return n.emit(R.take(n.x(0), n.builder.constant(keep), n.axis(0), "clip"))


def _reverse_sequence(n: Node) -> relax.Expr:
    """With known lengths only: then it is a gather by constant indices."""
    lengths = n.known(1, "sequence_lens")
    time, batch = n.axis(0, "time_axis"), n.axis(1, "batch_axis")
    shape = n.shape()
    steps = np.arange(shape[time])[:, None]  # [T, B]
    order = np.where(steps < lengths[None], lengths[None] - 1 - steps, steps).astype(np.int64)
    if time > batch:
        order = order.T
    order = order.reshape([d if i in (time, batch) else 1 for i, d in enumerate(shape)])
    indices = np.ascontiguousarray(np.broadcast_to(order, shape))
    return n.emit(R.gather_elements(n.x(0), n.builder.constant(indices), time))


def _dynamic(n: Node) -> relax.Expr:
    raise Dynamic(
        f"the size of {n.op_type}'s output depends on the data",
        "Every size must be known when compiling; cut the graph before this node.",
    )


def _sized(n: Node) -> relax.Expr:
    raise Dynamic(f"{n.op_type}: its inputs give a size and must be known when compiling")


TABLE: dict[str, Converter] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "OneHot": _one_hot,
    "Compress": _compress,
    "ReverseSequence": _reverse_sequence,
    "NonZero": _dynamic,
    "Unique": _dynamic,
    "NonMaxSuppression": _dynamic,
    "Range": _sized,
    "ConstantOfShape": _sized,
    "HannWindow": _sized,
    "HammingWindow": _sized,
    "BlackmanWindow": _sized,
    "MelWeightMatrix": _sized,
}
