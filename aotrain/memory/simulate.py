"""A schedule in, the life of every instance, the load at every step and the peak out.

A schedule is the tasks' numbers in the order of their runs. Each run of a task makes an instance of
every value that it writes; a read takes the latest instance, and an instance lives from its run to
its last read. So dropping a value is never said: it follows from the next run of its writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aotrain.memory.problem import Problem

Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """One schedule's memory and time; instances in order of (value, first).

    `load[i]` is the bytes alive during run i: all instances with first <= i <= last.
    """

    schedule: Array
    value: Array  # [instances]
    first: Array
    last: Array
    load: Array  # [runs], bytes
    nanoseconds: int

    @property
    def peak(self) -> int:
        """The most bytes alive during one run."""
        return int(self.load.max(initial=0))

    def alive(self, position: int) -> Array:
        """The instances alive during run `position`."""
        return np.flatnonzero((self.first <= position) & (self.last >= position))


class Simulator:
    """Replays schedules of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.reads = _Rows([task.reads for task in problem.tasks])
        self.writes = _Rows([task.writes for task in problem.tasks])
        self.nbytes = np.array([value.nbytes for value in problem.values], np.int64)
        self.cost = np.array([task.nanoseconds for task in problem.tasks], np.int64)

    def __call__(self, schedule: Sequence[int] | Array) -> Trace:
        """The trace of `schedule`, in which every read must find an instance."""
        runs = np.asarray(schedule, np.int64)
        count = len(runs) + 1
        position, value = self.writes.gather(runs)
        keys = value * count + position
        order = np.argsort(keys)
        keys, value, first = keys[order], value[order], position[order]
        position, wanted = self.reads.gather(runs)
        source = np.searchsorted(keys, wanted * count + position) - 1
        assert (source >= 0).all() and (value[source] == wanted).all(), "read before written"
        last = first.copy()
        np.maximum.at(last, source, position)
        nbytes = self.nbytes[value]
        change = np.bincount(first, nbytes, count + 1) - np.bincount(last + 1, nbytes, count + 1)
        load = np.cumsum(change[: len(runs)]).astype(np.int64)
        return Trace(runs, value, first, last, load, int(self.cost[runs].sum()))


class _Rows:
    """Lists of unequal length, gathered for many indices at once."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.length = np.array([len(row) for row in rows], np.int64)
        self.begin = np.cumsum(self.length) - self.length
        self.items = np.array([item for row in rows for item in row], np.int64)

    def gather(self, indices: Array) -> tuple[Array, Array]:
        """(which of `indices`, item), for every item of their rows."""
        length = self.length[indices]
        which = np.repeat(np.arange(len(indices)), length)
        offset = np.arange(len(which)) - np.repeat(np.cumsum(length) - length, length)
        return which, self.items[np.repeat(self.begin[indices], length) + offset]
