"""The user's own path through the command line, and every bad input of theirs on the way."""

import json
import os
import pty
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotrain import artifact, exporter
from aotrain.cli.app import run

CLASSES = 3


def classifier():
    """x [batch, 4] -> Gemm -> Relu -> Gemm -> logits [batch, 3]."""
    draw = np.random.default_rng(0)
    weights = {
        "w1": draw.standard_normal((4, 16)) * 0.3,
        "b1": np.zeros(16),
        "w2": draw.standard_normal((16, CLASSES)) * 0.3,
        "b2": np.zeros(CLASSES),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="fc1"),
            helper.make_node("Relu", ["h"], ["a"], name="act"),
            helper.make_node("Gemm", ["a", "w2", "b2"], ["logits"], name="fc2"),
        ],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


def rows(count, seed):
    """Points, and the class of the largest of three fixed directions."""
    x = np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)
    y = (x @ np.random.default_rng(9).standard_normal((4, CLASSES))).argmax(1)
    return {"x": x, "y": y}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Model, data and artifact, made once; nothing in it is changed by a test."""
    folder = tmp_path_factory.mktemp("work")
    onnx.save(classifier(), folder / "m.onnx")
    np.savez(folder / "train.npz", **rows(256, 1))
    np.savez_compressed(folder / "test.npz", **rows(100, 2))
    code = run(["compile", str(folder / "m.onnx"), "--lr", "1e-2", "-o", str(folder / "m.aot")])
    assert code == 0
    return folder


@pytest.fixture(scope="module")
def trained(work):
    path = work / "trained.safetensors"
    argv = ["run", str(work / "m.aot"), "--data", str(work / "train.npz"), "--epochs", "10"]
    assert run([*argv, "--save", str(path)]) == 0
    return path


def json_of(argv, capfd):
    assert run([*argv, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_train_and_evaluate(work, trained, capfd):
    argv = ["eval", str(work / "m.aot"), "--data", str(work / "test.npz")]
    (before,) = json_of(argv, capfd)["epochs"]
    (after,) = json_of([*argv, "--state", str(trained)], capfd)["epochs"]
    assert after["valid_loss"] < 0.6 * before["valid_loss"]
    assert after["accuracy"] > 0.85 > before["accuracy"]


def test_ignored_labels_do_not_count(work, tmp_path, capfd):
    """-100, the default, from the data file through the compiled artifact."""
    data = rows(100, 2)
    np.savez(tmp_path / "some.npz", **{**data, "y": np.where(np.arange(100) < 40, data["y"], -100)})
    np.savez(tmp_path / "few.npz", **{name: value[:40] for name, value in data.items()})
    argv = ["eval", str(work / "m.aot"), "--data"]
    some, few = (
        json_of([*argv, str(tmp_path / f)], capfd)["epochs"][0] for f in ("some.npz", "few.npz")
    )
    assert some["accuracy"] == few["accuracy"]


def test_csv_gives_the_same_as_npz(work, trained, tmp_path, capfd):
    data = rows(100, 2)
    table = np.column_stack([data["x"], data["y"]])
    names = "a,b,c,d,class"
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header=names, comments="", fmt="%.9g")
    argv = ["eval", str(work / "m.aot"), "--state", str(trained), "--data"]
    npz = json_of([*argv, str(work / "test.npz")], capfd)
    csv = json_of([*argv, str(tmp_path / "t.csv"), "--map", "y=class"], capfd)
    assert csv == npz


def test_export(work, trained, tmp_path, capfd):
    argv = ["export", str(work / "m.aot"), "--state", str(trained)]
    done = json_of([*argv, "-o", str(tmp_path / "t.onnx")], capfd)
    assert set(done["replaced"]) == {"w1", "b1", "w2", "b2"}
    assert done["error"] < 1e-5
    before, after = onnx.load(work / "m.onnx"), onnx.load(tmp_path / "t.onnx")
    assert after.graph.node == before.graph.node
    assert after.opset_import == before.opset_import
    assert after.graph.initializer != before.graph.initializer


def test_an_export_that_computes_something_else_is_not_kept(
    work, trained, tmp_path, capfd, monkeypatch
):
    set_weights = exporter.set_weights

    def forgets_one(model, weights, checkpoint, initial):
        kept = {k: v for k, v in weights.items() if k != "w2"}
        return set_weights(model, kept, checkpoint, initial)

    monkeypatch.setattr(exporter, "set_weights", forgets_one)
    argv = ["export", str(work / "m.aot"), "--state", str(trained), "-o", str(tmp_path / "t.onnx")]
    assert "output 'logits'" in refused(argv, 1, "AOT-A204", capfd)
    assert not list(tmp_path.iterdir())


def test_export_of_a_file_with_batch_1_baked_in(tmp_path, capfd):
    model = classifier()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    shape = numpy_helper.from_array(np.array([1, 4], np.int64), "shape")
    model.graph.initializer.append(shape)
    model.graph.node.insert(0, helper.make_node("Reshape", ["x", "shape"], ["x2"]))
    model.graph.node[1].input[0] = "x2"
    onnx.save(model, tmp_path / "one.onnx")
    artifact = str(tmp_path / "one.aot")
    assert run(["compile", str(tmp_path / "one.onnx"), "--batch", "8", "-o", artifact]) == 0
    capfd.readouterr()
    done = json_of(["export", artifact, "-o", str(tmp_path / "t.onnx")], capfd)
    assert done["error"] < 1e-5
    assert onnx.load(tmp_path / "t.onnx") == model


def test_resume_is_bit_for_bit(work, trained, tmp_path):
    argv = ["run", str(work / "m.aot"), "--data", str(work / "train.npz")]
    half, whole = tmp_path / "half.safetensors", tmp_path / "whole.safetensors"
    assert run([*argv, "--steps", "37", "--save", str(half)]) == 0
    assert run([*argv, "--resume", str(half), "--epochs", "10", "--save", str(whole)]) == 0
    assert whole.read_bytes() == trained.read_bytes()


@pytest.mark.parametrize(
    ("options", "drawn"), [([], True), (["-q"], False), (["--no-progress"], False)]
)
def test_the_bar_is_for_terminals(work, tmp_path, options, drawn):
    ours, theirs = pty.openpty()
    argv = ["run", str(work / "m.aot"), "--data", str(work / "train.npz"), *options]
    argv += ["--save", str(tmp_path / "s.safetensors")]
    code = f"import sys\nfrom aotrain.cli.app import run\nsys.exit(run({argv!r}))"
    command = [sys.executable, "-c", code]
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, check=True)
        os.write(theirs, b"end")
        text = b""
        while not text.endswith(b"end"):
            text += terminal.read(4096)
        os.close(theirs)
    assert (b"steps/s" in text) == drawn, text
    if drawn:
        assert text.endswith(b"\r\x1b[Kend")  # the bar is gone when the run is over
    else:
        assert text == b"end"


def test_inspect_artifact(work, capfd):
    assert run(["inspect", str(work / "m.aot")]) == 0
    lines = capfd.readouterr().out.splitlines()
    words = [line.split() for line in lines]
    assert ["train", "input", "x", "float32[32,", "4]"] in words
    assert ["train", "input", "y", "int64[32]"] in words
    assert ["trainable", "w1", "float32[4,", "16]", "256"] in words
    assert any(line.startswith("hyper ") and " lr " in line for line in lines)
    data = json_of(["inspect", str(work / "m.aot")], capfd)
    assert data["kind"] == "artifact"
    assert data["labels"] == CLASSES
    memory = data["memory_bytes"]
    parts = [v for k, v in memory.items() if k not in ("all", "scratch of each thread")]
    assert sum(parts) == memory["all"]
    assert any("fc1" in kernel["origin"] for kernel in data["kernel_table"])


def test_inspect_memory(work, tmp_path, capfd):
    page = tmp_path / "page.html"
    assert run(["inspect", str(work / "m.aot"), "--report", str(page)]) == 0
    text = capfd.readouterr().out
    assert "peak " in text and "fc1" in text and "without recomputation" in text
    assert "fc1" in page.read_text()
    data = json_of(["inspect", str(work / "m.aot"), "--memory"], capfd)
    plan = artifact.read(work / "m.aot").plan
    assert data["block"] == plan.block_bytes and data["persistent"] == plan.persistent_bytes
    assert [entry["name"] for entry in data["entries"]] == ["train", "eval", "predict"]
    refused(["inspect", str(work / "m.onnx"), "--memory"], 1, "AOT-A212", capfd)
    nowhere = str(tmp_path / "none" / "page.html")
    refused(["inspect", str(work / "m.aot"), "--report", nowhere], 1, "AOT-A002", capfd)


def test_inspect_checkpoint(trained, capfd):
    data = json_of(["inspect", str(trained)], capfd)
    assert data["kind"] == "checkpoint"
    names = {tensor["name"]: tensor["kind"] for tensor in data["tensors"]}
    assert names["w1"] == "tensor"
    assert any(kind == "slot" for kind in names.values())


def test_check(work, capfd):
    data = json_of(["check", str(work / "m.onnx")], capfd)
    assert [node["name"] for node in data["nodes"]] == ["fc1", "act", "fc2"]
    assert all(n["imported"] and n["differentiable"] and n["kernel"] for n in data["nodes"])


def test_the_same_command_gives_the_same_bytes(work, tmp_path):
    argv = ["compile", str(work / "m.onnx"), "--lr", "1e-2", "-o", str(tmp_path / "again.aot")]
    assert run(argv) == 0
    for path in (work / "m.aot").iterdir():
        assert (tmp_path / "again.aot" / path.name).read_bytes() == path.read_bytes(), path.name


def broken_model(tmp_path, op):
    model = classifier()
    model.graph.node[1].op_type = op
    model.graph.node[1].domain = "my.company"
    model.opset_import.append(helper.make_opsetid("my.company", 1))
    node = helper.make_node("Other", ["a"], ["other"], name="second", domain="my.company")
    model.graph.node.append(node)
    onnx.save(model, tmp_path / "broken.onnx")
    return str(tmp_path / "broken.onnx")


def refused(argv, code, error, capfd):
    """stderr of a command that must fail so; its form is checked for all of them."""
    assert run(argv) == code
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err
    found = re.findall(r"^error\[(AOT-[A-Z]\d{3})\]: .+", captured.err, re.MULTILINE)
    assert found and set(found) == {error}, captured.err
    return captured.err


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("none.onnx", None, "AOT-I001"),
        ("m.onnx", b"this is no model", "AOT-I002"),
        ("m.onnx", b"", "AOT-I002"),
    ],
)
def test_compile_of_no_model(tmp_path, name, content, error, capfd):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    argv = ["compile", str(path), "-o", str(tmp_path / "m.aot")]
    assert str(path) in refused(argv, 1, error, capfd)
    assert not (tmp_path / "m.aot").exists()


def test_unknown_operators_are_all_named(tmp_path, capfd):
    model = broken_model(tmp_path, "Frobnicate")
    text = refused(["compile", model, "-o", str(tmp_path / "m.aot")], 3, "AOT-I006", capfd)
    assert "Frobnicate" in text and "'act'" in text
    assert "Other" in text and "'second'" in text
    assert not (tmp_path / "m.aot").exists()
    assert run(["check", model]) == 3
    table = capfd.readouterr().out
    assert re.search(r"^act +Frobnicate +NO +- +- +AOT-I006", table, re.MULTILINE)
    assert re.search(r"^fc1 +Gemm +yes", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("options", "code", "error", "text"),
    [
        (["--loss", "cross-entopy"], 2, "AOT-U004", "did you mean 'cross-entropy'"),
        (["--target", "cpv"], 2, "AOT-U011", "did you mean 'cpu'"),
        (["--set", "momentm=1"], 2, "AOT-S003", "momentm"),
        (["--lr", "-1"], 2, "AOT-S003", "lr"),
        (["--dim", "bach=3"], 1, "AOT-I010", "batch"),
        (["--freeze", "encoder.*"], 1, "AOT-I010", "encoder.*"),
        (["--freeze", "*"], 3, "AOT-S001", "--trainable"),
        (["--loss-output", "logit"], 2, "AOT-S005", "did you mean 'logits'"),
    ],
)
def test_compile_with_bad_options(work, tmp_path, options, code, error, text, capfd):
    argv = ["compile", str(work / "m.onnx"), "-o", str(tmp_path / "m.aot"), *options]
    assert text in refused(argv, code, error, capfd)
    assert not list(tmp_path.iterdir())


def test_compile_overwrites_nothing(work, tmp_path, capfd):
    argv = ["compile", str(work / "m.onnx"), "-o", str(work / "m.aot")]
    assert "--force" in refused(argv, 2, "AOT-A001", capfd)
    argv = ["compile", str(work / "m.onnx"), "-o", str(tmp_path / "none" / "m.aot")]
    refused(argv, 1, "AOT-A002", capfd)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    argv = ["compile", str(work / "m.onnx"), "-o", str(tmp_path / "mine"), "--force"]
    refused(argv, 2, "AOT-A001", capfd)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda d: None, "AOT-D010", "data.npz"),
        (lambda d: {"x": d["x"]}, "AOT-D013", "'y'"),
        (lambda d: {**d, "x": d["x"][:, :3]}, "AOT-D014", "'x'"),
        (lambda d: {**d, "x": d["x"].astype("U8")}, "AOT-D011", "data.npz"),
        (lambda d: {**d, "x": d["x"] > 0}, "AOT-D015", "'x'"),
        (lambda d: {**d, "y": d["y"][:-1]}, "AOT-D016", "'y'"),
        (lambda d: {**d, "y": d["y"] + 1}, "AOT-D017", "label 3"),
        (lambda d: {k: v[:0] for k, v in d.items()}, "AOT-D018", "rows"),
        (lambda d: {k: v[:5] for k, v in d.items()}, "AOT-D018", "--batch"),
    ],
)
def test_run_on_bad_data(work, tmp_path, change, error, text, capfd):
    data = change(rows(64, 3))
    if data is not None:
        np.savez(tmp_path / "data.npz", **data)
    argv = ["run", str(work / "m.aot"), "--data", str(tmp_path / "data.npz")]
    saved = tmp_path / "s.safetensors"
    assert text in refused([*argv, "--save", str(saved)], 1, error, capfd)
    assert not saved.exists()


def test_a_loss_that_is_not_finite_stops_with_its_step(work, tmp_path, capfd):
    data = rows(64, 3)
    data["x"][40] = np.inf
    np.savez(tmp_path / "data.npz", **data)
    saved = tmp_path / "s.safetensors"
    argv = ["run", str(work / "m.aot"), "--data", str(tmp_path / "data.npz"), "--epochs", "5"]
    text = refused([*argv, "--save", str(saved), "--save-every", "1"], 1, "AOT-D030", capfd)
    assert re.search(r"step \d+", text)
    assert not saved.exists()  # no broken state where the good one was to be


def test_damaged_artifacts_and_checkpoints(work, trained, tmp_path, capfd):
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(trained.read_bytes()[:-8])
    argv = ["eval", str(work / "m.aot"), "--data", str(work / "test.npz"), "--state"]
    refused([*argv, str(cut)], 1, "AOT-A020", capfd)
    refused([*argv, str(tmp_path / "none")], 1, "AOT-A030", capfd)
    damaged = tmp_path / "m.aot"
    damaged.mkdir()
    for path in (work / "m.aot").iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
        (damaged / path.name).chmod(path.stat().st_mode)
    plan = (damaged / "plan.bin").read_bytes()
    (damaged / "plan.bin").write_bytes(plan[: len(plan) // 2])
    refused(["run", str(damaged), "--data", str(work / "train.npz")], 1, "AOT-A010", capfd)
    refused(["inspect", str(damaged)], 1, "AOT-A010", capfd)
