"""LRN and MeanVarianceNormalization in ranks and dtypes that other evaluators do not all know."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from aotrain.importer import load
from tests.importer.evaluate import infer
from tests.importer.graphs import model

SHAPES = [(2, 5), (2, 5, 4), (2, 5, 4, 3)]


def values(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(dtype)


def outputs(op: str, x: np.ndarray, **attributes: object) -> np.ndarray:
    node = helper.make_node(op, ["x"], ["y"], name="node", **attributes)
    (y,) = infer(load(model([node], {"x": x}, ["y"])), {"x": x})
    assert y.dtype == x.dtype
    return y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_lrn(shape: tuple[int, ...], dtype: type) -> None:
    """The sum of squares over a window of 3 channels, as the specification writes it."""
    x = values(shape, dtype)
    squares = np.pad(x**2, [(0, 0), (1, 1), *[(0, 0)] * (x.ndim - 2)])
    total = sum(squares[:, i : i + x.shape[1]] for i in range(3))
    want = x / (1.5 + 0.1 / 3 * total) ** 0.6
    got = outputs("LRN", x, size=3, alpha=0.1, beta=0.6, bias=1.5)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axes", [None, [1, 2], [0]])
def test_mean_variance_normalization(axes: list[int] | None, dtype: type) -> None:
    x = values((2, 3, 4, 5), dtype)
    over = tuple(axes or (0, 2, 3))
    want = (x - x.mean(over, keepdims=True)) / x.std(over, keepdims=True)
    got = outputs("MeanVarianceNormalization", x, **({"axes": axes} if axes else {}))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
