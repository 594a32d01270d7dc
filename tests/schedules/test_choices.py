"""Plans handed in: listed likely best first, results kept, those that do not fit passed over."""

from __future__ import annotations

import numpy as np
import pytest

from aotrain.schedules.cpu import Choice, candidates, schedule
from tests.schedules.kernels import TARGET, arguments, matmul, run


@pytest.mark.parametrize("batch", [0, 3])
def test_every_choice_keeps_the_results(batch: int) -> None:
    func = matmul(37, 70, 40, batch=batch)
    (found,) = candidates(func, TARGET)
    assert len(set(found)) == len(found) > 20
    assert {c.swapped for c in found} == {False, True}
    arrays = arguments(func)
    expected = run(func, arrays)[-1]
    for choice in found[:: max(1, len(found) // 12)]:
        scheduled, rule = schedule(func, TARGET, [choice])
        assert rule == "contraction"
        result = run(scheduled, arrays)[-1]
        np.testing.assert_allclose(result, expected, rtol=4e-6, atol=4e-6 * np.max(abs(expected)))


def test_choices_change_the_loops() -> None:
    func = matmul(64, 64, 64)
    usual, _ = schedule(func, TARGET)
    (found,) = candidates(func, TARGET)
    scripts = {str(schedule(func, TARGET, [choice])[0]) for choice in found[:8]}
    assert len(scripts) == 8
    assert str(usual) in scripts  # the model's own is among the likely best


@pytest.mark.parametrize(
    "choice",
    [
        Choice(False, 16, 32, 1, False),  # does not fit 16 registers
        Choice(False, 4, 12, 1, False),  # no whole vectors
        Choice(False, 4, 16, 99, False),  # more tasks than tiles
        Choice(False, 0, 16, 1, False),
    ],
)
def test_what_does_not_fit_is_passed_over(choice: Choice) -> None:
    func = matmul(64, 64, 64)
    assert str(schedule(func, TARGET, [choice])[0]) == str(schedule(func, TARGET)[0])


def test_a_batch_of_scalars_is_never_packed() -> None:
    (found,) = candidates(matmul(37, 70, 40, batch=3), TARGET)
    assert not any(choice.pack_rows for choice in found)
