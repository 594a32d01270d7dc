"""Launches in order in, the interval of positions in which each TEMP tensor lives out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aotrain.plan import Entry, Kind, Plan, align


@dataclass(frozen=True)
class Lifetime:
    """A tensor needs `nbytes` (aligned) from launch `first` to launch `last`, both included."""

    tensor: int
    nbytes: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both live during some launch."""
        return self.first <= other.last and other.first <= self.last


def lifetimes(plan: Plan, entry: Entry) -> list[Lifetime]:
    """Lifetimes of the TEMP tensors of `entry`, in order of first use."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, launch in enumerate(entry.launches):
        for tensor in launch.args:
            if plan.tensors[tensor].kind is Kind.TEMP:
                first.setdefault(tensor, position)
                last[tensor] = position
    return [
        Lifetime(tensor, align(max(1, plan.tensors[tensor].nbytes)), begin, last[tensor])
        for tensor, begin in first.items()
    ]


def max_load(alive: Sequence[Lifetime]) -> int:
    """The most bytes alive during one launch: no layout can need fewer."""
    change: dict[int, int] = {}
    for life in alive:
        change[life.first] = change.get(life.first, 0) + life.nbytes
        change[life.last + 1] = change.get(life.last + 1, 0) - life.nbytes
    load = peak = 0
    for position in sorted(change):
        load += change[position]
        peak = max(peak, load)
    return peak
