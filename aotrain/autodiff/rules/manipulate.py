"""Rules of operators that move, copy or cut elements without arithmetic."""

from __future__ import annotations

import itertools
import math
from typing import Any

from tvm import relax

from aotrain.autodiff.vjp import (
    Gradients,
    NoGradientError,
    Vjp,
    dtype,
    rule,
    shape,
    unbroadcast,
)

op = relax.op


@rule(
    "relax.reshape",
    "relax.flatten",
    "relax.nn.batch_flatten",
    "relax.squeeze",
    "relax.expand_dims",
)
def _reshape(v: Vjp) -> Gradients:
    return [op.reshape(v.dy, shape(v.x))] + [None] * (len(v.args) - 1)


@rule("relax.permute_dims")
def _permute_dims(v: Vjp) -> Gradients:
    axes = v.attrs.axes
    if axes is None:
        return [op.permute_dims(v.dy)]
    order = [int(a) % len(axes) for a in axes]
    return [op.permute_dims(v.dy, [order.index(i) for i in range(len(order))])]


@rule("relax.broadcast_to")
def _broadcast_to(v: Vjp) -> Gradients:
    return [unbroadcast(v.dy, shape(v.y), v.x), None]


@rule("relax.collapse_sum_to", "relax.collapse_sum_like")
def _collapse_sum(v: Vjp) -> Gradients:
    return [op.broadcast_to(v.dy, shape(v.x)), None]


@rule("relax.concat")
def _concat(v: Vjp) -> Gradients:
    fields = v.x.ty.fields
    axis = 0 if v.attrs.axis is None else int(v.attrs.axis) % len(shape(v.y))
    if len(fields) == 1:
        return [[v.dy]]
    ends = [0]
    for field in fields:
        ends.append(ends[-1] + shape(field)[axis])
    cuts = itertools.pairwise(ends)
    return [[op.strided_slice(v.dy, [axis], [a], [b]) for a, b in cuts]]


@rule("relax.split")
def _split(v: Vjp) -> Gradients:
    axis = int(v.attrs.axis) % len(shape(v.x))
    parts = [v.cotangent(i) for i in range(len(v.cotangents))]
    return [op.concat(parts, axis) if len(parts) > 1 else parts[0]]


@rule("relax.stack")
def _stack(v: Vjp) -> Gradients:
    axis = 0 if v.attrs.axis is None else int(v.attrs.axis) % len(shape(v.y))
    count = len(v.x.ty.fields)
    return [
        [op.squeeze(op.strided_slice(v.dy, [axis], [i], [i + 1]), [axis]) for i in range(count)]
    ]


@rule("relax.tile")
def _tile(v: Vjp) -> Gradients:
    repeats, dims = [int(r) for r in v.attrs.repeats], list(shape(v.x))
    ndim = max(len(repeats), len(dims))
    repeats = [1] * (ndim - len(repeats)) + repeats
    dims = [1] * (ndim - len(dims)) + dims
    split = [n for pair in zip(repeats, dims, strict=True) for n in pair]  # [r0, d0, r1, d1, ..]
    summed = op.sum(op.reshape(v.dy, split), axis=list(range(0, 2 * ndim, 2)))
    return [op.reshape(summed, shape(v.x))]


@rule("relax.repeat")
def _repeat(v: Vjp) -> Gradients:
    dims, times = list(shape(v.x)), int(v.attrs.repeats)
    if v.attrs.axis is None:
        dims, axis = [math.prod(dims)], 0
    else:
        axis = int(v.attrs.axis) % len(dims)
    split = [*dims[: axis + 1], times, *dims[axis + 1 :]]
    return [op.reshape(op.sum(op.reshape(v.dy, split), axis=axis + 1), shape(v.x))]


@rule("relax.flip")
def _flip(v: Vjp) -> Gradients:
    return [op.flip(v.dy, int(v.attrs.axis))]


@rule("relax.reverse_sequence")
def _reverse_sequence(v: Vjp) -> Gradients:
    back = op.reverse_sequence(v.dy, v.args[1], int(v.attrs.seq_axis), int(v.attrs.batch_axis))
    return [back, None]


@rule("relax.triu")
def _triu(v: Vjp) -> Gradients:
    return [op.triu(v.dy, v.args[1]), None]


@rule("relax.tril")
def _tril(v: Vjp) -> Gradients:
    return [op.tril(v.dy, v.args[1]), None]


@rule("relax.meshgrid")
def _meshgrid(v: Vjp) -> Gradients:
    count = len(v.cotangents)
    place = list(range(count))
    if v.attrs.indexing == "xy" and count > 1:
        place[0], place[1] = 1, 0
    others = [[a for a in range(count) if a != p] for p in place]
    return [[op.sum(v.cotangent(i), axis=axes) for i, axes in enumerate(others)]]


# -- slices and padding ---------------------------------------------------------------------------


def _numbers(expr: Any) -> list[int]:
    return [int(f.value) for f in expr.fields]


