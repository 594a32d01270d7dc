"""Extents and body makers in, TIR loops out: the few loop shapes that all rules share.

A body maker takes index expressions and returns statements; it is called once per version of the
code (full vectors, remainder), so that every version binds variables of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from tvm import tirx

from aotrain.schedules.cpu.nest import sequence

Body: TypeAlias = Callable[[tirx.Expr], Sequence[tirx.Stmt]]

NestBody: TypeAlias = Callable[[list[tirx.Expr]], Sequence[tirx.Stmt]]

#: Below this many scalar operations a parallel launch costs more than it saves.
PARALLEL_WORK = 20_000
#: A parallel loop wants this many tasks: enough for any small machine's threads to share evenly.
TASKS = 16


def i64(value: int) -> tirx.IntImm:
    """An index constant."""
    return tirx.IntImm("int64", value)


def loop(
    extent: int | tirx.Expr, body: Body, kind: tirx.ForKind = tirx.ForKind.SERIAL, name: str = "i"
) -> tirx.Stmt:
    """`for name in extent: body`; a loop of one iteration is its body."""
    if isinstance(extent, int):
        if extent == 1:
            return sequence(body(i64(0)))
        extent = i64(extent)
    var = tirx.Var(name, "int64")
    return tirx.For(var, i64(0), extent, kind, sequence(body(var)))


def parallel(extent: int, body: Body) -> tirx.Stmt:
    """A loop shared among threads."""
    return loop(extent, body, tirx.ForKind.PARALLEL, "task")


def unrolled(extent: int, body: Body) -> list[tirx.Stmt]:
    """The body's statements, repeated with constant indices."""
    return [statement for i in range(extent) for statement in body(i64(i))]


def nest(extents: Sequence[int], body: NestBody) -> tirx.Stmt:
    """Nested serial loops."""

    def level(index: list[tirx.Expr], rest: Sequence[int]) -> list[tirx.Stmt]:
        if not rest:
            return list(body(index))
        return [loop(rest[0], lambda i: level([*index, i], rest[1:]))]

    return sequence(level([], extents))


def vector(lanes: int, body: Body) -> tirx.Stmt:
    """`lanes` iterations at once."""
    return loop(lanes, body, tirx.ForKind.VECTORIZED, "lane")


def vectors(extent: int, lanes: int, body: Body, start: tirx.Expr | int = 0) -> list[tirx.Stmt]:
    """body(i) for start <= i < start + extent, `lanes` at once, and the remainder as one vector."""
    full, rest = divmod(extent, lanes)
    parts = []
    if lanes == 1:
        return [loop(extent, lambda i: body(start + i))]
    if full:
        parts.append(loop(full, lambda v: [vector(lanes, lambda n: body(start + v * lanes + n))]))
    if rest:
        parts.append(vector(rest, lambda n: body(start + i64(full * lanes) + n)))
    return parts


def decode(flat: tirx.Expr, extents: Sequence[int]) -> list[tirx.Expr]:
    """Row-major index of `flat` in a box of `extents`."""
    index: list[tirx.Expr] = []
    for position, extent in enumerate(extents):
        inner = prod(extents[position + 1 :])
        if extent == 1:
            index.append(i64(0))
            continue
        outer = tirx.floordiv(flat, i64(inner)) if inner > 1 else flat
        index.append(outer if prod(extents[:position]) == 1 else tirx.floormod(outer, i64(extent)))
    return index


def decode_cancelling(flat: tirx.Expr, extents: Sequence[int]) -> list[tirx.Expr]:
    """As `decode`, by differences of quotients instead of remainders.

    In the offset of an element they cancel to `flat`, whatever sum `flat` is, so that a loop over
    merged axes divides nothing. Only for parameters: TVM's CompactBufferAllocation divides by zero
    in such indices of a buffer that the function allocates.
    """
    index: list[tirx.Expr] = []
    outer: tirx.Expr = i64(0)  # flat // (extent of this position and of all after it)
    for position, extent in enumerate(extents):
        inner = prod(extents[position + 1 :])
        quotient = flat if inner == 1 else tirx.floordiv(flat, i64(inner))
        first = prod(extents[:position]) == 1
        index.append(i64(0) if extent == 1 else quotient - (0 if first else outer * i64(extent)))
        outer = quotient
    return index


def parallel_prefix(extents: Sequence[int], work: int) -> int:
    """How many leading loops to fuse into the parallel one: 0 where `work` is small."""
    if work < PARALLEL_WORK:
        return 0
    for count in range(len(extents) + 1):
        if prod(extents[:count]) >= TASKS:
            return count
    return len(extents)


def parallel_nest(
    extents: Sequence[int],
    work: int,
    body: NestBody,
    most: int | None = None,
) -> tirx.Stmt:
    """Nested loops, the leading ones in parallel where `work` operations are enough.

    most: how many may be fused. TVM 0.27's FlattenBuffer is wrong about (t % a + c) // b beside
    other parts of the same t, so `nest.shifted` axes need loops of their own.
    """
    prefix = min(parallel_prefix(extents, work), len(extents) if most is None else max(most, 1))
    head, tail = extents[:prefix], extents[prefix:]
    if prod(head) == 1:
        return nest(extents, body)

    def task(flat: tirx.Expr) -> list[tirx.Stmt]:
        return [nest(tail, lambda index: body([*decode(flat, head), *index]))]

    return parallel(prod(head), task)
