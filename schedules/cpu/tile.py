"""A contraction and an instruction set in, how to run it out: orientation, register tile, packing.

A small analytic model in cycles of one core. What it knows of a core: two loads and one to two
vector multiply-adds a cycle, multiply-add latency 4. `candidates` lists what else is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from tvm import ir, tirx

from aotrain.schedules.cpu import affine
from aotrain.schedules.cpu.contraction import Contraction
from aotrain.schedules.cpu.isa import Isa
from aotrain.schedules.cpu.loops import PARALLEL_WORK, TASKS
from aotrain.schedules.cpu.nest import Axis, extents, loads, variables

#: Cycles to move an element as part of a vector, through a register transpose, or alone.
VECTOR, TRANSPOSED, SCALAR = 0.15, 0.5, 2.0
#: Cycles to store an element alone, to a cache line of its own; to one of lines that share a set.
SCATTERED, ALIASED = 4.0, 16.0
#: Bytes of a cache line, and between addresses that share a set of a first-level cache.
LINE, PAGE = 64, 4096
#: Lanes for which a row operand is used before it pays to pack it.
PACK_ROWS_FROM = 512
#: Bytes of lane panels that may be packed ahead of the tasks that share them.
SHARED_BYTES = 8 << 20
#: Bytes of a panel beyond which depth is cut, and the least depth of a part: its sums are stored.
PANEL_BYTES, MIN_BLOCK = 256 << 10, 256


@dataclass(frozen=True)
class Plan:
    """How a contraction runs.

    height, width: rows and lanes of the register tile.
    run, store_run: neighbours in memory among the lanes of the vector operand and of the target, at
        most a vector; transpose: the operand's are neighbours in depth instead; store_rows: the
        target's are neighbours along the rows of a tile instead.
    direct: read the vector operand where it is; shared: pack its panels once, before the tasks.
    pack_rows: pack the scalar operand; row_run: its neighbours in memory among the rows;
        even_rows: where it is not packed, a full tile's are at equal distances.
    row_tasks: how many tasks share the rows of a panel. blocks: equal parts of the depth, run one
        after another, each with a panel that stays in the second-level cache.
    """

    height: int
    width: int
    lanes: int
    run: int
    store_run: int
    transpose: bool
    store_rows: bool
    direct: bool
    shared: bool
    pack_rows: bool
    row_run: int
    even_rows: bool
    row_tasks: int
    blocks: int
    parallel: bool


@dataclass(frozen=True)
class Choice:
    """What of a plan is free; all else follows. swapped: lanes of the contraction become rows."""

    swapped: bool
    height: int
    width: int
    row_tasks: int
    pack_rows: bool


def _last_run(axes: Sequence[Axis], accesses: Sequence[affine.Access], unit: bool = True) -> int:
    """How many neighbouring points of `axes` every access finds at equal distances in memory.

    unit: that distance must be one element.
    """
    live = [a for a in axes if a.extent > 1]
    if not live:
        return 1
    dims = affine.merge(live, accesses)
    steps = [affine.strides(access, live) for access in accesses]
    if not all(row is not None and (row[-1] == 1 or not unit) for row in steps):
        return 1
    return 1 << 30 if len(dims) == 1 else prod(a.extent for a in dims[-1])


def _vector_run(c: Contraction) -> int:
    return _last_run(c.lanes, loads(c.vector))


def _store_run(c: Contraction, axes: Sequence[Axis]) -> int:
    return _last_run(axes, [_store(c)])


def _store(c: Contraction) -> tirx.BufferStore:
    return tirx.BufferStore(c.target, tirx.const(0, str(c.target.dtype)), list(c.place))


def _cost(c: Contraction, isa: Isa) -> float:
    """Cycles for `c` in this orientation."""
    batch, rows, lanes, depth = (prod(extents(a)) for a in (c.batch, c.rows, c.lanes, c.depth))
    height, width = _tile(c, isa)
    vectors = width // isa.lanes
    step = max(height * vectors / 2, (height + vectors) / 2, 4)
    multiply = batch * -(-rows // height) * -(-lanes // width) * depth * step
    pack = batch * lanes * depth * _pack_cost(c, isa)
    return multiply + pack + batch * rows * lanes * _lane_store_cost(c, isa)


def _lane_store_cost(c: Contraction, isa: Isa) -> float:
    """Cycles an element of the target, stored lane by lane."""
    if _store_run(c, c.lanes) >= isa.lanes:
        return VECTOR
    live = [a for a in c.lanes if a.extent > 1]
    steps = affine.strides(_store(c), live)
    step = 4 * abs(steps[-1]) if steps else LINE
    if step < LINE:
        return SCALAR
    return ALIASED if step % PAGE == 0 else SCATTERED


def _store_cost(runs: tuple[int, int], height: int, isa: Isa) -> float:
    """Cycles an element of the target; runs: neighbours in memory among its lanes and its rows."""
    if _aligned(runs[0], isa) >= 4:
        return VECTOR * isa.lanes / _aligned(runs[0], isa)
    return TRANSPOSED if _stores_rows(runs[1], height, isa) else SCATTERED


def _stores_rows(run: int, height: int, isa: Isa) -> bool:
    """Whether the rows of each full tile, neighbours in runs of `run`, can be stored as vectors."""
    return min(isa.lanes, height) >= 4 and (run == 1 << 30 or run % height == 0)


def _pack_cost(c: Contraction, isa: Isa) -> float:
    run = _vector_run(c)
    if run >= isa.lanes and _reads_directly(c, _tile(c, isa)[0]):
        return 0.0
    if run >= 4:
        return VECTOR * isa.lanes / min(gcd(run, isa.lanes), isa.lanes)
    return TRANSPOSED if _transposes(c, isa) else SCALAR


def _transposes(c: Contraction, isa: Isa) -> bool:
    if isa.lanes < 4 or not isinstance(c.vector, ir.TensorLoad):
        return False
    return _last_run(c.depth, loads(c.vector)) >= isa.lanes


def _reads_directly(c: Contraction, height: int) -> bool:
    """Whether each panel is used for one tile of rows only and needs no packing."""
    return prod(extents(c.rows)) <= height and _vector_run(c) == 1 << 30


def _tile(c: Contraction, isa: Isa) -> tuple[int, int]:
    """Rows and lanes of the register tile: the cheapest that fits the registers."""
    _, height, width = min(_tiles(c, isa), key=lambda tile: tile[0])
    return height, width


def _tiles(c: Contraction, isa: Isa) -> list[tuple[float, int, int]]:
    """(cycles without packing, height, width) of every register tile that fits the registers."""
    rows, lanes = prod(extents(c.rows)), prod(extents(c.lanes))
    depth, runs = prod(extents(c.depth)), (_store_run(c, c.lanes), _store_run(c, c.rows))
    found = []
    for vectors in (1, 2, 3, 4):
        if vectors > 1 and (vectors - 1) * isa.lanes >= lanes:
            continue
        for height in range(1, 17):
            if height * vectors > isa.registers - vectors - 2 or height > max(rows, 1):
                continue
            cost = depth * _tile_cost(rows, lanes, height, vectors, isa)
            cost += rows * lanes * _store_cost(runs, height, isa)
            found.append((cost, height, vectors * isa.lanes))
    return found


def _tile_cost(rows: int, lanes: int, height: int, vectors: int, isa: Isa) -> float:
    """Cycles a unit of depth for the whole: full tiles and the remainders, which run smaller."""

    def cycles(h: int, v: int) -> float:
        # A panel's vectors come from the second-level cache, about one a cycle, partly hidden.
        return max(h * v / 2, (h + v) / 2, 4.0) + v if h and v else 0.0

    full_rows, rest_rows = divmod(rows, height)
    full, rest = divmod(-(-lanes // isa.lanes), vectors)
    total = full * (full_rows * cycles(height, vectors) + cycles(rest_rows, vectors))
    return total + full_rows * cycles(height, rest) + cycles(rest_rows, rest)


def choose(c: Contraction, isa: Isa) -> tuple[Contraction, Plan]:
    """The cheaper orientation of `c`, and its plan."""
    best = min((c, c.swapped()), key=lambda o: _cost(o, isa))
    return best, _plan(best, isa, *_tile(best, isa))


def candidates(c: Contraction, isa: Isa) -> list[Choice]:
    """What `chosen` takes for `c`: the cheapest by the model first, in both orientations."""
    found: list[tuple[float, Choice]] = []
    for swapped, oriented in ((False, c), (True, c.swapped())):
        batch = prod(extents(oriented.batch))
        rest = _cost(oriented, isa) - batch * min(_tiles(oriented, isa))[0]
        for cost, height, width in _tiles(oriented, isa):
            usual = _plan(oriented, isa, height, width)
            packs = [usual.pack_rows, not usual.pack_rows]
            for pack in packs[: 1 + _same_for_batch(oriented)]:
                for tasks in _task_counts(oriented, usual):
                    # The usual settings of a tile first: the model says nothing of the others.
                    unusual = (pack != usual.pack_rows) + (tasks != usual.row_tasks)
                    total = (rest + batch * cost) * (1 + 0.1 * unusual)
                    found.append((total, Choice(swapped, height, width, tasks, pack)))
    return [choice for _, choice in sorted(found, key=lambda pair: pair[0])]


def _task_counts(c: Contraction, plan: Plan) -> list[int]:
    """Tasks that may share the rows of a panel."""
    tiles = -(-prod(extents(c.rows)) // plan.height)
    counts = {plan.row_tasks, 1, min(2, tiles), min(4, tiles), min(TASKS, tiles)}
    return sorted(counts) if plan.parallel else [plan.row_tasks]


def chosen(c: Contraction, isa: Isa, choice: Choice) -> tuple[Contraction, Plan] | None:
    """`c` in the orientation of `choice` and the plan that follows; None: it is none of `c`'s."""
    oriented = c.swapped() if choice.swapped else c
    tiles = -(-prod(extents(oriented.rows)) // max(choice.height, 1))
    fits = (choice.height, choice.width) in [tile[1:] for tile in _tiles(oriented, isa)]
    fits = fits and 1 <= choice.row_tasks <= tiles
    if not fits or (choice.pack_rows and not _same_for_batch(oriented)):
        return None
    return oriented, _plan(oriented, isa, choice.height, choice.width, choice)


def _plan(c: Contraction, isa: Isa, height: int, width: int, choice: Choice | None = None) -> Plan:
    batch, rows, lanes, depth = (prod(extents(a)) for a in (c.batch, c.rows, c.lanes, c.depth))
    panels = -(-lanes // width)
    run, run_rows = _vector_run(c), _scalar_run(c)
    direct = run >= isa.lanes and _reads_directly(c, height)
    parallel = c.macs >= PARALLEL_WORK * 4
    tiles = -(-rows // height)
    few = batch * panels < TASKS and tiles > 1 and parallel
    store_run = _aligned(_store_run(c, c.lanes), isa)
    shared_bytes = 4 * batch * panels * width * depth
    row_tasks = min(tiles, -(-TASKS // (batch * panels))) if few else 1
    if choice is not None:
        row_tasks = choice.row_tasks
    return Plan(
        height=height,
        width=width,
        lanes=isa.lanes,
        run=_aligned(run, isa),
        transpose=run < 4 and _transposes(c, isa),
        direct=direct,
        shared=row_tasks > 1 and not direct and shared_bytes <= SHARED_BYTES,
        store_run=store_run,
        store_rows=store_run < 4 and _stores_rows(_store_run(c, c.rows), height, isa),
        pack_rows=_packs_rows(c) if choice is None else choice.pack_rows,
        row_run=_last_run(c.rows, loads(c.scalar)),
        even_rows=run_rows == 1 << 30 or run_rows % height == 0,
        row_tasks=row_tasks,
        blocks=1 if direct else _blocks(c, width),
        parallel=parallel,
    )


def _blocks(c: Contraction, width: int) -> int:
    """The fewest equal parts of depth with small enough panels, if any.

    Of a matrix product: a convolution's operands are walked plane by plane, which prefetchers see.
    """
    if sum(a.extent > 1 for a in c.depth) != 1:
        return 1
    depth, outer = prod(extents(c.depth)), c.depth[0].extent
    parts = [n for n in range(1, outer + 1) if outer % n == 0]
    count = next((n for n in parts if 4 * width * depth <= n * PANEL_BYTES), 1)
    return count if depth >= count * MIN_BLOCK else 1


def _aligned(run: int, isa: Isa) -> int:
    """Lanes that a vector may move at once, where neighbours come in runs of `run`."""
    return isa.lanes if run == 1 << 30 else gcd(run, isa.lanes)


def _packs_rows(c: Contraction) -> bool:
    return prod(extents([*c.batch, *c.lanes])) > PACK_ROWS_FROM and _same_for_batch(c)


def _scalar_run(c: Contraction) -> int:
    """How many neighbouring rows of the scalar operand stand at equal distances in memory."""
    return _last_run(c.rows, loads(c.scalar), unit=False)


def _same_for_batch(c: Contraction) -> bool:
    return not variables(c.scalar) & {a.var for a in c.batch if a.extent > 1}
