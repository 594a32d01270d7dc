"""Any stage in, a correct loop nest out: rows in parallel where they are independent and many."""

from __future__ import annotations

from math import prod

from tvm import tirx

from aotrain.schedules.cpu.loops import decode, loop, nest, parallel, parallel_prefix
from aotrain.schedules.cpu.nest import (
    Axis,
    Stage,
    named,
    sequence,
    shifted,
    statements,
    stores,
    substitute,
    variables,
)


def emit(stage: Stage) -> tirx.Stmt:
    """Scalar loops over the spatial axes, then the reduced ones; an opaque stage as it stands."""
    if stage.axes is None:
        return stage.loops
    spatial, reduced = stage.spatial, stage.reduced
    prefix = _independent(stage, spatial)
    head, tail = spatial[:prefix], spatial[prefix:]

    def point(index: list[tirx.Expr]) -> list[tirx.Stmt]:
        names = named(spatial, index)
        parts = [] if stage.init is None else [fresh(stage.init, names)]
        inner = nest(
            [a.extent for a in reduced],
            lambda at: [fresh(stage.body, names | named(reduced, at))],
        )
        return [*parts, inner]

    def task(flat: tirx.Expr) -> list[tirx.Stmt]:
        index = decode(flat, [a.extent for a in head])
        return [nest([a.extent for a in tail], lambda at: point([*index, *at]))]

    count = prod(a.extent for a in head)
    return parallel(count, task) if count > 1 else loop(1, task)


def fresh(body: tirx.Stmt, names: dict[tirx.Var, tirx.Expr]) -> tirx.Stmt:
    """`body` with its axes replaced and bindings of its own, so that it may be emitted twice."""
    known = dict(names)
    result: list[tirx.Stmt] = []
    for statement in statements(body):
        if isinstance(statement, tirx.Bind):
            var = tirx.Var(statement.var.name, str(statement.value.ty.dtype))
            result.append(tirx.Bind(var, substitute(statement.value, known)))
            known[statement.var] = var
        else:
            result.append(substitute(statement, known))
    return sequence(result)


def _independent(stage: Stage, spatial: tuple[Axis, ...]) -> int:
    """How many leading axes may run in parallel: each must choose what is written."""
    work = prod(a.extent for a in stage.axes or ())
    prefix = parallel_prefix([a.extent for a in spatial], work)
    alone = shifted(stage.body)
    free = [a.var not in alone for a in spatial]
    prefix = min(prefix, max(1, free.index(False)) if False in free else prefix)
    for position, axis in enumerate(spatial[:prefix]):
        for store in stores(stage.body):
            if axis.extent > 1 and axis.var not in variables(list(store.indices)):
                return position
    return prefix
