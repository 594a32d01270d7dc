"""A problem in, bytes below which no schedule stays, and time below which none stays in a budget.

While task v runs for the first time, all that it needs (its ancestors) has run and nothing that
needs it (its descendants) has. That holds for every order and for any number of second runs, so a
minimum cut at one v bounds every schedule; the best v gives the best bound.

`order_bound`  nothing runs twice: which tasks have run beside the ancestors? Least bytes alive.
`Wavefront`    anything may run twice: what descendants will read is kept now or computed again.
               min over choices of time(again) + price * bytes(kept) is a cut (Lagrange: for every
               price >= 0, extra time >= cut(price) - price * bytes that are free).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aotrain.memory.flow import FIRST, SINK, SOURCE, Network
from aotrain.memory.problem import Problem, total_bytes
from aotrain.plan import ALIGNMENT

HIGH = 1e9  # ns a byte: above what any second run is worth


def order_bound(problem: Problem, tasks: Iterable[int]) -> int:
    """Bytes that every order without recomputation needs while one of `tasks` runs."""
    return max((_order_bound_at(problem, task) for task in tasks), default=0)


def _order_bound_at(problem: Problem, task: int) -> int:
    """Vertices: tasks (source side: has run), then values (sink side while alive: cut, paid).

    run(t) implies run(its needs); a value whose writer has run and one reader has not is alive.
    """
    ancestors = problem.reach(task, forward=False)
    later = problem.reach(task, forward=True)
    mine = {*problem.tasks[task].reads, *problem.tasks[task].writes}
    count = len(problem.tasks)
    network = Network(FIRST + count + len(problem.values))
    nbytes: dict[int, int] = {}
    for other in ancestors:
        network.edge(SOURCE, FIRST + other, infinite=True)
    for other in later:
        network.edge(FIRST + other, SINK, infinite=True)
    for other in range(count):
        for need in problem.needs[other]:
            if task not in (need, other):  # it runs now: its own bytes are counted apart
                network.edge(FIRST + other, FIRST + need, infinite=True)
    for number, value in enumerate(problem.values):
        if number not in mine:
            vertex = FIRST + count + number
            nbytes[network.edge(FIRST + value.writer, vertex)] = value.nbytes
            for reader in problem.readers[number]:
                network.edge(vertex, FIRST + reader, infinite=True)
    cut = network.minimum_cut([nbytes.get(i, 0) for i in range(len(network.tails))])
    assert cut.value is not None
    return total_bytes(problem, mine) + int(np.ceil(cut.value / ALIGNMENT - 1e-3)) * ALIGNMENT


@dataclass(frozen=True)
class Choice:
    """What one price (ns a byte) makes of a wavefront: `again` run again, `kept` bytes stay.

    `cut` <= time + price * kept for every choice there is.
    """

    price: float
    cut: float
    nanoseconds: int
    kept: int
    again: frozenset[int]


class Wavefront:
    """The cut at the first run of `task`: ancestors' values, kept for descendants or run again.

    Vertices: one a task (sink side: runs again, paid in time), one a value (sink side: needed; paid
    in bytes if its writer does not run again). Tasks that are neither ancestors nor descendants
    may run on either side of `task`, and cost nothing here.
    """

    def __init__(self, problem: Problem, task: int) -> None:
        self.problem, self.task = problem, task
        self.local = problem.local_bytes(task)
        before = problem.reach(task, forward=False)
        later = problem.reach(task, forward=True)
        mine = {*problem.tasks[task].reads, *problem.tasks[task].writes}
        count = len(problem.tasks)
        self._network = Network(FIRST + count + len(problem.values))
        self._replay: dict[int, int] = {}  # edge -> task
        self._keep: dict[int, int] = {}  # edge -> value
        for other in sorted(before):
            gone = any(writer in before or writer == task for writer in problem.overwriters[other])
            possible = problem.tasks[other].replayable and not gone
            edge = self._network.edge(SOURCE, FIRST + other, infinite=not possible)
            if possible:
                self._replay[edge] = other
            for value in problem.tasks[other].reads:
                self._network.edge(FIRST + count + value, FIRST + other, infinite=True)
        for value, spec in enumerate(problem.values):
            if spec.writer not in before:
                continue
            vertex = FIRST + count + value
            if value not in mine:
                self._keep[self._network.edge(FIRST + spec.writer, vertex)] = value
            if not later.isdisjoint(problem.readers[value]):
                self._network.edge(vertex, SINK, infinite=True)
        self.choices: list[Choice] = []
        self.least = self._least_bytes()

    def _capacity(self, seconds: float, price: float) -> npt.NDArray[np.float64]:
        found = np.zeros(len(self._network.tails))
        for edge, task in self._replay.items():
            found[edge] = seconds * self.problem.tasks[task].nanoseconds
        for edge, value in self._keep.items():
            found[edge] = price * self.problem.values[value].nbytes
        return found

    def _least_bytes(self) -> int:
        """Bytes alive while the task runs if running again cost nothing."""
        cut = self._network.minimum_cut(self._capacity(0, 1))
        assert cut.value is not None
        return self.local + int(np.ceil(cut.value / ALIGNMENT - 1e-3)) * ALIGNMENT

    def at(self, price: float) -> Choice:
        """The cheapest choice at `price`."""
        cut = self._network.minimum_cut(self._capacity(1, price))
        assert cut.value is not None
        side = cut.source_side
        again = frozenset(t for t in self._replay.values() if not side[FIRST + t])
        count = len(self.problem.tasks)
        kept = [
            v
            for v in self._keep.values()
            if not side[FIRST + count + v] and self.problem.values[v].writer not in again
        ]
        time = sum(self.problem.tasks[task].nanoseconds for task in again)
        choice = Choice(price, cut.value, time, total_bytes(self.problem, kept), again)
        self.choices.append(choice)
        return choice

    def sweep(self, limit: int) -> list[Choice]:
        """Up to `limit` choices on the convex hull of (bytes, time), widest gaps first."""
        dear = self.at(HIGH)
        free = self.at(0.0)
        gaps = [(dear.kept - free.kept, free, dear)]
        while gaps and len(self.choices) < limit:
            _, more, less = gaps.pop(0)
            if more.kept <= less.kept:
                continue
            price = (less.nanoseconds - more.nanoseconds) / (more.kept - less.kept)
            middle = self.at(price)
            if less.kept < middle.kept < more.kept:
                gaps += [(middle.kept - less.kept, middle, less)]
                gaps += [(more.kept - middle.kept, more, middle)]
                gaps.sort(key=lambda gap: -gap[0])
        return self.choices

    def extra_time(self, arena: int) -> float:
        """Nanoseconds that every schedule within `arena` bytes spends on second runs."""
        free = arena - self.local
        return max((c.cut - c.price * free for c in self.choices), default=0.0)
