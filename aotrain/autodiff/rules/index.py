"""Rules of operators that read or write by integer indices, and of sorting."""

from __future__ import annotations

import math

from tvm import relax

from aotrain.autodiff.vjp import (
    Gradients,
    NoGradientError,
    Vjp,
    const,
    dtype,
    rule,
    shape,
    zero_gradient,
)
from aotrain.ops.take_grad import take_grad

op = relax.op

zero_gradient("relax.one_hot", "relax.bucketize", "relax.nonzero", "relax.unique")


@rule("relax.take")
def _take(v: Vjp) -> Gradients:
    """x [.., V, ..], indices of any shape along `axis`; rows read twice add up."""
    dims, axis = shape(v.x), v.attrs.axis
    if axis is None:
        dims, axis = (math.prod(dims),), 0
    axis = int(axis) % len(dims)
    indices = v.args[1]
    if isinstance(indices.ty, relax.TensorType):
        count = math.prod(shape(indices))
        flat = op.reshape(indices, (count,))
    else:  # a PrimExpr index
        count, flat = 1, relax.const([int(indices.value)], "int64")
    outer, inner = math.prod(dims[:axis]), math.prod(dims[axis + 1 :])
    rows = op.reshape(v.dy, (outer, count, inner))
    return [op.reshape(take_grad(rows, flat, rows=dims[axis]), shape(v.x)), None]


@rule("aotrain.take_grad")
def _take_grad(v: Vjp) -> Gradients:
    return [op.take(v.dy, v.args[1], axis=1), None]


@rule("relax.gather_elements")
def _gather_elements(v: Vjp) -> Gradients:
    zeros = op.zeros(shape(v.x), dtype(v.x))
    return [op.scatter_elements(zeros, v.args[1], v.dy, int(v.attrs.axis), "add"), None]


@rule("relax.gather_nd")
def _gather_nd(v: Vjp) -> Gradients:
    if int(v.attrs.batch_dims) != 0:
        raise NoGradientError("has no gradient for batch_dims > 0")
    zeros = op.zeros(shape(v.x), dtype(v.x))
    return [op.scatter_nd(zeros, v.args[1], v.dy, "add"), None]


@rule("relax.scatter_elements")
def _scatter_elements(v: Vjp) -> Gradients:
    indices, updates = v.args[1:]
    axis, kind = int(v.attrs.axis), v.attrs.reduction
    taken = op.gather_elements(v.dy, indices, axis)
    if kind == "add":
        return [v.dy, None, taken]
    if kind == "update":
        zeros = op.zeros(shape(updates), dtype(updates))
        return [op.scatter_elements(v.dy, indices, zeros, axis, "update"), None, taken]
    if kind in ("min", "max"):
        return _scatter_extremum(v, axis, kind)
    raise NoGradientError(f"has no gradient for reduction '{kind}'")


def _scatter_extremum(v: Vjp, axis: int, kind: str) -> Gradients:
    """The data and every update equal to the result share its dy in equal parts, as PyTorch."""
    data, indices, updates = v.args
    kept = op.astype(op.equal(data, v.y), dtype(v.y))
    there = op.gather_elements(v.y, indices, axis)
    hit = op.astype(op.equal(updates, there), dtype(v.y))
    shared = v.dy / op.scatter_elements(kept, indices, hit, axis, "add")
    zero = const(0.0, v.y)
    at_data = op.where(op.equal(data, v.y), shared, zero)
    at_updates = op.where(op.equal(updates, there), op.gather_elements(shared, indices, axis), zero)
    return [at_data, None, at_updates]


@rule("relax.scatter_nd")
def _scatter_nd(v: Vjp) -> Gradients:
    _, indices, updates = v.args
    taken = op.gather_nd(v.dy, indices)
    if v.attrs.reduction == "add":
        return [v.dy, None, taken]
    if v.attrs.reduction == "update":
        zeros = op.zeros(shape(updates), dtype(updates))
        return [op.scatter_nd(v.dy, indices, zeros, "update"), None, taken]
    raise NoGradientError(f"has no gradient for reduction '{v.attrs.reduction}'")


@rule("relax.topk")
def _topk(v: Vjp) -> Gradients:
    """The values' dy goes back to where they came from; found again when only values are kept."""
    kind = v.attrs.ret_type
    if kind == "indices":
        return [None]
    if kind == "both":
        where = relax.TupleGetItem(v.y, 1)
    else:
        where = op.topk(v.x, int(v.attrs.k), int(v.attrs.axis), "indices", bool(v.attrs.largest))
    zeros = op.zeros(shape(v.x), dtype(v.x))
    return [op.scatter_elements(zeros, where, v.dy, int(v.attrs.axis), "update")]


@rule("aotrain.top_k")
def _top_k(v: Vjp) -> Gradients:
    """x [A, N, B]: the values' dy goes back to where they came from; indices have none."""
    zeros = op.zeros(shape(v.x), dtype(v.x))
    return [op.scatter_elements(zeros, relax.TupleGetItem(v.y, 1), v.dy, 1, "update")]


@rule("relax.sort")
def _sort(v: Vjp) -> Gradients:
    axis = int(v.attrs.axis)
    where = op.argsort(v.x, axis, bool(v.attrs.descending))
    return [op.scatter_elements(op.zeros(shape(v.x), dtype(v.x)), where, v.dy, axis, "update")]
