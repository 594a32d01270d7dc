"""Any stage in, a dispatch that is always right out.

threads: one thread an independent element, its reduction in order. single: one thread for all.
"""

from __future__ import annotations

from math import prod

from tvm import tirx

from aotrain.schedules.cpu.fallback import fresh
from aotrain.schedules.cpu.group import Group
from aotrain.schedules.cpu.loops import decode
from aotrain.schedules.cpu.loops import nest as loops
from aotrain.schedules.cpu.nest import Axis, Stage, named, sequence, stores, variables
from aotrain.schedules.gpu.dispatch import MAX_THREADS, Dispatch, dispatch
from aotrain.schedules.gpu.pointwise import guarded

Written = tuple[list[Dispatch], list[tirx.Buffer]]


def threads(part: Stage | Group) -> Written | None:
    """A stage with axes: those that choose what is written are spread over threads."""
    if not isinstance(part, Stage) or part.axes is None:
        return None
    wide = [a for a in part.spatial if _chooses(a, part)]
    rest = [a for a in part.axes if a not in wide]
    extents = [a.extent for a in wide]
    count = prod(extents)

    def body(group: tirx.Expr, thread: tirx.Expr) -> list[tirx.Stmt]:
        flat = group * MAX_THREADS + thread
        names = named(wide, decode(flat, extents))
        return [guarded(flat, count, sequence(_ordered(part, rest, names)))]

    return [dispatch(part.name, -(-count // MAX_THREADS), MAX_THREADS, body)], []


def _ordered(stage: Stage, rest: list[Axis], names: dict[tirx.Var, tirx.Expr]) -> list[tirx.Stmt]:
    """The loops over `rest`, kept axes outside reduced ones."""
    kept = [a for a in rest if not a.reduce]
    reduced = [a for a in rest if a.reduce]

    def point(index: list[tirx.Expr]) -> list[tirx.Stmt]:
        here = names | named(kept, index)
        parts = [] if stage.init is None else [fresh(stage.init, here)]
        extents = [a.extent for a in reduced]
        return [*parts, loops(extents, lambda at: [fresh(stage.body, here | named(reduced, at))])]

    return [loops([a.extent for a in kept], point)]


def _chooses(axis: Axis, stage: Stage) -> bool:
    """Whether two points that differ along `axis` write different elements."""
    places = [list(store.indices) for store in stores(stage.body)]
    return axis.extent == 1 or all(axis.var in variables(place) for place in places)


def single(part: Stage | Group) -> Written:
    """An opaque stage, as it stands."""
    assert isinstance(part, Stage)
    return [alone(part.name, part.loops)], []


def alone(name: str, statement: tirx.Stmt) -> Dispatch:
    """`statement` in a single thread."""
    return dispatch(name, 1, 1, lambda group, thread: [statement])
