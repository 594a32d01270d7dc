"""`load` as a whole: the contract of `Model`, training semantics, real architectures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from tvm import relax

from aotrain.importer import ImportOptions, load
from aotrain.importer.model import Model
from aotrain.ops.dropout import Arithmetic, threshold
from aotrain.plan import Role
from tests.importer.evaluate import call, compile_infer, infer, train
from tests.importer.graphs import f32, model
from tests.models import TINY

NORMAL = np.random.default_rng(0).normal


def bindings(made: Model, function: str) -> list[relax.Binding]:
    (block,) = made.module[function].body.blocks
    assert isinstance(block, relax.DataflowBlock)
    return list(block.bindings)


@pytest.mark.parametrize("name", TINY)
def test_infer_is_onnxruntimes(name: str) -> None:
    case = TINY[name]
    proto = case.build()
    made = load(proto, ImportOptions(batch=case.batch))
    ((x, _),) = case.batches(1)
    want = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {case.input: x})
    for have, expected in zip(infer(made, {case.input: x}), want, strict=True):
        np.testing.assert_allclose(have, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TINY)
def test_contract(name: str) -> None:
    made = load(TINY[name].build(), ImportOptions(batch=TINY[name].batch))
    relax.analysis.well_formed(made.module)
    count = len(made.inputs) + len(made.parameters) + len(made.buffers)
    for function, extra in (("train", 1), ("infer", 0)):
        f = made.module[function]
        assert len(f.params) == count + extra
        specs = [*made.inputs, *(p.spec for p in (*made.parameters, *made.buffers))]
        for var, spec in zip(f.params, specs, strict=False):
            assert tuple(int(d) for d in var.ty.shape) == spec.shape
            assert str(var.ty.dtype) == spec.dtype
        names = [v.name for v in f.params] + [b.var.name for b in bindings(made, function)]
        assert len(set(names)) == len(names)
        assert set(names) <= set(made.origins)
        assert isinstance(bindings(made, function)[-1].value, relax.Tuple)
        results = len(made.outputs) + (len(made.buffers) if function == "train" else 0)
        assert len(f.ret_ty.fields) == results
    assert all(p.role is Role.BUFFER for p in made.buffers)
    assert all(p.role is not Role.BUFFER for p in made.parameters)


def batch_norm(momentum: float = 0.8) -> onnx.ModelProto:
    node = helper.make_node(
        "BatchNormalization", ["x", "g", "b", "m", "v"], ["y"], momentum=momentum, epsilon=0.01
    )
    constants = {"g": f32(1, 2), "b": f32(0, 1), "m": f32(0.5, -1), "v": f32(2, 3)}
    return model([node], {"x": ["n", 2, 3]}, ["y"], constants)


def test_batch_norm_in_inference_form_trains() -> None:
    made = load(batch_norm(), ImportOptions(batch=4))
    assert [p.name for p in made.parameters] == ["g", "b"]
    assert [p.name for p in made.buffers] == ["m", "v"]
    x = NORMAL(3, 2, (4, 2, 3)).astype(np.float32)
    y, mean, var = train(made, {"x": x}, (0, 0))
    batch = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(mean, 0.8 * f32(0.5, -1) + 0.2 * batch[0], rtol=1e-5)
    np.testing.assert_allclose(var, 0.8 * f32(2, 3) + 0.2 * batch[1], rtol=1e-5)
    scaled = (x - batch[0][:, None]) / np.sqrt(batch[1][:, None] + 0.01)
    np.testing.assert_allclose(y, scaled * [[1], [2]] + [[0], [1]], rtol=1e-4, atol=1e-5)


def test_batch_norm_of_doubles_keeps_them() -> None:
    values = {"g": [1, 2], "b": [0, 1], "m": [0.5, -1], "v": [2, 3]}
    constants = {k: np.array(v, np.float64) for k, v in values.items()}
    node = helper.make_node("BatchNormalization", ["x", *constants], ["y"], momentum=0.8)
    x = NORMAL(3, 2, (4, 2, 3))
    made = load(model([node], {"x": x}, ["y"], constants), ImportOptions())
    _, mean, var = train(made, {"x": x}, (0, 0))
    kept = float(np.float32(0.8))  # as the file holds an attribute
    for new, old, batch in ((mean, "m", x.mean((0, 2))), (var, "v", x.var((0, 2)))):
        np.testing.assert_allclose(new, kept * constants[old] + (1 - kept) * batch, rtol=1e-12)


def test_frozen_batch_norm_is_inference() -> None:
    made = load(batch_norm(), ImportOptions(batch=4, batchnorm="frozen"))
    assert not made.buffers
    assert {p.name: p.role for p in made.parameters}["m"] is Role.FROZEN
    x = NORMAL(size=(4, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(train(made, {"x": x}, (0, 0)), infer(made, {"x": x}))


def test_freezing_a_statistic_freezes_its_node() -> None:
    made = load(batch_norm(), ImportOptions(batch=4, freeze=("m", "v")))
    assert not made.buffers
    assert [p.role for p in made.parameters] == [Role.TRAINABLE] * 2 + [Role.FROZEN] * 2


def test_a_statistic_that_two_nodes_share_moves_twice() -> None:
    nodes = [
        helper.make_node("BatchNormalization", [a, "g", "b", "m", "v"], [c], momentum=0.5)
        for a, c in (("x", "h"), ("h", "y"))
    ]
    constants = {"g": f32(1, 1), "b": f32(2, 2), "m": f32(8, 8), "v": f32(1, 1)}
    made = load(model(nodes, {"x": ["n", 2]}, ["y"], constants), ImportOptions(batch=64))
    x = NORMAL(size=(64, 2)).astype(np.float32)
    _, mean, _ = train(made, {"x": x}, (0, 0))
    first = 4 + 0.5 * x.mean(0)
    np.testing.assert_allclose(mean, 0.5 * first + 0.5 * 2.0, rtol=1e-5)  # h has mean b


@pytest.mark.parametrize("opset", [10, 12, 13])
def test_dropout_drops_in_train_alone(opset: int) -> None:
    attrs, inputs, constants = {}, ["x"], {}
    if opset < 12:
        attrs = {"ratio": 0.25}
    else:  # training_mode false, as exports for inference have it
        inputs += ["ratio", "mode"]
        constants = {"ratio": np.float32(0.25), "mode": np.array(False)}
    nodes = [
        helper.make_node("Dropout", inputs, ["h"], **attrs),
        helper.make_node("Dropout", ["h", *inputs[1:]], ["y"], **attrs),
    ]
    constants = {k: np.asarray(v) for k, v in constants.items()}
    made = load(model(nodes, {"x": [8, 100]}, ["y"], constants, opset), ImportOptions())
    assert any(note.startswith("2 Dropout nodes draw") for note in made.notes)
    x = np.ones((8, 100), np.float32)
    np.testing.assert_array_equal(infer(made, {"x": x})[0], x)
    (y,) = train(made, {"x": x}, (3, 4))
    kept = np.ones(800, bool)
    for salt in (0, 1):
        index = np.arange(800, dtype=np.uint64)
        kept &= Arithmetic().word(np.uint64(3), np.uint64(4), salt, index) >= threshold(0.25)
    np.testing.assert_allclose(y.reshape(-1), kept / 0.75**2, rtol=1e-6)


def test_shape_arithmetic_vanishes() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {
        "zero": np.array(0),
        "axes": np.array([0]),
        "minus": np.array([-1]),
    }
    made = load(model(nodes, {"x": ["n", 2, 3]}, ["y"], constants), ImportOptions(batch=5))
    assert made.outputs[0].shape == (5, 6)
    assert len(bindings(made, "infer")) == 2  # the reshape and the results
    assert not made.notes


@pytest.mark.parametrize("opset", [11, 12])
def test_shape_arithmetic_with_axes_as_attributes(opset: int) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n"], ["n1"], axes=[0]),
        helper.make_node("Concat", ["n1", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"zero": np.array(0), "minus": np.array([-1])}
    made = load(model(nodes, {"x": ["n", 2, 3]}, ["y"], constants, opset), ImportOptions(batch=5))
    assert made.outputs[0].shape == (5, 6)


def branch(op: str, name: str) -> onnx.GraphProto:
    node = helper.make_node(op, ["x"], [name])
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, 1, [2])])


def test_a_constant_condition_picks_its_branch() -> None:
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Neg", "a"), else_branch=branch("Exp", "b")
    )
    for condition, want in ((True, -f32(1, 2)), (False, np.exp(f32(1, 2)))):
        made = load(model([node], {"x": [2]}, ["y"], {"c": np.array(condition)}))
        np.testing.assert_allclose(infer(made, {"x": f32(1, 2)})[0], want, rtol=1e-6)


def test_a_loop_of_known_length_unrolls() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["again"]),
            helper.make_node("Mul", ["h", "x"], ["next"]),
            helper.make_node("Identity", ["next"], ["seen"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("go", 9, []),
            helper.make_tensor_value_info("h", 1, [2]),
        ],
        [
            helper.make_tensor_value_info("again", 9, []),
            helper.make_tensor_value_info("next", 1, [2]),
            helper.make_tensor_value_info("seen", 1, [2]),
        ],
    )
    node = helper.make_node("Loop", ["three", "", "x"], ["y", "all"], body=body)
    made = load(model([node], {"x": [2]}, ["y", "all"], {"three": np.array(3)}))
    y, seen = infer(made, {"x": f32(2, 3)})
    np.testing.assert_allclose(y, f32(16, 81))
    np.testing.assert_allclose(seen, [f32(4, 9), f32(8, 27), f32(16, 81)])


def test_local_functions_are_inlined() -> None:
    function = helper.make_function(
        "local",
        "Twice",
        ["a", "w"],
        ["c"],
        [
            helper.make_node("MatMul", ["a", "w"], ["b"]),
            helper.make_node("MatMul", ["b", "w"], ["c"]),
        ],
        [helper.make_opsetid("", 21)],
    )
    node = helper.make_node("Twice", ["x", "weight"], ["y"], domain="local", name="twice")
    weight = NORMAL(size=(3, 3)).astype(np.float32)
    made_by = helper.make_model(
        helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", 1, [2, 3])],
            [helper.make_tensor_value_info("y", 1, [2, 3])],
            [onnx.numpy_helper.from_array(weight, "weight")],
        ),
        functions=[function],
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("local", 1)],
    )
    made = load(made_by)
    assert [p.name for p in made.parameters] == ["weight"]
    x = NORMAL(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(infer(made, {"x": x})[0], x @ weight @ weight, rtol=1e-5, atol=1e-5)
    assert made.source is made_by


def test_an_integer_output_is_allowed() -> None:
    made = load(model([helper.make_node("ArgMax", ["x"], ["y"], axis=1)], {"x": [2, 3]}, ["y"]))
    assert made.outputs[0].dtype == "int64"


LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.mark.parametrize(
    ("name", "weights", "buffers", "outputs"),
    [
        ("resnet50", 161, 106, (2, 1000)),
        ("squeezenet", 52, 0, (2, 1000, 1, 1)),
        ("shufflenet", 150, 98, (2, 1000)),
        ("densenet121", 606, 242, (2, 1000, 1, 1)),
        ("inception_v1", 116, 0, (2, 1000)),
        ("inception_v2", 347, 138, (2, 1000)),
        ("zfnet512", 16, 0, (2, 1000)),
    ],
)
def test_files_of_the_onnx_wheel(
    name: str, weights: int, buffers: int, outputs: tuple[int, ...]
) -> None:
    """Their weights are made by ConstantOfShape, their batch of 1 is in Reshape's constants."""
    made = load(LIGHT / f"light_{name}.onnx", ImportOptions(batch=2))
    assert (len(made.parameters), len(made.buffers)) == (weights, buffers)
    assert [o.shape for o in made.outputs] == [outputs]


