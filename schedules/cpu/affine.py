"""Buffer accesses in, their strides along loop axes and the axes that can be merged out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TypeAlias

from tvm import ir, sym, tirx

from aotrain.schedules.cpu.nest import Axis

Access: TypeAlias = ir.TensorLoad | tirx.BufferStore


def buffer_of(access: Access) -> tirx.Buffer:
    """The buffer that is loaded or stored."""
    return access.buffer if isinstance(access, tirx.BufferStore) else access.source


def offset(access: Access) -> tirx.Expr:
    """The row-major element offset of an access."""
    shape = [int(n) for n in buffer_of(access).shape]
    result: tirx.Expr = tirx.IntImm("int64", 0)
    for position, index in enumerate(access.indices):
        stride = prod(shape[position + 1 :])
        result = result + index.astype("int64") * tirx.IntImm("int64", stride)
    return result


def strides(access: Access, axes: Sequence[Axis]) -> list[int] | None:
    """Elements between neighbours along each axis; None where the access is not affine."""
    variables = [a.var for a in axes]
    found = sym.detect_linear_equation(sym.Analyzer().simplify(offset(access)), variables)
    if not found:
        return None
    coefficients = found[: len(axes)]
    if not all(isinstance(c, tirx.IntImm) for c in coefficients):
        return None
    return [int(c) for c in coefficients]


def merge(
    axes: Sequence[Axis], accesses: Iterable[Access], alone: Iterable[tirx.Var] = ()
) -> list[list[Axis]]:
    """Group neighbouring axes that every access walks as one; axes of `alone` stay single.

    An axis of extent 1 joins its neighbour. An access that is not affine keeps all axes single.
    """
    table = [strides(access, axes) for access in accesses]
    fixed = set(alone)
    groups: list[list[Axis]] = []
    for position, axis in enumerate(axes):
        single = not groups or {axis.var, axes[position - 1].var} & fixed
        if not single and _joins(axes, position, table):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _joins(axes: Sequence[Axis], position: int, table: Sequence[list[int] | None]) -> bool:
    outer, inner = axes[position - 1], axes[position]
    if outer.reduce != inner.reduce:
        return False
    if outer.extent == 1 or inner.extent == 1:
        return outer.extent == 1
    return all(
        row is not None and row[position - 1] == row[position] * inner.extent for row in table
    )
