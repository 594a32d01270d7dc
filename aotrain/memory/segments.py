"""A schedule and a position in, tasks out whose values stay, so that second runs are local.

A cut at the position counts the time of second runs, not the bytes they hold later: a chain of them
that begins at the model's input is no dearer than one that begins a layer back, but makes all of
its values at once. So the runs before the position are divided into segments, where few bytes cross
from one to the next (the residual stream between two layers); what crosses is not made again.
"""

from __future__ import annotations

import numpy as np

from aotrain.memory.problem import Problem
from aotrain.memory.simulate import Trace


def checkpoints(problem: Problem, trace: Trace, position: int, count: int) -> frozenset[int]:
    """Writers of what crosses between `count` segments, which hold equal bytes at `position`."""
    if count < 2:
        return frozenset()
    runs = trace.schedule[:position].tolist()
    born: dict[int, int] = {}
    read: dict[int, int] = {}
    for place, task in enumerate(runs):
        for value in problem.tasks[task].reads:
            read[value] = place
        for value in problem.tasks[task].writes:
            born[value] = place
    crossing = np.zeros(position + 1, np.int64)  # bytes that later runs before `position` read
    for value, place in read.items():
        if born[value] < place:
            crossing[born[value] : place] += problem.values[value].nbytes
    spans = (trace.first < position) & (trace.last > position)
    held = np.zeros(position, np.int64)
    for value in trace.value[spans].tolist():
        held[born[value]] += problem.values[value].nbytes
    found: set[int] = set()
    for place in _places(np.cumsum(held), crossing, count):
        found.update(
            problem.values[v].writer for v, last in read.items() if born[v] <= place < last
        )
    return frozenset(found)


def _places(held: np.ndarray, crossing: np.ndarray, count: int) -> list[int]:
    """For each of count - 1 shares of `held` the place near it that the fewest bytes cross."""
    total = int(held[-1]) if len(held) else 0
    found = []
    for number in range(1, count):
        low = np.searchsorted(held, total * (number - 0.5) / count)
        high = np.searchsorted(held, total * (number + 0.5) / count)
        if low < high:
            found.append(int(low + np.argmin(crossing[low:high])))
    return found
