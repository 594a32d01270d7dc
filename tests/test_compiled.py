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
        ({"model": 3}, "model = 3 is of type int"),
        ({"output": None}, "output = None is of type NoneType"),
        ({"target": None}, "target"),
        ({"loss": 1}, "loss"),
        ({"optimizer": np.float32}, "optimizer"),
        ({"lr": "0.1"}, "lr = '0.1' is of type str"),
        ({"hyper": [1]}, "hyper"),
        ({"batch": "32"}, "batch = '32' is of type str"),
        ({"batch": True}, "batch = True is of type bool"),
        ({"batch": 1.5}, "batch"),
        ({"dims": 4}, "dims"),
        ({"freeze": 4}, "freeze"),
        ({"freeze": ["w", 4]}, "freeze[1] = 4"),
        ({"report": 3}, "report"),
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


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda session: aotrain.export(session.path, state=3, output="t"), "export: state = 3"),
        (lambda session: aotrain.check(3), "check: model = 3"),
        (lambda session: aotrain.check("m.onnx", freeze=[3]), "check: freeze[0] = 3"),
        (lambda session: aotrain.verify(None), "verify: artifact = None"),
        (lambda session: aotrain.Session(None), "None is no path"),
        (lambda session: aotrain.Session(3), "3 is no path"),
        (lambda session: session.fit({}, map=3), "fit: map = 3"),
        (lambda session: session.fit({}, report=3), "fit: report = 3"),
        (lambda session: session.save("s", notes=3), "save: notes = 3"),
        (lambda session: session.load_state_dict(3), "load_state_dict: state = 3"),
        (lambda session: session.export(3), "export: output = 3"),
    ],
)
def test_wrong_types_of_the_others(folder, call, said):
    with aotrain.Session(folder / "m.aot") as session, pytest.raises(aotrain.AotError) as caught:
        call(session)
    assert said in str(caught.value)


def scaled():
    """x [batch, 4] times the scalar input s -> MatMul -> logits [batch, 3]."""
    draw = np.random.default_rng(0)
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Mul", ["x", "s"], ["xs"]),
            onnx.helper.make_node("MatMul", ["xs", "w"], ["logits"]),
        ],
        "scaled",
        [
            onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, []),
            onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4]),
        ],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", 3])],
        [onnx.numpy_helper.from_array(draw.random((4, 3), np.float32), "w")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)


def test_a_scalar_input_is_fed_by_aotrun_and_by_fit(tmp_path, capfd):
    data = {**rows(64, 1), "s": np.float32(2.5)}
    doubled = {"x": data["x"] * data["s"], "y": data["y"], "s": np.float32(1)}
    np.savez(tmp_path / "d.npz", **data)
    folder = str(tmp_path / "m.aot")
    with aotrain.compile(scaled(), output=folder, loss="cross-entropy") as model:
        states = []
        for arrays in (data, doubled):
            model.close()
            model.fit(arrays, valid=arrays, epochs=2)
            states.append(model.state_dict()["w"])
    np.testing.assert_allclose(*states, rtol=1e-5)
    saved = tmp_path / "t.safetensors"
    argv = ["run", folder, "--data", str(tmp_path / "d.npz"), "--epochs", "2"]
    assert run([*argv, "--save", str(saved)]) == 0
    np.testing.assert_array_equal(read_checkpoint(saved).tensors["w"], states[0])
    np.savez(tmp_path / "bad.npz", **{**data, "s": np.ones(64, np.float32)})
    assert run(["run", folder, "--data", str(tmp_path / "bad.npz")]) == 1
    assert "'s' is float32[N], expected float32[]" in capfd.readouterr().err


def test_a_model_that_ends_in_classes_is_unsupported(tmp_path, capfd):
    model = classifier()
    model.graph.node.append(onnx.helper.make_node("ArgMax", ["logits"], ["class"], axis=1))
    del model.graph.output[:]
    output = onnx.helper.make_tensor_value_info("class", onnx.TensorProto.INT64, ["batch", 1])
    model.graph.output.append(output)
    onnx.save(model, tmp_path / "m.onnx")
    assert run(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.aot")]) == 3
    error = capfd.readouterr().err
    assert "error[AOT-S005]: the model has no float output" in error
    assert "hint: export it without" in error


def test_weights_that_are_not_finite_are_named(tmp_path, capfd):
    model = classifier()
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[0, :2] = np.nan, np.inf
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w1"))
    onnx.save(model, tmp_path / "m.onnx")
    assert run(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.aot")]) == 0
    said = "warning: 2 of 64 values of weight 'w1' are NaN or infinite"
    assert said in capfd.readouterr().out


def test_one_hot_labels_get_a_hint(folder):
    data = rows(32, 1)
    data["y"] = np.eye(3, dtype=np.float32)[data["y"]]
    with aotrain.Session(folder / "m.aot") as session:
        for train in (lambda: session.step(**data), lambda: session.fit(data)):
            with pytest.raises(aotrain.AotError, match="labels are class indices"):
                train()


def test_the_weight_before_a_top_k_is_trained(tmp_path):
    """A gate: x -> scores -> the two largest -> softmax -> logits; SGD by hand, an element each."""
    draw = np.random.default_rng(0)
    gate = draw.standard_normal((4, 6)).astype(np.float32)
    make = onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [
            make("MatMul", ["x", "gate"], ["scores"]),
            make("TopK", ["scores", "k"], ["best", "which"], axis=1),
            make("ReduceSum", ["best", "axis"], ["y"], keepdims=0),
        ],
        "gate",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch"])],
        [
            onnx.numpy_helper.from_array(gate, "gate"),
            onnx.numpy_helper.from_array(np.array([2]), "k"),
            onnx.numpy_helper.from_array(np.array([1]), "axis"),
        ],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    net = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    x = draw.standard_normal((8, 4)).astype(np.float32)
    goal = draw.standard_normal(8).astype(np.float32)
    options = {"loss": "mse", "optimizer": "sgd", "lr": 0.1, "batch": 8}
    with aotrain.compile(net, output=tmp_path / "m.aot", **options) as model:
        target = list(model.session.inputs())[1]
        loss = model.step(**{"x": x, target: goal})
        trained = model.state_dict()["gate"]
    scores = x @ gate
    chosen = scores >= np.sort(scores, axis=1)[:, -2:-1]  # [8, 6], two in each row
    error = (scores * chosen).sum(1) - goal
    np.testing.assert_allclose(loss, (error**2).mean(), rtol=1e-5)
    slope = x.T @ (chosen * (2 * error / 8)[:, None])
    np.testing.assert_allclose(trained, gate - 0.1 * slope, rtol=1e-4, atol=1e-6)
