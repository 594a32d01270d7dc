"""A group that only moves float32 elements across the innermost axis in, blocked transposes out.

    for i, j: y[i, j] = x[j, i]    ->    for blocks of 16 x 16: load rows, exchange, store rows

Other copies, and sizes that are no multiple of a vector, are left to the pointwise rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import ir, tirx

from aotrain.schedules.cpu.group import Group
from aotrain.schedules.cpu.isa import Isa
from aotrain.schedules.cpu.loops import i64, parallel_nest
from aotrain.schedules.cpu.nest import Axis, named, substitute, variables
from aotrain.schedules.cpu.transpose import network

#: Elements from which blocks pay.
MIN_ELEMENTS = 4096


@dataclass(frozen=True)
class Transposition:
    """store[.., j] = load[.., i] for all axes; i and j are at multiples of a vector."""

    load: ir.TensorLoad
    store: tirx.BufferStore
    axes: tuple[Axis, ...]
    i: Axis
    j: Axis


def match(group: Group, isa: Isa) -> Transposition | None:
    """The transposition that `group` is, or None."""
    if len(group.stages) != 1 or isa.lanes < 4:
        return None
    store = group.stages[0].store
    if store is None or not isinstance(store.value, ir.TensorLoad) or not store.indices:
        return None
    load = store.value
    if str(store.buffer.dtype) != "float32" or not load.indices:
        return None
    axes = {a.var: a for a in group.axes}
    i, j = axes.get(load.indices[-1]), axes.get(store.indices[-1])
    if i is None or j is None or i is j:
        return None
    elsewhere = variables(list(load.indices[:-1]))
    blocked = i.extent % isa.lanes == 0 and j.extent % isa.lanes == 0
    if i.var in elsewhere or not blocked or prod(group.extents) < MIN_ELEMENTS:
        return None
    return Transposition(load, store, group.axes, i, j)


def emit(t: Transposition, isa: Isa) -> tirx.Stmt:
    """Loops over blocks of vectors."""
    n = isa.lanes
    others = [a for a in t.axes if a not in (t.i, t.j)]
    grid = [*(a.extent for a in others), t.i.extent // n, t.j.extent // n]

    def block(index: list[tirx.Expr]) -> list[tirx.Stmt]:
        *outer, row, column = index
        names = named(others, outer)
        rows, bindings = [], []
        for lane in range(n):
            at = names | {t.i.var: row * n, t.j.var: column * n + i64(lane)}
            value = t.load.source[_vector_at(t.load.indices, at, n)]
            var = tirx.Var("r", value.ty)
            bindings.append(tirx.Bind(var, value))
            rows.append(var)
        shuffles, columns = network(rows)
        stores = []
        for lane, value in enumerate(columns):
            at = names | {t.i.var: row * n + i64(lane), t.j.var: column * n}
            place = list(_vector_at(t.store.indices, at, n))
            stores.append(tirx.BufferStore(t.store.buffer, value, place))
        return [*bindings, *shuffles, *stores]

    return parallel_nest(grid, prod(a.extent for a in t.axes), block)


def _vector_at(
    indices: list[tirx.Expr], at: dict[tirx.Var, tirx.Expr], lanes: int
) -> tuple[tirx.Expr, ...]:
    """The indices at a point, with `lanes` neighbours along the last."""
    *outer, last = (substitute(i, at) for i in indices)
    return (*outer, tirx.Ramp(last, i64(1), lanes))
