"""A refined curve: nowhere slower, somewhere faster, never below the optimum, always the same."""

from __future__ import annotations

import math

import pytest

from aotrain.memory.refine import refine
from aotrain.memory.remat import grid
from tests.memory.problems import optimum, random_problem
from tests.memory.test_remat import explored, valid


@pytest.mark.parametrize("size", [6, 30])
def test_refining_makes_points_faster_and_none_slower(size: int) -> None:
    faster = 0
    for seed in range(12):
        problem = random_problem(seed, size)
        curve = explored(problem)
        arenas = grid(curve)
        before = [curve.best_within(arena) for arena in arenas]
        refine(curve, arenas, deadline=math.inf)
        assert all(valid(problem, point.schedule) for point in curve.points), seed
        for arena, old in zip(arenas, before, strict=True):
            new = curve.best_within(arena)
            assert old is None or (new is not None and new.extra <= old.extra), seed
            faster += old is not None and new is not None and new.extra < old.extra
            if new is not None and size == 6:
                best = optimum(problem, arena)
                assert best is not None and best <= new.extra
    assert faster or size == 6


def test_the_same_curve_every_time() -> None:
    problem, points = random_problem(3, 30), []
    for _ in range(2):
        curve = explored(problem)
        refine(curve, grid(curve), deadline=math.inf)
        points.append(curve.points)
    assert points[0] == points[1]
