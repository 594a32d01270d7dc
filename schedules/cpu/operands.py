"""The two operands of a contraction in, packed where that pays, and their elements out.

    rows[block][tile][k][row of tile]          = scalar(row, k)      once, for all tasks
    panels[block][batch][panel][k][lane]       = vector(k, lane)     once, or by each task its own

Blocks are those of the depth; each is as the whole depth of the contraction given, in which the
variable `block` stands for its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from tvm import tirx

from aotrain.schedules.cpu import indirect
from aotrain.schedules.cpu.contraction import Contraction
from aotrain.schedules.cpu.loops import (
    NestBody,
    decode,
    i64,
    nest,
    parallel_nest,
    unrolled,
    vector,
    vectors,
)
from aotrain.schedules.cpu.nest import extents, named, sequence, substitute
from aotrain.schedules.cpu.tile import Plan
from aotrain.schedules.cpu.transpose import transpose_block

Split: TypeAlias = Callable[[tirx.Expr, Sequence[int]], list[tirx.Expr]]
Index: TypeAlias = Sequence[tirx.Expr]


class Operands:
    """`scratch` are the root-level buffers that the packed operands need."""

    def __init__(self, c: Contraction, plan: Plan, block: tirx.Var) -> None:
        self.c, self.plan, self.block = c, plan, block
        self.dtype = str(c.target.dtype)
        self.batch, self.rows, self.lanes, self.depth = (
            prod(extents(a)) for a in (c.batch, c.rows, c.lanes, c.depth)
        )
        self.panels = -(-self.lanes // plan.width)
        self.full_panels, self.rest_lanes = divmod(self.lanes, plan.width)
        self.full_tiles, self.rest_rows = divmod(self.rows, plan.height)
        self.scratch: list[tirx.Buffer] = []
        size = plan.blocks * self.rows * self.depth
        self.packed_rows = self._root("rows", size) if plan.pack_rows else None
        size = plan.blocks * self.batch * self.panels * plan.width * self.depth
        self.shared = self._root("panels", size) if plan.shared else None
        # A tile of one vector is bound by loads, of which plain loops reuse some.
        tabled = plan.even_rows and not plan.pack_rows and not plan.direct
        tabled &= plan.width > plan.lanes
        self.offsets = indirect.offsets(c) if tabled else None
        if self.offsets is not None:
            self.scratch.append(self.offsets.table)

    def _root(self, name: str, size: int) -> tirx.Buffer:
        buffer = tirx.decl_buffer((size,), self.dtype, f"{self.c.name}_{name}")
        self.scratch.append(buffer)
        return buffer

    @property
    def walk(self) -> list[int]:
        """The extents of the loops over depth; a table's position stands for its inner axes."""
        if self.plan.pack_rows and not self.plan.direct:
            return [self.depth]
        if self.offsets is not None:
            return [*extents(self.offsets.outer), self.offsets.count]
        return extents(self.c.depth)

    def prepare(self) -> list[tirx.Stmt]:
        """What runs before the tasks."""
        parts = []
        if self.offsets is not None:
            parts.append(self.offsets.fill())
        if self.packed_rows is not None:
            parts.append(self._pack_all_rows(self.packed_rows))
        if self.shared is not None:
            parts.append(self._pack_all_panels(self.shared))
        return parts

    def axes(
        self, b: tirx.Expr, row: tirx.Expr, lane: tirx.Expr, split: Split = decode
    ) -> dict[tirx.Var, tirx.Expr]:
        """Values of all axes but the depth's."""
        c = self.c
        return {
            **named(c.batch, split(b, extents(c.batch))),
            **named(c.rows, split(row, extents(c.rows))),
            **named(c.lanes, split(lane, extents(c.lanes))),
        }

    def scalar(self, b: tirx.Expr, first: tirx.Expr, i: int, height: int, k: Index) -> tirx.Expr:
        """Row i of the tile of `height` rows from `first`, at the place k of `walk`."""
        if self.packed_rows is not None:
            (flat,) = k if len(k) == 1 else (flatten(k, extents(self.c.depth)),)
            return self.packed_rows[self._row_place(first, height, flat, i)]
        at = self.axes(b, first + i64(i), i64(0))
        if self.offsets is not None:
            return self.offsets.read(at | named(self.offsets.outer, k[:-1]), k[-1])
        return substitute(self.c.scalar, at | named(self.c.depth, k))

    def _row_place(
        self, first: tirx.Expr, height: int, flat: tirx.Expr, i: tirx.Expr | int
    ) -> tirx.Expr:
        start = first * self.depth
        if self.plan.blocks > 1:
            start = self.block * i64(self.rows * self.depth) + start
        return start + flat * height + i

    def vector(self, b: tirx.Expr, lane: tirx.Expr, k: Index) -> tirx.Expr:
        """An element of the vector operand, read where it is."""
        at = self.axes(b, i64(0), lane) | named(self.c.depth, k)
        return substitute(self.c.vector, at)

    def panel_base(self, b: tirx.Expr, panel: tirx.Expr) -> tirx.Expr:
        """Where a panel begins among the shared ones."""
        if self.plan.blocks > 1:
            b = self.block * i64(self.batch) + b
        return (b * self.panels + panel) * i64(self.depth * self.plan.width)

    def pack_panel(
        self, b: tirx.Expr, panel: tirx.Expr, lanes: int, buffer: tirx.Buffer
    ) -> tirx.Stmt:
        """Fill a task's own panel."""
        return nest(*self._pack(b, panel, lanes, buffer, i64(0)))

    def _pack_all_rows(self, buffer: tirx.Buffer) -> tirx.Stmt:
        plan, blocks = self.plan, self.plan.blocks

        depth = extents(self.c.depth)

        def cell(first: tirx.Expr, height: int, block: tirx.Expr, k: Index) -> list[tirx.Stmt]:
            at = named(self.c.depth, k)

            def row(i: tirx.Expr) -> list[tirx.Stmt]:
                value = substitute(self.c.scalar, self.axes(i64(0), first + i, i64(0)) | at)
                place = self._row_place(first, height, flatten(k, depth), i)
                return [tirx.BufferStore(buffer, value, [place])]

            return [self._in_block(block, sequence(unrolled(height, row)))]

        def whole(block: tirx.Expr, tile: tirx.Expr, k: Index) -> list[tirx.Stmt]:
            return cell(tile * plan.height, plan.height, block, k)

        parts: list[tirx.Stmt] = []
        work = 4 * blocks * self.rows * self.depth
        if self.full_tiles and plan.row_run >= plan.height:
            # Along a row of memory: through the tiles for each step of depth.
            grid = [blocks, *depth, self.full_tiles]
            parts.append(parallel_nest(grid, work, lambda i: whole(i[0], i[-1], i[1:-1])))
        elif self.full_tiles:
            grid = [blocks, self.full_tiles, *depth]
            parts.append(parallel_nest(grid, work, lambda i: whole(i[0], i[1], i[2:])))
        if self.rest_rows:
            first = i64(self.full_tiles * plan.height)
            rest = lambda i: cell(first, self.rest_rows, i[0], i[1:])  # noqa: E731
            parts.append(nest([blocks, *depth], rest))
        return sequence(parts)

    def _in_block(self, block: tirx.Expr, statement: tirx.Stmt) -> tirx.Stmt:
        if self.plan.blocks == 1:
            return statement
        return substitute(statement, {self.block: block})

    def _pack_all_panels(self, buffer: tirx.Buffer) -> tirx.Stmt:
        plan, blocks = self.plan, self.plan.blocks
        work = 4 * blocks * self.batch * self.lanes * self.depth

        def packed(panels: int, start: int, lanes: int) -> tirx.Stmt:
            loops, _ = self._pack(i64(0), i64(0), lanes, buffer, i64(0))

            def cell(index: list[tirx.Expr]) -> list[tirx.Stmt]:
                block, b, panel, *k = index
                panel = panel + i64(start)
                body = self._pack(b, panel, lanes, buffer, self.panel_base(b, panel))[1]
                return [self._in_block(block, sequence(body(k)))]

            return parallel_nest([blocks, self.batch, panels, *loops], work, cell)

        parts = []
        if self.full_panels:
            parts.append(packed(self.full_panels, 0, plan.width))
        if self.rest_lanes:
            parts.append(packed(1, self.full_panels, self.rest_lanes))
        return sequence(parts)

    def _pack(
        self, b: tirx.Expr, panel: tirx.Expr, lanes: int, buffer: tirx.Buffer, base: tirx.Expr
    ) -> tuple[list[int], NestBody]:
        """Loop extents and the body that fills a panel: all of depth, `lanes` of the width."""
        plan, depth = self.plan, extents(self.c.depth)
        padded = -(-lanes // plan.lanes) * plan.lanes

        def cell(k: list[tirx.Expr]) -> list[tirx.Stmt]:
            row = base + flatten(k, depth) * plan.width

            def lane(n: tirx.Expr) -> list[tirx.Stmt]:
                value = self.vector(b, panel * plan.width + n, k)
                return [tirx.BufferStore(buffer, value, [row + n])]

            def fill(n: tirx.Expr) -> list[tirx.Stmt]:
                zero = tirx.const(0, self.dtype)
                return [tirx.BufferStore(buffer, zero, [row + i64(lanes) + n])]

            width = plan.run if plan.run >= 4 else 1
            parts = vectors(lanes, width, lane)
            return [*parts, vector(padded - lanes, fill)] if padded > lanes else parts

        if plan.transpose and self._transposable(lanes):
            return transpose_block(self, b, panel, lanes, buffer, base)
        return depth, cell

    def _transposable(self, lanes: int) -> bool:
        inner, width = self.c.depth[-1].extent, self.plan.lanes
        return lanes % width == 0 and inner % width == 0 and self.dtype == "float32"


def flatten(index: Index, box: Sequence[int]) -> tirx.Expr:
    """Row-major position of `index` in `box`."""
    result: tirx.Expr = i64(0)
    for position, i in enumerate(index):
        result = result + i * i64(prod(box[position + 1 :]))
    return result
