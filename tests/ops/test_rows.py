"""What evaluation counts: the first largest logit, labels not ignored, rows that are no padding."""

from __future__ import annotations

import numpy as np

from aotrain.ops import rows
from tests.ops.kernel import evaluate


def test_correct_is_the_first_largest_logit() -> None:
    logits = np.random.default_rng(5).integers(0, 3, (40, 4, 2)).astype(np.float32)  # many ties
    labels = np.random.default_rng(6).integers(0, 4, (40, 2))
    emit = lambda *a: rows.correct(*a, axis=1, ignore_index=3)  # noqa: E731
    (flags,) = evaluate(emit, logits, labels)
    want = (logits.argmax(1) == labels) & (labels != 3)
    assert flags.dtype == np.int32
    assert 0 < want.sum() < want.size
    np.testing.assert_array_equal(flags, want)


def test_correct_is_0_for_nan_and_for_labels_out_of_range() -> None:
    logits = np.array([[np.nan, 1], [1, 0], [0, 1]], np.float32)
    labels = np.array([0, -100, 5])
    (flags,) = evaluate(lambda *a: rows.correct(*a, axis=1, ignore_index=-100), logits, labels)
    np.testing.assert_array_equal(flags, [0, 0, 0])


def test_counted() -> None:
    (flags,) = evaluate(lambda a: rows.counted(a, ignore_index=1), np.array([[0, 1], [1, -100]]))
    np.testing.assert_array_equal(flags, [[1, 0], [0, 1]])


def test_first_rows_hides_nan_and_counts_repeated_rows() -> None:
    x = np.arange(1, 13, dtype=np.float32).reshape(6, 2)
    x[4:] = np.nan
    (kept,) = evaluate(lambda *a: rows.first_rows(*a, repeat=2), x, np.int32(2))
    np.testing.assert_array_equal(kept[:4], x[:4])
    np.testing.assert_array_equal(kept[4:], np.zeros((2, 2)))
