"""A trial says what a candidate is: faster, no faster, wrong, crashing, hanging, not built."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import te, tirx

from aotrain.passes.graph import Kernel
from aotrain.schedules.cpu import schedule
from aotrain.targets import get
from aotrain.tuning import measure
from aotrain.tuning.measure import Bench, judge
from tests.schedules.kernels import matmul

TARGET = get("cpu")
KERNEL = Kernel("matmul", matmul(48, 64, 40))
GOOD, BAD = ("good",), ("bad",)


def trial(write_bad: Callable[[tirx.PrimFunc], tirx.PrimFunc], **options: float) -> measure.Trial:
    """Of a kernel that is scheduled as it should be beside what `write_bad` makes of it."""

    def write(func: tirx.PrimFunc, choices: object) -> tirx.PrimFunc:
        return write_bad(func) if choices == BAD else schedule(func, TARGET.tvm)[0]

    bench = Bench(TARGET, threads=2, write=write, seconds=0.05, **options)
    return bench.trial(KERNEL, (2,), GOOD, BAD)


def product(body: Callable) -> tirx.PrimFunc:
    """C [48, 64] = body(A [48, 40], B [40, 64], i, j), as TE writes it: without a schedule."""
    a, b = te.placeholder((48, 40), name="A"), te.placeholder((40, 64), name="B")
    c = te.compute((48, 64), lambda i, j: body(a, b, i, j), name="C")
    return te.create_prim_func([a, b, c])


def test_the_same_schedule_does_not_win() -> None:
    found = trial(lambda func: schedule(func, TARGET.tvm)[0])
    assert found.outcome == "slower"
    assert found.ratio is not None and 0.5 < found.ratio < 2


def test_a_naive_loop_is_slower() -> None:
    found = trial(lambda func: func)
    assert found.outcome == "slower"
    assert found.ratio is not None and found.ratio > 1.5


def test_a_faster_one_wins() -> None:
    def write(func: tirx.PrimFunc, choices: object) -> tirx.PrimFunc:
        return func if choices == GOOD else schedule(func, TARGET.tvm)[0]

    found = Bench(TARGET, threads=2, write=write, seconds=0.05).trial(KERNEL, (2,), GOOD, BAD)
    assert found.outcome == "won"
    assert found.ratio is not None and found.ratio + found.noise < 1


def test_a_wrong_result_is_wrong() -> None:
    # The sum without its last term: within a fortieth of the right one.
    def short(a, b, i, j):
        k = te.reduce_axis((0, 39), name="k")
        return te.sum(a[i, k] * b[k, j], axis=k)

    assert trial(lambda func: product(short)).outcome == "wrong"


def test_a_candidate_that_cannot_be_built_fails() -> None:
    def refuse(func: tirx.PrimFunc) -> tirx.PrimFunc:
        raise ValueError("no such schedule")

    assert trial(refuse).outcome == "failed"


def test_a_crash_costs_one_trial() -> None:
    far = 1 << 40  # elements beyond the operand: no page of the process
    assert trial(lambda func: product(lambda a, b, i, j: a[i + far, 0])).outcome == "crashed"


def test_a_hang_costs_one_trial() -> None:
    def endless(a, b, i, j):
        k = te.reduce_axis((0, 1 << 40), name="k")
        return te.sum(a[i, k % 40] * b[k % 40, j], axis=k)

    assert trial(lambda func: product(endless), limit=3.0).outcome == "hung"


@pytest.mark.parametrize(
    ("pairs", "outcome"),
    [
        ([(100, 90)] * 20, "won"),
        ([(100, 99)] * 20, "slower"),  # not worth it
        ([(100, 110)] * 20, "slower"),
        ([(100, 50), (100, 140)] * 10, "slower"),  # 0.95 in the middle, all noise
        ([(100, 90)] * 19 + [(100, 9000)], "won"),  # an interruption
    ],
)
def test_judging_pairs(pairs: list[tuple[int, int]], outcome: str) -> None:
    assert judge(pairs).outcome == outcome
