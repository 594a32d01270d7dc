"""`aotrain tune`, and `aotrain compile` with what it found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import onnx
import pytest

import aotrain
from aotrain.cli.app import run
from aotrain.schedules.cpu import candidates
from aotrain.targets import get
from aotrain.tuning.choices import key
from aotrain.tuning.database import Record, compiler, read
from tests.models import mlp

TARGET = get("cpu")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model, and a cache without records but with the loader."""
    built = aotrain.runtime.building.cache_folder() / "runtime"
    (tmp_path / "cache" / "aotrain").mkdir(parents=True)
    (tmp_path / "cache" / "aotrain" / "runtime").symlink_to(built.resolve())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    onnx.save(mlp.build(), path)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_compile_takes_what_won_and_says_so(model: Path, tmp_path: Path, capsys) -> None:
    def compile(name: str, *options: str) -> dict[str, bytes]:
        assert run(["compile", str(model), "-o", str(tmp_path / name), *options]) == 0
        return contents(tmp_path / name)

    kernels = aotrain.compile(model, output=tmp_path / "first").kernels
    spaces = [(k, s) for k in kernels if (s := candidates(k.func, TARGET.tvm))]
    kernel, space = max(spaces, key=lambda pair: len(pair[1][0]))
    second = tuple(asdict(choices[1]) for choices in space)
    won = Record(TARGET.name, compiler(), key(kernel.func), kernel.name, second, "won", 0.5)
    foreign = Record(TARGET.name, "aotrain 0", key(kernel.func), kernel.name, second, "won", 0.5)
    read(TARGET.name).add([won, foreign])
    capsys.readouterr()
    tuned = compile("tuned")
    said = capsys.readouterr().out
    assert f"{len(kernels)} kernels: 1 tuned, {len(kernels) - 1} rule" in said
    assert "tuning records of another target or version, or damaged, ignored: 1" in said
    assert compile("again") == tuned
    plain = compile("plain", "--no-tuning")
    assert plain == contents(tmp_path / "first")
    assert plain["kernels.so"] != tuned["kernels.so"]


def test_tuning_a_model(model: Path, tmp_path: Path, capsys) -> None:
    assert run(["tune", str(model), "--batch", "16", "--trials", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "aotrain/tune/1" and found["ok"] and found["trials"] == 3
    assert sum(kernel["trials"] for kernel in found["kernels"]) == 3
    measured = found["step_ms"]["before"] is not None
    improved = any(kernel["after_ns"] < kernel["before_ns"] for kernel in found["kernels"])
    assert measured == improved
    # And taken to another machine: the records arrive there once.
    file = tmp_path / "records.jsonl"
    assert run(["tune", "--export", str(file), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    assert records >= 3 and len(file.read_text().splitlines()) == records
    read(TARGET.name).path.unlink()
    for added in (records, 0):
        assert run(["tune", "--import", str(file), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["added"] == added
    assert run(["tune", "--show"]) == 0
    assert f"{records} records" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_one_that_is_ended_goes_on(number: int, code: int, model: Path, capsys) -> None:
    # A shell's background jobs, and what they start, ignore SIGINT unless told otherwise.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heard}; from aotrain.cli import main; main()"]
    command += ["tune", str(model), "--time", "1h"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        ends = time.monotonic() + 60
        while len(read(TARGET.name).records) < 2 and time.monotonic() < ends:
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(30) == code
    known = read(TARGET.name)
    assert len(known.records) >= 2 and known.ignored == 0
    assert run(["tune", str(model), "--trials", "2", "--json"]) == 0
    capsys.readouterr()
    after = read(TARGET.name).records
    trials = [(r.key, r.tried) for r in after if r.choices]
    assert after[: len(known.records)] == known.records
    assert len(set(trials)) == len(known.records) + 2


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ([], 2, "AOT-U003"),
        (["m.onnx", "--show"], 2, "AOT-U003"),
        (["m.onnx", "--time", "soon"], 2, "'soon' is no time"),
        (["m.onnx", "--target", "cpu:aarch64"], 2, "does not run here"),
        (["m.onnx", "--target", "vulkan"], 2, "only schedules for CPUs"),
        (["none.onnx"], 1, "none.onnx"),
        (["--import", "none.jsonl"], 1, "none.jsonl"),
    ],
)
def test_refusals(options: list[str], code: int, text: str, model: Path, capsys) -> None:
    assert run(["tune", *options]) == code
    assert text in capsys.readouterr().err
