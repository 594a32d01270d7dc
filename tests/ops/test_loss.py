"""Loss operators: gradients by central differences in float64, odd labels, shapes and dtypes.

Their values are compared with PyTorch's in tests/step/test_loss.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from aotrain.autodiff import Request, differentiate
from aotrain.ops import loss, pointwise_loss
from tests.ops.kernel import evaluate, function, prim_func, runner

RNG = np.random.default_rng(3)


def cross_entropy(**attrs: float) -> Callable[..., relax.Call]:
    attrs = {"axis": 1, "ignore_index": -100, "label_smoothing": 0.0, **attrs}
    return lambda *args: loss.cross_entropy(*args, **attrs)


def classes(shape: tuple[int, ...], axis: int) -> list[np.ndarray]:
    """Logits, labels of which the last is ignored, class weights."""
    labels = RNG.integers(0, shape[axis], shape[:axis] + shape[axis + 1 :])
    labels.flat[-1] = -100
    return [3 * RNG.standard_normal(shape), labels, RNG.uniform(0.1, 2, shape[axis])]


def pair() -> list[np.ndarray]:
    return [2 * RNG.standard_normal((3, 4)), RNG.uniform(0, 1, (3, 4))]


DIFFERENTIABLE = {
    "cross-entropy": (cross_entropy(), lambda: classes((4, 5), 1)),
    "cross-entropy-smooth": (
        cross_entropy(axis=2, label_smoothing=0.2),
        lambda: classes((2, 3, 4), 2),
    ),
    "cross-entropy-uniform": (
        cross_entropy(axis=0, label_smoothing=1.0),
        lambda: classes((4, 3), 0),
    ),
    "mse": (pointwise_loss.mse, pair),
    "l1": (pointwise_loss.l1, pair),
    "huber": (lambda *a: pointwise_loss.huber(*a, delta=0.5), pair),
    "bce": (pointwise_loss.bce_with_logits, lambda: [*pair(), np.array([0.5, 1, 2, 3.0])]),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_equals_central_differences(name: str) -> None:
    """Of sum(terms * random cotangent) by every element of the first argument."""
    emit, make = DIFFERENTIABLE[name]
    arrays = make()
    (terms,) = evaluate(emit, *arrays)
    arrays.append(RNG.uniform(0.5, 2, terms.shape))
    forward = function(lambda *a: relax.op.sum(relax.op.multiply(emit(*a[:-1]), a[-1])), arrays)
    gradient = runner(differentiate(forward, [Request("value", ("a0",))]))(arrays)[1]
    assert gradient.shape == arrays[0].shape
    run, numeric, step = runner(forward), np.zeros_like(gradient), 1e-6
    for index in np.ndindex(*gradient.shape):
        ends = []
        for side in (step, -step):
            x = arrays[0].copy()
            x[index] += side
            ends.append(float(run([x, *arrays[1:]])[0]))
        numeric[index] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-7)


def test_unbatched_logits() -> None:
    logits = np.array([1.0, 2.0, 0.5], np.float32)
    emit = cross_entropy(axis=0)
    (term,) = evaluate(emit, logits, np.int64(1), np.ones(3, np.float32))
    assert term.shape == ()
    assert term == pytest.approx(np.log(np.exp(logits - 2).sum()), rel=1e-6)


def test_a_label_that_is_no_class_gives_nan_and_no_other_position_does() -> None:
    logits, weight = np.zeros((4, 3), np.float32), np.ones(3, np.float32)
    labels = np.array([0, 3, -1, -100])
    for smoothing in (0.0, 0.1):
        (terms,) = evaluate(cross_entropy(label_smoothing=smoothing), logits, labels, weight)
        np.testing.assert_array_equal(np.isnan(terms), [False, True, True, False])
        assert terms[3] == 0


def test_ignored_position_has_no_gradient_even_if_the_cotangent_is_infinite() -> None:
    """As where all labels are ignored, and the mean divides by 0."""
    arrays = [np.zeros((2, 3)), np.array([-100, -100]), np.ones(3), np.full(2, np.inf)]
    attrs = {"axis": 1, "ignore_index": -100, "label_smoothing": 0.1}
    (gradient,) = evaluate(lambda *a: loss.cross_entropy_grad(*a, **attrs), *arrays)
    np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_ignored_position_is_0_even_if_its_logits_are_nan(smoothing: float) -> None:
    logits = np.array([[np.nan, 0, 1], [0, 0, 0]], np.float32)
    arrays = [logits, np.array([-100, 1]), np.ones(3, np.float32)]
    emit = cross_entropy(label_smoothing=smoothing)
    (terms,) = evaluate(emit, *arrays)
    np.testing.assert_allclose(terms, [0, np.log(3)], rtol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, None])
def test_a_gather_by_label_is_guarded_after_simplification(smoothing: float | None) -> None:
    """TVM drops the clamp of an index under a condition that implies it, and a `Select` evaluates
    both sides all the same: a label of -100 would be read as an index."""
    emit, arrays = cross_entropy(label_smoothing=smoothing), [np.zeros((4, 3), np.float32)]
    if smoothing is None:
        emit, arrays = (lambda *a: loss.label_weight(*a, ignore_index=-100)), []
    arrays += [np.zeros(4, np.int64), np.ones(3, np.float32)]
    module = tvm.IRModule({"main": prim_func(emit, *arrays)})
    (store,) = re.findall(
        r"\n +(?:terms|weights)\[[^=\n]*\] = (.*)", str(tvm.tirx.transform.StmtSimplify()(module))
    )
    weight = f"a{len(arrays) - 1}["
    before, _, _ = store.partition(weight)
    assert store.count(weight) == 1
    assert before.rpartition("T.if_then_else(")[2].startswith("T.int64(0) <= ")


@pytest.mark.parametrize("size", [1e4, 1e38])
def test_cross_entropy_of_large_logits_is_finite(size: float) -> None:
    logits = np.array([[size, 0, -size]], np.float32) / 2
    weight = np.ones(3, np.float32)
    (terms,) = evaluate(cross_entropy(), logits, np.array([2]), weight)
    assert terms[0] == pytest.approx(size, rel=1e-6)


def test_16_bit_logits_are_computed_in_float32() -> None:
    logits = np.array([[10, 10.01, 9.99, 3]], np.float16)
    arrays = [logits, np.array([3]), np.ones(4, np.float32)]
    (terms,) = evaluate(cross_entropy(), *arrays)
    x = logits[0].astype(np.float64)
    assert terms.dtype == np.float32
    assert terms[0] == pytest.approx(np.log(np.exp(x).sum()) - 3, rel=1e-6)
    attrs = {"axis": 1, "ignore_index": -100, "label_smoothing": 0.0}
    cotangent = np.ones(1, np.float32)
    (gradient,) = evaluate(lambda *a: loss.cross_entropy_grad(*a, **attrs), *arrays, cotangent)
    assert gradient.dtype == np.float16


def test_label_weight() -> None:
    weight = np.array([0.5, 2], np.float32)
    labels = np.array([1, 0, 7, 1])
    (weights,) = evaluate(lambda *a: loss.label_weight(*a, ignore_index=7), labels, weight)
    np.testing.assert_array_equal(weights, np.array([2, 0.5, 0, 2], np.float32))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.data())
def test_cross_entropy_over_any_axis_equals_numpy(data: st.DataObject) -> None:
    """Its definition, log-softmax and a gather, in float64."""
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = data.draw(st.integers(0, len(shape) - 1))
    smoothing = data.draw(st.sampled_from([0.0, 0.25]))
    shape[axis] = classes_count = data.draw(st.integers(2, 9))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    logits = 5 * rng.standard_normal(shape)
    labels = np.asarray(rng.integers(-1, classes_count, np.delete(shape, axis)))
    weight = rng.uniform(0, 2, classes_count)
    emit = cross_entropy(axis=axis, ignore_index=-1, label_smoothing=smoothing)
    (terms,) = evaluate(emit, logits, labels, weight)

    x = np.moveaxis(logits, axis, -1)
    log_p = x - np.log(np.exp(x).sum(-1, keepdims=True))
    hit = (labels[..., None] == np.arange(classes_count)).astype(np.float64)
    share = (1 - smoothing) * hit + smoothing / classes_count
    want = np.where(labels == -1, 0, -(share * weight * log_p).sum(-1))
    np.testing.assert_allclose(terms, want, rtol=1e-9, atol=1e-12)


def test_bce_keeps_its_digits_where_the_loss_is_tiny() -> None:
    """log1p(e^-x) for x up to 100, where 1 + e^-x rounds to 1."""
    x = np.concatenate([np.linspace(0, 40, 161), [87, 100, 1e4]]).astype(np.float32)
    arrays = [x, np.ones_like(x), np.float32(1)]
    (terms,) = evaluate(pointwise_loss.bce_with_logits, *arrays)
    want = np.log1p(np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(terms, want, rtol=1e-6, atol=1e-37)
    (mirrored,) = evaluate(pointwise_loss.bce_with_logits, -x, np.zeros_like(x), np.float32(1))
    np.testing.assert_array_equal(mirrored, terms)
