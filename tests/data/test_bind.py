"""Arrays and inputs in; arrays in the inputs' shapes and dtypes out, or every problem at once."""

import numpy as np
import pytest

from aotrain.data import Target, bind
from aotrain.errors import InputError
from aotrain.plan import TensorSpec

X = TensorSpec("x", (32, 1, 2, 3), "float32")
Y = TensorSpec("y", (32,), "int64")
PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
LABELS = np.array([0, 2, 1, 0], dtype=np.uint8)


def codes(*arguments, **keywords):
    with pytest.raises(InputError) as caught:
        bind(*arguments, **keywords)
    return [d.code for d in caught.value.diagnostics]


def test_by_name_reshaped_and_cast():
    bound, notes = bind({"y": LABELS, "x": PIXELS, "extra": LABELS}, [X, Y])
    assert bound["x"].shape == (4, 1, 2, 3)
    assert bound["x"].dtype == np.float32
    assert bound["y"].dtype == np.int64
    np.testing.assert_array_equal(bound["x"].ravel(), PIXELS.ravel())
    assert notes == ()


def test_the_only_fitting_array_is_taken_and_said():
    bound, notes = bind({"images": PIXELS, "labels": LABELS}, [X, Y])
    assert set(bound) == {"x", "y"}
    assert notes == ("input 'x' takes the array 'images'", "input 'y' takes the array 'labels'")


def test_two_fitting_arrays_are_not_guessed_between():
    arrays = {"x": PIXELS, "a": LABELS, "b": LABELS}
    assert codes(arrays, [X, Y]) == ["AOT-D013"]
    bound, _ = bind(arrays, [X, Y], {"y": "b"})
    assert bound["y"].tolist() == LABELS.tolist()


def test_map_beats_the_name():
    bound, _ = bind({"x": PIXELS, "y": LABELS, "z": LABELS + 1}, [X, Y], {"y": "z"})
    assert bound["y"].tolist() == (LABELS + 1).tolist()


def test_columns():
    columns = {name: np.arange(4.0) + i for i, name in enumerate("abcdef")}
    bound, notes = bind({**columns, "y": LABELS * 1.0}, [X, Y])
    np.testing.assert_array_equal(bound["x"].reshape(4, 6)[1], [1, 2, 3, 4, 5, 6])
    assert bound["y"].dtype == np.int64  # whole floats, as a csv gives them
    assert notes == ("input 'x' takes 6 columns",)


def test_named_columns():
    columns = {name: np.arange(4.0) + i for i, name in enumerate("abc")}
    spec = TensorSpec("v", (8, 2), "float64")
    bound, _ = bind(columns, [spec], {"v": "c,a"})
    np.testing.assert_array_equal(bound["v"][0], [2, 0])


@pytest.mark.parametrize(
    ("arrays", "mapping", "expected"),
    [
        ({}, {}, ["AOT-D013", "AOT-D013"]),
        ({"x": PIXELS, "y": PIXELS}, {}, ["AOT-D014"]),
        ({"x": PIXELS, "y": LABELS + 0.5}, {}, ["AOT-D019"]),
        ({"x": PIXELS * np.nan, "y": LABELS}, {}, ["AOT-D019"]),
        ({"x": PIXELS, "y": np.array(["a"] * 4)}, {}, ["AOT-D015"]),
        ({"x": PIXELS, "y": LABELS[:3]}, {}, ["AOT-D016"]),
        ({"x": PIXELS[:0], "y": LABELS[:0]}, {}, ["AOT-D018"]),
        ({"x": PIXELS, "y": LABELS + 1}, {}, ["AOT-D017"]),
        ({"x": PIXELS, "y": LABELS}, {"z": "x"}, ["AOT-D013"]),
        ({"x": PIXELS, "y": LABELS}, {"y": "label"}, ["AOT-D013"]),
        ({"x": PIXELS[:, :1], "y": LABELS[:2] + 9}, {}, ["AOT-D014", "AOT-D017"]),
    ],
)
def test_problems(arrays, mapping, expected):
    assert codes(arrays, [X, Y], mapping, Target("y", 3)) == expected


def test_the_label_error_names_row_and_range():
    with pytest.raises(InputError, match=r"label 3 of 'y' in row 1 .* 3 classes, 0 to 2"):
        bind({"x": PIXELS, "y": LABELS + 1}, [X, Y], None, Target("y", 3))


def test_the_ignored_label_is_in_range():
    bound, _ = bind({"x": PIXELS, "y": LABELS + 253.0}, [X, Y], None, Target("y", 256, 255))
    assert 255 in bound["y"]


def test_a_missing_name_suggests_the_close_one():
    with pytest.raises(InputError, match="did you mean 'labels'"):
        bind({"x": PIXELS, "labels": LABELS}, [X, Y], {"y": "label"})
