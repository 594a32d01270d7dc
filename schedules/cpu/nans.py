"""Float maxima and minima in, the same by comparisons that let a NaN through out.

    max(x, 0)    ->   0 if x < 0 else x
    max(a, b)    ->   a if a > b else b if b >= a else a + b

TVM's are `a if a > b else b`, so that a ReLU makes 0 of a NaN and hides a broken run; ONNX and
PyTorch keep it. The first form costs nothing: it is an instruction with its operands in order.

Not handled: reductions, s = max(s, x), where it would cost three instructions for one.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm_ffi
from tvm import ir, tirx

from aotrain.schedules.cpu.nest import loads

_COMPARE = {tirx.Max: (tirx.LT, tirx.GT), tirx.Min: (tirx.GT, tirx.LT)}


def keep(statement: tirx.Stmt) -> tirx.Stmt:
    """`statement` with every float maximum and minimum in it replaced, but for reductions."""

    def store(found: tirx.BufferStore) -> tirx.BufferStore:
        if isinstance(found.value, (tirx.Max, tirx.Min)) and any(
            load.source.same_as(found.buffer) for load in loads(found.value)
        ):
            return found
        value = tvm_ffi.structural_map(found.value, ((tirx.Max, tirx.Min), _kept))
        return tirx.BufferStore(found.buffer, value, list(found.indices))

    def bind(found: tirx.Bind) -> tirx.Bind:
        value = tvm_ffi.structural_map(found.value, ((tirx.Max, tirx.Min), _kept))
        return tirx.Bind(found.var, value)

    return tvm_ffi.structural_map(statement, [(tirx.BufferStore, store), (tirx.Bind, bind)])


def _kept(found: tirx.Max | tirx.Min) -> tirx.Expr:
    if not str(found.ty.dtype).startswith(("float", "bfloat")):
        return found
    beyond, before = _COMPARE[type(found)]
    a, b = found.a, found.b
    if isinstance(a, tirx.FloatImm):
        a, b = b, a
    if isinstance(b, tirx.FloatImm):
        return _named(a, lambda x: tirx.Select(beyond(x, b), b, x))
    # TVM takes x != x for false.
    return _named(a, lambda x: _named(b, lambda y: _ordered(x, y, before)))


def _ordered(x: tirx.Expr, y: tirx.Expr, before: type) -> tirx.Expr:
    least = {tirx.GT: tirx.GE, tirx.LT: tirx.LE}[before]
    return tirx.Select(before(x, y), x, tirx.Select(least(y, x), y, x + y))


def _named(value: tirx.Expr, use: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """`use` of a value that it may mention more than once."""
    if isinstance(value, (tirx.Var, tirx.FloatImm, ir.TensorLoad)):
        return use(value)
    var = tirx.Var("m", str(value.ty.dtype))
    return tirx.Let(var, value, use(var))
