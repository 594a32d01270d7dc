"""Weights in the bodies of If and Loop go back where they were stored."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import aotrain
from aotrain.exporter import weight_tensors

F = TensorProto.FLOAT
W = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)


def body(name, nodes, inputs, outputs, **weights):
    stored = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    return helper.make_graph(nodes, name, inputs, outputs, stored)


def model():
    """x [b, 4] -> If(True) -> a Loop of two trips -> y [b, 4]; `w` is a name in both branches."""
    constant = helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(W[0]))
    taken = [helper.make_node("MatMul", ["x", "w"], ["m"]), constant]
    taken.append(helper.make_node("Add", ["m", "b"], ["t"]))
    other = [helper.make_node("MatMul", ["x", "w"], ["e"])]
    value = helper.make_tensor_value_info
    repeated = [
        helper.make_node("MatMul", ["h", "loop.w"], ["p"]),
        helper.make_node("Tanh", ["p"], ["h_out"]),
        helper.make_node("Identity", ["go"], ["go_out"]),
    ]
    inputs = [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, [])]
    inputs.append(value("h", F, ["n", 4]))
    outputs = [value("go_out", TensorProto.BOOL, []), value("h_out", F, ["n", 4])]
    nodes = [
        helper.make_node(
            "If",
            ["yes"],
            ["h0"],
            then_branch=body("then", taken, [], [value("t", F, ["n", 4])], w=W),
            else_branch=body("else", other, [], [value("e", F, ["n", 4])], w=-W),
        ),
        helper.make_node(
            "Loop",
            ["trips", "", "h0"],
            ["y"],
            body=body("loop", repeated, inputs, outputs, **{"loop.w": W.T.copy()}),
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "bodies",
        [value("x", F, ["n", 4])],
        [value("y", F, ["n", 4])],
        [
            numpy_helper.from_array(np.array(True), "yes"),
            numpy_helper.from_array(np.array(2), "trips"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_they_are_trained_and_exported(tmp_path):
    draw = np.random.default_rng(1)
    data = {"x": draw.random((64, 4), np.float32), "y": draw.random((64, 4), np.float32)}
    with aotrain.compile(model(), output=tmp_path / "m.aot", loss="mse", lr=1e-2) as compiled:
        target = list(compiled.session.inputs())[1]
        compiled.fit({"x": data["x"], target: data["y"]}, epochs=5)
        state = compiled.state_dict()
        done = compiled.export(tmp_path / "t.onnx")
    assert set(done.replaced) == {"w", "b", "loop.w"}
    assert done.error < 1e-5  # by an evaluator that runs the bodies
    exported = onnx.load(done.path)
    found = [(n, numpy_helper.to_array(t)) for n, t in weight_tensors(exported)]
    other, then = (value for name, value in found if name == "w")  # attributes are sorted
    np.testing.assert_array_equal(then, state["w"])
    assert np.abs(then - W).max() > 1e-3
    np.testing.assert_array_equal(other, -W)  # the branch that is not taken
    for name in ("b", "loop.w"):
        (value,) = (value for n, value in found if n == name)
        np.testing.assert_array_equal(value, state[name])
