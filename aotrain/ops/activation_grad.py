"""Cotangent and input of an activation in, cotangent of the input out: one fused kernel each.

    gelu_grad(dy, x), gelu_tanh_grad(dy, x): float tensors of one shape → the same.

Both are cheaper to compute from x again than to keep anything but x.
"""

from __future__ import annotations

import math

from tvm import relax, te, tirx
from tvm.ir import Expr

from aotrain.ops.registry import define


def _elementwise(name: str, body: relax.Expr) -> relax.Call:
    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return bb.call_te(body, *call.args, primfunc_name_hint=name)

    return define(
        f"aotrain.{name}", inputs=2, infer=lambda call: call.args[1].ty, legalize=legalize
    )


def _gelu(dy: te.Tensor, x: te.Tensor) -> te.Tensor:
    """d x·Φ(x) = Φ(x) + x·φ(x), with the normal distribution's Φ and φ."""

    def number(value: float) -> Expr:
        return tirx.const(value, x.dtype)

    cdf = te.compute(
        x.shape,
        lambda *i: number(0.5) * (number(1.0) + tirx.erf(x(*i) * number(math.sqrt(0.5)))),
        name="cdf",
    )
    return te.compute(
        x.shape,
        lambda *i: (
            dy(*i)
            * (
                cdf(*i)
                + x(*i)
                * number(1 / math.sqrt(2 * math.pi))
                * tirx.exp(number(-0.5) * x(*i) * x(*i))
            )
        ),
        name="gelu_grad",
    )


def _gelu_tanh(dy: te.Tensor, x: te.Tensor) -> te.Tensor:
    """y = x/2·(1 + t), t = tanh(√(2/π)·(x + 0.044715·x³))."""
    scale, cube = math.sqrt(2 / math.pi), 0.044715

    def number(value: float) -> Expr:
        return tirx.const(value, x.dtype)

    t = te.compute(
        x.shape,
        lambda *i: tirx.tanh(number(scale) * x(*i) * (number(1.0) + number(cube) * x(*i) * x(*i))),
        name="tanh",
    )

    def dx(*i: Expr) -> Expr:
        slope = number(scale) * (number(1.0) + number(3 * cube) * x(*i) * x(*i))
        one, half = number(1.0), number(0.5)
        return dy(*i) * half * (one + t(*i) + x(*i) * (one - t(*i) * t(*i)) * slope)

    return te.compute(x.shape, dx, name="gelu_tanh_grad")


gelu_grad = _elementwise("gelu_grad", _gelu)
gelu_tanh_grad = _elementwise("gelu_tanh_grad", _gelu_tanh)
