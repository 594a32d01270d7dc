"""A contraction, its plan and an epilogue in, packed and register-tiled loops out.

    for task (batch x panels x row blocks), parallel:
        for block of depth:
            P[k, width] = the vector operand of one panel of lanes       (pack)
            for tile of rows:
                acc[height, width] = 0, or the tile's sums so far        (registers)
                for k: acc[i, :] += scalar(i, k) * P[k, :]
                target / epilogue = acc, or the sums so far

The tile's accumulators live in a scratch array that LLVM keeps in vector registers. Remainders of
rows and lanes are tiles of their own, so nothing is padded. Depth is one block unless it is so deep
that a panel would leave the second-level cache. (K. Goto, R. van de Geijn, "Anatomy of
High-Performance Matrix Multiplication", 2008.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from math import prod

from tvm import tirx

from aotrain.schedules.cpu.contraction import Contraction, blocked
from aotrain.schedules.cpu.group import Group
from aotrain.schedules.cpu.loops import (
    NestBody,
    decode,
    decode_cancelling,
    i64,
    loop,
    nest,
    parallel,
    unrolled,
    vector,
    vectors,
)
from aotrain.schedules.cpu.nest import loads, sequence, stores, substitute
from aotrain.schedules.cpu.operands import Operands, flatten
from aotrain.schedules.cpu.tile import Plan
from aotrain.schedules.cpu.transpose import transpose_tile

#: Up to this depth a tile's accumulators are worth storing from registers, row by row in line.
UNROLL_DEPTH = 64


@dataclass(frozen=True)
class _Panel:
    """Where a task's tiles are: batch element, panel and its lanes, and the buffers they use.

    buffer: the packed panel, None where the operand is read in place; sums: of tiles not finished.
    """

    b: tirx.Expr
    panel: tirx.Expr
    lanes: int
    buffer: tirx.Buffer | None
    acc: tirx.Buffer
    sums: tirx.Buffer | None


class Gemm:
    """Writes the loops of one contraction.

    epilogue: what to do with each finished element; keep: store the element itself too.
    parameters: those of the function. `scratch` are the root-level buffers that the loops need.
    """

    def __init__(
        self,
        c: Contraction,
        plan: Plan,
        epilogue: Group | None,
        keep: bool,
        parameters: Set[tirx.Buffer] = frozenset(),
    ) -> None:
        self.plan, self.epilogue, self.keep = plan, epilogue, keep
        self.block = tirx.Var("block", "int64")
        self.c = c if plan.blocks == 1 else blocked(c, plan.blocks, self.block)
        touched = {c.target} if keep else set()
        if epilogue is not None:
            body = epilogue.unified()
            touched |= {load.source for load in loads(body)} | {s.buffer for s in stores(body)}
            touched -= set() if keep else {c.target}
        self.finish_split = decode_cancelling if touched <= parameters else decode
        self.o = Operands(self.c, plan, self.block)
        self.scratch = self.o.scratch

    def emit(self) -> list[tirx.Stmt]:
        """The statements, in order."""
        grid = [self.o.batch, self.o.panels, self.plan.row_tasks]
        if not self.plan.parallel or prod(grid) == 1:
            task = lambda b: [self._task(b, lambda body: nest(grid[1:], body))]  # noqa: E731
            return [*self.o.prepare(), loop(self.o.batch, task)]
        return [*self.o.prepare(), self._parallel(grid)]

    def _parallel(self, grid: list[int]) -> tirx.Stmt:
        def task(flat: tirx.Expr) -> list[tirx.Stmt]:
            b, panel, rows = decode(flat, grid)
            return [self._task(b, lambda body: body([panel, rows]))]

        return parallel(prod(grid), task)

    def _task(
        self, b: tirx.Expr, over: Callable[[NestBody], tirx.Stmt | Sequence[tirx.Stmt]]
    ) -> tirx.Stmt:
        """Tiles of a batch element; `over(body)` runs body([panel, share of the rows])."""
        plan, o = self.plan, self.o
        tile = plan.height * plan.width
        acc = tirx.decl_buffer((tile,), o.dtype, "acc", scope="local")
        own = [tirx.AllocBuffer(acc)]
        buffer = o.shared
        if buffer is None and not plan.direct:
            buffer = tirx.decl_buffer((o.depth * plan.width,), o.dtype, "panel")
            own.append(tirx.AllocBuffer(buffer))
        sums = None
        if plan.blocks > 1:
            sums = tirx.decl_buffer(((self._tiles + 1) * tile,), o.dtype, "sums")
            own.append(tirx.AllocBuffer(sums))

        def body(index: list[tirx.Expr]) -> list[tirx.Stmt]:
            panel, rows = index
            work = lambda lanes: self._panel(  # noqa: E731
                _Panel(b, panel, lanes, buffer, acc, sums), rows
            )
            if not o.rest_lanes:
                return [work(plan.width)]
            if not o.full_panels:
                return [work(o.rest_lanes)]
            whole = panel < i64(o.full_panels)
            return [tirx.IfThenElse(whole, work(plan.width), work(o.rest_lanes))]

        run = over(body)
        return sequence([*own, *([run] if isinstance(run, tirx.Stmt) else run)])

    @property
    def _tiles(self) -> int:
        """Full tiles of a task at most."""
        return -(-self.o.full_tiles // self.plan.row_tasks)

    def _panel(self, p: _Panel, rows: tirx.Expr) -> tirx.Stmt:
        """All tiles of one panel in one share of the rows, block after block of the depth."""
        plan, o = self.plan, self.o

        def block() -> tirx.Stmt:
            parts = []
            if o.shared is None and p.buffer is not None:
                parts.append(o.pack_panel(p.b, p.panel, p.lanes, p.buffer))
            tiles = self._tiles
            if tiles:
                start = rows * i64(tiles)
                count: tirx.Expr | int = tiles
                if tiles * plan.row_tasks != o.full_tiles:
                    count = tirx.max(tirx.min(i64(tiles), i64(o.full_tiles) - start), i64(0))
                full = lambda t: self._tile(p, (start + t) * plan.height, plan.height, t)  # noqa: E731
                parts.append(loop(count, full))
            if o.rest_rows:
                first = i64(o.full_tiles * plan.height)
                rest = sequence(self._tile(p, first, o.rest_rows, i64(tiles)))
                last = rows == i64(plan.row_tasks - 1)
                parts.append(rest if plan.row_tasks == 1 else tirx.IfThenElse(last, rest, None))
            return sequence(parts)

        if plan.blocks == 1:
            return block()
        return loop(plan.blocks, lambda n: [substitute(block(), {self.block: n})])

    def _tile(self, p: _Panel, first: tirx.Expr, height: int, slot: tirx.Expr) -> list[tirx.Stmt]:
        """One register tile: begin, accumulate over a block of depth, finish."""
        plan, o = self.plan, self.o
        count = -(-p.lanes // plan.lanes)
        cells = [(i, v) for i in range(height) for v in range(count)]
        place = lambda i, v: i64(i * plan.width + v * plan.lanes)  # noqa: E731
        base = i64(0) if o.shared is None else o.panel_base(p.b, p.panel)
        size = lambda v: (  # noqa: E731
            min(plan.lanes, p.lanes - v * plan.lanes) if p.buffer is None else plan.lanes
        )

        def each(value: Callable[[tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
            vector_at = lambda i, v: vector(size(v), lambda n: [value(place(i, v) + n)])  # noqa: E731
            return sequence([vector_at(i, v) for i, v in cells])

        def step(k: list[tirx.Expr]) -> list[tirx.Stmt]:
            flat = flatten(k, o.walk)
            scalars = [o.scalar(p.b, first, i, height, k) for i in range(height)]

            def multiply(i: int, v: int) -> tirx.Stmt:
                def lane(n: tirx.Expr) -> list[tirx.Stmt]:
                    at = place(i, v) + n
                    if p.buffer is None:
                        lane = p.panel * plan.width + i64(v * plan.lanes) + n
                        other = o.vector(p.b, lane, k)
                    else:
                        other = p.buffer[base + flat * plan.width + i64(v * plan.lanes) + n]
                    return [tirx.BufferStore(p.acc, p.acc[at] + scalars[i] * other, [at])]

                return vector(size(v), lane)

            return [multiply(i, v) for i, v in cells]

        begin = each(lambda at: tirx.BufferStore(p.acc, tirx.const(0, o.dtype), [at]))
        end = sequence(self._finish(p, first, height))
        if p.sums is not None:
            sums, home = p.sums, slot * i64(plan.height * plan.width)
            load = each(lambda at: tirx.BufferStore(p.acc, sums[home + at], [at]))
            store = each(lambda at: tirx.BufferStore(sums, p.acc[at], [home + at]))
            begin = tirx.IfThenElse(self.block == i64(0), begin, load)
            end = tirx.IfThenElse(self.block == i64(plan.blocks - 1), end, store)
        return [begin, nest(o.walk, step), end]

    def _finish(self, p: _Panel, first: tirx.Expr, height: int) -> list[tirx.Stmt]:
        """Store a finished tile and run its epilogue, a vector at a time."""
        plan = self.plan

        def cell(i: tirx.Expr, n: tirx.Expr, value: tirx.Expr) -> list[tirx.Stmt]:
            at = self.o.axes(p.b, first + i, p.panel * plan.width + n, self.finish_split)
            place = [substitute(p, at) for p in self.c.place]
            parts: list[tirx.Stmt] = []
            if self.epilogue is not None:
                parts += self.epilogue.at(place, {self.c.target: value})
            if self.keep:
                parts.append(tirx.BufferStore(self.c.target, value, place))
            return parts

        if plan.store_rows and height == plan.height:
            columns, pitch, turn = transpose_tile(p.acc, height, p.lanes, plan.width, plan.lanes)

            def column(n: tirx.Expr) -> list[tirx.Stmt]:
                return vectors(height, plan.lanes, lambda i: cell(i, n, columns[n * pitch + i]))

            return [*turn, loop(p.lanes, column)]

        # Scattered elements are written one by one in a loop: as a vector they are much code.
        width = plan.store_run if plan.store_run >= 4 else 1

        def row(i: tirx.Expr) -> list[tirx.Stmt]:
            return vectors(p.lanes, width, lambda n: cell(i, n, p.acc[i * plan.width + n]))

        short = self.o.depth <= UNROLL_DEPTH and self.epilogue is None and width > 1
        return unrolled(height, row) if short else [loop(height, row)]
