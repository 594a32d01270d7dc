"""A model's output in, the logits behind it and the axis of their classes out.

A file exported for inference often ends in Softmax, and training needs what stands before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import relax

Values = Mapping[relax.Var, relax.Expr]  # variable -> what it is bound to

_SOFTMAX = ("relax.nn.softmax", "relax.nn.log_softmax")
_KEEP_FEATURES = (
    "relax.add", "relax.subtract", "relax.astype", "relax.mean", "relax.nn.avg_pool2d",
    "relax.nn.adaptive_avg_pool2d", "relax.squeeze", "relax.reshape", "relax.flatten",
)  # fmt: skip


@dataclass(frozen=True)
class Logits:
    """`value`, an argument of the activation `op` that ends the model, and its class axis."""

    value: relax.Expr
    op: str
    axis: int


def behind_softmax(values: Values, output: relax.Expr) -> Logits | None:
    """The argument of the (log-)softmax that makes `output`, also between two reshapes.

    Before opset 13, Softmax flattens to 2-D around its axis; that is the same as a softmax over one
    axis if all other flattened dimensions are 1.
    """
    call = _made_by(values, output)
    if _op(call) in _SOFTMAX:
        return Logits(call.args[0], _op(call), _softmax_axis(call))
    if _op(call) != "relax.reshape":
        return None
    call = _made_by(values, call.args[0])
    if _op(call) not in _SOFTMAX or _softmax_axis(call) != len(shape(call)) - 1:
        return None
    inner = _made_by(values, call.args[0])
    if _op(inner) != "relax.reshape" or shape(inner.args[0]) != shape(output):
        return None
    axis = _only_axis(shape(output), shape(call)[-1])
    return None if axis is None else Logits(inner.args[0], _op(call), axis)


def behind_sigmoid(values: Values, output: relax.Expr) -> Logits | None:
    """The argument of the sigmoid that makes `output`; its axis has no meaning."""
    call = _made_by(values, output)
    return Logits(call.args[0], _op(call), -1) if _op(call) == "relax.sigmoid" else None


def affine_axis(values: Values, output: relax.Expr) -> int | None:
    """The feature axis of `output` where a matrix product or convolution makes it, up to sums,
    averages and reshapes to [N, C]; None where anything else does, as an activation."""
    rank, seen = len(shape(output)), output
    while True:
        call = _made_by(values, seen)
        name = _op(call)
        if name == "relax.matmul":
            return 1 if rank == 2 else rank - 1
        if name.startswith("relax.nn.conv"):
            return 1 if rank >= 2 else None
        if name not in _KEEP_FEATURES:
            return None
        if name in ("relax.reshape", "relax.squeeze", "relax.flatten") and rank != 2:
            return None
        seen = _larger(values, call.args[:2] if name in _KEEP_FEATURES[:2] else call.args[:1])


def is_zeros(value: relax.Expr | None) -> bool:
    """Whether a gradient is the zeros of autodiff, where nothing leads to the value."""
    return value is not None and _op(value) == "relax.zeros"


def shape(expr: relax.Expr) -> tuple[int, ...]:
    """The static shape of a tensor expression."""
    return tuple(int(d) for d in expr.ty.shape)


def _larger(values: Values, args: list[relax.Expr]) -> relax.Expr:
    """The argument that the model computes; a bias is a parameter or a constant."""
    computed = [a for a in args if a in values] or args
    return max(computed, key=lambda a: math.prod(shape(a)))


def _made_by(values: Values, expr: relax.Expr) -> relax.Expr:
    while expr in values:
        expr = values[expr]
    return expr


def _op(expr: relax.Expr) -> str:
    is_call = isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op)
    return expr.op.name if is_call else ""


def _softmax_axis(call: relax.Call) -> int:
    return int(call.attrs.axis) % len(shape(call))


def _only_axis(dims: tuple[int, ...], flat: int) -> int | None:
    """The axis that holds all of the `flat` last elements of `dims`; None if there are several."""
    found = [i for i, d in enumerate(dims) if d == flat and math.prod(dims[i:]) == flat]
    return found[-1] if found else None
