"""Artifacts: written whole or not at all, the same bytes each time, refused when damaged."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotrain import artifact
from aotrain.errors import AotError, InputError, InternalError, UsageError
from tests.runtime import toy

FILES = {
    "aotrun", "aotrun.h", "kernels.so", "libaotrun.so", "manifest.json", "plan.bin",
    "state.safetensors",
}  # fmt: skip


def write(folder: Path, kernels: Path, **changes: Any) -> None:
    arguments: dict[str, Any] = {
        "plan": toy.plan(),
        "state": toy.state(),
        "constants": {9: np.full(3, 0.5, "float32")},
        "kernels": kernels / "kernels.so",
        "info": {"name": "toy", "target": "cpu", "ignore_index": -100},
        "labels": 5,
    }
    artifact.write(folder, **{**arguments, **changes})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_round_trip(toy_artifact: Path) -> None:
    assert {path.name for path in toy_artifact.iterdir()} == FILES
    found = artifact.read(toy_artifact)
    assert (found.plan, found.name, found.labels) == (toy.plan(), "toy", 5)
    assert found.ignore_index == -100
    assert found.constants[9].tolist() == [0.5, 0.5, 0.5]
    state = found.state()
    assert all((state.tensors[k] == v).all() for k, v in toy.state().items() if k in state.tensors)
    assert state.metadata["rng"] == "7 0"


def test_manifest_is_readable(toy_artifact: Path) -> None:
    text = (toy_artifact / "manifest.json").read_text()
    manifest = json.loads(text)
    assert manifest["schema"] == "aotrain/artifact/1"
    assert manifest["hyper"] == {"lr": 0.1}
    train = manifest["entries"]["train"]
    assert train["inputs"][0] == {"name": "x", "dtype": "float32", "shape": [4, 3]}
    assert manifest["memory"]["block_bytes"] == toy.plan().block_bytes
    assert {"name": "seen", "dtype": "int16", "shape": [1], "role": "buffer"} in manifest["state"]
    assert text == json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert str(Path.home()) not in text and str(toy_artifact.parent) not in text


def test_same_input_same_bytes(toy_artifact: Path, tmp_path: Path) -> None:
    for name in ("one.aot", "two.aot"):
        write(tmp_path / name, toy_artifact)
    assert contents(tmp_path / "one.aot") == contents(tmp_path / "two.aot")
    assert contents(tmp_path / "one.aot") == contents(toy_artifact)


def test_a_copy_runs_by_itself(toy_artifact: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(toy_artifact, tmp_path / "device" / "m.aot")
    done = subprocess.run(
        ["./aotrun", "."], cwd=copy, env={"PATH": ""}, capture_output=True, text=True, check=True
    )
    assert "toy: 20 trainable parameters" in done.stdout


def test_never_overwritten_unasked(toy_artifact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m.aot"
    write(folder, toy_artifact, labels=4)
    old = contents(folder)
    with pytest.raises(UsageError, match="AOT-A001"):
        write(folder, toy_artifact)
    assert contents(folder) == old
    write(folder, toy_artifact, force=True)
    assert contents(folder) == contents(toy_artifact)
    assert names(tmp_path) == ["m.aot"]


def test_force_replaces_artifacts_only(toy_artifact: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "letters.txt").write_text("dear")
    (tmp_path / "link").symlink_to(home)
    for folder in (home, tmp_path / "link", home / "letters.txt"):
        with pytest.raises(UsageError, match="is no artifact, so it is not replaced"):
            write(folder, toy_artifact, force=True)
    assert (home / "letters.txt").read_text() == "dear"


@pytest.mark.parametrize("force", [False, True])
def test_disk_full_leaves_nothing_half_written(
    toy_artifact: Path, tmp_path: Path, force: bool
) -> None:
    folder = tmp_path / "m.aot"
    if force:
        write(folder, toy_artifact, labels=4)
    old = contents(folder) if force else {}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # below libaotrun.so
    try:
        with pytest.raises(InputError, match=r"AOT-A002.*File too large"):
            write(folder, toy_artifact, force=force)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == (["m.aot"] if force else [])
    assert not force or contents(folder) == old


def test_state_must_fit_the_plan(toy_artifact: Path, tmp_path: Path) -> None:
    state = toy.state()
    del state["seen"]
    state["w"] = state["w"].astype("float64")
    with pytest.raises(InputError) as caught:
        write(tmp_path / "m.aot", toy_artifact, state=state)
    text = caught.value.render()  # both problems at once
    assert "no value for the state tensor 'seen'" in text
    assert "state tensor 'w' is float64[3, 5], not float32[3, 5]" in text
    with pytest.raises(InternalError, match="constant 'mean'"):
        write(tmp_path / "m.aot", toy_artifact, constants={})
    assert not list(tmp_path.iterdir())


DAMAGES = [(name, how) for name in sorted(FILES) for how in ("truncated", "flipped", "missing")]
DAMAGES.remove(("manifest.json", "flipped"))  # a changed letter of a readable file may be an edit


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_damaged_artifacts_are_refused(
    toy_artifact: Path, tmp_path: Path, name: str, damage: str
) -> None:
    copy = shutil.copytree(toy_artifact, tmp_path / "m.aot")
    raw = (copy / name).read_bytes()
    if damage == "missing":
        (copy / name).unlink()
    elif damage == "truncated":
        (copy / name).write_bytes(raw[: len(raw) // 2])
    else:
        (copy / name).write_bytes(raw[:40] + bytes([raw[40] ^ 1]) + raw[41:])
    with pytest.raises(InputError, match=f"AOT-A010.*{name}"):
        artifact.read(copy)


def test_newer_artifact_is_refused(toy_artifact: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(toy_artifact, tmp_path / "m.aot")
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "schema": "aotrain/artifact/2"}))
    with pytest.raises(AotError, match="AOT-A011"):
        artifact.read(copy)
