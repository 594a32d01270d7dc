"""Windows over planes and where the planes come from in (planes.py), vector loops out.

    for plane (n, c), parallel:
        P[0 : H' W'] = the padded plane, rows end to end                    (once a plane)
        for v in vectors of P W':  Y[v] = sum_taps w[tap] * P[v + shift(tap)]
        y[n, c, p, q] = Y[p W' + q]                                          (and its epilogue)

Rows are end to end, so a vector may hold the end of one row and the start of the next and no lane
idles, however narrow the plane; what is computed between rows is dropped. Weight gradients keep one
vector of sums a tap instead of Y, and zeros between the rows of dy. Stride 2 splits P into the
planes of even and odd rows and columns; its input gradient interleaves planes of outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from tvm import tirx

from aotrain.schedules.cpu.group import Group
from aotrain.schedules.cpu.isa import Isa
from aotrain.schedules.cpu.loops import PARALLEL_WORK, TASKS, decode, i64, loop, parallel, vectors
from aotrain.schedules.cpu.nest import named, substitute
from aotrain.schedules.cpu.padding import Source
from aotrain.schedules.cpu.planes import Window


class Windows:
    """Writes the loops of the windows of one stage, all residues together.

    epilogue: what to do with each finished element; keep: store the element itself too. Both are
    for windows that slide only.
    """

    def __init__(
        self,
        parts: Sequence[Window],
        source: Source,
        isa: Isa,
        epilogue: Group | None = None,
        keep: bool = True,
    ) -> None:
        self.parts, self.source, self.isa = parts, source, isa
        self.epilogue, self.keep = epilogue, keep
        first = parts[0]
        self.lanes = isa.lanes
        self.scale = (first.dims[0].scale, first.dims[1].scale)
        shape = [int(n) for n in first.image.source.shape[-2:]]
        #: Rows and columns of the plane, of each of its even and odd planes where strided.
        self.rows, self.width = (-(-n // s) for n, s in zip(shape, self.scale, strict=True))
        self.line = shape[1] + 4 * self.lanes
        reach = max(max(d.offsets) for w in parts for d in w.dims)
        self.plane = self.rows * self.width + 2 * self.lanes + reach
        positions = max(w.dims[0].positions for w in parts)
        self.steps = -(-positions * self.width // self.lanes)
        self.outer = first.outer

    def emit(self) -> tirx.Stmt:
        """The loops over planes, in parallel tasks of several."""
        first = self.parts[0]
        count = prod(a.extent for a in self.outer)
        taps = sum(prod(len(d.offsets) for d in w.dims) for w in self.parts)
        summed = prod(a.extent for a in first.summed)
        work = count * summed * self.steps * self.lanes * taps
        tasks = min(count, TASKS * 4) if work >= PARALLEL_WORK * 4 else 1
        chunk = -(-count // tasks)
        tasks = -(-count // chunk)

        def task(t: tirx.Expr) -> list[tirx.Stmt]:
            size: tirx.Expr | int = chunk
            if chunk * tasks != count:
                size = tirx.min(i64(chunk), i64(count) - t * chunk)
            own = self._buffers()
            start = [self._zero(buffer) for buffer in own]
            body = self._slide if first.slides else self._sum
            return [
                *(tirx.AllocBuffer(buffer) for buffer in own),
                *start,
                loop(size, lambda p: body(self._outer(t * chunk + p))),
            ]

        return parallel(tasks, task) if tasks > 1 else loop(1, task)

    def _buffers(self) -> list[tirx.Buffer]:
        planes = self.scale[0] * self.scale[1]
        self.image = self._buffer("plane", planes * self.plane)
        own = [self.image]
        if self.scale[1] == 2:
            self.row = self._buffer("row", self.line)
            own.append(self.row)
        if self.parts[0].slides:
            size = self.steps * self.lanes * len(self.parts)
            self.result = self._buffer("result", size)
        else:
            self.result = self._buffer("other", self.steps * self.lanes)
        return [*own, self.result]

    @staticmethod
    def _buffer(name: str, size: int) -> tirx.Buffer:
        return tirx.decl_buffer((size,), "float32", name, scope="local")

    def _zero(self, buffer: tirx.Buffer) -> tirx.Stmt:
        size, zero = int(buffer.shape[0]), tirx.const(0, "float32")
        parts = vectors(size, self.lanes, lambda i: [tirx.BufferStore(buffer, zero, [i])])
        return tirx.SeqStmt(parts) if len(parts) > 1 else parts[0]

    def _outer(self, flat: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
        index = decode(flat, [a.extent for a in self.outer])
        return named(self.outer, index)

    def _at(self, buffer: tirx.Buffer, start: tirx.Expr) -> tirx.Expr:
        """The vector of `buffer` at `start`."""
        return buffer[(tirx.Ramp(start, i64(1), self.lanes),)]

    def _put(self, buffer: tirx.Buffer, value: tirx.Expr, start: tirx.Expr) -> tirx.Stmt:
        return tirx.BufferStore(buffer, value, [tirx.Ramp(start, i64(1), self.lanes)])

    def _fill(self, names: dict[tirx.Var, tirx.Expr]) -> list[tirx.Stmt]:
        """Copy one plane of the image, row by row; what surrounds it was zero before."""
        source, first = self.source, self.parts[0]
        lead = [substitute(i, names) for i in first.image.indices[:-2]]
        left, top = source.columns[0], source.rows[0]

        def row(i: tirx.Expr) -> list[tirx.Stmt]:
            h = i + i64(top)
            base = self._row_start(h)
            split = self.scale[1] == 2
            to, start = (self.row, i64(left)) if split else (self.image, base + i64(left))

            def lane(j: tirx.Expr) -> list[tirx.Stmt]:
                value = source.at([*lead, h, j + i64(left)])
                return [tirx.BufferStore(to, value, [start + j])]

            parts = vectors(len(source.columns), self.lanes, lane)
            return [*parts, self._unzip(base)] if split else parts

        return [loop(len(source.rows), row)]

    def _row_start(self, h: tirx.Expr) -> tirx.Expr:
        if self.scale[0] == 1:
            return h * i64(self.width)
        each = self.scale[1] * self.plane
        return tirx.floormod(h, i64(2)) * i64(each) + tirx.floordiv(h, i64(2)) * i64(self.width)

    def _unzip(self, base: tirx.Expr) -> tirx.Stmt:
        """The row's even columns to one plane, its odd ones to the next."""

        def step(v: tirx.Expr) -> list[tirx.Stmt]:
            start = v * i64(2 * self.lanes)
            pair = [self._at(self.row, start), self._at(self.row, start + i64(self.lanes))]
            return [
                self._put(
                    self.image,
                    _shuffle(pair, range(odd, 2 * self.lanes, 2)),
                    base + i64(odd * self.plane) + v * self.lanes,
                )
                for odd in (0, 1)
            ]

        return loop(-(-self.width // self.lanes), step)

    def _shifts(self, window: Window) -> list[tuple[int, int, int]]:
        """(row tap, column tap, distance in the plane) of each tap."""
        result = []
        for (r, y), (s, x) in product(*(enumerate(d.offsets) for d in window.dims)):
            plane = (y % self.scale[0]) * self.scale[1] + x % self.scale[1]
            inside = y // self.scale[0] * self.width + x // self.scale[1]
            result.append((r, s, plane * self.plane + inside))
        return result

    def _tap_names(self, window: Window, r: int, s: int) -> dict[tirx.Var, tirx.Expr]:
        pairs = zip(window.dims, (r, s), strict=True)
        return {d.tap.var: i64(value) for d, value in pairs if d.tap is not None}

    def _slide(self, names: dict[tirx.Var, tirx.Expr]) -> list[tirx.Stmt]:
        """All outputs of one plane."""
        bindings: list[tirx.Stmt] = []
        weights: list[list[tuple[tirx.Var, int]]] = []
        for window in self.parts:
            own = []
            for r, s, shift in self._shifts(window):
                value = substitute(window.other, names | self._tap_names(window, r, s))
                var = tirx.Var("w", "float32")
                bindings.append(tirx.Bind(var, value))
                own.append((var, shift))
            weights.append(own)

        def step(v: tirx.Expr) -> list[tirx.Stmt]:
            start = v * i64(self.lanes)
            parts: list[tirx.Stmt] = []
            sums = []
            for own in weights:
                terms = [
                    tirx.Broadcast(w, self.lanes) * self._at(self.image, start + i64(shift))
                    for w, shift in own
                ]
                total = terms[0]
                for term in terms[1:]:
                    total = total + term
                var = tirx.Var("y", total.ty)
                parts.append(tirx.Bind(var, total))
                sums.append(var)
            return [*parts, *self._put_results(sums, v)]

        return [*self._fill(names), *bindings, loop(self.steps, step), *self._finish(names)]

    def _put_results(self, sums: Sequence[tirx.Expr], v: tirx.Expr) -> list[tirx.Stmt]:
        """Vector v of each residue's outputs to its rows, columns interleaved."""
        rows, columns = self.parts[0].stride
        stores = []
        for r in range(rows):
            own = [sums[self._residue(r, c)] for c in range(columns)]
            base = i64(r * self._row_block) + v * i64(columns * self.lanes)
            if columns == 2:
                both = [n // 2 + n % 2 * self.lanes for n in range(2 * self.lanes)]
                halves = (both[: self.lanes], both[self.lanes :])
                own = [_shuffle(own, half) for half in halves]
            stores += [
                self._put(self.result, value, base + i64(k * self.lanes))
                for k, value in enumerate(own)
            ]
        return stores

    @property
    def _row_block(self) -> int:
        return self.parts[0].stride[1] * self.steps * self.lanes

    def _residue(self, r: int, c: int) -> int:
        return next(i for i, w in enumerate(self.parts) if w.residue == (r, c))

    def _finish(self, names: dict[tirx.Var, tirx.Expr]) -> list[tirx.Stmt]:
        """Outputs from the rows end to end to the target and the epilogue."""
        first = self.parts[0]
        rows, columns = first.stride
        lead = [substitute(i, names) for i in first.place[:-2]]
        out = sum(self.parts[self._residue(0, c)].dims[1].positions for c in range(columns))

        def line(r: int, u: tirx.Expr) -> list[tirx.Stmt]:
            base = i64(r * self._row_block) + u * i64(columns * self.width)

            def lane(n: tirx.Expr) -> list[tirx.Stmt]:
                place = [*lead, u * i64(rows) + i64(r), n]
                value = self.result[base + n]
                parts: list[tirx.Stmt] = []
                if self.epilogue is not None:
                    parts += self.epilogue.at(place, {first.target: value})
                if self.keep:
                    parts.append(tirx.BufferStore(first.target, value, place))
                return parts

            return vectors(out, self.lanes, lane)

        return [
            loop(self.parts[self._residue(r, 0)].dims[0].positions, lambda u, r=r: line(r, u))
            for r in range(rows)
        ]

    def _sum(self, names: dict[tirx.Var, tirx.Expr]) -> list[tirx.Stmt]:
        """All taps of one channel."""
        (window,) = self.parts
        shifts = self._shifts(window)
        acc = self._buffer("acc", len(shifts) * self.lanes)
        limit = self.isa.registers * 3 // 4
        groups = [range(k, min(k + limit, len(shifts))) for k in range(0, len(shifts), limit)]

        def step(v: tirx.Expr, taps: range) -> list[tirx.Stmt]:
            start = v * i64(self.lanes)
            var = tirx.Var("d", self._at(self.result, start).ty)
            parts: list[tirx.Stmt] = [tirx.Bind(var, self._at(self.result, start))]
            for t in taps:
                cell = i64(t * self.lanes)
                term = var * self._at(self.image, start + i64(shifts[t][2]))
                parts.append(self._put(acc, self._at(acc, cell) + term, cell))
            return parts

        def image(at: tirx.Expr) -> list[tirx.Stmt]:
            index = decode(at, [a.extent for a in window.summed])
            own = names | named(window.summed, index)
            sums = [loop(self.steps, lambda v, taps=taps: step(v, taps)) for taps in groups]
            return [*self._fill(own), self._fill_other(own), *sums]

        return [
            tirx.AllocBuffer(acc),
            self._zero(acc),
            loop(prod(a.extent for a in window.summed), image),
            *self._store_sums(window, shifts, acc, names),
        ]

    def _fill_other(self, names: dict[tirx.Var, tirx.Expr]) -> tirx.Stmt:
        """dy, at the distance of the plane's rows; between them it was zero before."""
        (window,) = self.parts
        rows, columns = window.dims

        def row(p: tirx.Expr) -> list[tirx.Stmt]:
            def lane(q: tirx.Expr) -> list[tirx.Stmt]:
                place = [*(substitute(i, names) for i in window.other.indices[:-2]), p, q]
                value = window.other.source[tuple(place)]
                return [tirx.BufferStore(self.result, value, [p * i64(self.width) + q])]

            return vectors(columns.positions, self.lanes, lane)

        return loop(rows.positions, row)

    def _store_sums(
        self,
        window: Window,
        shifts: Sequence[tuple[int, int, int]],
        acc: tirx.Buffer,
        names: dict[tirx.Var, tirx.Expr],
    ) -> list[tirx.Stmt]:
        """Add each tap's vector as a tree and store it."""
        parts: list[tirx.Stmt] = []
        for t, (r, s, _) in enumerate(shifts):
            base, width = t * self.lanes, self.lanes // 2
            while width:
                low = [tirx.Ramp(i64(base), i64(1), width) if width > 1 else i64(base)]
                start = i64(base + width)
                high = [tirx.Ramp(start, i64(1), width) if width > 1 else start]
                value = acc[tuple(low)] + acc[tuple(high)]
                parts.append(tirx.BufferStore(acc, value, low))
                width //= 2
            at = names | self._tap_names(window, r, s)
            place = [substitute(i, at) for i in window.place]
            parts.append(tirx.BufferStore(window.target, acc[i64(base)], place))
        return parts


def _shuffle(pair: Sequence[tirx.Expr], pick: Sequence[int]) -> tirx.Expr:
    return tirx.Shuffle(list(pair), [tirx.const(p, "int32") for p in pick])
