"""A batch of 1 in constants: generalised where row-major order proves it, refused elsewhere."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from aotrain.errors import InputError, UnsupportedModelError
from aotrain.importer import ImportOptions, load
from aotrain.importer.batch import grown_reshape
from tests.importer.evaluate import infer
from tests.importer.graphs import model


@pytest.mark.parametrize(
    ("old_in", "new_in", "old_out", "want"),
    [
        ((1, 3, 4), (8, 3, 4), (1, 12), [8, 12]),
        ((1, 3, 4), (8, 3, 4), (3, 4), [24, 4]),
        ((12, 3, 4), (96, 3, 4), (1, 12, 3, 4), [8, 12, 3, 4]),
        ((5, 1, 4), (5, 8, 4), (5, 1, 2, 2), [5, 8, 2, 2]),
        ((5, 1, 4), (5, 8, 4), (5, 4), None),  # [40, 4] or [5, 32]
        ((1, 1, 4), (1, 8, 4), (1, 1, 2, 2), [1, 8, 2, 2]),
        ((5, 1, 4), (5, 8, 4), (20,), [160]),
        ((1, 1), (8, 8), (1,), None),
        ((2, 3), (2, 3), (6,), None),
    ],
)
def test_grown_reshape(
    old_in: tuple[int, ...],
    new_in: tuple[int, ...],
    old_out: tuple[int, ...],
    want: list[int] | None,
) -> None:
    assert grown_reshape(old_in, new_in, old_out) == want


def test_a_border_between_two_dimensions_is_not_guessed() -> None:
    """[T, B, E] -> [T B, E] or [T, B E]: attention layers have either."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["a", "rows"], ["y"], name="rows"),
    ]
    proto = model(nodes, {"x": [1, 5, 3]}, ["y"], {"rows": np.array([5, 3])})
    with pytest.raises(InputError, match="do not fit") as error:
        load(proto, ImportOptions(batch=4))
    assert "'rows'" in error.value.diagnostics[0].where


def reshaping(target: list[int]) -> onnx.ModelProto:
    nodes = [helper.make_node("Reshape", ["x", "t"], ["y"], name="flat")]
    return model(nodes, {"x": [1, 2, 3]}, ["y"], {"t": np.array(target)})


@pytest.mark.parametrize("target", [[1, 6], [1, -1]])
def test_reshape(target: list[int]) -> None:
    made = load(reshaping(target), ImportOptions(batch=4))
    assert made.outputs[0].shape == (4, 6)
    assert made.notes == ("batch 1 -> 4 in 1 Reshape node (flat)",)
    x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(infer(made, {"x": x})[0], x.reshape(4, 6))


def test_a_target_that_takes_any_batch_needs_no_note() -> None:
    assert not load(reshaping([-1, 6]), ImportOptions(batch=4)).notes


def test_a_class_token_expanded_to_a_batch_of_one() -> None:
    nodes = [
        helper.make_node("Expand", ["token", "shape"], ["t"]),
        helper.make_node("Concat", ["t", "x"], ["y"], axis=1),
    ]
    constants = {"token": np.array([[[1, 2, 3]]], np.float32), "shape": np.array([1, 1, 3])}
    proto = model(nodes, {"x": ["n", 2, 3]}, ["y"], constants)
    made = load(proto, ImportOptions(batch=4))
    assert made.outputs[0].shape == (4, 3, 3)
    x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    (y,) = infer(made, {"x": x})
    np.testing.assert_array_equal(y[:, 0], [[1, 2, 3]] * 4)
    np.testing.assert_array_equal(y[:, 1:], x)


def test_examples_that_are_mixed_are_refused() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "t"], ["rows"]),
        helper.make_node("Slice", ["rows", "zero", "two"], ["first"]),
        helper.make_node("Unsqueeze", ["first", "zero"], ["y"]),
    ]
    constants = {"t": np.array([-1, 3]), "zero": np.array([0]), "two": np.array([2])}
    proto = model(nodes, {"x": [1, 2, 3]}, ["y"], constants)
    assert load(proto).outputs[0].shape == (1, 2, 3)
    with pytest.raises(UnsupportedModelError, match="batch of 4") as error:
        load(proto, ImportOptions(batch=4))
    assert error.value.diagnostics[0].code == "AOT-I014"
