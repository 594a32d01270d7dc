"""A schedule and a position in it in, a schedule that holds fewer bytes there out, for little time.

At the position some values have been made that later runs read. Each is kept, or its writer runs
again later (reading values that are kept, or made again in turn): a minimum cut finds the choice of
least time + price * bytes, and the price is raised until what is kept fits. Writers that run again
do so lazily, just before the first read. The same cut serves the end of the forward pass, and any
later peak, so that what has been made again may be dropped and made again once more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aotrain.memory.bounds import HIGH
from aotrain.memory.flow import FIRST, SINK, SOURCE, Network
from aotrain.memory.problem import Problem
from aotrain.memory.segments import checkpoints
from aotrain.memory.simulate import Trace

STEPS = 12
"""Prices tried at most; four or five are usual."""


@dataclass(frozen=True)
class Style:
    """What a cut knows of the time after its position, for which it has no constraint.

    `length` makes a kept value dearer the longer it will live; `segments` keep second runs local;
    what the next `horizon` runs read stays, or the peak would only move there.
    """

    length: float = 0.0
    segments: int = 1
    horizon: int = 0


@dataclass(frozen=True)
class _Choice:
    """Tasks that run again, their ns, bytes kept as the style weighs them, bytes alive."""

    again: frozenset[int]
    time: float
    weighted: float
    nbytes: int


class WaveCut:
    """The choice at `position` of the schedule of `trace`."""

    def __init__(self, problem: Problem, trace: Trace, position: int, style: Style) -> None:
        self.problem, self.trace, self.position = problem, trace, position
        schedule = trace.schedule
        here = problem.tasks[int(schedule[position])]
        self.mine = {*here.reads, *here.writes}
        self.local = sum(problem.values[v].nbytes for v in self.mine)
        self.done = set(schedule[:position].tolist())
        spans = (trace.first < position) & (trace.last > position)
        self.needed = dict(
            zip(trace.value[spans].tolist(), trace.last[spans].tolist(), strict=True)
        )
        place: dict[int, int] = {}
        for i, task in enumerate(schedule.tolist()):
            place.setdefault(task, i)
        self.deadline = {
            task: min((place[o] for o in problem.overwriters[task]), default=len(schedule))
            for task in self.done
        }
        self._build(style)

    def _build(self, style: Style) -> None:
        problem, count = self.problem, len(self.problem.tasks)
        self._network = Network(FIRST + count + len(problem.values))
        self._replay: list[tuple[int, int]] = []  # (edge, task)
        self._keep: list[tuple[int, int]] = []  # (edge, value)
        length = max(1, len(self.trace.schedule))
        weight = []
        pinned = checkpoints(problem, self.trace, self.position, style.segments)
        pinned |= self._read_soon(style.horizon)
        for task in sorted(self.done):
            possible = problem.tasks[task].replayable and self.deadline[task] > self.position
            possible = possible and task not in pinned
            edge = self._network.edge(SOURCE, FIRST + task, infinite=not possible)
            if possible:
                self._replay.append((edge, task))
            for value in problem.tasks[task].reads:
                self._network.edge(FIRST + count + value, FIRST + task, infinite=True)
            for value in problem.tasks[task].writes:
                if value not in self.mine:
                    vertex = FIRST + count + value
                    self._keep.append((self._network.edge(FIRST + task, vertex), value))
                    end = self.needed.get(value, self.position)
                    weight.append(1 + style.length * (end - self.position) / length)
        for value in self.needed:
            self._network.edge(FIRST + count + value, SINK, infinite=True)
        self._bytes = np.array([problem.values[v].nbytes for _, v in self._keep], np.int64)
        self._weighted = np.array(weight) * self._bytes
        self._time = np.array([problem.tasks[t].nanoseconds for _, t in self._replay], np.float64)

    def _read_soon(self, horizon: int) -> set[int]:
        """Writers of what the next `horizon` runs read."""
        runs = self.trace.schedule[self.position + 1 :][:horizon].tolist()
        return {
            self.problem.values[v].writer for run in runs for v in self.problem.tasks[run].reads
        }

    def at(self, price: float) -> _Choice:
        """The best choice at `price` ns a byte."""
        capacity: npt.NDArray[np.float64] = np.zeros(len(self._network.tails))
        if self._replay:
            capacity[[edge for edge, _ in self._replay]] = self._time
        if self._keep:
            capacity[[edge for edge, _ in self._keep]] = price * self._weighted
        side = self._network.minimum_cut(capacity).source_side
        again = np.array([not side[FIRST + task] for _, task in self._replay], bool)
        tasks = frozenset(task for _, task in self._replay if not side[FIRST + task])
        first = FIRST + len(self.problem.tasks)
        values = self.problem.values
        kept = np.array(
            [not side[first + v] and values[v].writer not in tasks for _, v in self._keep], bool
        )
        return _Choice(
            tasks,
            float(self._time[again].sum()) if len(again) else 0.0,
            float(self._weighted[kept].sum()) if len(kept) else 0.0,
            self.local + (int(self._bytes[kept].sum()) if len(kept) else 0),
        )

    def fit(self, arena: int) -> frozenset[int] | None:
        """Tasks to run again so that `arena` bytes suffice at the position; None if none do.

        The price at which the best two choices known, one too large, are equally good either finds
        a third between them or proves that there is none on the convex hull.
        """
        small = self.at(HIGH)
        if small.nbytes > arena:
            return None
        large = self.at(0.0)
        for _ in range(STEPS):
            if large.nbytes <= arena:
                return large.again
            if large.weighted <= small.weighted:
                break
            price = (small.time - large.time) / (large.weighted - small.weighted)
            middle = self.at(price)
            if not small.weighted < middle.weighted < large.weighted:
                break
            if middle.nbytes <= arena:
                small = middle
            else:
                large = middle
        return small.again

    def insert(self, again: frozenset[int]) -> list[int]:
        """The schedule with `again` run once more behind the position, each as late as it may."""
        schedule = self.trace.schedule.tolist()
        result = schedule[: self.position + 1]
        waiting = set(again)

        def run(task: int) -> None:
            waiting.discard(task)
            for value in self.problem.tasks[task].reads:
                if self.problem.values[value].writer in waiting:
                    run(self.problem.values[value].writer)
            result.append(task)

        due: dict[int, list[int]] = {}
        for task in sorted(again):
            due.setdefault(self.deadline[task], []).append(task)
        for i in range(self.position + 1, len(schedule)):
            writers = [self.problem.values[v].writer for v in self.problem.tasks[schedule[i]].reads]
            for task in (*due.get(i, ()), *writers):
                if task in waiting:
                    run(task)
            waiting.discard(schedule[i])
            result.append(schedule[i])
        return result
