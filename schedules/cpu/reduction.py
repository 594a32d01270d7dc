"""A stage that reduces in, vector loops out: lanes over kept or over reduced elements.

    s[j] = sum_i x[i, j]     kept lanes: a vector of sums s[j : j+16], loop over i
    s[i] = sum_j x[i, j]     reduced lanes: 4 x 16 partial sums along j, added as a tree at the end

Sums, products, minima and maxima only; float sums along reduced lanes are reassociated. Where few
elements are kept (a loss, a bias gradient), the largest reduced axis is cut into partial results
first, so that threads share it:   p[t, j] = sum of part t,   s[j] = sum_t p[t, j].

Not handled: other recurrences (argmax, scans), whose loops stay scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tvm import tirx

from aotrain.schedules.cpu import affine
from aotrain.schedules.cpu.isa import Isa
from aotrain.schedules.cpu.loops import (
    PARALLEL_WORK,
    TASKS,
    decode,
    i64,
    loop,
    nest,
    parallel,
    parallel_nest,
    unrolled,
    vector,
)
from aotrain.schedules.cpu.nest import (
    Axis,
    Stage,
    loads,
    loads_place,
    named,
    resolved,
    sequence,
    shifted,
    stores,
    substitute,
    variables,
)
from aotrain.schedules.cpu.pointwise import vectorises

#: Independent vector accumulators: they hide the latency of an addition.
ACCUMULATORS = 4

_COMBINE: dict[type, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Mul: lambda a, b: a * b,
    tirx.Max: tirx.max,
    tirx.Min: tirx.min,
}


@dataclass(frozen=True)
class Reduction:
    """target[place] = combine of `term` over the axes `reduced`, for all of `spatial`."""

    target: tirx.Buffer
    place: tuple[tirx.Expr, ...]
    combine: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]
    identity: tirx.Expr
    term: tirx.Expr
    spatial: tuple[Axis, ...]
    reduced: tuple[Axis, ...]

    @property
    def points(self) -> int:
        """Elements kept."""
        return prod(a.extent for a in self.spatial)

    @property
    def work(self) -> int:
        """Elements read."""
        return self.points * prod(a.extent for a in self.reduced)

    def at(self, values: dict[tirx.Var, tirx.Expr], old: tirx.Expr) -> tirx.Expr:
        """`old` combined with the term of one point."""
        return self.combine(old, substitute(self.term, values))


def match(stage: Stage) -> Reduction | None:
    """The reduction that `stage` is, or None."""
    store = stage.store
    if store is None or not stage.reduced or stage.init is None:
        return None
    combine = _COMBINE.get(type(store.value))
    starts = stores(stage.init)
    if combine is None or len(starts) != 1 or loads(starts[0].value):
        return None
    old, term = store.value.a, store.value.b
    if not loads_place(old, store):
        old, term = term, old
    if not loads_place(old, store) or _reads(term, store.buffer):
        return None
    identity = starts[0].value
    if variables(identity):
        return None
    place = tuple(store.indices)
    term = resolved(term, stage.axes or ())
    return Reduction(store.buffer, place, combine, identity, term, stage.spatial, stage.reduced)


def _reads(expr: tirx.Expr, buffer: tirx.Buffer) -> bool:
    return any(load.source.same_as(buffer) for load in loads(expr))


def emit(r: Reduction, isa: Isa) -> tuple[list[tirx.Stmt], list[tirx.Buffer]] | None:
    """Statements and the root-level buffers they need; None where no axis gives vectors."""
    parts = _cut(r, isa)
    if parts is not None:
        first, second, partial = parts
        head, tail = _single(first, isa), _single(second, isa)
        if head is not None:
            return [*head, *(tail or _scalar(second))], [partial]
    single = _single(r, isa)
    return None if single is None else (single, [])


def _single(r: Reduction, isa: Isa) -> list[tirx.Stmt] | None:
    kept, reduced = _dims(r, r.spatial), _dims(r, r.reduced)
    if kept and _lane_score(r, kept[-1], kept=True) >= 4:
        return _kept_lanes(r, isa)
    best = max(reduced, key=lambda dim: _lane_score(r, dim, kept=False))
    if _lane_score(r, best, kept=False) >= 8:
        return _reduced_lanes(r, kept, [d for d in reduced if d is not best] + [best], isa)
    if kept and _lane_score(r, kept[-1], kept=True, strided=True) >= 4:
        return _kept_lanes(r, isa)  # a strided window: vectors gathered an element at a time
    best = max(reduced, key=lambda dim: _lane_score(r, dim, kept=False, strided=True))
    if _lane_score(r, best, kept=False, strided=True) >= 8:
        return _reduced_lanes(r, kept, [d for d in reduced if d is not best] + [best], isa)
    return None


def _lane_score(r: Reduction, dim: Sequence[Axis], kept: bool, strided: bool = False) -> int:
    """The extent of a merged dimension along which operands are neighbours or constant, else 0.

    strided: operands may also be at a constant distance.
    """
    inner = dim[-1]
    steps = [affine.strides(load, [inner]) for load in loads(r.term)]
    if not steps or any(s is None or not (strided or s[0] in (0, 1)) for s in steps):
        return 0
    if all(s == [0] for s in steps) or not vectorises(r.term, {a.var for a in dim}):
        return 0
    if kept and affine.strides(_store(r), [inner]) != [1]:
        return 0
    return prod(a.extent for a in dim)


def _store(r: Reduction) -> tirx.BufferStore:
    return tirx.BufferStore(r.target, r.identity, list(r.place))


def _dims(r: Reduction, axes: Sequence[Axis]) -> list[list[Axis]]:
    return affine.merge(axes, [*loads(r.term), _store(r)]) if axes else []


def _values(
    dims: Sequence[Sequence[Axis]], index: Sequence[tirx.Expr]
) -> dict[tirx.Var, tirx.Expr]:
    """Axis values of an index of merged dimensions."""
    result: dict[tirx.Var, tirx.Expr] = {}
    for dim, flat in zip(dims, index, strict=True):
        parts = decode(flat, [a.extent for a in dim])
        result.update(zip([a.var for a in dim], parts, strict=True))
    return result


def _sizes(dims: Sequence[Sequence[Axis]]) -> list[int]:
    return [prod(a.extent for a in dim) for dim in dims]


def _scalar(r: Reduction) -> list[tirx.Stmt]:
    """Plain loops, for a handful of elements."""

    def point(index: list[tirx.Expr]) -> list[tirx.Stmt]:
        names = named(r.spatial, index)
        place = [substitute(p, names) for p in r.place]

        def step(at: list[tirx.Expr]) -> list[tirx.Stmt]:
            inner = names | named(r.reduced, at)
            value = r.at(inner, r.target[tuple(place)])
            return [tirx.BufferStore(r.target, value, place)]

        start = tirx.BufferStore(r.target, r.identity, place)
        return [start, nest([a.extent for a in r.reduced], step)]

    return [nest([a.extent for a in r.spatial], point)]


def _kept_lanes(r: Reduction, isa: Isa) -> list[tirx.Stmt]:
    """Vectors of results, which LLVM keeps in registers over the reducing loops."""
    kept, reduced = _dims(r, r.spatial), _dims(r, r.reduced)
    sizes = _sizes(kept)
    count = max(1, min(ACCUMULATORS, sizes[-1] // isa.lanes))
    block = count * isa.lanes
    full, rest = divmod(sizes[-1], block)

    def strip(outer: list[tirx.Expr], start: tirx.Expr, lanes: int) -> list[tirx.Stmt]:
        def start_lane(n: tirx.Expr) -> list[tirx.Stmt]:
            place = [substitute(p, _values(kept, [*outer, n])) for p in r.place]
            return [tirx.BufferStore(r.target, r.identity, place)]

        def step(at: list[tirx.Expr]) -> list[tirx.Stmt]:
            def lane(n: tirx.Expr) -> list[tirx.Stmt]:
                values = _values(kept, [*outer, n]) | _values(reduced, at)
                place = [substitute(p, values) for p in r.place]
                return [tirx.BufferStore(r.target, r.at(values, r.target[tuple(place)]), place)]

            return _unrolled_vectors(lanes, isa.lanes, lane, start)

        return [
            *_unrolled_vectors(lanes, isa.lanes, start_lane, start),
            nest(_sizes(reduced), step),
        ]

    parts = []
    if full:
        grid = [*sizes[:-1], full]
        parts.append(
            parallel_nest(
                grid, r.work, lambda i: strip(list(i[:-1]), i[-1] * block, block), _fused(r, kept)
            )
        )
    if rest:
        share = r.work * rest // sizes[-1]
        last = lambda i: strip(i, i64(full * block), rest)  # noqa: E731
        parts.append(parallel_nest(sizes[:-1], share, last, _fused(r, kept)))
    return parts


def _fused(r: Reduction, kept: Sequence[Sequence[Axis]]) -> int:
    """How many leading dimensions of the kept ones may be one loop."""
    alone = shifted(r.term)
    free = [not alone & {a.var for a in dim} for dim in kept]
    return free.index(False) if False in free else len(kept)


def _unrolled_vectors(
    extent: int, lanes: int, body: Callable[[tirx.Expr], list[tirx.Stmt]], start: tirx.Expr
) -> list[tirx.Stmt]:
    full, rest = divmod(extent, lanes)
    parts = [vector(lanes, lambda n, v=v: body(start + i64(v * lanes) + n)) for v in range(full)]
    if rest:
        parts.append(vector(rest, lambda n: body(start + i64(full * lanes) + n)))
    return parts


def _reduced_lanes(
    r: Reduction, kept: Sequence[Sequence[Axis]], reduced: Sequence[Sequence[Axis]], isa: Isa
) -> list[tirx.Stmt]:
    """Vectors of partial results along the last of `reduced`, combined as a tree."""
    length = _sizes(reduced)[-1]
    lanes = next(n for n in (isa.lanes, 8, 4, 1) if n <= length and n <= isa.lanes)
    count = max(1, min(ACCUMULATORS, length // lanes))
    fused = _fused(r, kept)
    if fused < len(kept):

        def point(index: list[tirx.Expr]) -> list[tirx.Stmt]:
            acc = tirx.decl_buffer((count * lanes,), str(r.target.dtype), "acc", scope="local")
            row = _row(r, _values(kept, index), reduced, acc, lanes, count)
            return [tirx.AllocBuffer(acc), *row]

        return [parallel_nest(_sizes(kept), r.work, point, fused)]
    points, tasks = r.points, min(r.points, TASKS * 4)
    chunk = -(-points // tasks) if r.work >= PARALLEL_WORK else points
    tasks = -(-points // chunk)

    def task(t: tirx.Expr) -> list[tirx.Stmt]:
        acc = tirx.decl_buffer((count * lanes,), str(r.target.dtype), "acc", scope="local")
        size: tirx.Expr | int = chunk
        if chunk * tasks != points:
            size = tirx.min(i64(chunk), i64(points) - t * chunk)

        def body(p: tirx.Expr) -> list[tirx.Stmt]:
            names = _values(kept, decode(t * chunk + p, _sizes(kept)))
            return _row(r, names, reduced, acc, lanes, count)

        return [tirx.AllocBuffer(acc), loop(size, body)]

    return [parallel(tasks, task) if tasks > 1 else sequence(task(i64(0)))]


def _row(
    r: Reduction,
    names: dict[tirx.Var, tirx.Expr],
    reduced: Sequence[Sequence[Axis]],
    acc: tirx.Buffer,
    lanes: int,
    count: int,
) -> list[tirx.Stmt]:
    """The result where the kept axes are `names`."""
    *outer, length = _sizes(reduced)
    steps, rest = divmod(length, lanes * count)
    more, rest = divmod(rest, lanes)

    def clear(n: tirx.Expr) -> list[tirx.Stmt]:
        return [tirx.BufferStore(acc, r.identity, [n])]

    def add(at: Sequence[tirx.Expr], size: int, slot: int, start: tirx.Expr) -> tirx.Stmt:
        def lane(n: tirx.Expr) -> list[tirx.Stmt]:
            values = names | _values(reduced, [*at, start + n])
            cell = i64(slot * lanes) + n
            return [tirx.BufferStore(acc, r.at(values, acc[cell]), [cell])]

        return vector(size, lane)

    def run(at: list[tirx.Expr]) -> list[tirx.Stmt]:
        parts = []
        if steps:
            group = lambda s: [  # noqa: E731
                add(at, lanes, u, (s * count + u) * lanes) for u in range(count)
            ]
            parts.append(loop(steps, group))
        base = steps * count * lanes
        parts += [add(at, lanes, u, i64(base + u * lanes)) for u in range(more)]
        if rest:
            parts.append(add(at, rest, 0, i64(base + more * lanes)))
        return parts

    place = [substitute(p, names) for p in r.place]
    return [
        *unrolled(count, lambda u: [vector(lanes, lambda n: clear(u * lanes + n))]),
        nest(outer, run),
        *_tree(r, acc, count, lanes),
        tirx.BufferStore(r.target, acc[0], place),
    ]


def _tree(r: Reduction, acc: tirx.Buffer, count: int, lanes: int) -> list[tirx.Stmt]:
    """Combine the accumulators into acc[0]: whole vectors, then halves of one."""

    def fold(offset: int, width: int) -> tirx.Stmt:
        def lane(n: tirx.Expr) -> list[tirx.Stmt]:
            return [tirx.BufferStore(acc, r.combine(acc[n], acc[n + i64(offset)]), [n])]

        return vector(width, lane)

    parts = [fold(u * lanes, lanes) for u in range(1, count)]
    width = lanes // 2
    while width:
        parts.append(fold(width, width))
        width //= 2
    return parts


def _load(buffer: tirx.Buffer, place: Sequence[tirx.Expr]) -> tirx.Expr:
    return buffer[tuple(place)]


def _cut(r: Reduction, isa: Isa) -> tuple[Reduction, Reduction, tirx.Buffer] | None:
    """Partial results along the largest reduced axis, where the kept elements are too few tasks."""
    tasks = r.points
    kept = _dims(r, r.spatial)
    if kept and _lane_score(r, kept[-1], kept=True) >= 4:
        tasks = r.points // min(_sizes(kept)[-1], ACCUMULATORS * isa.lanes)
    if tasks >= TASKS // 2 or r.work < PARALLEL_WORK * 4:
        return None
    alone = shifted(r.term)
    axis = max((a for a in r.reduced if a.var not in alone), key=lambda a: a.extent, default=None)
    if axis is None:
        return None
    pieces = max(d for d in range(1, TASKS + 1) if axis.extent % d == 0)
    if pieces < 4 or r.points > 1 << 16:
        return None
    piece = Axis(tirx.Var("piece", "int64"), pieces)
    inner = Axis(tirx.Var("k", "int64"), axis.extent // pieces, reduce=True)
    shape = (pieces, *(int(n) for n in r.target.shape))
    partial = tirx.decl_buffer(shape, str(r.target.dtype), f"{r.target.name}_partial")
    term = substitute(r.term, {axis.var: piece.var * inner.extent + inner.var})
    reduced = tuple(inner if a is axis else a for a in r.reduced)
    first = Reduction(
        partial,
        (piece.var, *r.place),
        r.combine,
        r.identity,
        term,
        (piece, *r.spatial),
        reduced,
    )
    over = Axis(piece.var, pieces, reduce=True)
    second = Reduction(
        r.target,
        r.place,
        r.combine,
        r.identity,
        _load(partial, [piece.var, *r.place]),
        r.spatial,
        (over,),
    )
    return first, second, partial
