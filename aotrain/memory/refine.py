"""A curve whose points are far from their bound in, the same curve with faster points out.

A cut at one peak does not see the next, so which schedule it starts from matters, and not always
for the better: a schedule of a slightly larger arena is often the best start. Two ways, for each
arena of the grid in turn, the one with the widest gap first:

`looser`   cut the schedules of larger arenas down to this one, the nearest first
`rebuilt`  take some second runs out of the schedule and cut again, in another style (large
           neighbourhood search: Shaw, "Using Constraint Programming and Local Search Methods to
           Solve Vehicle Routing Problems", 1998)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from aotrain.memory.curve import Curve
from aotrain.memory.remat import shrink
from aotrain.memory.simulate import Array, Simulator
from aotrain.memory.wavecut import Style

GAP = 0.005
"""Of the step's time: what is as near its bound is left alone."""

NEAREST = 8
"""Schedules of larger arenas that are tried."""

TRIES = 24
"""Rebuilds of one schedule."""

STYLES = tuple(Style(length, segments) for length, segments in ((0, 1), (2, 1), (0, 4), (4, 8)))


def refine(curve: Curve, arenas: Sequence[int], *, deadline: float) -> None:
    """Try both ways once at each of `arenas`, until `deadline`."""
    simulator = Simulator(curve.problem)
    for starts in (_looser, _rebuilt):
        for arena in sorted(arenas, key=lambda a: (-_gap(curve, a), a)):
            if _gap(curve, arena) <= GAP:
                continue
            for schedule, style in starts(curve, arena):
                if time.monotonic() > deadline:
                    curve.complete = False
                    return
                shrink(curve, simulator, simulator(schedule), arena, style)


def _gap(curve: Curve, arena: int) -> float:
    """Of the step's time; 0 where no schedule is known."""
    point = curve.best_within(arena)
    if point is None:
        return 0.0
    return (point.extra - curve.extra_bound(arena)) / max(1, curve.problem.nanoseconds)


def _looser(curve: Curve, arena: int) -> Iterator[tuple[Array, Style]]:
    for point in [point for point in curve.points if point.peak > arena][-NEAREST:]:
        for style in STYLES:
            yield np.array(point.schedule), style


def _rebuilt(curve: Curve, arena: int) -> Iterator[tuple[Array, Style]]:
    draw = np.random.default_rng(0)  # the same curve every time
    for _ in range(TRIES):
        point = curve.best_within(arena)  # it may have been improved since
        assert point is not None
        runs = np.array(point.schedule)
        _, first = np.unique(runs, return_index=True)
        again = np.setdiff1d(np.arange(len(runs)), first)
        gone = again[draw.random(len(again)) < draw.uniform(0.05, 0.7)]
        style = Style(float(draw.choice([0, 1, 2, 4])), int(draw.choice([1, 2, 3, 4, 8])))
        yield np.delete(runs, gone), style
