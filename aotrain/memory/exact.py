"""Lifetimes and a capacity in, offsets within it out, or None where the search gave up.

Depth first over *canonical* layouts (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
Hardware-Accelerated Machine Learning", ASPLOS 2023): tensors are placed by ascending offset, each
at the lowest offset that what lies below allows. Time is cut into sections at births and deaths; a
section that is full at its peak has no byte to waste, which prunes nearly everything.

Restarts perturb the order in which tensors are tried: a descent either succeeds with little
backtracking or is stuck in a choice made near its top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from aotrain.memory.liveness import Lifetime

Array = npt.NDArray[np.int64]
Place = tuple[int, int]
"""(offset, preference) of the tensor placed last: the next one's is greater, so that tensors at one
offset are placed in one order only."""

Rank = Callable[["_Instance"], npt.NDArray[Any]]


def search(
    alive: Sequence[Lifetime], capacity: int, *, nodes: int, restarts: int, seed: int = 0
) -> dict[int, int] | None:
    """Offsets by tensor. `nodes` bounds the placements tried in each of `restarts` descents."""
    instance = _Instance.of(alive)
    if (instance.load > capacity).any():
        return None
    rng = np.random.default_rng(seed)
    for attempt in range(restarts):
        rank = RANKS[attempt % len(RANKS)](instance)
        if attempt >= len(RANKS):
            rank = rank * rng.uniform(0.7, 1.0, len(rank))
        found = _Descent(instance, capacity, rank).run(nodes)
        if found is not None:
            return {life.tensor: int(offset) for life, offset in zip(alive, found, strict=True)}
    return None


@dataclass(frozen=True)
class _Instance:
    """Tensor i covers the sections begin[i] to end[i] - 1; `load` is by section."""

    size: Array
    begin: Array
    end: Array
    length: Array
    load: Array
    neighbours: list[Array]

    @staticmethod
    def of(alive: Sequence[Lifetime]) -> _Instance:
        size = np.array([life.nbytes for life in alive], np.int64)
        first = np.array([life.first for life in alive], np.int64)
        last = np.array([life.last + 1 for life in alive], np.int64)
        times = np.unique(np.concatenate([first, last]))
        begin, end = np.searchsorted(times, first), np.searchsorted(times, last)
        load = np.zeros(len(times), np.int64)
        np.add.at(load, begin, size)
        np.subtract.at(load, end, size)
        neighbours = [
            np.flatnonzero((begin < e) & (end > b)) for b, e in zip(begin, end, strict=True)
        ]
        return _Instance(size, begin, end, last - first, np.cumsum(load), neighbours)

    def pressure(self) -> Array:
        """The highest load that each tensor takes part in."""
        return np.array([self.load[b:e].max() for b, e in zip(self.begin, self.end, strict=True)])


RANKS: tuple[Rank, ...] = (
    lambda i: 1.0 * i.length * i.size,
    lambda i: 1.0 * i.length,
    lambda i: 1.0 * i.size,
    lambda i: i.pressure() * (1.0 * i.length * i.size) ** 0.1,
    lambda i: (1.0 * i.pressure()) ** 4 * i.length * i.size,
)
"""Static preferences, the greater the earlier."""


@dataclass(frozen=True)
class _Part:
    """Tensors that share no section with others to be placed; `parent` is the choice behind it."""

    members: Array  # by birth
    below: Place
    parent: int
    others: _Part | None  # parts that come after


@dataclass
class _Choice:
    """A part and the tensors that may still be tried as its next."""

    part: _Part
    candidates: Iterator[int]
    mark: int  # length of the trail before any was placed


class _Descent:
    """One depth-first search; placements are undone from a trail."""

    def __init__(self, instance: _Instance, capacity: int, rank: npt.NDArray[Any]) -> None:
        self.instance = instance
        self.preference = np.argsort(np.argsort(-rank, kind="stable"), kind="stable")
        count = len(instance.size)
        self.lowest = np.zeros(count, np.int64)  # offset at which it could lie now
        self.floor = np.zeros(len(instance.load), np.int64)
        self.rest = instance.load.copy()  # bytes still to be placed, by section
        self.slack = capacity - instance.load  # bytes that a section may yet waste
        self.offsets = np.zeros(count, np.int64)
        self.trail: list[tuple[int, Array, Array, Array]] = []
        self.nodes = 0

    def run(self, nodes: int) -> Array | None:
        """Offsets by tensor, None after `nodes` placements without success."""
        self.nodes = nodes
        todo = self._parts(np.argsort(self.instance.begin, kind="stable"), (0, -1), -1, None)
        choices: list[_Choice] = []
        while todo is not None:
            candidates = iter(self._candidates(todo.members, todo.below).tolist())
            choices.append(_Choice(todo, candidates, len(self.trail)))
            found = self._step(choices)
            if found is None:
                return None
            todo = found[0]
        return self.offsets

    def _step(self, choices: list[_Choice]) -> tuple[_Part | None] | None:
        """Place one more tensor, taking back what must be; (what is then to do,), None if stuck.

        A part that cannot be placed is the fault of the choice behind it, not of parts in between.
        """
        while self.nodes > 0:
            choice = choices[-1]
            self._undo(choice.mark)
            for candidate in choice.candidates:
                if self._place(candidate):
                    rest = choice.part.members[choice.part.members != candidate]
                    place = int(self.offsets[candidate]), int(self.preference[candidate])
                    if self._hopeful(rest, place):
                        return (self._parts(rest, place, len(choices) - 1, choice.part.others),)
                    self._undo(choice.mark)
            if choice.part.parent < 0:
                return None
            del choices[choice.part.parent + 1 :]
        return None

    def _parts(
        self, members: Array, below: Place, parent: int, others: _Part | None
    ) -> _Part | None:
        """Split `members` (by birth) where no tensor spans; none may lie lower than `below`."""
        if not len(members):
            return others
        end = np.maximum.accumulate(self.instance.end[members])
        breaks = np.flatnonzero(self.instance.begin[members][1:] >= end[:-1]) + 1
        for part in np.split(members, breaks):
            others = _Part(part, below, parent, others)
        return others

    def _open(self, members: Array, below: Place) -> npt.NDArray[np.bool_]:
        """Which of `members` may still lie at their lowest offset."""
        lowest, (offset, preference) = self.lowest[members], below
        return (lowest > offset) | ((lowest == offset) & (self.preference[members] > preference))

    def _candidates(self, members: Array, below: Place) -> Array:
        """Tensors to place next, the most promising first.

        Canonical: none before the last one placed; none above where another fits beneath it.
        """
        lowest = self.lowest[members]
        limit = (lowest + self.instance.size[members]).min()
        fits = self._open(members, below) & (lowest < limit)
        return members[fits][np.lexsort((self.preference[members[fits]], lowest[fits]))]

    def _hopeful(self, members: Array, below: Place) -> bool:
        """Whether no section must waste more than it may, for all that could cover its floor.

        What may no longer lie at its lowest offset will rest on something that is yet to come, and
        that lies at `below` at least.
        """
        if not len(members):
            return True
        begin, end, size = (
            x[members] for x in (self.instance.begin, self.instance.end, self.instance.size)
        )
        lowest = np.where(self._open(members, below), self.lowest[members], below[0] + size.min())
        by_height = np.argsort(-lowest, kind="stable")
        reach = np.zeros(len(self.floor), np.int64)
        for b, e, low in zip(begin[by_height], end[by_height], lowest[by_height], strict=True):
            reach[b:e] = low
        return not ((reach - self.floor > self.slack) & (self.rest > 0)).any()

    def _place(self, i: int) -> bool:
        self.nodes -= 1
        instance = self.instance
        part = slice(instance.begin[i], instance.end[i])
        offset = self.lowest[i]
        waste = offset - self.floor[part]
        if (waste > self.slack[part]).any():
            return False
        near = instance.neighbours[i]
        self.trail.append((i, self.floor[part].copy(), waste, self.lowest[near]))
        top = offset + instance.size[i]
        self.slack[part] -= waste
        self.rest[part] -= instance.size[i]
        self.floor[part] = top
        self.lowest[near] = np.maximum(self.lowest[near], top)
        self.offsets[i] = offset
        return True

    def _undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            i, floor, waste, lowest = self.trail.pop()
            part = slice(self.instance.begin[i], self.instance.end[i])
            self.floor[part] = floor
            self.slack[part] += waste
            self.rest[part] += self.instance.size[i]
            self.lowest[self.instance.neighbours[i]] = lowest
