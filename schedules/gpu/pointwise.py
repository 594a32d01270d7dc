"""A group of pointwise stages in, one dispatch out: a thread an element, in order."""

from __future__ import annotations

from math import prod

from tvm import tirx

from aotrain.schedules.cpu.group import Group
from aotrain.schedules.cpu.loops import decode
from aotrain.schedules.cpu.nest import Stage, sequence
from aotrain.schedules.gpu.dispatch import MAX_THREADS, Dispatch, dispatch


def write(part: Stage | Group) -> tuple[list[Dispatch], list[tirx.Buffer]] | None:
    """The dispatch for a group."""
    if not isinstance(part, Group):
        return None
    count = prod(part.extents)
    name = part.stages[-1].name

    def body(group: tirx.Expr, thread: tirx.Expr) -> list[tirx.Stmt]:
        flat = group * MAX_THREADS + thread
        point = sequence(part.at(decode(flat, part.extents)))
        return [guarded(flat, count, point)]

    return [dispatch(name, -(-count // MAX_THREADS), MAX_THREADS, body)], []


def guarded(flat: tirx.Expr, count: int, statement: tirx.Stmt) -> tirx.Stmt:
    """`statement` for the threads that have an element."""
    if count % MAX_THREADS == 0:
        return statement
    return tirx.IfThenElse(flat < tirx.IntImm("int64", count), statement, None)
