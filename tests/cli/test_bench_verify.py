"""`aotrain bench` and `aotrain verify` on a compiled artifact."""

import hashlib
import json
import shutil
import sys

import numpy as np
import pytest

import aotrain
from aotrain.artifact import planfile, read, statefile
from aotrain.cli.app import run
from aotrain.plan import Plan
from tests.cli.test_end_to_end import classifier, rows

ORDER = ["files", "plan", "state", "model", "loader", "step"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    aotrain.compile(classifier(), output=folder / "m.aot")
    return folder


@pytest.fixture
def copy(work, tmp_path):
    return shutil.copytree(work / "m.aot", tmp_path / "m.aot")


def report_of(argv, capfd, code=0):
    assert run([*argv, "--json"]) == code
    return json.loads(capfd.readouterr().out)


def marks(report):
    return {check["name"]: check["ok"] for check in report["checks"]}


def test_bench(work, tmp_path, capfd):
    argv = ["bench", str(work / "m.aot"), "--steps", "20", "--rounds", "3", "--threads", "1"]
    first = report_of(argv, capfd)
    assert first["schema"] == "aotrain/bench/1"
    assert 0 < first["least_ms"] <= first["median_ms"] <= first["p90_ms"]
    np.testing.assert_allclose(first["samples_per_second"], 32e3 / first["median_ms"], rtol=0.5)
    plan = read(work / "m.aot").plan
    assert first["block_bytes"] == plan.block_bytes < first["resident_bytes"] < 64 << 20
    assert sum(first["shares"].values()) == pytest.approx(1)
    assert len(first["kernels"]) == len(plan.entry("train").launches)
    (tmp_path / "b.json").write_text(json.dumps({**first, "median_ms": first["median_ms"] / 1e3}))
    assert run([*argv, "--baseline", str(tmp_path / "b.json"), "--kernels", "2"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("step      median ")
    assert float(lines[1].split()[1]) > 100  # times the baseline
    assert [line.split()[0] for line in lines[2:5]] == ["samples", "memory", "made"]
    table = lines[lines.index("") + 1 :]
    assert table[0].split() == ["ms", "share", "launches", "kernel", "from"]
    assert table.index("") == 3
    assert table[-1].startswith("mostly ")


def test_bench_with_data(work, tmp_path, capfd):
    np.savez_compressed(tmp_path / "d.npz", **rows(40, 1))
    few = ["--steps", "2", "--rounds", "1", "--data"]
    assert report_of(["bench", str(work / "m.aot"), *few, str(tmp_path / "d.npz")], capfd)["ok"]
    report = report_of(["bench", str(work / "m.aot"), *few, "gone.npz"], capfd, code=1)
    assert [error["code"] for error in report["errors"]] == ["AOT-D010"]


@pytest.mark.parametrize("text", ["{}", "[1]", "no json", '{"median_ms": 0}', '{"median_ms": "x"}'])
def test_a_baseline_that_is_none(work, tmp_path, text, capfd):
    (tmp_path / "b.json").write_text(text)
    argv = ["bench", str(work / "m.aot"), "--baseline", str(tmp_path / "b.json")]
    assert run(argv) == 1
    assert "is no report of 'aotrain bench --json'" in capfd.readouterr().err
    assert run([*argv[:-1], "gone.json"]) == 1
    assert "cannot read 'gone.json'" in capfd.readouterr().err


def test_verify_a_good_one(work, tmp_path, capfd):
    report = report_of(["verify", str(work / "m.aot")], capfd)
    assert report["ok"]
    assert marks(report) == dict.fromkeys(ORDER, True)
    with aotrain.Session(work / "m.aot") as session:
        session.step(**rows(32, 1))
        session.save(tmp_path / "s.safetensors")
    assert run(["verify", str(work / "m.aot"), "--state", str(tmp_path / "s.safetensors")]) == 0
    out = capfd.readouterr().out
    assert [line.split()[:2] for line in out.splitlines()] == [["ok", name] for name in ORDER]
    assert "after 1 steps" in out


def test_verify_names_every_damaged_file(copy, capfd):
    (copy / "kernels.so").write_bytes(b"cut")
    (copy / "aotrun").unlink()
    report = report_of(["verify", str(copy)], capfd, code=1)
    assert marks(report) == {**dict.fromkeys(ORDER, None), "files": False}
    found = " ".join(error["message"] for error in report["errors"])
    assert "kernels.so" in found
    assert "aotrun" in found


def test_verify_finds_what_hashes_cannot(copy, capfd):
    """A plan in which two tensors share their bytes, and a weight that is NaN, both well hashed."""
    raw = planfile.unpack((copy / "plan.bin").read_bytes())
    tensors = list(raw.plan.tensors)
    first, second = (i for i, t in enumerate(tensors) if t.name in ("w1", "w2"))
    tensors[second] = tensors[second].at(tensors[first].offset)
    state = statefile.load(copy / "state.safetensors")
    bad = Plan(
        tuple(tensors),
        raw.plan.kernels,
        raw.plan.entries,
        raw.plan.block_bytes,
        raw.plan.thread_scratch,
    )
    values = {t.name: np.zeros(t.shape, t.dtype) for t in tensors if t.role is not None}
    values |= state.tensors | {"w1": np.full_like(state.tensors["w1"], np.nan)}
    replace(copy, "state.safetensors", statefile.dump(bad, values))
    replace(copy, "plan.bin", planfile.pack(planfile.PlanFile(**{**raw.__dict__, "plan": bad})))
    report = report_of(["verify", str(copy)], capfd, code=1)
    assert marks(report) == {
        **dict.fromkeys(ORDER, None),
        **{"files": True, "plan": False, "state": False, "model": True},
    }
    codes = {error["code"] for error in report["errors"]}
    assert {"AOT-M002", "AOT-A020"} <= codes


def replace(folder, name, content):
    """Write a file and its hash."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = hashlib.sha256(content).hexdigest()
    manifest["files"][name] = {"bytes": len(content), "sha256": digest}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_verify_a_checkpoint_of_another_model(work, tmp_path, capfd):
    path = tmp_path / "other.safetensors"
    plan = read(work / "m.aot").plan
    renamed = [t for t in plan.tensors if t.role is not None and t.name != "w1"]
    values = {t.name: np.zeros(t.shape, t.dtype) for t in renamed}
    other = Plan(tuple(renamed), (), (), plan.block_bytes, 0)
    path.write_bytes(statefile.dump(other, values))
    report = report_of(["verify", str(work / "m.aot"), "--state", str(path)], capfd, code=1)
    assert marks(report)["state"] is False
    assert "'w1' is missing" in report["errors"][0]["message"]


def test_verify_one_for_another_machine(copy, capfd):
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["triple"] = "riscv64-linux-gnu"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    report = report_of(["verify", str(copy)], capfd)
    assert marks(report) == {**dict.fromkeys(ORDER, True), "loader": None, "step": None}


def test_verify_survives_an_instruction_that_the_processor_lacks(
    work, tmp_path, capfd, monkeypatch
):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -ILL $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    report = report_of(["verify", str(work / "m.aot")], capfd, code=1)
    assert marks(report)["loader"] is False
    assert "SIGILL" in report["errors"][0]["message"]


def test_verify_a_step_that_is_not_finite(tmp_path, capfd):
    model = classifier()
    model.graph.node[1].op_type = "Log"  # of a negative number
    aotrain.compile(model, output=tmp_path / "m.aot")
    report = report_of(["verify", str(tmp_path / "m.aot")], capfd, code=1)
    assert marks(report) == {**dict.fromkeys(ORDER, True), "step": False}
    assert report["errors"][0]["code"] == "AOT-D030"
