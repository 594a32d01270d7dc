"""Rules of functions of one tensor, element by element. y and dy have x's shape and dtype."""

from __future__ import annotations

import tvm
from tvm import relax

from aotrain.autodiff.vjp import (
    Gradients,
    Vjp,
    const,
    dtype,
    rule,
    zero_gradient,
)

op = relax.op

zero_gradient("relax.floor", "relax.ceil", "relax.round", "relax.trunc", "relax.sign")
zero_gradient("relax.arange", "relax.eye", "relax.eye_like", "relax.full", "relax.hamming_window")
zero_gradient("relax.ones", "relax.zeros", "relax.bitwise_not", "relax.logical_not")
zero_gradient("relax.floor_divide", "relax.zeros_like", "relax.ones_like", "relax.full_like")


def one(v: Vjp) -> tvm.ir.GenericConst:
    """1 of x's dtype."""
    return const(1.0, v.y)


@rule("relax.negative")
def _negative(v: Vjp) -> Gradients:
    return [op.negative(v.dy)]


@rule("relax.abs")
def _abs(v: Vjp) -> Gradients:
    return [v.dy * op.sign(v.x)]  # 0 at 0, as PyTorch


@rule("relax.square")
def _square(v: Vjp) -> Gradients:
    return [v.dy * (v.x + v.x)]


@rule("relax.exp")
def _exp(v: Vjp) -> Gradients:
    return [v.dy * v.y]


@rule("relax.log")
def _log(v: Vjp) -> Gradients:
    return [v.dy / v.x]


@rule("relax.sqrt")
def _sqrt(v: Vjp) -> Gradients:
    return [v.dy * const(0.5, v.y) / v.y]


@rule("relax.rsqrt")
def _rsqrt(v: Vjp) -> Gradients:
    return [v.dy * const(-0.5, v.y) * v.y * v.y * v.y]


@rule("relax.erf")
def _erf(v: Vjp) -> Gradients:
    return [v.dy * const(1.1283791670955126, v.y) * op.exp(op.negative(v.x * v.x))]  # 2/√π


@rule("relax.sigmoid")
def _sigmoid(v: Vjp) -> Gradients:
    return [v.dy * v.y * (one(v) - v.y)]


@rule("relax.tanh")
def _tanh(v: Vjp) -> Gradients:
    return [v.dy * (one(v) - v.y * v.y)]


@rule("relax.sin")
def _sin(v: Vjp) -> Gradients:
    return [v.dy * op.cos(v.x)]


@rule("relax.cos")
def _cos(v: Vjp) -> Gradients:
    return [op.negative(v.dy * op.sin(v.x))]


@rule("relax.tan")
def _tan(v: Vjp) -> Gradients:
    return [v.dy * (one(v) + v.y * v.y)]


@rule("relax.sinh")
def _sinh(v: Vjp) -> Gradients:
    return [v.dy * op.cosh(v.x)]


@rule("relax.cosh")
def _cosh(v: Vjp) -> Gradients:
    return [v.dy * op.sinh(v.x)]


@rule("relax.asin")
def _asin(v: Vjp) -> Gradients:
    return [v.dy / op.sqrt(one(v) - v.x * v.x)]


@rule("relax.acos")
def _acos(v: Vjp) -> Gradients:
    return [op.negative(v.dy) / op.sqrt(one(v) - v.x * v.x)]


@rule("relax.atan")
def _atan(v: Vjp) -> Gradients:
    return [v.dy / (one(v) + v.x * v.x)]


@rule("relax.asinh")
def _asinh(v: Vjp) -> Gradients:
    return [v.dy / op.sqrt(one(v) + v.x * v.x)]


@rule("relax.acosh")
def _acosh(v: Vjp) -> Gradients:
    return [v.dy / op.sqrt(v.x * v.x - one(v))]


@rule("relax.atanh")
def _atanh(v: Vjp) -> Gradients:
    return [v.dy / (one(v) - v.x * v.x)]


@rule("relax.clip")
def _clip(v: Vjp) -> Gradients:
    low, high = (const(float(bound.value), v.x) for bound in v.args[1:])
    inside = op.logical_and(op.greater_equal(v.x, low), op.less_equal(v.x, high))
    return [op.where(inside, v.dy, const(0.0, v.x)), None, None]  # passes at both ends, as PyTorch


@rule("relax.astype")
def _astype(v: Vjp) -> Gradients:
    return [op.astype(v.dy, dtype(v.x))]
