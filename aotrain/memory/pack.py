"""A plan without offsets in, the same plan with every tensor placed in one block out.

    | persistent: state, constants, hyper, inputs, outputs | arena: TEMP tensors of one entry |
    0                                                      persistent_bytes          block_bytes

Persistent tensors lie one after another. Entries never run at the same time, so each packs its TEMP
tensors into the same arena. The layout is the best of several first-fit orders (Pisarchyk and Lee,
"Efficient Memory Management for Deep Neural Net Inference", 2020); where that is above `max_load`,
which no layout undercuts, a search that could be exact follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from aotrain.memory.exact import search
from aotrain.memory.liveness import Lifetime, lifetimes, max_load
from aotrain.plan import ALIGNMENT, Kind, Plan, align

Order = Callable[[Lifetime], tuple[int, ...]]

ORDERS: dict[str, Order] = {
    "size": lambda life: (-life.nbytes, life.first),
    "area": lambda life: (-life.nbytes * (life.last - life.first + 1), life.first),
    "duration": lambda life: (life.first - life.last, -life.nbytes),
    "time": lambda life: (life.first, -life.nbytes),
    "death": lambda life: (-life.last, -life.nbytes),
}

EFFORT = 2000
"""Placements tried in one descent of the search: bounded by count, so that it is deterministic."""

PRECISION = 1 / 128
"""Of `max_load`: the search halves what is between its last failure and success down to this."""


def pack(plan: Plan) -> Plan:
    """Place every tensor; offsets are multiples of `ALIGNMENT`."""
    offsets: dict[int, int] = {}
    base = 0
    for index, tensor in enumerate(plan.tensors):
        if tensor.kind is not Kind.TEMP:
            offsets[index] = base
            base += align(tensor.nbytes)
    end = base
    for entry in plan.entries:
        placed, size = pack_lifetimes(lifetimes(plan, entry))
        offsets.update((tensor, base + offset) for tensor, offset in placed.items())
        end = max(end, base + size)
    tensors = tuple(
        tensor.at(offsets.get(index, base)) for index, tensor in enumerate(plan.tensors)
    )
    return replace(plan, tensors=tensors, block_bytes=end)


def pack_lifetimes(alive: Sequence[Lifetime]) -> tuple[dict[int, int], int]:
    """Offsets by tensor and the bytes needed in all."""
    bound = max_load(alive)
    best, size = _portfolio(alive, bound)
    low = capacity = bound
    while capacity < size:
        found = search(alive, capacity, nodes=EFFORT, restarts=6)
        if found is None:
            low = capacity
        else:
            best, size = found, max(found[life.tensor] + life.nbytes for life in alive)
        if size - low <= max(ALIGNMENT, bound * PRECISION):
            break
        capacity = align((low + size) // 2)
    return best, size


def _portfolio(alive: Sequence[Lifetime], bound: int) -> tuple[dict[int, int], int]:
    best: tuple[dict[int, int], int] = ({}, 0)
    for order in ORDERS.values():
        placed, size = _first_fit(sorted(alive, key=order))
        if not best[0] or size < best[1]:
            best = placed, size
        if size == bound:
            break
    return best


def _first_fit(ordered: list[Lifetime]) -> tuple[dict[int, int], int]:
    """Each tensor in turn at the lowest offset where it meets no tensor that lives with it."""
    placed: list[tuple[int, Lifetime]] = []  # by offset
    size = 0
    for life in ordered:
        offset = 0
        for other_offset, other in placed:
            if not life.overlaps(other):
                continue
            if offset + life.nbytes <= other_offset:
                break
            offset = max(offset, other_offset + other.nbytes)
        placed.append((offset, life))
        placed.sort(key=lambda item: item[0])
        size = max(size, offset + life.nbytes)
    return {life.tensor: offset for offset, life in placed}, size
