"""Operator name in, its gradient rule out: the one table that every vector-Jacobian product is in.

    @rule("relax.exp")
    def _exp(v: Vjp) -> Gradients:
        return [v.dy * v.y]

A rule gets the call, what it is bound to and the cotangent of its result, and returns one
expression for every argument (None: no gradient). Expressions may nest; the driver binds only those
whose argument needs a gradient, so a rule need not ask, unless one fused operator computes several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm
from tvm import relax
from tvm.ir import Op

Gradient: TypeAlias = (
    relax.Expr | Sequence[relax.Expr | None] | None
)  # a sequence: of a Tuple argument
Gradients = Sequence[Gradient]
Rule = Callable[["Vjp"], Gradients]

RULES: dict[str, Rule] = {}
ZERO: set[str] = set()  # of those, the ones whose gradient is zero everywhere


class NoGradientError(Exception):
    """A rule's refusal: what it cannot differentiate, as the end of "<op> ... "."""

    def __init__(self, reason: str, code: str = "AOT-G002") -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True)
class Vjp:
    """One call `y = op(*args)` to differentiate.

    `cotangents[i]` is d value / d (i-th result); None where the value does not depend on it.
    `need[i]` tells whether the gradient of `args[i]` is asked for.
    """

    call: relax.Call
    y: relax.Var
    cotangents: tuple[relax.Expr | None, ...]
    need: tuple[bool, ...]

    @property
    def args(self) -> Sequence[Any]:
        """The call's arguments."""
        return self.call.args

    @property
    def x(self) -> Any:
        """The first argument."""
        return self.call.args[0]

    @property
    def attrs(self) -> Any:
        """The call's attributes."""
        return self.call.attrs

    @property
    def dy(self) -> Any:
        """The cotangent of the only (or the first) result, of y's shape and dtype."""
        return self.cotangent(0)

    def cotangent(self, index: int) -> Any:
        """The cotangent of result `index`, zeros where the value does not depend on it."""
        found = self.cotangents[index]
        if found is not None:
            return found
        ty = self.y.ty.fields[index] if isinstance(self.y.ty, tvm.ir.TupleType) else self.y.ty
        return relax.op.zeros(ty.shape, dtype(ty))


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the gradient of the operators `names`."""

    def register(function: Rule) -> Rule:
        for name in names:
            assert name not in RULES, f"two gradient rules for {name}"
            RULES[name] = function
        return function

    return register


def zero_gradient(*names: str) -> None:
    """Register operators whose derivative is zero, or does not exist, everywhere."""
    ZERO.update(names)
    rule(*names)(lambda v: [None] * len(v.args))


def find_rule(op: Op) -> Rule | None:
    """Our rule for `op`, else TVM's FPrimalGradient in our form, else None."""
    if op.name in RULES:
        return RULES[op.name]
    primal = op.get_attr("FPrimalGradient")
    if primal is None:
        return None

    def from_tvm(v: Vjp) -> Gradients:
        fields = [v.cotangent(i) for i in range(len(v.cotangents))]
        cotangent = relax.Tuple(fields) if isinstance(v.y.ty, tvm.ir.TupleType) else fields[0]
        builder = relax.BlockBuilder()
        with builder.function("scope", []):  # TVM's rules normalize, which needs an open block
            found = primal(v.y, v.call, cotangent, builder)
            builder.emit_func_output(relax.const(0))
        return [None if is_call(g, "relax.grad.no_grad") else g for g in found]

    return from_tvm


def is_call(expr: relax.Expr, name: str) -> bool:
    """Whether `expr` is a call of the operator `name`."""
    return isinstance(expr, relax.Call) and isinstance(expr.op, Op) and expr.op.name == name


def is_float(ty: Any) -> bool:
    """Whether a value of this type carries a gradient: float tensors, and Tuples with one."""
    if isinstance(ty, tvm.ir.TupleType):
        return any(is_float(f) for f in ty.fields)
    return isinstance(ty, relax.TensorType) and dtype(ty).startswith(("float", "bfloat"))


def dtype(of: Any) -> str:
    """The dtype of a tensor expression or tensor type, as a word ("float32")."""
    ty = of if isinstance(of, relax.TensorType) else of.ty
    return str(ty.dtype)


def shape(of: Any) -> tuple[int, ...]:
    """The static shape of a tensor expression or tensor type."""
    ty = of if isinstance(of, relax.TensorType) else of.ty
    return tuple(int(d) for d in ty.shape)


def const(value: float, like: Any) -> tvm.ir.GenericConst:
    """A scalar constant of the dtype of `like`."""
    return relax.const(value, dtype(like))


def times(expr: relax.Expr, factor: float, like: Any) -> relax.Expr:
    """`expr` times a number, computed here when `expr` is a constant scalar, as a seed is."""
    if isinstance(expr, tvm.ir.GenericConst) and expr.value.numpy().ndim == 0:
        return const(float(expr.value.numpy()) * factor, like)
    return expr * const(factor, like)


def normal_axes(axes: Any, ndim: int) -> list[int]:
    """Axes as non-negative numbers, ascending; None means all of them."""
    if axes is None:
        return list(range(ndim))
    if isinstance(axes, int | tvm.tirx.IntImm):
        axes = [axes]
    return sorted(int(a) % ndim for a in axes)


def unbroadcast(gradient: relax.Expr, source: Sequence[int], target: Any) -> relax.Expr:
    """Sum `gradient`, of shape `source`, over the axes along which `target` was broadcast."""
    wanted = shape(target)
    source = tuple(int(d) for d in source)
    if source == wanted:
        return gradient
    lead = len(source) - len(wanted)
    ones = [lead + i for i, d in enumerate(wanted) if d == 1 and source[lead + i] != 1]
    if not ones:
        return relax.op.sum(gradient, axis=list(range(lead)))
    summed = relax.op.sum(gradient, axis=list(range(lead)) + ones, keepdims=True)
    return relax.op.reshape(summed, wanted) if lead else summed
