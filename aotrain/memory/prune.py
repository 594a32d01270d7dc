"""A schedule and an arena in, the schedule without the second runs that the arena can do without.

Without a run, the instance before it lives on until the reads that the run served, and what only
the run read dies earlier. The runs that take the longest go first.
"""

from __future__ import annotations

import numpy as np

from aotrain.memory.simulate import Array, Simulator, Trace


def prune(simulator: Simulator, trace: Trace, arena: int) -> Trace:
    """The schedule of `trace`, whose peak is within `arena`, with no run left that could go."""
    refused: set[int] = set()  # by position in the schedule, and so forgotten when that changes
    while True:
        candidates = [p for p in _candidates(simulator, trace, arena).tolist() if p not in refused]
        if not candidates:
            return trace
        shorter = simulator(np.delete(trace.schedule, candidates[0]))
        if shorter.peak <= arena:
            trace = shorter
            refused = {p - (p > candidates[0]) for p in refused}
        else:
            refused.add(candidates[0])


def _candidates(simulator: Simulator, trace: Trace, arena: int) -> Array:
    """Positions of second runs without which each of their values fits, the longest runs first."""
    again = np.concatenate([[False], trace.value[1:] == trace.value[:-1]])
    instance = np.flatnonzero(again)
    birth = trace.first[instance]
    before = trace.last[instance - 1] + 1  # the gap that the instance before would have to bridge
    highest = _Highest(trace.load)(before, birth - 1)
    read = trace.last[instance] > birth
    fits = ~read | (highest + simulator.nbytes[trace.value[instance]] <= arena)
    bad = np.zeros(len(trace.schedule), bool)
    bad[birth[~fits]] = True
    found = np.unique(birth)
    found = found[~bad[found]]
    return found[np.argsort(-simulator.cost[trace.schedule[found]], kind="stable")]


class _Highest:
    """The maximum of any interval, from those of powers of two (a sparse table)."""

    def __init__(self, load: Array) -> None:
        self.rows = [load]
        width = 1
        while 2 * width <= len(load):
            row = self.rows[-1]
            self.rows.append(np.maximum(row[: len(row) - width], row[width:]))
            width *= 2

    def __call__(self, first: Array, last: Array) -> Array:
        """The maximum over [first, last], 0 where that is empty."""
        found = np.zeros(len(first), np.int64)
        length = last - first + 1
        for power, row in enumerate(self.rows):
            mine = (length >= 1 << power) & (length < 2 << power)
            begin, end = first[mine], last[mine] - (1 << power) + 1
            found[mine] = np.maximum(row[begin], row[end])
        return found
