"""The whole path on real data: compile, train in the C loader alone, export, evaluate elsewhere."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import aotrain

onnxruntime = pytest.importorskip("onnxruntime")

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
EPOCHS = 8


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "digits.aot"
    return aotrain.compile(DIGITS / "model.onnx", output=folder, batch=32, lr=1e-3).path


def _aotrun(artifact: Path, *options: object) -> dict[str, Any]:
    """Run the artifact's own program without Python's or our environment; its JSON."""
    command = [artifact / "aotrun", artifact, "--json", "--threads", 2, *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env={})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trained(artifact: Path) -> tuple[Path, dict[str, Any]]:
    """The checkpoint after `EPOCHS` and what aotrun reported."""
    state = artifact.parent / "trained.safetensors"
    files = ("--data", DIGITS / "train.npz", "--valid", DIGITS / "test.npz")
    return state, _aotrun(artifact, *files, "--epochs", EPOCHS, "--save", state)


def _test_set() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DIGITS / "test.npz") as file:
        return file["x"], file["y"]


def test_held_out_accuracy(trained: tuple[Path, dict[str, Any]]) -> None:
    epochs = trained[1]["epochs"]
    assert len(epochs) == EPOCHS
    assert epochs[-1]["accuracy"] >= 0.97
    assert epochs[-1]["loss"] < epochs[0]["loss"]


def test_exported_model_predicts_the_same(
    artifact: Path, trained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    state, report = trained
    x, y = _test_set()
    aotrain.export(artifact, state=state, output=tmp_path / "trained.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "trained.onnx")
    theirs = session.run(None, {"x": x})[0]  # [360, 10]
    _aotrun(artifact, "--resume", state, "--predict", DIGITS / "test.npz", "-o", tmp_path / "o.npz")
    with np.load(tmp_path / "o.npz") as file:
        ours = file["logits"]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert (ours.argmax(axis=1) == theirs.argmax(axis=1)).all()
    assert (theirs.argmax(axis=1) == y).mean() == pytest.approx(report["epochs"][-1]["accuracy"])


def test_exported_model_differs_only_in_its_weights(
    artifact: Path, trained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    aotrain.export(artifact, state=trained[0], output=tmp_path / "trained.onnx")
    before, after = onnx.load(DIGITS / "model.onnx"), onnx.load(tmp_path / "trained.onnx")
    changed = {
        new.name
        for old, new in zip(before.graph.initializer, after.graph.initializer, strict=True)
        if old != new
    }
    assert changed == {tensor.name for tensor in before.graph.initializer}  # all of them train
    for model in (before, after):
        model.graph.ClearField("initializer")
    assert before == after


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_resuming_is_bit_for_bit(
    artifact: Path, trained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Stop in the middle of an epoch, in another process, and go on."""
    half, whole = tmp_path / "half.safetensors", tmp_path / "whole.safetensors"
    data = ("--data", DIGITS / "train.npz")
    steps = trained[1]["step"]
    _aotrun(artifact, *data, "--steps", steps // 2 + 7, "--save", half)
    _aotrun(artifact, *data, "--steps", steps, "--resume", half, "--save", whole)
    assert _digest(whole) == _digest(trained[0])


def test_python_loader_continues_from_the_c_loader(
    artifact: Path, trained: tuple[Path, dict[str, Any]]
) -> None:
    x, y = _test_set()
    with aotrain.Session(artifact) as session:
        untrained = session.eval(x=x[:32], y=y[:32])
        session.load(trained[0])
        assert session.info["step"] == trained[1]["step"]
        found = session.eval(x=x[:32], y=y[:32])
    assert found["loss"] < untrained["loss"]
    assert found["count"] == 32
    assert found["correct"] >= 31
