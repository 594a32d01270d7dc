"""A plan with a budget: kept to the byte, never slower for a larger one, the same every time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aotrain.errors import BudgetError, ExitCode
from aotrain.memory import Solution, solve
from aotrain.plan import Entry, Kind, Launch, Plan, Role, Tensor

WIDTH = 1024  # float32: 4096 bytes


def network(layers: int = 5, heavy: int = 3) -> Plan:
    """x -> (linear, relu) * layers -> loss, its gradients and an update for each weight.

    Every `heavy`-th linear takes long; a relu is cheap and its input is needed for its gradient.
    """
    tensors = [
        Tensor(f"w{i}", (WIDTH,), "float32", Kind.STATE, Role.TRAINABLE) for i in range(layers)
    ]
    x = len(tensors)
    tensors += [Tensor("x", (WIDTH,), "float32", Kind.INPUT)]
    tensors += [Tensor("loss", (), "float32", Kind.OUTPUT)]
    launches: list[Launch] = []

    def launch(kernel: int, *reads: int, update: int | None = None) -> int:
        if update is not None:
            launches.append(Launch(kernel, (update, *reads), (0,), f"update '{update}'"))
            return update
        tensors.append(Tensor(f"t{len(tensors)}", (WIDTH,), "float32", Kind.TEMP))
        args = (*reads, len(tensors) - 1)
        launches.append(Launch(kernel, args, (len(reads),), f"node '{len(launches)}'"))
        return len(tensors) - 1

    outputs, hidden = [], [x]
    for i in range(layers):
        outputs.append(launch(0 if i % heavy else 1, hidden[-1], i))
        hidden.append(launch(2, outputs[-1]))
    launches.append(Launch(3, (hidden[-1], x + 1), (1,), "loss"))
    gradient = launch(4, hidden[-1])
    for i in reversed(range(layers)):
        through = launch(5, gradient, outputs[i])
        weight = launch(6, through, hidden[i])
        gradient = launch(7, through, i)
        launch(8, weight, update=i)
    kernels = tuple(f"k{i}" for i in range(9))
    return Plan(tuple(tensors), kernels, (Entry("train", tuple(launches), (x,), (x + 1,)),))


TIMES = dict(enumerate([1000, 9000, 50, 100, 100, 80, 1500, 1500, 60]))


def solved(budget: int | None = None, share: float | None = None) -> Solution:
    return solve(network(), TIMES, memory_budget=budget, recompute_budget=share)


def test_every_budget_is_kept_or_refused_and_a_larger_one_is_never_slower() -> None:
    report = solved().report
    slower: int | None = None
    for budget in range(report.block, report.persistent, -9216):
        try:
            solution = solved(budget)
        except BudgetError as error:
            assert error.exit_code is ExitCode.BUDGET
            assert "no plan needs fewer than" in error.render()
            assert "peak at" in error.render()
            break
        entry = solution.report.entry("train")
        assert solution.plan.block_bytes == solution.report.block <= budget
        assert entry.extra >= (slower or 0)
        assert entry.extra_bound <= entry.extra
        slower = entry.extra
    assert slower
    assert budget < report.persistent + 0.6 * (report.block - report.persistent)


def test_cheap_launches_run_again_before_dear_ones() -> None:
    report = solved().report
    entry = solved(report.block - 4 * WIDTH * 4).report.entry("train")
    assert len(entry.again) == 4
    assert all(nanoseconds == 50 for _, _, nanoseconds in entry.again)
    assert entry.extra == entry.extra_bound == 200


def test_a_budget_of_time_gives_the_smallest_arena_within_it() -> None:
    free, some, much = (solved(share=share).report for share in (0.0, 0.01, 0.5))
    assert free.entry("train").extra == 0
    assert 0 < some.entry("train").extra <= 0.01 * some.entry("train").nanoseconds
    assert free.block > some.block > much.block
    assert some.entry("train").arena_bound <= some.entry("train").arena


def test_both_budgets_at_once() -> None:
    report = solved().report
    small = report.persistent + (report.block - report.persistent) // 2
    with pytest.raises(BudgetError, match="at most 0% recomputed"):
        solved(small, 0.0)
    assert solved(small, 1.0).report.entry("train").extra > 0


def test_the_same_arguments_give_the_same_plan() -> None:
    budget = solved().report.block * 3 // 4
    assert solved(budget).plan == solved(budget).plan


def test_an_infeasible_budget_names_the_smallest_feasible_one() -> None:
    with pytest.raises(BudgetError) as caught:
        solved(1)
    hint = caught.value.diagnostics[0].hint
    smallest = int(hint.split(" needs ")[1].split(" ")[0].replace(",", ""))
    assert solved(smallest).plan.block_bytes == smallest
    with pytest.raises(BudgetError):
        solved(smallest - 1)


def test_a_second_run_comes_before_the_update_of_what_it_reads() -> None:
    """The weight of a layer that runs again is updated after that; the check would refuse it."""
    report = solved().report
    plan = solved(report.persistent + (report.block - report.persistent) * 2 // 3).plan
    launches = plan.entries[0].launches
    seen: set[int] = set()
    for launch in launches:
        weights = {i for i in launch.args if plan.tensors[i].kind is Kind.STATE}
        assert launch.kernel not in (0, 1) or not weights & seen
        if launch.kernel == 8:
            seen |= weights
    assert len(launches) > len(network().entries[0].launches)


def test_other_entries_share_the_arena_and_keep_the_budget() -> None:
    plan = network()
    count, train = len(plan.tensors), plan.entries[0]
    kinds = [tensor.kind for tensor in plan.tensors]
    forward = tuple(
        replace(x, args=tuple(i + count if kinds[i] is Kind.TEMP else i for i in x.args))
        for x in train.launches[:11]
    )
    entries = (train, Entry("eval", forward, train.inputs, train.outputs))
    report = solve(replace(plan, tensors=plan.tensors * 2, entries=entries), TIMES).report
    assert report.entry("eval").arena == 2 * 4 * WIDTH
    assert report.block == report.persistent + report.entry("train").arena


def test_the_report_as_text() -> None:
    text = solved(solved().report.block * 3 // 4).report.render()
    assert "without recomputation" in text and "second runs" in text and "at least" in text
