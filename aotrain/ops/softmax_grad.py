"""Cotangent and result of a softmax in, cotangent of its input out: one row kernel each.

    softmax_grad(dy, y; axis)      dx = y·(dy - Σ dy·y)
    log_softmax_grad(dy, y; axis)  dx = dy - exp(y)·Σ dy

dy, y: float tensors of one shape; sums run along `axis`. x is not needed.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, te, tirx
from tvm.ir import Expr

from aotrain.ops.registry import define

Index = tuple[Expr, ...]


def _row_kernel(
    name: str,
    term: Callable[[Expr, Expr], Expr],
    combine: Callable[[Expr, Expr, Expr], Expr],
) -> Callable[..., relax.Call]:
    """dx = combine(dy, y, Σ term(dy, y))."""

    def body(dy: te.Tensor, y: te.Tensor, axis: int) -> te.Tensor:
        k = te.reduce_axis((0, y.shape[axis]), name="k")
        rows = [d for i, d in enumerate(y.shape) if i != axis]

        def at(i: Index) -> Index:
            return (*i[:axis], k, *i[axis:])

        total = te.compute(
            rows, lambda *i: te.sum(term(dy(*at(i)), y(*at(i))), axis=k), name="row_sum"
        )
        return te.compute(
            y.shape,
            lambda *i: combine(dy(*i), y(*i), total(*i[:axis], *i[axis + 1 :])),
            name=name,
        )

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        axis = int(call.attrs["axis"]) % call.args[1].ty.ndim
        return bb.call_te(body, *call.args, axis, primfunc_name_hint=name)

    return define(
        f"aotrain.{name}", inputs=2, infer=lambda call: call.args[1].ty, legalize=legalize
    )


softmax_grad = _row_kernel(
    "softmax_grad", lambda dy, y: dy * y, lambda dy, y, total: y * (dy - total)
)
log_softmax_grad = _row_kernel(
    "log_softmax_grad", lambda dy, y: dy, lambda dy, y, total: dy - tirx.exp(y) * total
)
