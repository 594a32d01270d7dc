"""aotrun where numbers go wrong: what is kept of a run, what is said, and a benchmark's peak."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from aotrain import artifact
from aotrain.errors import ExitCode
from tests.runtime import toy
from tests.runtime.test_aotrun import Aotrun

SAVE = ("--save", "s.safetensors")


@pytest.fixture
def aotrun(toy_artifact: Path, tmp_path: Path) -> Aotrun:
    return Aotrun(toy_artifact, tmp_path)


def kept(aotrun: Aotrun) -> artifact.Checkpoint:
    found = artifact.read_checkpoint(aotrun.folder / "s.safetensors")
    assert np.isfinite(found.tensors["w"]).all()
    return found


def test_nan_stops_with_the_step_and_keeps_the_last_good_checkpoint(aotrun: Aotrun) -> None:
    x = np.array(toy.batch(40)["x"])
    words = ("--data", "nan.npz", "--save", "s.safetensors", "--save-every", 1, "--keep", 2)
    x[17, 1] = np.nan
    np.savez(aotrun.folder / "nan.npz", x=x, y=toy.batch(40)["y"])
    done = aotrun(*words, code=ExitCode.INPUT)
    step = int(done.stderr.split("the loss is NaN at step ")[1].split()[0])
    last = f"s-{step - 1:08d}.safetensors"
    assert f"the last good checkpoint is {last}" in done.stderr
    assert np.isfinite(artifact.read_checkpoint(aotrun.folder / last).tensors["w"]).all()
    assert not (aotrun.folder / "s.safetensors").exists()


def test_without_save_every_the_last_epoch_is_kept(aotrun: Aotrun) -> None:
    """A step an epoch; the first makes weights that no later one can bear."""
    data = toy.batch(4)
    np.savez(aotrun.folder / "few.npz", x=data["x"][[0] * 4], y=np.arange(4))
    done = aotrun("--data", "few.npz", *SAVE, "--epochs", 9, "--lr", 3e38, code=ExitCode.INPUT)
    assert "error[AOT-D030]" in done.stderr
    step = done.stderr.split("the last good checkpoint is s.safetensors, of step ")[1]
    assert kept(aotrun).step == int(step) >= 1  # whether a later one was kept is a matter of time


def test_weights_that_are_not_finite_are_not_saved(aotrun: Aotrun) -> None:
    """The loss is that of the weights before the update, which overflows."""
    data = toy.batch(4)
    np.savez(aotrun.folder / "large.npz", x=100 * data["x"], y=data["y"])
    error = aotrun.refuses("--data", "large.npz", *SAVE, "--lr", 3e38)
    assert "error[AOT-D030]: weight 'w' is not finite after step 1" in error
    assert "last good" not in error


def test_a_resumed_run_names_what_it_began_with(aotrun: Aotrun) -> None:
    aotrun("--data", "train.npz", *SAVE)
    np.savez(aotrun.folder / "nan.npz", x=np.full((8, 3), np.nan, "f4"), y=toy.batch(8)["y"])
    words = ("--data", "nan.npz", *SAVE, "--resume", "s.safetensors", "--epochs", 20)
    error = aotrun.refuses(*words)
    assert "the last good checkpoint is s.safetensors, of step 25" in error
    assert kept(aotrun).step == 25


def test_one_hot_labels_get_a_hint(aotrun: Aotrun) -> None:
    data = toy.batch(8)
    np.savez(aotrun.folder / "hot.npz", x=data["x"], y=np.eye(5, dtype="f4")[data["y"]])
    error = aotrun.refuses("--data", "hot.npz")
    assert "error[AOT-D014]" in error
    assert "hint: labels are class indices: one_hot.argmax(1)" in error


def test_the_peak_of_a_benchmark_is_that_of_the_process_itself(aotrun: Aotrun) -> None:
    """A child starts with its parent's resident size, of which aotrun's must be free."""
    ballast = np.ones(64 << 20, np.uint8)
    out = json.loads(aotrun("--bench", 3, "--json").stdout)
    assert 0 < out["bench"]["resident_bytes"] < ballast.nbytes // 4
