"""A contraction, its plan and an epilogue in, packed and register-tiled loops out.

    for task (batch x panels x row blocks), parallel:
        P[k, width] = the vector operand of one panel of lanes           (pack)
        for tile of rows:
            acc[height, width] = 0                                       (registers)
            for k: acc[i, :] += scalar(i, k) * P[k, :]
            target / epilogue = acc

The tile's accumulators live in a scratch array that LLVM keeps in vector registers. Remainders of
rows and lanes are tiles of their own, so nothing is padded. (K. Goto, R. van de Geijn, "Anatomy of
High-Performance Matrix Multiplication", 2008; without their blocking of depth: a panel of a whole
depth fits the second-level cache in training steps.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from math import prod
from typing import TypeAlias

from tvm import tirx

from aotrain.schedules.cpu import indirect
from aotrain.schedules.cpu.contraction import Contraction, extents, names
from aotrain.schedules.cpu.group import Group
from aotrain.schedules.cpu.loops import (
    NestBody,
    decode,
    decode_cancelling,
    i64,
    loop,
    nest,
    parallel,
    parallel_nest,
    unrolled,
    vector,
    vectors,
)
from aotrain.schedules.cpu.nest import loads, sequence, stores, substitute
from aotrain.schedules.cpu.tile import Plan
from aotrain.schedules.cpu.transpose import transpose_block, transpose_tile

Split: TypeAlias = Callable[[tirx.Expr, Sequence[int]], list[tirx.Expr]]
Index: TypeAlias = Sequence[tirx.Expr]

#: Up to this depth a tile's accumulators are worth storing from registers, row by row in line.
UNROLL_DEPTH = 64


class Gemm:
    """Writes the loops of one contraction.

    epilogue: what to do with each finished element; keep: store the element itself too.
    parameters: those of the function.
    """

    def __init__(
        self,
        c: Contraction,
        plan: Plan,
        epilogue: Group | None,
        keep: bool,
        parameters: Set[tirx.Buffer] = frozenset(),
    ) -> None:
        self.c, self.plan, self.epilogue, self.keep = c, plan, epilogue, keep
        touched = {c.target} if keep else set()
        if epilogue is not None:
            body = epilogue.unified()
            touched |= {load.source for load in loads(body)} | {s.buffer for s in stores(body)}
            touched -= set() if keep else {c.target}
        self.finish_split = decode_cancelling if touched <= parameters else decode
        self.dtype = str(c.target.dtype)
        self.batch, self.rows, self.lanes, self.depth = (
            prod(extents(a)) for a in (c.batch, c.rows, c.lanes, c.depth)
        )
        self.panels = -(-self.lanes // plan.width)
        self.full_panels, self.rest_lanes = divmod(self.lanes, plan.width)
        self.full_tiles, self.rest_rows = divmod(self.rows, plan.height)
        self.scratch: list[tirx.Buffer] = []
        self.packed_rows = self._root("rows", self.rows * self.depth) if plan.pack_rows else None
        size = self.batch * self.panels * plan.width * self.depth
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

    def emit(self) -> list[tirx.Stmt]:
        """The statements, in order; `scratch` are the root-level buffers they need."""
        parts = []
        if self.offsets is not None:
            parts.append(self.offsets.fill())
        if self.packed_rows is not None:
            parts.append(self._pack_all_rows(self.packed_rows))
        if self.shared is not None:
            parts.append(self._pack_all_panels(self.shared))
        grid = [self.batch, self.panels, self.plan.row_tasks]
        if not self.plan.parallel or prod(grid) == 1:
            task = lambda b: [self._task(b, lambda body: nest(grid[1:], body))]  # noqa: E731
            return [*parts, loop(self.batch, task)]
        return [*parts, self._parallel(grid)]

    def _parallel(self, grid: list[int]) -> tirx.Stmt:
        def task(flat: tirx.Expr) -> list[tirx.Stmt]:
            b, panel, block = decode(flat, grid)
            return [self._task(b, lambda body: body([panel, block]))]

        return parallel(prod(grid), task)

    def _task(
        self, b: tirx.Expr, over: Callable[[NestBody], tirx.Stmt | Sequence[tirx.Stmt]]
    ) -> tirx.Stmt:
        """Tiles of a batch element; `over(body)` runs body([panel, block of rows])."""
        plan = self.plan
        acc = tirx.decl_buffer((plan.height * plan.width,), self.dtype, "acc", scope="local")
        own = [tirx.AllocBuffer(acc)]
        panel_buffer = self.shared
        if self.shared is None and not plan.direct:
            panel_buffer = tirx.decl_buffer((self.depth * plan.width,), self.dtype, "panel")
            own.append(tirx.AllocBuffer(panel_buffer))

        def body(index: list[tirx.Expr]) -> list[tirx.Stmt]:
            panel, block = index
            work = lambda lanes: sequence(  # noqa: E731
                self._panel(b, panel, lanes, block, panel_buffer, acc)
            )
            if not self.rest_lanes:
                return [work(plan.width)]
            if not self.full_panels:
                return [work(self.rest_lanes)]
            whole = panel < i64(self.full_panels)
            return [tirx.IfThenElse(whole, work(plan.width), work(self.rest_lanes))]

        run = over(body)
        return sequence([*own, *([run] if isinstance(run, tirx.Stmt) else run)])

    def _panel(
        self,
        b: tirx.Expr,
        panel: tirx.Expr,
        lanes: int,
        block: tirx.Expr,
        buffer: tirx.Buffer | None,
        acc: tirx.Buffer,
    ) -> list[tirx.Stmt]:
        """All tiles of one panel in one block of rows."""
        plan, parts = self.plan, []
        base: tirx.Expr = i64(0)
        if self.shared is not None:
            base = (b * self.panels + panel) * i64(self.depth * plan.width)
        elif buffer is not None:
            parts.append(nest(*self._pack(b, panel, lanes, buffer, base)))
        tiles = -(-self.full_tiles // plan.row_tasks) if self.full_tiles else 0
        tile = lambda first, height: self._tile(  # noqa: E731
            b, panel, lanes, first, height, buffer, base, acc
        )
        if tiles:
            start = block * i64(tiles)
            count: tirx.Expr | int = tiles
            if tiles * plan.row_tasks != self.full_tiles:
                count = tirx.max(tirx.min(i64(tiles), i64(self.full_tiles) - start), i64(0))
            parts.append(loop(count, lambda t: tile((start + t) * plan.height, plan.height)))
        if self.rest_rows:
            rest = sequence(tile(i64(self.full_tiles * plan.height), self.rest_rows))
            last = block == i64(plan.row_tasks - 1)
            parts.append(rest if plan.row_tasks == 1 else tirx.IfThenElse(last, rest, None))
        return parts

    def _tile(
        self,
        b: tirx.Expr,
        panel: tirx.Expr,
        lanes: int,
        first: tirx.Expr,
        height: int,
        buffer: tirx.Buffer | None,
        base: tirx.Expr,
        acc: tirx.Buffer,
    ) -> list[tirx.Stmt]:
        """One register tile: clear, accumulate over depth, finish."""
        plan = self.plan
        count = -(-lanes // plan.lanes)
        cells = [(i, v) for i in range(height) for v in range(count)]
        place = lambda i, v: i64(i * plan.width + v * plan.lanes)  # noqa: E731
        size = lambda v: (  # noqa: E731
            min(plan.lanes, lanes - v * plan.lanes) if buffer is None else plan.lanes
        )
        zero = tirx.const(0, self.dtype)
        depth = extents(self.c.depth)
        if self.offsets is not None:
            depth = [*extents(self.offsets.outer), self.offsets.count]
        clear = [
            vector(size(v), lambda n, i=i, v=v: [tirx.BufferStore(acc, zero, [place(i, v) + n])])
            for i, v in cells
        ]

        def step(k: list[tirx.Expr]) -> list[tirx.Stmt]:
            flat = _flat(k, depth)
            scalars = [self._scalar(b, first, i, height, k, flat) for i in range(height)]

            def multiply(i: int, v: int) -> tirx.Stmt:
                def lane(n: tirx.Expr) -> list[tirx.Stmt]:
                    at = place(i, v) + n
                    if buffer is None:
                        other = self._vector(b, panel * plan.width + i64(v * plan.lanes) + n, k)
                    else:
                        other = buffer[base + flat * plan.width + i64(v * plan.lanes) + n]
                    return [tirx.BufferStore(acc, acc[at] + scalars[i] * other, [at])]

                return vector(size(v), lane)

            return [multiply(i, v) for i, v in cells]

        if plan.pack_rows and not plan.direct:
            # Both operands are packed: depth is one loop.
            run = loop(self.depth, lambda flat: step(decode(flat, extents(self.c.depth))))
        elif self.offsets is not None:
            # The table's position stands for the inner axes.
            run = nest(depth, step)
        else:
            run = nest(depth, step)
        return [*clear, run, *self._finish(b, panel, lanes, first, height, acc)]

    def _finish(
        self,
        b: tirx.Expr,
        panel: tirx.Expr,
        lanes: int,
        first: tirx.Expr,
        height: int,
        acc: tirx.Buffer,
    ) -> list[tirx.Stmt]:
        """Store a finished tile and run its epilogue, a vector at a time."""
        plan = self.plan

        def cell(i: tirx.Expr, n: tirx.Expr, value: tirx.Expr) -> list[tirx.Stmt]:
            at = self._axes(b, first + i, panel * plan.width + n, self.finish_split)
            place = [substitute(p, at) for p in self.c.place]
            parts: list[tirx.Stmt] = []
            if self.epilogue is not None:
                parts += self.epilogue.at(place, {self.c.target: value})
            if self.keep:
                parts.append(tirx.BufferStore(self.c.target, value, place))
            return parts

        if plan.store_rows and height == plan.height:
            columns, pitch, turn = transpose_tile(acc, height, lanes, plan.width, plan.lanes)

            def column(n: tirx.Expr) -> list[tirx.Stmt]:
                return vectors(height, plan.lanes, lambda i: cell(i, n, columns[n * pitch + i]))

            return [*turn, loop(lanes, column)]

        # Scattered elements are written one by one in a loop: as a vector they are much code.
        width = plan.store_run if plan.store_run >= 4 else 1

        def row(i: tirx.Expr) -> list[tirx.Stmt]:
            return vectors(lanes, width, lambda n: cell(i, n, acc[i * plan.width + n]))

        short = self.depth <= UNROLL_DEPTH and self.epilogue is None and width > 1
        return unrolled(height, row) if short else [loop(height, row)]

    def _axes(
        self, b: tirx.Expr, row: tirx.Expr, lane: tirx.Expr, split: Split = decode
    ) -> dict[tirx.Var, tirx.Expr]:
        c = self.c
        return {
            **names(c.batch, split(b, extents(c.batch))),
            **names(c.rows, split(row, extents(c.rows))),
            **names(c.lanes, split(lane, extents(c.lanes))),
        }

    def _scalar(
        self, b: tirx.Expr, first: tirx.Expr, i: int, height: int, k: Index, flat: tirx.Expr
    ) -> tirx.Expr:
        if self.packed_rows is not None:
            return self.packed_rows[first * self.depth + flat * height + i]
        at = self._axes(b, first + i64(i), i64(0))
        if self.offsets is not None:
            return self.offsets.read(at | names(self.offsets.outer, k[:-1]), k[-1])
        return substitute(self.c.scalar, at | dict(names(self.c.depth, k)))

    def _vector(self, b: tirx.Expr, lane: tirx.Expr, k: Index) -> tirx.Expr:
        at = self._axes(b, i64(0), lane) | dict(names(self.c.depth, k))
        return substitute(self.c.vector, at)

    def _pack_all_rows(self, buffer: tirx.Buffer) -> tirx.Stmt:
        """buffer[tile][k][row of tile] = the scalar operand, once for all tasks."""
        plan = self.plan

        def tile(first: tirx.Expr, height: int) -> list[tirx.Stmt]:
            def cell(k: list[tirx.Expr]) -> list[tirx.Stmt]:
                flat = _flat(k, extents(self.c.depth))

                def row(i: tirx.Expr) -> list[tirx.Stmt]:
                    at = self._axes(i64(0), first + i, i64(0)) | dict(names(self.c.depth, k))
                    place = first * self.depth + flat * height + i
                    return [tirx.BufferStore(buffer, substitute(self.c.scalar, at), [place])]

                return unrolled(height, row)

            return [nest(extents(self.c.depth), cell)]

        parts: list[tirx.Stmt] = []
        if self.full_tiles:
            work = 4 * self.rows * self.depth
            parts.append(
                parallel_nest(
                    [self.full_tiles], work, lambda t: tile(t[0] * plan.height, plan.height)
                )
            )
        if self.rest_rows:
            parts += tile(i64(self.full_tiles * plan.height), self.rest_rows)
        return sequence(parts)

    def _pack_all_panels(self, buffer: tirx.Buffer) -> tirx.Stmt:
        """buffer[batch][panel][k][lane] = the vector operand, once for all tasks."""
        plan, work = self.plan, 4 * self.batch * self.lanes * self.depth
        panel_size = self.depth * plan.width

        def packed(panels: int, start: int, lanes: int) -> tirx.Stmt:
            loops, _ = self._pack(i64(0), i64(0), lanes, buffer, i64(0))

            def cell(index: list[tirx.Expr]) -> list[tirx.Stmt]:
                b, panel, *k = index
                panel = panel + i64(start)
                base = (b * self.panels + panel) * i64(panel_size)
                return self._pack(b, panel, lanes, buffer, base)[1](k)

            return parallel_nest([self.batch, panels, *loops], work, cell)

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
            row = base + _flat(k, depth) * plan.width

            def lane(n: tirx.Expr) -> list[tirx.Stmt]:
                value = self._vector(b, panel * plan.width + n, k)
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
        inner = self.c.depth[-1].extent
        return (
            lanes % self.plan.lanes == 0
            and inner % self.plan.lanes == 0
            and (self.dtype == "float32")
        )


def _flat(index: Sequence[tirx.Expr], box: Sequence[int]) -> tirx.Expr:
    """Row-major position of `index` in `box`."""
    result: tirx.Expr = i64(0)
    for position, i in enumerate(index):
        result = result + i * i64(prod(box[position + 1 :]))
    return result
