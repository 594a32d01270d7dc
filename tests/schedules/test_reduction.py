"""Reductions over any axes of any shape, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.relax import op as R  # noqa: N812

from aotrain.schedules.cpu import schedule
from tests.schedules.kernels import TARGET, arguments, lower, op, run

EXTENTS = st.sampled_from([1, 2, 3, 5, 8, 13, 16, 17, 33, 64])
few = settings(max_examples=20, deadline=None, derandomize=True)


def check_sum(shape: tuple[int, ...], axes: list[int], expected_rule: str | None = None) -> None:
    (func,) = lower(op(lambda x: R.sum(x, axes)), shape)
    scheduled, rule = schedule(func, TARGET)
    assert expected_rule in (None, rule)
    x, out = arguments(func)
    _, found = run(scheduled, [x, out])
    exact = x.astype("float64").sum(tuple(axes))
    scale = np.abs(x.astype("float64")).sum(tuple(axes))
    assert np.all(np.abs(found - exact) <= 2e-6 * scale)


@few
@given(st.data())
def test_sums(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(EXTENTS, min_size=1, max_size=4)))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    check_sum(shape, sorted(axes))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((64, 1300), [0, 1]),  # to a scalar, in parts
        ((100_003,), [0]),  # a prime: no parts
        ((2048, 70), [0]),  # a bias gradient, in parts
        ((8, 16, 32, 32), [0, 2, 3]),  # BatchNorm's statistics
        ((8, 64, 4, 4), [0, 2, 3]),  # the last two axes are one
        ((3000, 33), [1]),  # rows with a remainder
    ],
)
def test_large_sums(shape: tuple[int, ...], axes: list[int]) -> None:
    check_sum(shape, axes, "reduction")


@pytest.mark.parametrize("operator", [R.max, R.min, R.prod])
@pytest.mark.parametrize(("shape", "axis"), [((5, 37), 1), ((37, 5), 0), ((300, 200), 1)])
def test_other_reductions(operator, shape: tuple[int, int], axis: int) -> None:
    (func,) = lower(op(lambda x: operator(x, axis)), shape)
    scheduled, _ = schedule(func, TARGET)
    x, out = arguments(func)
    x = 1 + x / 64  # whose product over a row neither vanishes nor overflows
    _, found = run(scheduled, [x, out])
    name = operator.__name__
    np.testing.assert_allclose(found, getattr(np, name)(x.astype("float64"), axis), rtol=1e-5)