@rule("relax.strided_slice")
def _strided_slice(v: Vjp) -> Gradients:
    """dy between zeros: dilate by the stride (an inner axis of 1 of `step`), then pad."""
    dims, got = shape(v.x), list(shape(v.y))
    axes = [a % len(dims) for a in _numbers(v.args[1])]
    steps = _numbers(v.args[4]) if len(v.args) > 4 else [1] * len(axes)
    widths, back = [0] * (2 * len(dims)), v.dy
    for axis, begin, step in zip(axes, _numbers(v.args[2]), steps, strict=True):
        first, length = _first(begin, dims[axis], step), got[axis]
        if step < 0:
            back = op.flip(back, axis)
            first, step = first + (length - 1) * step, -step
        if step > 1 and length > 1:
            back = _dilate(back, got, axis, step)
            got[axis] = (length - 1) * step + 1
        widths[2 * axis : 2 * axis + 2] = [first, dims[axis] - first - got[axis]]
    dx = op.nn.pad(back, widths, pad_value=0.0) if any(widths) else back
    return [dx] + [None] * (len(v.args) - 1)


def _first(begin: int, size: int, step: int) -> int:
    """The first index that a slice reads, after wrapping and clamping as NumPy does."""
    begin = begin + size if begin < 0 else begin
    return min(max(begin, 0), size if step > 0 else size - 1)


def _dilate(x: relax.Expr, dims: list[int], axis: int, step: int) -> relax.Expr:
    """Put step - 1 zeros between the elements of `x` (shape `dims`) along `axis`."""
    inner = [*dims[: axis + 1], 1, *dims[axis + 1 :]]
    widths = [0] * (2 * len(inner))
    widths[2 * axis + 3] = step - 1
    spread = op.nn.pad(op.reshape(x, inner), widths, pad_value=0.0)  # [.., n, step, ..]
    joined = [*dims[:axis], dims[axis] * step, *dims[axis + 1 :]]
    end = (dims[axis] - 1) * step + 1
    return op.strided_slice(op.reshape(spread, joined), [axis], [0], [end])


@rule("relax.slice_scatter")
def _slice_scatter(v: Vjp) -> Gradients:
    axis = int(v.attrs.axis) % len(shape(v.x))
    begin, end, step = (int(a.value) for a in v.args[2:5])
    cut = op.strided_slice(v.dy, [axis], [begin], [end], [step])
    zeros = op.zeros(shape(v.args[1]), dtype(v.x))
    return [op.slice_scatter(v.dy, zeros, *v.args[2:5], axis), cut, None, None, None]


@rule("relax.nn.pad")
def _pad(v: Vjp) -> Gradients:
    """The middle of dy; what reflects, repeats or wraps comes back to the element it copied."""
    widths, mode = [int(w) for w in v.attrs.pad_width], v.attrs.pad_mode
    dims, grown, back = shape(v.x), list(shape(v.y)), v.dy
    for axis, size in enumerate(dims):
        before, after = widths[2 * axis : 2 * axis + 2]
        if (before, after) != (0, 0):
            back = _unpad(back, grown, axis, (before, after), size, mode)
            grown[axis] = size
    return [back]


def _unpad(
    dy: relax.Expr, dims: list[int], axis: int, pads: tuple[int, int], size: int, mode: str
) -> relax.Expr:
    """Transpose of padding `axis` from `size` to dims[axis] elements."""
    before, after = pads

    def cut(begin: int, end: int) -> relax.Expr:
        return op.strided_slice(dy, [axis], [begin], [end])

    def place(part: relax.Expr, begin: int, length: int) -> relax.Expr:
        grow = [0] * (2 * len(dims))
        grow[2 * axis : 2 * axis + 2] = [begin, size - begin - length]
        return op.nn.pad(part, grow, pad_value=0.0) if any(grow) else part

    inner = cut(before, before + size)
    left, right = cut(0, before), cut(before + size, before + size + after)
    if mode == "constant":
        return inner
    if mode == "reflect":  # the edge itself is not repeated
        left, right = op.flip(left, axis), op.flip(right, axis)
        starts = (1, before), (size - 1 - after, after)
    elif mode == "replicate":
        left = op.sum(left, axis=axis, keepdims=True)
        right = op.sum(right, axis=axis, keepdims=True)
        starts = (0, 1), (size - 1, 1)
    elif mode == "circular":
        starts = (size - before, before), (0, after)
    else:
        raise NoGradientError(f"has no gradient for pad mode '{mode}'")
    inner = inner + place(left, *starts[0]) if before else inner
    return inner + place(right, *starts[1]) if after else inner


@rule("relax.layout_transform")
def _layout_transform(v: Vjp) -> Gradients:
    ndim = len(shape(v.x))
    inverse = v.attrs.index_map.inverse(list(shape(v.x)))
    if inverse is None or ndim == 0:
        raise NoGradientError("has no gradient for an index map without an inverse")
    return [op.layout_transform(v.dy, inverse)]
