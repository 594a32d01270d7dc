"""ONNX reductions in, Relax calls out: Reduce*, ArgMax/ArgMin, CumSum, TopK."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.node import Converter, Node, normal_axis
from aotrain.importer.problems import Unsupported
from aotrain.ops.top_k import top_k

Reduce = Callable[[relax.Expr, "list[int]", bool], relax.Expr]


def _axes(n: Node) -> list[int] | None:
    """Axes to reduce; None where the node is an identity (noop_with_empty_axes)."""
    axes = n.ints("axes", 1)
    if not axes:
        return None if n.attr("noop_with_empty_axes", 0) else list(range(n.rank()))
    return sorted(normal_axis(a, n.rank()) for a in axes)


def _reduce(
    call: Reduce,
    before: Callable[[Node, relax.Expr], relax.Expr] | None = None,
    after: Callable[[Node, relax.Expr], relax.Expr] | None = None,
) -> Converter:
    """reduce(before(x)), then `after`; an empty set of axes leaves only these two."""

    def convert(n: Node) -> relax.Expr:
        axes, keep = _axes(n), bool(n.attr("keepdims", 1))
        x = n.x(0) if before is None else before(n, n.x(0))
        if axes:
            x = n.emit(call(x, axes, keep))
        return x if after is None else after(n, x)

    return convert


def _square(n: Node, x: relax.Expr) -> relax.Expr:
    return n.emit(R.multiply(x, x))


def _log(n: Node, x: relax.Expr) -> relax.Expr:
    return n.emit(R.log(x))


def _sqrt(n: Node, x: relax.Expr) -> relax.Expr:
    return n.emit(R.sqrt(x))


def _abs(n: Node, x: relax.Expr) -> relax.Expr:
    return n.emit(R.abs(x))


def _log_sum_exp(n: Node) -> relax.Expr:
    """m + log(sum(e^(x - m))) with m the maximum, 0 where that is infinite."""
    axes, keep = _axes(n), bool(n.attr("keepdims", 1))
    x = n.x(0)
    if not axes:
        return x
    top = n.emit(R.max(x, axes, True))
    top = n.emit(R.where(n.emit(R.isinf(top)), n.scalar(0), top))
    total = n.emit(R.sum(n.emit(R.exp(n.emit(R.subtract(x, top)))), axes, True))
    y = n.emit(R.add(n.emit(R.log(total)), top))
    return y if keep else n.emit(R.squeeze(y, axes))


def _mean(n: Node) -> relax.Expr:
    if n.is_float():
        return _reduce(R.mean)(n)
    count = int(np.prod([n.shape()[a] for a in _axes(n) or []]))
    return n.emit(R.divide(_reduce(R.sum)(n), n.scalar(count)))


def _as_bool(call: Reduce) -> Converter:
    """Opset 20 reduces bool too: through int8."""

    def convert(n: Node) -> relax.Expr:
        if n.dtype() != "bool":
            return _reduce(call)(n)
        axes = _axes(n)
        if not axes:
            return n.x(0)
        y = n.emit(call(n.emit(R.astype(n.x(0), "int8")), axes, bool(n.attr("keepdims", 1))))
        return n.emit(R.astype(y, "bool"))

    return convert


def _arg(n: Node) -> relax.Expr:
    """The first index of the extreme; the last with select_last_index, through a flip."""
    axis, keep = n.axis(0), bool(n.attr("keepdims", 1))
    call = R.argmax if n.op_type == "ArgMax" else R.argmin
    if not n.attr("select_last_index", 0):
        return n.emit(call(n.x(0), axis, keep))
    index = n.emit(call(n.emit(R.flip(n.x(0), axis)), axis, keep))
    return n.emit(R.subtract(n.scalar(n.shape()[axis] - 1, "int64"), index))


def _cumsum(n: Node) -> relax.Expr:
    axis = normal_axis(int(n.known(1, "axis").reshape(())), n.rank())
    x = n.x(0)
    if n.attr("reverse", 0):
        x = n.emit(R.flip(x, axis))
    y = n.emit(R.cumsum(x, axis, exclusive=bool(n.attr("exclusive", 0))))
    return n.emit(R.flip(y, axis)) if n.attr("reverse", 0) else y


def _cumprod(n: Node) -> relax.Expr:
    axis = normal_axis(int(n.known(1, "axis").reshape(())), n.rank())
    x = n.emit(R.flip(n.x(0), axis)) if n.attr("reverse", 0) else n.x(0)
    y = n.emit(R.cumprod(x, axis, exclusive=bool(n.attr("exclusive", 0))))
    return n.emit(R.flip(y, axis)) if n.attr("reverse", 0) else y


def _top_k(n: Node) -> tuple[relax.Expr, ...]:
    k = n.ints("k", 1)
    if not k:
        raise Unsupported("TopK without k")
    axis, dims = n.axis(-1), n.shape()
    if not 1 <= k[0] <= dims[axis]:
        raise Unsupported(f"TopK with k={k[0]} of {dims[axis]} elements")
    rows = (math.prod(dims[:axis]), dims[axis], math.prod(dims[axis + 1 :]))
    x = n.emit(R.reshape(n.x(0), rows))
    pair = n.emit(top_k(x, k=k[0], largest=bool(n.attr("largest", 1))))
    shape = (*dims[:axis], k[0], *dims[axis + 1 :])
    values, indices = (n.emit(relax.TupleGetItem(pair, i)) for i in range(2))
    return n.emit(R.reshape(values, shape)), n.emit(R.reshape(indices, shape))


TABLE: dict[str, Converter] = {
    "ReduceSum": _reduce(R.sum),
    "ReduceMean": _mean,
    "ReduceMax": _as_bool(R.max),
    "ReduceMin": _as_bool(R.min),
    "ReduceProd": _reduce(R.prod),
    "ReduceL1": _reduce(R.sum, before=_abs),
    "ReduceL2": _reduce(R.sum, before=_square, after=_sqrt),
    "ReduceSumSquare": _reduce(R.sum, before=_square),
    "ReduceLogSum": _reduce(R.sum, after=_log),
    "ReduceLogSumExp": _log_sum_exp,
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumSum": _cumsum,
    "CumProd": _cumprod,
    "TopK": _top_k,
}
