"""A problem in, its curve of memory against time out: schedules of which none beats another.

The curve does not depend on a budget, and both budgets are looked up in it: so a larger budget
never gets a slower plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from aotrain.memory.bounds import Wavefront
from aotrain.memory.problem import Problem
from aotrain.memory.simulate import Simulator, Trace


@dataclass(frozen=True)
class Point:
    """A schedule with its peak in bytes and the time in ns that its second runs take."""

    schedule: tuple[int, ...]
    peak: int
    extra: int


@dataclass
class Curve:
    """`points` by falling peak and rising time. `wavefronts` prove what lies below."""

    problem: Problem
    points: list[Point] = field(default_factory=list)
    wavefronts: list[Wavefront] = field(default_factory=list)
    order_bound: int = 0
    complete: bool = True

    def add(self, trace: Trace) -> bool:
        """Keep `trace`, unless a point is no worse in both; whether it was kept."""
        peak, extra = trace.peak, trace.nanoseconds - self.problem.nanoseconds
        if any(p.peak <= peak and p.extra <= extra for p in self.points):
            return False
        kept = [p for p in self.points if p.peak < peak or p.extra < extra]
        kept.append(Point(tuple(trace.schedule.tolist()), peak, extra))
        self.points = sorted(kept, key=lambda p: -p.peak)
        return True

    def best_within(self, arena: int) -> Point | None:
        """The fastest point whose peak is at most `arena`."""
        return next((p for p in self.points if p.peak <= arena), None)

    def extra_bound(self, arena: int) -> int:
        """Nanoseconds that every schedule within `arena` bytes spends on second runs."""
        found = max((w.extra_time(arena) for w in self.wavefronts), default=0.0)
        return max(0, int(np.ceil(found - 1e-3)))  # times are integers

    @property
    def least_bytes(self) -> int:
        """Bytes that no schedule undercuts, however often it runs a task."""
        local = max(map(self.problem.local_bytes, range(len(self.problem.tasks))), default=0)
        return max([local, *(w.least for w in self.wavefronts)])

    def arena_bound(self, extra: int) -> int:
        """Bytes that every schedule needs whose second runs take at most `extra` ns."""
        low, high = self.least_bytes, self.points[0].peak
        while high - low > 64:
            middle = (low + high) // 2
            if self.extra_bound(middle) > extra:
                low = middle
            else:
                high = middle
        return low


def start(problem: Problem, order: Sequence[int], order_bound: int) -> Curve:
    """The curve of one point: every task once, in `order`."""
    curve = Curve(problem, order_bound=order_bound)
    curve.add(Simulator(problem)(order))
    return curve
