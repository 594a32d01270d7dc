"""The k largest or smallest, ties by the lower index, NaNs within bounds."""

from __future__ import annotations

import numpy as np
import pytest

from aotrain.ops.top_k import top_k
from tests.ops.kernel import evaluate


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_ties_go_by_the_lower_index(dtype: type, k: int, largest: bool) -> None:
    x = np.random.default_rng(0).integers(0, 4, (3, 7, 2)).astype(dtype)  # many ties
    values, indices = evaluate(lambda a: top_k(a, k=k, largest=largest), x)
    order = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :k]
    assert values.dtype == dtype
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis=1))


def test_infinities_and_negative_zero() -> None:
    x = np.array([[[-np.inf], [0.0], [-0.0], [np.inf]]], np.float32)
    _, indices = evaluate(lambda a: top_k(a, k=4, largest=True), x)
    assert indices.ravel().tolist() == [3, 1, 2, 0]


def test_indices_are_in_range_whatever_the_values() -> None:
    x = np.random.default_rng(1).choice([np.nan, 1, 2], (20, 6, 1)).astype(np.float32)
    _, indices = evaluate(lambda a: top_k(a, k=5, largest=True), x)
    assert indices.min() >= 0
    assert indices.max() < 6
