"""A block's body over int32 iterators in, the same over int64 ones out.

TE makes int32 iterators of Python numbers and mixes them with int64 shapes through casts, which
hide an index's form from every analysis. Only what occurs in indices is rewritten without casts.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm_ffi
from tvm import ir, tirx

_BINARY = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: tirx.floordiv,
    tirx.FloorMod: tirx.floormod,
    tirx.Min: tirx.min,
    tirx.Max: tirx.max,
}
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


def widen(node: tirx.Stmt, wide: Mapping[tirx.Var, tirx.Var]) -> tirx.Stmt:
    """`node` with its iterators replaced by `wide` ones (int32 variable -> int64 variable)."""

    def load(found: ir.TensorLoad) -> ir.TensorLoad:
        return (
            found.source[tuple(index(i, wide) for i in found.indices)] if found.indices else found
        )

    def store(found: tirx.BufferStore) -> tirx.BufferStore:
        place = [index(i, wide) for i in found.indices]
        return tirx.BufferStore(found.buffer, found.value, place)

    def comparison(found: tirx.Expr) -> tirx.Expr:
        sides = [_int64(side, wide) for side in (found.a, found.b)]
        return found if any(s is None for s in sides) else type(found)(*sides)

    def value(var: tirx.Var) -> tirx.Expr:
        return wide[var].astype(str(var.ty.dtype)) if var in wide else var

    callbacks = [(ir.TensorLoad, load), (tirx.BufferStore, store), (_COMPARISONS, comparison)]
    rewritten = tvm_ffi.structural_map(node, callbacks)
    return tvm_ffi.structural_map(rewritten, (tirx.Var, value))


def index(expr: tirx.Expr, wide: Mapping[tirx.Var, tirx.Var]) -> tirx.Expr:
    """`expr` as an int64 expression of the wide iterators, as far as it is index arithmetic."""
    result = _int64(expr, wide)
    return expr if result is None else result


def _int64(expr: tirx.Expr, wide: Mapping[tirx.Var, tirx.Var]) -> tirx.Expr | None:
    if isinstance(expr, tirx.IntImm):
        integer = str(expr.ty.dtype) in ("int32", "int64")
        return tirx.IntImm("int64", expr.value) if integer else None
    if isinstance(expr, tirx.Var):
        if expr in wide:
            return wide[expr]
        return expr if str(expr.ty.dtype) == "int64" else None
    if isinstance(expr, tirx.Cast):
        return _int64(expr.value, wide)
    combine = _BINARY.get(type(expr))
    if combine is None:
        return None
    a, b = _int64(expr.a, wide), _int64(expr.b, wide)
    return None if a is None or b is None else combine(a, b)
