"""Orders are valid, and never beat the optimum or the bound on it."""

from __future__ import annotations

import pytest
from hypothesis import given

from aotrain.memory import solve
from aotrain.memory.liveness import lifetimes, max_load
from aotrain.memory.order import PORTFOLIO, best_order
from aotrain.memory.problem import Problem
from aotrain.memory.simulate import Simulator
from aotrain.plan import Entry, Kind, Launch, Plan, Role, Tensor
from tests.memory.plans import plans
from tests.memory.problems import least_arena, random_problem


def respects(problem: Problem, order: list[int]) -> bool:
    place = {task: i for i, task in enumerate(order)}
    return sorted(order) == list(range(len(problem.tasks))) and all(
        place[need] < place[task] for task, needs in enumerate(problem.needs) for need in needs
    )


@pytest.mark.parametrize("name", PORTFOLIO)
def test_every_order_is_valid(name: str) -> None:
    for seed in range(100):
        problem = random_problem(seed, 12)
        assert respects(problem, PORTFOLIO[name](problem))


def test_bound_is_below_the_optimum_and_the_order_found_is_not() -> None:
    exact = 0
    for seed in range(300):
        problem = random_problem(seed, 6)
        order, bound = best_order(problem)
        assert respects(problem, order)
        optimum = least_arena(problem, again=False)
        found = Simulator(problem)(order).peak
        assert bound <= optimum <= found, seed
        exact += found == optimum
    assert exact >= 285  # of 300: the search is a heuristic, but a good one


def test_updates_do_not_wait_for_the_end() -> None:
    """Two gradients, then two updates: after ordering one gradient lives at a time."""
    kinds = [Kind.STATE, Kind.STATE, Kind.INPUT, Kind.TEMP, Kind.TEMP]
    tensors = tuple(
        Tensor(f"t{i}", (16,), "float32", k, Role.TRAINABLE if k is Kind.STATE else None)
        for i, k in enumerate(kinds)
    )
    launches = (
        Launch(0, (2, 3), (1,)),
        Launch(0, (2, 4), (1,)),
        Launch(0, (0, 3), (0,)),
        Launch(0, (1, 4), (0,)),
    )
    plan = Plan(tensors, ("k",), (Entry("train", launches, (2,), ()),))
    ordered = solve(plan).plan
    assert max_load(lifetimes(plan, plan.entries[0])) == 2 * 64
    assert max_load(lifetimes(ordered, ordered.entries[0])) == 64


@given(plans())
def test_solved_plans_pass_validation_and_keep_their_bounds(plan: Plan) -> None:
    report = solve(plan).report
    assert report.block == report.persistent + max((e.arena for e in report.entries), default=0)
    for entry in report.entries:
        assert entry.order_bound <= entry.load <= entry.arena
        assert not entry.again
