"""A curve of one point in, the same curve with points of less memory and more time out.

The arena shrinks in steps of a fixed grid, from the best order down. At each step the highest
position of the schedule is cut (`wavecut`) until none is above the step, in several styles; then
second runs that turn out not to be needed are taken out again (`prune`). Every schedule joins the
curve. Neither grid nor styles depend on a budget, so the curve does not.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from aotrain.memory.bounds import Wavefront
from aotrain.memory.curve import Curve
from aotrain.memory.order import ROUNDS, branches_first, improve
from aotrain.memory.prune import prune
from aotrain.memory.simulate import Simulator, Trace
from aotrain.memory.wavecut import Style, WaveCut
from aotrain.plan import ALIGNMENT

GRID = 40
"""Steps from the arena without recomputation down to nothing: 2.5 % each."""

PATIENCE = 12
"""Cuts in a row that may leave the peak where it is."""

WORST, PRUNABLE = 4.0, 3.0
"""When to give up: second runs above four steps, or far above those of a schedule known."""

STYLES = tuple(Style(length, segments) for segments in (1, 2, 4, 8) for length in (0.0, 2.0))

FRONTS = 16
"""Tasks, those at the highest positions, whose first run bounds every schedule."""

GOOD = 0.002
"""Of the step's time: a schedule so near its bound needs no other style."""


def explore(curve: Curve, *, deadline: float) -> None:
    """Add points until the smallest arena that can be reached, or until `deadline`."""
    simulator = Simulator(curve.problem)
    base = simulator(improve(curve.problem, branches_first(curve.problem), ROUNDS))
    _prove(curve, base)
    last = base
    for arena in grid(curve):
        found = _step(curve, simulator, (base, last), arena, deadline)
        if found is None:
            break
        last = found


def grid(curve: Curve) -> list[int]:
    """The arenas that are tried, the largest first."""
    peak, floor = curve.points[0].peak, curve.least_bytes
    steps = {peak * step // GRID // ALIGNMENT * ALIGNMENT for step in range(1, GRID)}
    return sorted((arena for arena in steps if arena >= floor), reverse=True)


def _step(
    curve: Curve, simulator: Simulator, starts: tuple[Trace, Trace], arena: int, deadline: float
) -> Trace | None:
    """Add points within `arena` to the curve; the fastest, None if there is none."""
    good = curve.extra_bound(arena) + GOOD * curve.problem.nanoseconds
    best: Trace | None = None
    base, last = starts
    for start, style in [*((base, style) for style in STYLES), (last, STYLES[0])]:
        point = curve.best_within(arena)
        if point is not None and point.extra <= good:
            return simulator(point.schedule)
        if time.monotonic() > deadline:
            curve.complete = False
            return None
        found = shrink(curve, simulator, start, arena, style)
        if found is not None and (best is None or found.nanoseconds < best.nanoseconds):
            best = found
    return best


def shrink(
    curve: Curve, simulator: Simulator, trace: Trace, arena: int, style: Style
) -> Trace | None:
    """Cut the peak of `trace` until it is within `arena`, then prune; None if that fails."""
    known = curve.best_within(arena)
    base = curve.problem.nanoseconds
    slowest = base + (WORST * base if known is None else PRUNABLE * known.extra)
    lowest, stuck = trace.peak, 0
    while stuck < PATIENCE and trace.nanoseconds <= slowest:
        if trace.peak <= arena:
            trace = prune(simulator, trace, arena)
            curve.add(trace)
            return trace
        shorter = _cut(curve, trace, arena, replace(style, horizon=2**stuck - 1))
        if shorter is None:
            return None
        trace = simulator(shorter)
        stuck = 0 if trace.peak < lowest else stuck + 1
        lowest = min(lowest, trace.peak)
    return None


def _cut(curve: Curve, trace: Trace, arena: int, style: Style) -> list[int] | None:
    """A schedule within `arena` at the peak of `trace`; the style gives way where it must."""
    while True:
        cut = WaveCut(curve.problem, trace, int(np.argmax(trace.load)), style)
        again = cut.fit(arena)
        if again:
            return cut.insert(again)
        if style.segments == 1 and style.horizon == 0:
            return None
        if style.segments > 1:
            style = replace(style, segments=style.segments // 2)
        else:
            style = replace(style, horizon=style.horizon // 2)


def _prove(curve: Curve, base: Trace) -> None:
    """Wavefronts at the highest positions, for the bounds."""
    for position in np.argsort(-base.load, kind="stable")[:FRONTS]:
        front = Wavefront(curve.problem, int(base.schedule[position]))
        front.sweep(16)
        curve.wavefronts.append(front)
