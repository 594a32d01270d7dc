"""`Session.fit` against `aotrun`: the same batches, bit for bit; and what it refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import aotrain
from aotrain.errors import AotError, InputError, UsageError
from aotrain.runtime import Session
from tests.runtime import toy


def dataset(rows: int = 22, seed: int = 3) -> dict[str, np.ndarray]:
    return toy.batch(rows=rows, seed=seed)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.savez(tmp_path / "train.npz", **dataset())
    return tmp_path / "train.npz"


def aotrun(artifact: Path, data: Path, save: Path, *options: str) -> dict[str, bytes]:
    command = [artifact / "aotrun", artifact, "--data", data, "--save", save, *options]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    with Session(artifact) as session:
        session.load(save)
        return state(session)


def state(session: Session) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in session.state_dict().items()}


@pytest.mark.parametrize("from_file", [True, False])
def test_it_trains_as_aotrun_does(
    toy_artifact: Path, data: Path, tmp_path: Path, from_file: bool
) -> None:
    theirs = aotrun(toy_artifact, data, tmp_path / "s.safetensors", "--epochs", "3")
    with Session(toy_artifact) as session:
        lines = session.fit(data if from_file else dataset(), epochs=3)
        assert state(session) == theirs
        assert [(line["epoch"], line["step"]) for line in lines] == [(1, 5), (2, 10), (3, 15)]
        assert lines[2]["loss"] < lines[0]["loss"]


def test_either_continues_what_the_other_began(
    toy_artifact: Path, data: Path, tmp_path: Path
) -> None:
    """From the middle of an epoch: step 7 of 5 an epoch; --steps stops there."""
    aotrun(toy_artifact, data, tmp_path / "half.safetensors", "--steps", "7")
    theirs = aotrun(toy_artifact, data, tmp_path / "s.safetensors", "--epochs", "3")
    with Session(toy_artifact) as session:
        session.load(tmp_path / "half.safetensors")
        assert len(session.fit(data, epochs=2)) == 2
        assert state(session) == theirs


def test_validation_is_that_of_aotrun(toy_artifact: Path, data: Path, tmp_path: Path) -> None:
    held_out = dataset(rows=7, seed=8)  # a batch and a short one
    with Session(toy_artifact) as session:
        seen: list[dict[str, float]] = []
        (line,) = session.fit(data, valid=held_out, report=seen.append)
        assert seen == [line]
        logits = np.concatenate(
            [
                session.predict(x=held_out["x"][rows])["logits"]
                for rows in ([0, 1, 2, 3], [4, 5, 6, 6])
            ]
        )[:7]
    y = held_out["y"]
    wanted = (np.log(np.exp(logits).sum(1)) - logits[np.arange(7), y]).mean()
    assert line["accuracy"] == (logits.argmax(1) == y).mean()
    np.testing.assert_allclose(line["valid_loss"], wanted, rtol=1e-5)


class OnlyDlpack:
    """A tensor of another framework."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_arrays_come_by_dlpack(toy_artifact: Path) -> None:
    states = []
    for wrap in (OnlyDlpack, np.asarray):
        with Session(toy_artifact) as session:
            session.fit({name: wrap(value) for name, value in dataset().items()})
            states.append(state(session))
    assert states[0] == states[1]


def test_arrays_are_mapped_and_converted(toy_artifact: Path) -> None:
    data = dataset()
    states = []
    for given, names in (
        (data, None),
        ({"a": data["x"].astype("f8"), "b": data["y"].astype("u1")}, {"x": "a", "y": "b"}),
    ):
        with Session(toy_artifact) as session:
            session.fit(given, map=names)
            states.append(state(session))
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("change", "code", "kind"),
    [
        ({"data": 3}, "AOT-D001", UsageError),
        ({"data": "gone.npz"}, "AOT-D010", InputError),
        ({"data": {"x": object(), "y": object()}}, "AOT-D014", InputError),
        ({"data": dataset(rows=3)}, "AOT-D018", InputError),
        ({"data": {**dataset(), "y": np.full(22, 9)}}, "AOT-D017", InputError),
        ({"data": {"x": dataset()["x"]}}, "AOT-D013", InputError),
        ({"epochs": 0}, "AOT-D001", UsageError),
        ({"epochs": "3"}, "AOT-D001", UsageError),
        ({"seed": -1}, "AOT-D001", UsageError),
        ({"valid": {"x": dataset()["x"][:, :2], "y": dataset()["y"]}}, "AOT-D014", InputError),
    ],
)
def test_refusals_change_nothing(
    toy_artifact: Path, change: dict[str, object], code: str, kind: type[AotError]
) -> None:
    with Session(toy_artifact) as session:
        before = state(session)
        with pytest.raises(kind) as caught:
            session.fit(**{"data": dataset(), **change})
        assert caught.value.diagnostics[0].code == code
        assert state(session) == before


def test_a_loss_that_is_not_finite_names_the_step(toy_artifact: Path) -> None:
    with Session(toy_artifact) as session, pytest.raises(aotrain.NotFiniteError, match="step 1"):
        session.view("w")[...] = np.nan
        session.fit(dataset())
