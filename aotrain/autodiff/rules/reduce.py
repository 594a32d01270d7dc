"""Rules of reductions: x [...] → y without (or with size-1) `axis`."""

from __future__ import annotations

import math

from tvm import relax

from aotrain.autodiff.vjp import (
    Gradients,
    Vjp,
    const,
    normal_axes,
    rule,
    shape,
    times,
    zero_gradient,
)

op = relax.op

zero_gradient("relax.argmax", "relax.argmin", "relax.argsort")


def _axes(v: Vjp) -> list[int]:
    return normal_axes(v.attrs.axis, len(shape(v.x)))


def _kept(v: Vjp, value: relax.Expr) -> relax.Expr:
    """`value`, of y's shape, with the reduced axes back as size 1."""
    axes = _axes(v)
    if v.attrs.keepdims or not axes or len(axes) == len(shape(v.x)):
        return value  # a scalar broadcasts as it is
    return op.reshape(value, [1 if i in axes else d for i, d in enumerate(shape(v.x))])


def _count(v: Vjp) -> int:
    return math.prod(shape(v.x)[a] for a in _axes(v))


@rule("relax.sum")
def _sum(v: Vjp) -> Gradients:
    return [op.broadcast_to(_kept(v, v.dy), shape(v.x))]


@rule("relax.mean")
def _mean(v: Vjp) -> Gradients:
    scaled = times(v.dy, 1.0 / _count(v), v.y)
    return [op.broadcast_to(_kept(v, scaled), shape(v.x))]


def _centred(v: Vjp) -> relax.Expr:
    return v.x - op.mean(v.x, axis=_axes(v), keepdims=True)


@rule("relax.variance")
def _variance(v: Vjp) -> Gradients:
    return [_centred(v) * _kept(v, times(v.dy, 2.0 / _count(v), v.y))]


@rule("relax.std")
def _std(v: Vjp) -> Gradients:
    scaled = v.dy * const(1.0 / _count(v), v.y) / v.y
    scaled = op.where(op.equal(v.y, const(0.0, v.y)), const(0.0, v.y), scaled)
    return [_centred(v) * _kept(v, scaled)]


@rule("relax.max", "relax.min")
def _extremum(v: Vjp) -> Gradients:
    """Ties share dy in equal parts, as PyTorch's amax and amin."""
    hit = op.astype(op.equal(v.x, _kept(v, v.y)), str(v.y.ty.dtype))
    shared = _kept(v, v.dy) / op.sum(hit, axis=_axes(v), keepdims=True)
    return [hit * shared]


@rule("relax.prod")
def _prod(v: Vjp) -> Gradients:
    """The product of all others, without division (elements may be 0): two exclusive scans."""
    axes, dims = _axes(v), shape(v.x)
    order = [i for i in range(len(dims)) if i not in axes] + axes
    rows = math.prod(d for i, d in enumerate(dims) if i not in axes)
    flat = op.reshape(op.permute_dims(v.x, order), (rows, _count(v)))
    before = op.cumprod(flat, axis=1, exclusive=True)
    after = op.flip(op.cumprod(op.flip(flat, 1), axis=1, exclusive=True), 1)
    others = op.reshape(before * after, [dims[i] for i in order])
    inverse = [order.index(i) for i in range(len(dims))]
    return [op.permute_dims(others, inverse) * _kept(v, v.dy)]


def _scan_axis(v: Vjp) -> int | None:
    return None if v.attrs.axis is None else int(v.attrs.axis) % len(shape(v.x))


@rule("relax.cumsum")
def _cumsum(v: Vjp) -> Gradients:
    axis = _scan_axis(v)
    along = 0 if axis is None else axis
    back = op.cumsum(op.flip(v.dy, along), axis=along, exclusive=bool(v.attrs.exclusive))
    return [op.reshape(op.flip(back, along), shape(v.x))]


@rule("relax.cumprod")
def _cumprod(v: Vjp) -> Gradients:
    """dx[i] = Σ_j dy[j] · Π of the others up to j, with a Jacobian [.., n, n]: exact at zeros."""
    axis, dims = _scan_axis(v), shape(v.x)
    x = v.x if axis is not None else op.reshape(v.x, (math.prod(dims),))
    axis, dims = (axis, dims) if axis is not None else (0, (math.prod(dims),))
    n, last = dims[axis], len(dims) - 1
    order = [i for i in range(len(dims)) if i != axis] + [axis]
    inverse = [order.index(i) for i in range(len(dims))]
    lead = [dims[i] for i in order[:-1]]
    rows = op.broadcast_to(
        op.expand_dims(op.permute_dims(x, order), last), [*lead, n, n]
    )  # [.., i, j] = x[j]
    eye = op.eye(n, dtype=str(v.x.ty.dtype))
    one = const(1.0, v.x)
    without = op.where(op.astype(eye, "bool"), one, rows)  # x[i] replaced by 1
    scans = op.cumprod(without, axis=last + 1, exclusive=bool(v.attrs.exclusive))
    jacobian = op.triu(scans, 1 if v.attrs.exclusive else 0)  # y[j] depends on x[i], i <= j
    dy = op.expand_dims(op.permute_dims(v.dy, order), last)  # [.., 1, j]
    dx = op.sum(jacobian * dy, axis=last + 1)
    return [op.reshape(op.permute_dims(dx, inverse), shape(v.x))]
