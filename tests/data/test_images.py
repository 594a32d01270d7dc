"""Folders of images: layouts, classes, and every way in which they do not fit."""

import sys

import numpy as np
import pytest

from aotrain.data import Target, load, prepare
from aotrain.errors import InputError, ToolchainError
from aotrain.plan import TensorSpec

Image = pytest.importorskip("PIL.Image")

COLORS = np.random.default_rng(0).integers(0, 256, (4, 2, 3, 3), np.uint8)  # [N, H, W, C]
LABEL = TensorSpec("y", (2,), "int64")
THREE = Target("y", 3)


@pytest.fixture
def photos(tmp_path):
    """Classes bird (none), cat (2), dog (2); a text file beside them."""
    root = tmp_path / "photos"
    for i, name in enumerate(["cat/b.png", "cat/a.PNG", "dog/2.png", "dog/1.png"]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(COLORS[i]).save(root / name, format="png")
    (root / "bird").mkdir()
    (root / ".thumbnails").mkdir()
    (root / "dog" / "notes.txt").write_text("no image")
    return root


def loaded(photos, tmp_path, spec, target=THREE):
    folder = tmp_path / "work"
    folder.mkdir()
    specs = [spec, LABEL] if target else [spec]
    return load(str(photos), folder, specs, {}, target)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((2, 3, 2, 3), (0, 3, 1, 2)), ((2, 2, 3, 3), (0, 1, 2, 3))],
    ids=["channels first", "channels last"],
)
def test_pixels_and_labels(photos, tmp_path, shape, axes):
    arrays = loaded(photos, tmp_path, TensorSpec("x", shape, "float32"))
    wanted = COLORS[[1, 0, 3, 2]].transpose(axes)  # names are sorted
    np.testing.assert_array_equal(arrays["x"], wanted.astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(arrays["y"], [1, 1, 2, 2])  # 0 is bird
    assert arrays["x"].dtype == np.float32
    assert arrays["y"].dtype == np.int64


def test_gray(photos, tmp_path):
    arrays = loaded(photos, tmp_path, TensorSpec("x", (2, 6), "float32"))
    luma = COLORS[[1, 0, 3, 2]] @ [0.299, 0.587, 0.114] / 255  # ITU-R 601-2, as Pillow states
    np.testing.assert_allclose(arrays["x"], luma.reshape(4, 6), atol=1.1 / 255)


def test_bytes_stay_bytes(photos, tmp_path):
    arrays = loaded(photos, tmp_path, TensorSpec("x", (2, 2, 3, 3), "uint8"))
    np.testing.assert_array_equal(arrays["x"], COLORS[[1, 0, 3, 2]])


def test_to_predict_no_classes_are_needed(photos, tmp_path):
    Image.fromarray(COLORS[0]).save(photos / "0.png")
    arrays = loaded(photos, tmp_path, TensorSpec("x", (2, 2, 3, 3), "uint8"), target=None)
    np.testing.assert_array_equal(arrays["x"], COLORS[[1, 0, 3, 2, 0]])


def test_choices_are_said(photos, tmp_path):
    spec = TensorSpec("x", (2, 3, 2, 3), "float32")
    notes = prepare(str(photos), tmp_path / "photos", [spec, LABEL], {}, THREE).notes
    assert notes == ("4 images, RGB, channels first, 0 to 1", "classes: 0 bird, 1 cat, 2 dog")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3, 4, 4), "a.PNG' is 3x2, the model takes 4x4"),
        ((2, 3, 3, 2), "a.PNG' is 3x2, the model takes 2x3"),
        ((2, 7), "a.PNG' is 3x2, the model takes 7 pixels"),
        ((2, 5, 5, 5), "is no image"),
        ((2,), "is no image"),
    ],
)
def test_shapes_that_do_not_fit(photos, tmp_path, shape, message):
    with pytest.raises(InputError, match="AOT-D022") as caught:
        loaded(photos, tmp_path, TensorSpec("x", shape, "float32"))
    assert message in str(caught.value)


def test_another_number_of_classes(photos, tmp_path):
    spec = TensorSpec("x", (2, 3, 2, 3), "float32")
    with pytest.raises(InputError, match="has 3 sub-folders, the model 4 classes"):
        loaded(photos, tmp_path, spec, Target("y", 4))


def test_bad_files_are_named_together(photos, tmp_path):
    (photos / "bird" / "cut.png").write_bytes((photos / "dog" / "1.png").read_bytes()[:40])
    Image.fromarray(np.zeros((2, 3), np.uint16)).save(photos / "bird" / "deep.png")
    for i in range(6):
        Image.fromarray(COLORS[0, :1]).save(photos / "cat" / f"small{i}.png")
    with pytest.raises(InputError) as caught:
        loaded(photos, tmp_path, TensorSpec("x", (2, 3, 2, 3), "float32"))
    text = str(caught.value)
    assert "cut.png'" in text
    assert "deep.png' has more than 8 bits" in text
    assert "3 more images do not fit" in text


def test_an_empty_folder(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        loaded(tmp_path, tmp_path, TensorSpec("x", (2, 3, 2, 3), "float32"), Target("y", 2))


def test_without_pillow(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ToolchainError, match="pip install 'aotrain"):
        loaded(photos, tmp_path, TensorSpec("x", (2, 3, 2, 3), "float32"))
