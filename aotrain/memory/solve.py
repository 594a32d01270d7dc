"""A plan and two budgets in, a packed and checked plan within them and a report out.

order -> curve of memory against time -> the point that the budget allows -> offsets -> validation

Each entry is solved alone, for entries share the arena and never run at the same time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from aotrain.errors import BudgetError, Diagnostic, UsageError, raise_if_any
from aotrain.memory import derive as derivation
from aotrain.memory.cost import model_times
from aotrain.memory.curve import Curve, Point, start
from aotrain.memory.equivalent import check_equivalent
from aotrain.memory.held import held_back
from aotrain.memory.liveness import lifetimes
from aotrain.memory.order import best_order
from aotrain.memory.pack import pack, pack_lifetimes
from aotrain.memory.problem import Problem
from aotrain.memory.refine import refine
from aotrain.memory.remat import explore, grid
from aotrain.memory.report import EntryReport, Report
from aotrain.memory.simulate import Simulator
from aotrain.memory.validate import validate
from aotrain.plan import Entry, Plan


class Solution(NamedTuple):
    """A plan that is ordered, packed and validated, and what is known about it."""

    plan: Plan
    report: Report


@dataclass(frozen=True)
class _Chosen:
    """A point of one entry's curve, packed: `arena` is the offsets' high water in bytes."""

    curve: Curve
    point: Point
    arena: int


def solve(
    plan: Plan,
    times: Mapping[int, int] | None = None,
    *,
    memory_budget: int | None = None,
    recompute_budget: float | None = None,
    time_limit: float = 20.0,
) -> Solution:
    """Order, recompute and place so that `block_bytes` is at most `memory_budget` bytes.

    `times` gives nanoseconds by kernel index (modelled from bytes where it is None). Of all plans
    found within the memory budget the fastest is taken; with `recompute_budget` alone (0.1: a tenth
    of the step's time) the smallest that second runs slow down by no more than that; with neither,
    the smallest that runs every launch once. A larger budget never gives a slower plan, and equal
    arguments give equal plans, unless `time_limit` seconds end the search first.

    Raises BudgetError (AOT-M010) if no plan found keeps the budgets, UsageError (AOT-M011) for one
    that is not positive.
    """
    started = time.monotonic()
    _check(memory_budget, recompute_budget)
    known = model_times(plan) if times is None else times
    limited = memory_budget is not None or recompute_budget is not None
    curves = []
    for entry in plan.entries:
        problem = derivation.derive(plan, entry, known)
        curve = start(problem, *best_order(problem))
        curves.append(curve)
    if limited:
        for curve in sorted(curves, key=lambda c: -len(c.problem.tasks)):
            explore(curve, deadline=started + time_limit)
            refine(curve, grid(curve), deadline=started + time_limit)
    persistent = max((curve.problem.persistent_bytes for curve in curves), default=0)
    arena = None if memory_budget is None else memory_budget - persistent
    chosen = [
        _choose(plan, entry, curve, arena, recompute_budget)
        for entry, curve in zip(plan.entries, curves, strict=True)
    ]
    _refuse(plan, chosen, curves, memory_budget, recompute_budget)
    found = [each for each in chosen if each is not None]
    result = _assemble(plan, found)
    entries = tuple(_report(plan, e, c) for e, c in zip(plan.entries, found, strict=True))
    report = Report(
        result.block_bytes,
        result.persistent_bytes,
        memory_budget,
        recompute_budget,
        time.monotonic() - started,
        entries,
        all(curve.complete for curve in curves),
    )
    return Solution(result, report)


def _check(memory_budget: int | None, recompute_budget: float | None) -> None:
    found = []
    if memory_budget is not None and memory_budget <= 0:
        found.append(f"a memory budget of {memory_budget} bytes")
    if recompute_budget is not None and not recompute_budget >= 0:
        found.append(f"a recompute budget of {recompute_budget}")
    raise_if_any(
        (Diagnostic("AOT-M011", f"{message} makes no sense") for message in found), UsageError
    )


def _choose(
    plan: Plan, entry: Entry, curve: Curve, arena: int | None, share: float | None
) -> _Chosen | None:
    """The first point, packed, that keeps both budgets; None where there is none."""
    slowest = 0 if share is None else int(share * curve.problem.nanoseconds)
    if arena is not None and share is None:
        slowest = max(point.extra for point in curve.points)
    points = [p for p in curve.points if p.extra <= slowest and (arena is None or p.peak <= arena)]
    if arena is None:
        points = points[::-1]  # the smallest first, else the fastest
    for point in points:
        found = _Chosen(curve, point, _packed(plan, entry, point))
        if arena is None or found.arena <= arena:
            return found
    return None


def _packed(plan: Plan, entry: Entry, point: Point) -> int:
    tensors, again = derivation.apply(plan, entry, point.schedule)
    return pack_lifetimes(lifetimes(replace(plan, tensors=tensors), again))[1]


def _assemble(plan: Plan, chosen: list[_Chosen]) -> Plan:
    result = plan
    for number, each in enumerate(chosen):
        entry = plan.entries[number]
        tensors, scheduled = derivation.apply(result, entry, each.point.schedule)
        entries = (*result.entries[:number], scheduled, *result.entries[number + 1 :])
        result = replace(result, tensors=tensors, entries=entries)
    result = pack(result)
    validate(result)
    check_equivalent(result, plan)
    return result


def _refuse(
    plan: Plan,
    chosen: list[_Chosen | None],
    curves: list[Curve],
    memory_budget: int | None,
    share: float | None,
) -> None:
    """Raise BudgetError if an entry has no point within the budgets."""
    found = [
        Diagnostic("AOT-M010", *_infeasible(plan, entry, curve, memory_budget, share))
        for entry, curve, each in zip(plan.entries, curves, chosen, strict=True)
        if each is None
    ]
    if found:
        raise BudgetError(*found)


def _infeasible(
    plan: Plan, entry: Entry, curve: Curve, budget: int | None, share: float | None
) -> tuple[str, str, str]:
    """Message, where and hint."""
    kept = curve.problem.persistent_bytes
    slowest = None if share is None else int(share * curve.problem.nanoseconds)
    points = [p for p in curve.points if slowest is None or p.extra <= slowest]
    least = points[-1]
    trace = Simulator(curve.problem)(least.schedule)
    peak = int(trace.load.argmax())
    alive = sorted(_alive(curve.problem, trace.value[trace.alive(peak)]), key=lambda item: -item[1])
    bound = kept + curve.least_bytes
    where = [
        f"entry '{entry.name}': {kept:,} B of state, data and constants, and an arena",
        f"peak at {_short(curve.problem.tasks[least.schedule[peak]].name)}, where these are alive:",
        *(f"  {nbytes:>14,} B  {name}" for name, nbytes in alive[:5]),
    ]
    limit = "" if share is None else f" with at most {share:.0%} recomputed"
    message = f"no plan found within {budget or 0:,} bytes{limit}"
    smallest = kept + _packed(plan, entry, least)
    hint = f"the smallest plan found needs {smallest:,} bytes; no plan needs fewer than {bound:,}"
    return message, "\n".join(where), hint


def _alive(problem: Problem, values: Iterable[int]) -> Iterator[tuple[str, int]]:
    for value in values:
        spec = problem.values[value]
        yield f"{spec.name} of {_short(problem.tasks[spec.writer].name)}", spec.nbytes


def _short(origin: str) -> str:
    """The ONNX nodes that `origin` quotes, without their operators and shapes."""
    nodes = re.findall("'([^']+)'", origin)
    return " + ".join(dict.fromkeys(nodes)) if nodes else origin


def _report(plan: Plan, entry: Entry, chosen: _Chosen) -> EntryReport:
    curve, point, problem = chosen.curve, chosen.point, chosen.curve.problem
    trace = Simulator(problem)(point.schedule)
    peak = int(trace.load.argmax()) if len(trace.load) else -1
    seen: set[int] = set()
    again = []
    for position, task in enumerate(point.schedule):
        if task in seen:
            name, nanoseconds = problem.tasks[task].name, problem.tasks[task].nanoseconds
            again.append((position, _short(name), nanoseconds))
        seen.add(task)
    tensors, scheduled = derivation.apply(plan, entry, point.schedule)
    held = held_back(replace(plan, tensors=tensors), scheduled, peak)
    alive = list(_alive(problem, trace.value[trace.alive(peak)]))
    return EntryReport(
        entry.name,
        chosen.arena,
        trace.peak,
        curve.points[0].peak,
        curve.order_bound,
        curve.arena_bound(point.extra),
        problem.nanoseconds,
        point.extra,
        curve.extra_bound(trace.peak),
        tuple(again),
        _short(problem.tasks[point.schedule[peak]].name) if peak >= 0 else "",
        tuple(sorted(alive, key=lambda item: -item[1])),
        tuple((name, nbytes, _short(until)) for name, nbytes, until in held),
        len(point.schedule),
        tuple((p.peak, p.extra, curve.extra_bound(p.peak)) for p in curve.points),
    )
