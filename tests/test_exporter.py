"""Weights into the user's graph: only they change, wherever they lie, or nothing is written."""

import hashlib
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

import aotrain
from aotrain import exporter
from aotrain.errors import AotError
from aotrain.export_check import inference_form, leading_dimension, random_inputs, reference

F = TensorProto.FLOAT


def linear_with_batchnorm(batch="n", training=False):
    """x [batch, 3] -> BatchNormalization -> Gemm with a weight held in a Constant node."""
    draw = np.random.default_rng(0)
    w = draw.standard_normal((3, 2)).astype(np.float32)
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    named = {"scale": ones, "shift": zeros, "mean": zeros, "var": ones}
    extra = ["m2", "v2"] if training else []
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(w)),
        helper.make_node(
            "BatchNormalization", ["x", *named], ["h", *extra], training_mode=int(training)
        ),
        helper.make_node("Gemm", ["h", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", F, [batch, 3])],
        [helper.make_tensor_value_info("y", F, [batch, 2])],
        [numpy_helper.from_array(value, name) for name, value in named.items()],
        doc_string="kept",
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def artifact(tmp_path):
    """A folder with the two files that export starts from."""
    folder = tmp_path / "net.aot"
    folder.mkdir()
    model = linear_with_batchnorm()
    state = {name: numpy_helper.to_array(t) for name, t in exporter.weight_tensors(model)}
    slots = {f"optim.m.{name}": np.zeros_like(value) for name, value in state.items()}
    save_file({**state, **slots}, folder / exporter.STATE)
    (folder / exporter.SOURCE).write_bytes(exporter.embed_source(model, folder / exporter.STATE))
    return folder


@pytest.fixture
def trained(tmp_path):
    draw = np.random.default_rng(1)
    shapes = {"w": (3, 2), "scale": (3,), "shift": (3,), "mean": (3,), "var": (3,)}
    weights = {name: draw.random(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file({**weights, "optim.m.w": np.zeros((3, 2), np.float32)}, tmp_path / "t.safetensors")
    return tmp_path / "t.safetensors", weights


def test_source_is_a_valid_model_without_a_second_copy(artifact):
    stored = onnx.load(artifact / exporter.SOURCE, load_external_data=False)
    assert all(not t.raw_data for _, t in exporter.weight_tensors(stored))
    whole = exporter.read_source(artifact)
    assert whole.graph == linear_with_batchnorm().graph


def test_a_weight_that_the_state_lacks_stays_in_the_source(tmp_path):
    save_file({"w": np.zeros((3, 2), np.float32)}, tmp_path / "s.safetensors")  # other values
    model = onnx.ModelProto.FromString(
        exporter.embed_source(linear_with_batchnorm(), tmp_path / "s.safetensors")
    )
    assert model == linear_with_batchnorm()


def test_only_weights_change(artifact, trained, tmp_path):
    path, weights = trained
    done = exporter.export(artifact, state=path, output=tmp_path / "t.onnx", check=False)
    assert set(done.replaced) == set(weights)
    model = onnx.load(tmp_path / "t.onnx")
    onnx.checker.check_model(model, full_check=True)
    found = dict(exporter.weight_tensors(model))
    for name, value in weights.items():
        np.testing.assert_array_equal(numpy_helper.to_array(found[name]), value)
    # With the old weights put back, it is the old model to the byte.
    original = linear_with_batchnorm()
    old = {name: numpy_helper.to_array(t) for name, t in exporter.weight_tensors(original)}
    exporter.set_weights(model, old, path)
    assert model.SerializeToString(deterministic=True) == original.SerializeToString(
        deterministic=True
    )


def test_without_state_it_is_the_model_that_was_compiled(artifact, tmp_path):
    exporter.export(artifact, output=tmp_path / "same.onnx", check=False)
    assert onnx.load(tmp_path / "same.onnx") == linear_with_batchnorm()


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_the_dtype_of_the_file_is_kept(dtype, tmp_path):
    kind = np.dtype(dtype) if dtype != "bfloat16" else __import__("ml_dtypes").bfloat16
    model = onnx.ModelProto()
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(2, kind), "w"))
    value = np.array([1, 0.5], kind)
    given = value.view(np.uint16) if dtype == "bfloat16" else value
    exporter.set_weights(model, {"w": given}, tmp_path)
    tensor = model.graph.initializer[0]
    assert numpy_helper.to_array(tensor).dtype == kind
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), value)