def test_every_opset() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "g", "b", "m", "v"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "h"], ["l"], transB=1),
        helper.make_node("Softmax", ["l"], ["y"], axis=1),
    ]
    constants = {
        "k": NORMAL(size=(3, 2, 3, 3)),
        "w": NORMAL(size=(5, 12)),
        "h": NORMAL(size=5),
        **{name: np.abs(NORMAL(size=3)) for name in "gbmv"},
    }
    constants = {k: v.astype(np.float32) for k, v in constants.items()}
    x = NORMAL(size=(2, 2, 4, 4)).astype(np.float32)
    opsets = range(8, onnx.defs.onnx_opset_version() + 1)
    protos = [model(nodes, {"x": ["n", 2, 4, 4]}, ["y"], constants, opset) for opset in opsets]
    made = [load(p, ImportOptions(batch=2)) for p in protos]
    assert all(len(m.parameters) == 5 and len(m.buffers) == 2 for m in made)
    session = onnxruntime.InferenceSession(protos[5].SerializeToString())
    (want,) = session.run(None, {"x": x})
    machine = compile_infer(made[:: len(made) - 1])
    for index, m in enumerate(made[:: len(made) - 1]):
        (have,) = call(machine, index, m, {"x": x})
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    texts = {m.module["infer"].script() for m in made}
    assert len(texts) == 1  # what is the same in every opset gives the same program
