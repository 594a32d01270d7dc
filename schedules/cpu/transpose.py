"""A block of rows in memory in, the same block with rows as columns out, through vector registers.

A panel whose operand lies along depth (A times B transposed) needs a transposition while it is
packed, a tile whose target lies along rows when it is finished: `lanes` vector loads, log2(lanes)
rounds of shuffles, `lanes` vector stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import ir, tirx

from aotrain.schedules.cpu.loops import NestBody, i64
from aotrain.schedules.cpu.nest import extents

if TYPE_CHECKING:
    from aotrain.schedules.cpu.operands import Operands


def network(rows: list[tirx.Expr]) -> tuple[list[tirx.Stmt], list[tirx.Expr]]:
    """Bindings and the columns of n vectors of n lanes, n a power of two.

    Round b exchanges the off-diagonal b x b blocks of every 2b x 2b block.
    """
    n, bindings, size = len(rows), [], 1
    current = rows
    while size < n:
        following: list[tirx.Expr] = []
        for r in range(n):
            low, high = current[r & ~size], current[r | size]
            pick = [
                ((c & ~size) | (size if r & size else 0)) + (n if c & size else 0) for c in range(n)
            ]
            shuffle = tirx.Shuffle([low, high], [tirx.const(p, "int32") for p in pick])
            var = tirx.Var("s", shuffle.ty)
            bindings.append(tirx.Bind(var, shuffle))
            following.append(var)
        current, size = following, size * 2
    return bindings, current


def transpose_block(
    operands: Operands,
    b: tirx.Expr,
    panel: tirx.Expr,
    lanes: int,
    buffer: tirx.Buffer,
    base: tirx.Expr,
) -> tuple[list[int], NestBody]:
    """Loop extents and the body that packs blocks of lanes x depth, as `Operands._pack` returns."""
    plan, depth = operands.plan, extents(operands.c.depth)
    n = plan.lanes
    loops = [*depth[:-1], depth[-1] // n, lanes // n]

    def cell(index: list[tirx.Expr]) -> list[tirx.Stmt]:
        *outer, inner, group = index
        first_k, first_lane = inner * n, group * n
        loads, bindings = [], []
        for lane in range(n):
            at = panel * plan.width + first_lane + i64(lane)
            load = operands.vector(b, at, [*outer, first_k])
            assert isinstance(load, ir.TensorLoad)
            place = (*load.indices[:-1], tirx.Ramp(load.indices[-1], i64(1), n))
            row = load.source[place]
            var = tirx.Var("r", row.ty)
            bindings.append(tirx.Bind(var, row))
            loads.append(var)
        shuffles, columns = network(loads)
        flat: tirx.Expr = i64(0)
        for i, e in zip([*outer, first_k], depth, strict=True):
            flat = flat * i64(e) + i
        stores = [
            tirx.BufferStore(
                buffer,
                column,
                [tirx.Ramp(base + (flat + i64(k)) * plan.width + first_lane, i64(1), n)],
            )
            for k, column in enumerate(columns)
        ]
        return [*bindings, *shuffles, *stores]

    return loops, cell


def transpose_tile(
    acc: tirx.Buffer, height: int, width: int, pitch: int, lanes: int
) -> tuple[tirx.Buffer, int, list[tirx.Stmt]]:
    """acc[i * pitch + n], i < height, n < width, as a new buffer[n * p + i]; it, p, statements.

    pitch, p: multiples of `lanes`; what lies between height and p is zero.
    """
    dtype = str(acc.dtype)
    across = -(-height // lanes) * lanes
    columns = tirx.decl_buffer((pitch * across,), dtype, "columns", scope="local")
    zeros = tirx.Broadcast(tirx.const(0, dtype), lanes)
    statements: list[tirx.Stmt] = [tirx.AllocBuffer(columns)]
    for top in range(0, height, lanes):
        for left in range(0, width, lanes):
            starts = [(top + i) * pitch + left for i in range(min(lanes, height - top))]
            rows = [acc[tirx.Ramp(i64(at), i64(1), lanes)] for at in starts]
            names = [tirx.Var("r", row.ty) for row in rows]
            statements += [tirx.Bind(name, row) for name, row in zip(names, rows, strict=True)]
            shuffles, turned = network([*names, *[zeros] * (lanes - len(names))])
            statements += shuffles
            statements += [
                tirx.BufferStore(
                    columns, column, [tirx.Ramp(i64((left + n) * across + top), i64(1), lanes)]
                )
                for n, column in enumerate(turned)
            ]
    return columns, across, statements
