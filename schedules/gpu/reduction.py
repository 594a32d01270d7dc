"""A stage that reduces in, one dispatch out: a group of threads a kept element.

    threads t of the group:   partial[t] = sum of x[t], x[t + 128], ...      in shared memory
    then a tree:              partial[t] += partial[t + 64], + 32, ..., + 1

Sums, products, minima, maxima. Where many elements are kept, or few are reduced, `serial.threads`
does better: a thread each.
"""

from __future__ import annotations

from math import prod

from tvm import tirx

from aotrain.schedules.cpu.group import Group
from aotrain.schedules.cpu.loops import decode, loop
from aotrain.schedules.cpu.nest import Stage, named, substitute
from aotrain.schedules.cpu.reduction import Reduction, match
from aotrain.schedules.gpu.dispatch import MAX_THREADS, Dispatch, barrier, dispatch

#: Steps a thread must have before a group shares a sum, and elements that keep a device busy.
MIN_STEPS, MANY = 2, 32_768


def write(part: Stage | Group) -> tuple[list[Dispatch], list[tirx.Buffer]] | None:
    """The dispatch for a long reduction of few elements."""
    found = match(part) if isinstance(part, Stage) else None
    if found is None:
        return None
    length = prod(a.extent for a in found.reduced)
    if length < MIN_STEPS * MAX_THREADS or found.points >= MANY:
        return None
    return [_dispatch(part.name, found, length)], []


def _dispatch(name: str, r: Reduction, length: int) -> Dispatch:
    dtype = str(r.target.dtype)
    partial = tirx.decl_buffer((MAX_THREADS,), dtype, "partial", scope="shared")

    def body(group: tirx.Expr, thread: tirx.Expr) -> list[tirx.Stmt]:
        kept = decode(group, [a.extent for a in r.spatial])
        names = named(r.spatial, kept)
        place = [substitute(i, names) for i in r.place]
        return [
            tirx.BufferStore(partial, r.identity, [thread]),
            _strided(r, names, partial, thread, length),
            *_tree(r, partial, thread),
            tirx.IfThenElse(
                thread < tirx.IntImm("int64", 1),
                tirx.BufferStore(r.target, partial[0], place),
                None,
            ),
        ]

    return dispatch(name, r.points, MAX_THREADS, body, [partial])


def _strided(
    r: Reduction,
    names: dict[tirx.Var, tirx.Expr],
    partial: tirx.Buffer,
    thread: tirx.Expr,
    length: int,
) -> tirx.Stmt:
    """A thread's own part, neighbours reading neighbours."""

    def step(i: tirx.Expr) -> list[tirx.Stmt]:
        flat = i * MAX_THREADS + thread
        at = decode(flat, [a.extent for a in r.reduced])
        values = names | named(r.reduced, at)
        add = tirx.BufferStore(partial, r.at(values, partial[thread]), [thread])
        if length % MAX_THREADS == 0:
            return [add]
        return [tirx.IfThenElse(flat < tirx.IntImm("int64", length), add, None)]

    return loop(-(-length // MAX_THREADS), step)


def _tree(r: Reduction, partial: tirx.Buffer, thread: tirx.Expr) -> list[tirx.Stmt]:
    statements: list[tirx.Stmt] = []
    half = MAX_THREADS // 2
    while half:
        both = r.combine(partial[thread], partial[thread + half])
        add = tirx.BufferStore(partial, both, [thread])
        statements += [barrier(), tirx.IfThenElse(thread < tirx.IntImm("int64", half), add, None)]
        half //= 2
    return statements
