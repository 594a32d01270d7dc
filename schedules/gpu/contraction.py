"""A stage that sums products in, one dispatch a contraction out: tiles in shared and local memory.

    a group: 32 rows x 64 lanes of the target, depth in steps of 16 through shared memory
    a thread: 4 x 4 of them in registers

Matrix products and convolutions alike: a step's operands are gathered at whatever address their
expressions say (an implicit matrix), so that padding and strides cost nothing but the gathering.
Small problems are left to `serial.threads`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

from tvm import tirx

from aotrain.schedules.cpu.contraction import Contraction, match
from aotrain.schedules.cpu.group import Group
from aotrain.schedules.cpu.loops import decode, i64, loop
from aotrain.schedules.cpu.nest import Axis, Stage, extents, named, substitute
from aotrain.schedules.gpu.dispatch import MAX_THREADS, Dispatch, barrier, dispatch

ROWS, LANES, DEPTH = 32, 64, 16  # of a group's tile
OWN = 4  # rows and lanes of a thread's
ACROSS = LANES // OWN  # threads along lanes
MIN_ROWS, MIN_LANES, MIN_DEPTH = 8, 16, 8


def write(part: Stage | Group) -> tuple[list[Dispatch], list[tirx.Buffer]] | None:
    """The dispatches for sums of products that fill tiles."""
    found = match(part) if isinstance(part, Stage) else None
    if found is None:
        return None
    wide = [c if _count(c.lanes) >= _count(c.rows) else c.swapped() for c in found]
    if not all(_fills(c) for c in wide):
        return None
    return [_dispatch(c) for c in wide], []


def _fills(c: Contraction) -> bool:
    sizes = (_count(c.rows), _count(c.lanes), _count(c.depth))
    return all(n >= least for n, least in zip(sizes, (MIN_ROWS, MIN_LANES, MIN_DEPTH), strict=True))


def _count(axes: tuple[Axis, ...]) -> int:
    return prod(a.extent for a in axes)


def _dispatch(c: Contraction) -> Dispatch:
    dtype = str(c.target.dtype)
    zero = tirx.const(0, dtype)
    rows, lanes, depth = _count(c.rows), _count(c.lanes), _count(c.depth)
    tiles = (_count(c.batch), -(-rows // ROWS), -(-lanes // LANES))
    left = tirx.decl_buffer((ROWS * DEPTH,), dtype, "left", scope="shared")
    right = tirx.decl_buffer((DEPTH * LANES,), dtype, "right", scope="shared")
    sums = tirx.decl_buffer((OWN * OWN,), dtype, "sums", scope="local")

    def body(group: tirx.Expr, thread: tirx.Expr) -> list[tirx.Stmt]:
        batch, row_tile, lane_tile = decode(group, tiles)
        fixed = _names(c.batch, batch)
        first_row, first_lane = row_tile * ROWS, lane_tile * LANES
        own_row = tirx.floordiv(thread, i64(ACROSS)) * OWN
        own_lane = tirx.floormod(thread, i64(ACROSS)) * OWN

        def gather(into: tirx.Buffer, count: int, element: Callable) -> list[tirx.Stmt]:
            return [
                tirx.BufferStore(
                    into, element(i * MAX_THREADS + thread), [i * MAX_THREADS + thread]
                )
                for i in range(count // MAX_THREADS)
            ]

        def step(at: tirx.Expr) -> list[tirx.Stmt]:
            def scalar(e: tirx.Expr) -> tirx.Expr:
                row = first_row + tirx.floordiv(e, i64(DEPTH))
                k = at * DEPTH + tirx.floormod(e, i64(DEPTH))
                names = fixed | _names(c.rows, row) | _names(c.depth, k)
                return _inside([(row, rows, ROWS), (k, depth, DEPTH)], c.scalar, names, zero)

            def vector(e: tirx.Expr) -> tirx.Expr:
                k = at * DEPTH + tirx.floordiv(e, i64(LANES))
                lane = first_lane + tirx.floormod(e, i64(LANES))
                names = fixed | _names(c.depth, k) | _names(c.lanes, lane)
                return _inside([(k, depth, DEPTH), (lane, lanes, LANES)], c.vector, names, zero)

            return [
                *gather(left, ROWS * DEPTH, scalar),
                *gather(right, DEPTH * LANES, vector),
                barrier(),
                loop(DEPTH, lambda k: _multiply(left, right, sums, own_row, own_lane, k)),
                barrier(),
            ]

        def result(i: int, j: int) -> tirx.Stmt:
            row, lane = first_row + own_row + i, first_lane + own_lane + j
            names = fixed | _names(c.rows, row) | _names(c.lanes, lane)
            place = [substitute(index, names) for index in c.place]
            store = tirx.BufferStore(c.target, sums[i * OWN + j], place)
            within = _within([(row, rows, ROWS), (lane, lanes, LANES)])
            return store if within is None else tirx.IfThenElse(within, store, None)

        return [
            tirx.AllocBuffer(sums),
            *(tirx.BufferStore(sums, zero, [n]) for n in range(OWN * OWN)),
            loop(-(-depth // DEPTH), step),
            *(result(i, j) for i, j in product(range(OWN), range(OWN))),
        ]

    return dispatch(c.name, prod(tiles), MAX_THREADS, body, [left, right])


def _multiply(
    left: tirx.Buffer,
    right: tirx.Buffer,
    sums: tirx.Buffer,
    row: tirx.Expr,
    lane: tirx.Expr,
    k: tirx.Expr,
) -> list[tirx.Stmt]:
    """One step of depth: a thread's rows times its lanes."""
    dtype = str(sums.dtype)
    a = [tirx.Var(f"a{i}", dtype) for i in range(OWN)]
    b = [tirx.Var(f"b{j}", dtype) for j in range(OWN)]
    loads = [tirx.Bind(a[i], left[(row + i) * DEPTH + k]) for i in range(OWN)]
    loads += [tirx.Bind(b[j], right[k * LANES + lane + j]) for j in range(OWN)]
    adds = [
        tirx.BufferStore(sums, sums[i * OWN + j] + a[i] * b[j], [i * OWN + j])
        for i, j in product(range(OWN), range(OWN))
    ]
    return [*loads, *adds]


def _names(axes: tuple[Axis, ...], flat: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
    return named(axes, decode(flat, extents(axes)))


def _within(bounds: list[tuple[tirx.Expr, int, int]]) -> tirx.Expr | None:
    """Whether (index, extent, tile) are all inside; None where tiles divide their extents."""
    found: tirx.Expr | None = None
    for index, extent, tile in bounds:
        if extent % tile:
            below = index < i64(extent)
            found = below if found is None else tirx.And(found, below)
    return found


def _inside(
    bounds: list[tuple[tirx.Expr, int, int]],
    value: tirx.Expr,
    names: dict[tirx.Var, tirx.Expr],
    outside: tirx.Expr,
) -> tirx.Expr:
    within = _within(bounds)
    read = substitute(value, names)
    return read if within is None else tirx.if_then_else(within, read, outside)