def test_large_models_get_a_second_file(artifact, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(exporter, "PROTOBUF_LIMIT", 8)
    save = onnx.save_model
    monkeypatch.setattr(onnx, "save_model", lambda *a, **k: save(*a, **{**k, "size_threshold": 0}))
    path, weights = trained
    exporter.export(artifact, state=path, output=tmp_path / "t.onnx", check=False)
    assert (tmp_path / "t.onnx.data").is_file()
    found = dict(exporter.weight_tensors(onnx.load(tmp_path / "t.onnx")))
    for name, value in weights.items():
        np.testing.assert_array_equal(numpy_helper.to_array(found[name]), value)
    assert not list(tmp_path.glob(".*"))


def refusal(**arguments):
    with pytest.raises(AotError) as caught:
        exporter.export(check=False, **arguments)
    return [d.code for d in caught.value.diagnostics]


def test_refusals_leave_nothing(artifact, trained, tmp_path):
    path, _ = trained
    out = tmp_path / "t.onnx"
    other = tmp_path / "other.safetensors"
    save_file({"z": np.zeros(1, np.float32)}, other)
    wrong = tmp_path / "wrong.safetensors"
    save_file({"w": np.zeros(1, np.float32), "scale": np.zeros(4, np.float32)}, wrong)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(path.read_bytes()[:-3])
    assert refusal(artifact=tmp_path, state=path, output=out) == ["AOT-A201"]
    assert refusal(artifact=artifact, state=other, output=out) == ["AOT-A203"]
    assert refusal(artifact=artifact, state=wrong, output=out) == ["AOT-A203", "AOT-A203"]
    assert refusal(artifact=artifact, state=cut, output=out) == ["AOT-A020"]
    assert refusal(artifact=artifact, state=tmp_path / "none", output=out) == ["AOT-A020"]
    assert not out.exists()
    out.write_bytes(b"mine")
    assert refusal(artifact=artifact, state=path, output=out) == ["AOT-A001"]
    assert out.read_bytes() == b"mine"
    (artifact / exporter.STATE).unlink()
    assert refusal(artifact=artifact, state=path, output=tmp_path / "u.onnx") == ["AOT-A202"]


def test_force_replaces(artifact, trained, tmp_path):
    out = tmp_path / "t.onnx"
    out.write_bytes(b"mine")
    exporter.export(artifact, state=trained[0], output=out, check=False, force=True)
    assert onnx.load(out).graph.name == "net"


def test_inference_form_uses_the_running_statistics(tmp_path):
    training = linear_with_batchnorm(training=True)
    x = np.random.default_rng(2).standard_normal((5, 3)).astype(np.float32)
    onnx.save(inference_form(training), tmp_path / "form.onnx")
    onnx.save(linear_with_batchnorm(), tmp_path / "plain.onnx")
    _, evaluate = reference(tmp_path / "form.onnx")
    _, expected = reference(tmp_path / "plain.onnx")
    np.testing.assert_array_equal(evaluate({"x": x})["y"], expected({"x": x})["y"])


def test_a_type_that_onnxruntime_lacks_is_left_to_the_reference(tmp_path):
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.DOUBLE, [1, 1, 3])
    y = helper.make_tensor_value_info("y", TensorProto.DOUBLE, [1, 1, 2])
    weight = numpy_helper.from_array(np.ones((1, 1, 2)), "w")
    made = helper.make_model(
        helper.make_graph([node], "g", [x], [y], [weight]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(made, tmp_path / "m.onnx")
    name, evaluate = reference(tmp_path / "m.onnx")
    assert name == "onnx.reference"
    found = evaluate({"x": np.array([[[1.0, 2.0, 4.0]]])})["y"]
    np.testing.assert_array_equal(found, [[[3, 6]]])


def test_leading_dimension():
    assert leading_dimension(linear_with_batchnorm(batch=1), "x") == 1
    assert leading_dimension(linear_with_batchnorm(batch="n"), "x") is None


def test_random_inputs_are_the_same_each_time_and_valid():
    like = {"x": np.zeros((4, 2), np.float32), "ids": np.zeros((4,), np.int64)}
    first, second = random_inputs(like, 7), random_inputs(like, 7)
    np.testing.assert_array_equal(first["x"], second["x"])
    assert set(first["ids"].tolist()) <= {0, 1}
    assert first["x"].dtype == np.float32


@pytest.mark.parametrize("ir_version", [3, 8])
def test_a_weight_that_a_node_computes_becomes_an_initialiser(ir_version, tmp_path):
    """Identity copies and ConstantOfShape, as exporters write equal or constant weights."""
    helper = onnx.helper
    shape = numpy_helper.from_array(np.array([4, 3], np.int64), "shape")
    fill = numpy_helper.from_array(np.array([0.1], np.float32))
    inputs = [helper.make_tensor_value_info("x", 1, ["N", 4])]
    if ir_version < 4:
        inputs += [
            helper.make_tensor_value_info("shape", 7, [2]),
            helper.make_tensor_value_info("b", 1, [3]),
        ]
    graph = helper.make_graph(
        [
            helper.make_node("ConstantOfShape", ["shape"], ["w"], value=fill),
            helper.make_node("Identity", ["b"], ["b2"]),
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Add", ["h", "b"], ["h1"]),
            helper.make_node("Mul", ["h1", "b2"], ["y"]),
        ],
        "computed",
        inputs,
        [helper.make_tensor_value_info("y", 1, ["N", 3])],
        [shape, numpy_helper.from_array(np.ones(3, np.float32), "b")],
    )
    opset = [helper.make_opsetid("", 9)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=ir_version)
    folder, out = tmp_path / "m.aot", tmp_path / "out.onnx"
    aotrain.compile(model, output=folder, loss="mse", batch=2, lr=0.1)
    with aotrain.Session(folder) as session:
        names = set(session.state_dict())
        session.step(x=np.ones((2, 4), np.float32), target=np.zeros((2, 3), np.float32))
        session.save(tmp_path / "s.safetensors")
        trained = session.state_dict()
    assert {"w", "b", "b2"} <= names
    done = exporter.export(folder, state=tmp_path / "s.safetensors", output=out)
    assert done.error < 1e-5
    exported = onnx.load(out)
    onnx.checker.check_model(exported)
    found = dict(exporter.weight_tensors(exported))
    for name in ("w", "b", "b2"):
        np.testing.assert_array_equal(numpy_helper.to_array(found[name]), trained[name])
    exporter.export(folder, output=tmp_path / "same.onnx", check=False)
    assert onnx.load(tmp_path / "same.onnx") == model


@pytest.mark.parametrize(
    "output, code, why",
    [("folder", "AOT-A001", "is a folder"), ("none/m.onnx", "AOT-A002", "there is no such folder")],
)
def test_a_place_that_cannot_be_written(artifact, tmp_path, output, code, why):
    (tmp_path / "folder").mkdir()
    with pytest.raises(AotError, match=why) as caught:
        aotrain.export(artifact, output=tmp_path / output, check=False, force=True)
    assert caught.value.diagnostics[0].code == code
    assert not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("name", [exporter.SOURCE, exporter.STATE])
def test_a_damaged_artifact_is_not_exported(artifact, tmp_path, name):
    files = {n: (artifact / n).read_bytes() for n in (exporter.SOURCE, exporter.STATE)}
    listed = {n: {"sha256": hashlib.sha256(raw).hexdigest()} for n, raw in files.items()}
    (artifact / "manifest.json").write_text(json.dumps({"files": listed}))
    aotrain.export(artifact, output=tmp_path / "whole.onnx", check=False)
    raw = bytearray(files[name])
    raw[len(raw) // 2] ^= 0xFF
    (artifact / name).write_bytes(raw)
    with pytest.raises(AotError, match="truncated, corrupted") as caught:
        aotrain.export(artifact, output=tmp_path / "m.onnx", check=False)
    assert caught.value.diagnostics[0].code == "AOT-A010"
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize(
    "options, why",
    [
        ({"batchnorm": "x"}, "batchnorm 'x'"),
        ({"seed": -1}, "seed -1"),
        ({"lr": -1.0}, "lr = -1"),
        ({"freeze": "scale*", "trainable": "nope"}, "--trainable 'nope'"),
    ],
)
def test_arguments_of_compile_that_make_no_sense(tmp_path, options, why):
    with pytest.raises(AotError, match=why) as caught:
        aotrain.compile(linear_with_batchnorm(), output=tmp_path / "m.aot", **options)
    assert len(caught.value.diagnostics) == 1
    assert not list(tmp_path.iterdir())


def test_a_case_that_onnxruntime_lacks_is_checked_by_the_reference(tmp_path):
    """It refuses a dilated Conv with auto_pad only when it runs."""
    w = numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", dilations=[2, 2])
    x, y = (helper.make_tensor_value_info(name, F, [2, 1, 5, 5]) for name in "xy")
    graph = helper.make_graph([node], "net", [x], [y], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    aotrain.compile(model, output=tmp_path / "m.aot", loss="mse", batch=2)
    done = exporter.export(tmp_path / "m.aot", output=tmp_path / "out.onnx")
    assert done.error < 1e-5
