"""Second runs: never below the proven bound, never invalid, near the optimum where it is known."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from aotrain.memory.curve import Curve, start
from aotrain.memory.order import best_order
from aotrain.memory.problem import Problem, Task, Value
from aotrain.memory.remat import explore
from aotrain.memory.simulate import Simulator
from tests.memory.problems import least_arena, optimum, random_problem


def explored(problem: Problem) -> Curve:
    curve = start(problem, *best_order(problem))
    explore(curve, deadline=math.inf)
    return curve


def valid(problem: Problem, schedule: tuple[int, ...]) -> bool:
    """Every need before the first run, every run before what overwrites its inputs."""
    first = {task: i for i, task in reversed(list(enumerate(schedule)))}
    last = {task: i for i, task in enumerate(schedule)}
    for number, task in enumerate(problem.tasks):
        if any(first[need] > first[number] for need in problem.needs[number]):
            return False
        if any(last[reader] > first[number] for reader in task.overwrites):
            return False
        if not task.replayable and schedule.count(number) != 1:
            return False
    return True


def chain(length: int) -> Problem:
    """x_0 .. x_n forward, then g_i from g_(i+1) and x_i backward; unit sizes and times."""
    values = [Value(f"x{i}", 64, i) for i in range(length)]
    tasks = [Task(f"f{i}", 1, (i - 1,) if i else (), (i,)) for i in range(length)]
    for step in range(length):
        i = length - 1 - step
        reads = [len(values) - 1] if step else []
        reads += [i]
        number = len(tasks)
        values.append(Value(f"g{i}", 64, number))
        tasks.append(Task(f"b{i}", 1, tuple(reads), (len(values) - 1,), replayable=False))
    return Problem(tuple(tasks), tuple(values))


@pytest.mark.parametrize("block", range(10))
def test_bound_optimum_and_what_is_found_are_in_this_order(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        problem = random_problem(seed, 6)
        curve = explored(problem)
        peak = curve.points[0].peak
        for point in curve.points:
            assert valid(problem, point.schedule)
            trace = Simulator(problem)(point.schedule)
            assert (trace.peak, trace.nanoseconds) == (
                point.peak,
                problem.nanoseconds + point.extra,
            )
        assert curve.least_bytes <= least_arena(problem, again=True), seed
        for arena in {peak - 64, peak - 128, curve.points[-1].peak}:
            best, found = optimum(problem, arena), curve.best_within(arena)
            if best is None:
                assert found is None
                continue
            assert curve.extra_bound(arena) <= best, (seed, arena)
            assert found is None or best <= found.extra


@pytest.mark.parametrize("length", [4, 5, 6])
def test_a_chain_is_near_the_optimum(length: int) -> None:
    """With room for 3 values every layer runs from the input: (n - 1)(n - 2) / 2 second runs."""
    problem = chain(length)
    curve = explored(problem)
    excess = 0
    for units in range(3, length + 2):
        best, found = optimum(problem, 64 * units), curve.best_within(64 * units)
        assert best is not None and found is not None
        assert curve.extra_bound(64 * units) <= best <= found.extra
        excess += found.extra - best
    assert optimum(problem, 64 * 3) == (length - 1) * (length - 2) // 2
    assert excess <= 1


def test_points_trade_memory_for_time() -> None:
    for seed in range(60):
        points = explored(random_problem(seed, 14)).points
        assert all(a.peak > b.peak and a.extra < b.extra for a, b in pairwise(points))
