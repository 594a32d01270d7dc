"""The Python API as README shows it: compile, train, read, export in one process."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest

import aotrain
from aotrain.artifact import read_checkpoint
from aotrain.cli.app import run
from tests.cli.test_end_to_end import classifier, rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    aotrain.compile(classifier(), output=folder / "m.aot", lr=1e-2)
    return folder


@pytest.fixture
def model(folder, tmp_path):
    target = tmp_path / "m.aot"
    with aotrain.compile(classifier(), output=target, lr=1e-2) as compiled:
        yield compiled


def test_it_trains_and_exports(model, tmp_path):
    before = model.state_dict()["w1"]
    first = model.step(**rows(32, 5))
    lines = model.fit(rows(256, 1), valid=rows(100, 2), epochs=10)
    assert lines[-1]["loss"] < first
    assert lines[-1]["accuracy"] > 0.85
    after = model.state_dict()["w1"]
    assert not np.array_equal(before, after)
    done = model.export(tmp_path / "t.onnx")
    assert done.error < 1e-5
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(done.path).graph.initializer}
    np.testing.assert_array_equal(stored["w1"], after)
    model.save(tmp_path / "t.safetensors")
    model.close()
    np.testing.assert_array_equal(model.state_dict()["w1"], before)  # opened anew
    model.load(tmp_path / "t.safetensors")
    np.testing.assert_array_equal(model.state_dict()["w1"], after)
    data = rows(32, 6)
    assert model.eval(**data)["count"] == 32
    assert model.predict(x=data["x"])["logits"].shape == (32, 3)


def test_an_artifact_opens_without_tvm_or_onnx(folder):
    code = (
        "import sys, aotrain, numpy as np\n"
        f"session = aotrain.Session({str(folder / 'm.aot')!r})\n"
        "session.fit({'x': np.zeros((32, 4)), 'y': np.zeros(32, int)})\n"
        "assert not {'tvm', 'onnx'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_folder_of_images_trains(tmp_path, capfd):
    image = pytest.importorskip("PIL.Image")
    draw = np.random.default_rng(0)
    for label, name in enumerate(("dark", "light", "middle")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(32):
            level = (20, 220, 120)[label] + draw.integers(-20, 20, (2, 2), np.int16)
            file = tmp_path / "photos" / name / f"{i}.png"
            image.fromarray(level.astype(np.uint8)).save(file)
    folder = str(tmp_path / "m.aot")
    with aotrain.compile(classifier(), output=folder, lr=3e-2) as model:
        lines = model.fit(tmp_path / "photos", valid=tmp_path / "photos", epochs=40)
        assert lines[-1]["accuracy"] > 0.9
        model.save(tmp_path / "ours.safetensors")
    argv = [
        *("run", folder, "--data", str(tmp_path / "photos"), "--valid", str(tmp_path / "photos")),
        *("--epochs", "40", "--save", str(tmp_path / "theirs.safetensors"), "--json"),
    ]
    assert run(argv) == 0
    captured = capfd.readouterr()
    assert "classes: 0 dark, 1 light, 2 middle" in captured.err
    theirs = json.loads(captured.out)["epochs"]
    assert [line["step"] for line in theirs] == [line["step"] for line in lines]
    np.testing.assert_allclose(theirs[-1]["valid_loss"], lines[-1]["valid_loss"], rtol=1e-5)
    kept = (tmp_path / "ours.safetensors"), (tmp_path / "theirs.safetensors")
    first, second = (read_checkpoint(path).tensors for path in kept)
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": 3}, "model = 3 is a int"),
        ({"output": None}, "output = None is a NoneType"),
        ({"target": None}, "target"),
        ({"loss": 1}, "loss"),
        ({"optimizer": np.float32}, "optimizer"),
        ({"lr": "0.1"}, "lr = '0.1' is a str"),
        ({"hyper": [1]}, "hyper"),
        ({"batch": "32"}, "batch = '32' is a str"),
        ({"batch": True}, "batch = True is a bool"),
        ({"batch": 1.5}, "batch"),
        ({"dims": 4}, "dims"),
        ({"freeze": 4}, "freeze"),
        ({"trainable": None}, "trainable"),
        ({"seed": "0"}, "seed"),
        ({"memory_budget": "3MiB"}, "memory_budget"),
        ({"recompute_budget": "10%"}, "recompute_budget"),
        ({"dump": 1}, "dump"),
    ],
)
def test_wrong_types_are_named(tmp_path, change, said):
    arguments = {"model": "m.onnx", "output": tmp_path / "m.aot", **change}
    with pytest.raises(aotrain.AotError, match="AOT-U012") as caught:
        aotrain.compile(arguments.pop("model"), **arguments)
    assert f"compile: {said}" in str(caught.value)
    assert "it takes" in str(caught.value)


def test_wrong_types_of_the_others(folder, tmp_path):
    with pytest.raises(aotrain.AotError, match="export: state = 3"):
        aotrain.export(folder / "m.aot", state=3, output=tmp_path / "t.onnx")
    for path in (None, 3):
        with pytest.raises(aotrain.AotError, match="is no path"):
            aotrain.Session(path)
