"""Rules of arithmetic on two broadcast tensors: z = f(a, b), dz has z's shape."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from aotrain.autodiff.vjp import Gradients, Vjp, const, rule, shape, unbroadcast, zero_gradient

op = relax.op

zero_gradient(
    *(f"relax.{name}" for name in ("equal", "not_equal", "less", "less_equal", "greater")),
    *("relax.greater_equal", "relax.isnan", "relax.isinf", "relax.isfinite"),
    *(f"relax.{kind}_{name}" for kind in ("bitwise", "logical") for name in ("and", "or", "xor")),
    *("relax.left_shift", "relax.right_shift"),
)


def _both(v: Vjp, da: relax.Expr, db: relax.Expr) -> Gradients:
    """Gradients of z's shape, summed back to the arguments' shapes."""
    a, b = v.args
    return [unbroadcast(da, shape(v.y), a), unbroadcast(db, shape(v.y), b)]


@rule("relax.add")
def _add(v: Vjp) -> Gradients:
    return _both(v, v.dy, v.dy)


@rule("relax.subtract")
def _subtract(v: Vjp) -> Gradients:
    return _both(v, v.dy, op.negative(v.dy))


@rule("relax.multiply")
def _multiply(v: Vjp) -> Gradients:
    a, b = v.args
    return _both(v, v.dy * b, v.dy * a)


@rule("relax.divide")
def _divide(v: Vjp) -> Gradients:
    da = v.dy / v.args[1]
    return _both(v, da, op.negative(da * v.y))


@rule("relax.power")
def _power(v: Vjp) -> Gradients:
    a, b = v.args
    zero, one = const(0.0, a), const(1.0, a)
    if isinstance(b, tvm.ir.GenericConst) and b.value.numpy().size == 1:
        slope = _power_slope(a, float(b.value.numpy().reshape(())))
        return [None if slope is None else unbroadcast(v.dy * slope, shape(v.y), a), None]
    # PyTorch: no slope where the exponent is 0; 0^b is flat in b
    da = op.where(op.equal(b, zero), zero, v.dy * b * op.power(a, b - one))
    db = op.where(op.equal(a, zero), zero, v.dy * v.y * op.log(a))
    return _both(v, da, db)


def _power_slope(a: relax.Expr, exponent: float) -> relax.Expr | None:
    """exponent·a^(exponent - 1), by multiplication where that is exact for any sign; None for 0."""
    if exponent == 0:
        return None
    if exponent in (1, 2, 3):
        return {1: const(1.0, a), 2: a + a, 3: const(3.0, a) * (a * a)}[int(exponent)]
    return const(exponent, a) * op.power(a, const(exponent - 1, a))


@rule("relax.maximum")
def _maximum(v: Vjp) -> Gradients:
    return _pick(v, op.greater, op.greater_equal)


@rule("relax.minimum")
def _minimum(v: Vjp) -> Gradients:
    return _pick(v, op.less, op.less_equal)


Compare = Callable[[relax.Expr, relax.Expr], relax.Expr]


def _pick(v: Vjp, wins: Compare, wins_or_ties: Compare) -> Gradients:
    """The winner takes dz; at a tie each gets half, as PyTorch's maximum and minimum.

    Beside a constant it is a bound: all of dz passes at the bound itself, as PyTorch's clamp.
    """
    a, b = v.args
    half, zero = v.dy * const(0.5, v.y), const(0.0, v.y)
    if any(isinstance(x, tvm.ir.GenericConst) for x in v.args):
        sides = [op.where(wins_or_ties(*pair), v.dy, zero) for pair in ((a, b), (b, a))]
    else:
        tie = op.equal(a, b)
        sides = [op.where(tie, half, op.where(wins(*p), v.dy, zero)) for p in ((a, b), (b, a))]
    return _both(v, *sides)


@rule("relax.mod")
def _mod(v: Vjp) -> Gradients:
    a, b = v.args  # z = a - b·trunc(a / b)
    return _both(v, v.dy, op.negative(v.dy * op.trunc(a / b)))


@rule("relax.floor_mod")
def _floor_mod(v: Vjp) -> Gradients:
    a, b = v.args  # z = a - b·floor(a / b)
    return _both(v, v.dy, op.negative(v.dy * op.floor(a / b)))


@rule("relax.atan2")
def _atan2(v: Vjp) -> Gradients:
    a, b = v.args
    square = a * a + b * b
    return _both(v, v.dy * b / square, op.negative(v.dy * a / square))


@rule("relax.log_add_exp")
def _log_add_exp(v: Vjp) -> Gradients:
    a, b = v.args
    return _both(v, v.dy * op.exp(a - v.y), v.dy * op.exp(b - v.y))


@rule("relax.where")
def _where(v: Vjp) -> Gradients:
    condition, a, b = v.args
    zero, dims = const(0.0, v.y), shape(v.y)
    da, db = op.where(condition, v.dy, zero), op.where(condition, zero, v.dy)
    return [None, unbroadcast(da, dims, a), unbroadcast(db, dims, b)]
