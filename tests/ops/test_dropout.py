"""Dropout's generator against numpy, and the statistics of its masks."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from aotrain.ops.dropout import Arithmetic, dropout, threshold
from tests.ops.test_batch_norm import run

N = 200_000


def words(seed: int, step: int, salt: int, count: int = N) -> np.ndarray:
    index = np.arange(count, dtype=np.uint64)
    return Arithmetic().word(np.uint64(seed), np.uint64(step), salt, index)


def mask(seed: int, step: int, salt: int, ratio: float) -> np.ndarray:
    return words(seed, step, salt) >= threshold(ratio)


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_operator_is_the_generator_scaled(ratio: float) -> None:
    x = np.random.default_rng(0).normal(size=(7, 5, 11)).astype(np.float32)
    rng = np.array([2**32 - 1, 12345], np.uint32)
    (got,) = [
        run(lambda a, b, **k: _as_tuple(dropout(a, b, **k)), [x, rng], ratio=ratio, salt=3)[0]
    ]
    keep = (words(*map(int, rng), 3, x.size) >= threshold(ratio)).reshape(x.shape)
    np.testing.assert_array_equal(got != 0, keep)
    np.testing.assert_allclose(got, np.where(keep, x / (1 - ratio), 0), rtol=1e-6)


def _as_tuple(call):  # type: ignore[no-untyped-def]
    return relax.Tuple([call])


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5, 0.9])
def test_share_of_dropped_elements(ratio: float) -> None:
    deviation = np.sqrt(ratio * (1 - ratio) / N)
    shares = [1 - mask(seed, step, 0, ratio).mean() for seed in (0, 1, 77) for step in (0, 1, 900)]
    assert np.abs(np.array(shares) - ratio).max() < 4.5 * deviation
    assert np.std(shares) > 0.1 * deviation  # they are draws, not one mask


@pytest.mark.parametrize("other", [(0, 1, 0), (1, 0, 0), (0, 0, 1), (0, 2, 0), (0, 0, 2**20)])
def test_masks_of_other_seeds_steps_and_salts_are_independent(other: tuple[int, int, int]) -> None:
    a, b = mask(0, 0, 0, 0.5), mask(*other, 0.5)
    agree = (a == b).mean()
    assert abs(agree - 0.5) < 4.5 * 0.5 / np.sqrt(N)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 32, 64, 256, 1000, 1024])
def test_no_correlation_along_a_tensor(lag: int) -> None:
    kept = mask(5, 9, 2, 0.5).astype(np.float64) - 0.5
    correlation = (kept[lag:] * kept[:-lag]).mean() * 4
    assert abs(correlation) < 4.5 / np.sqrt(N - lag)


def test_runs_and_bytes_are_uniform() -> None:
    drawn = words(3, 4, 5)
    for shift in (0, 8, 16, 24):
        counts = np.bincount(
            (drawn >> np.uint64(shift) & np.uint64(255)).astype(int), minlength=256
        )
        expected = N / 256
        chi2 = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi2 - 255) < 5 * np.sqrt(2 * 255)
    bits = drawn >> np.uint64(31)
    changes = np.count_nonzero(bits[1:] != bits[:-1])
    assert abs(changes - N / 2) < 4.5 * np.sqrt(N) / 2


@pytest.mark.parametrize("position", range(4))
def test_every_input_bit_changes_half_of_the_output_bits(position: int) -> None:
    base = [np.uint64(11), np.uint64(22), 33, np.arange(4096, dtype=np.uint64)]
    before = Arithmetic().word(*base)
    for bit in range(32):
        changed = list(base)
        changed[position] = base[position] ^ (1 << bit if position == 2 else np.uint64(1 << bit))
        flips = before ^ Arithmetic().word(*changed)
        # One key for all elements: the share of flips varies from key to key.
        assert 15.5 < np.bitwise_count(flips).mean() < 16.5, bit


def test_an_index_beyond_what_one_multiplication_holds() -> None:
    # 1664525 * 40 * 100 is above 2^32: constants must wrap as the machine's numbers do.
    x = np.ones((3, 40, 100), np.float32)
    rng = np.array([7, 8], np.uint32)
    (got,) = run(lambda a, b, **k: _as_tuple(dropout(a, b, **k)), [x, rng], ratio=0.5, salt=2**31)
    keep = (words(7, 8, 2**31, x.size) >= threshold(0.5)).reshape(x.shape)
    np.testing.assert_array_equal(got != 0, keep)


def test_a_wrong_rng_is_refused() -> None:
    with pytest.raises(Exception, match="uint32"):
        run(dropout, [np.zeros(3, "float32"), np.zeros(2, "int64")], ratio=0.5, salt=0)
