"""What `inspect` says of a model, a checkpoint and of what is neither; artifacts: tests/cli."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from aotrain.artifact import statefile
from aotrain.describe import describe
from aotrain.errors import InputError
from aotrain.plan import Kind, Plan, Role, Tensor


@pytest.fixture
def model(tmp_path):
    weight = numpy_helper.from_array(np.zeros((4, 2), np.float16), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["batch", 4]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT16, [4, 2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [None, 2])],
        [weight],
    )
    path = tmp_path / "m.onnx"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(proto.SerializeToString())
    return path


def test_model(model):
    found = describe(model)
    assert found.kind == "model"
    assert dict(found.facts)["opset"] == "ai.onnx 17"
    signature, operators, weights = found.sections
    assert signature.rows == (
        ("input", "x", "float16[batch, 4]"),  # w is an initialiser, not an input
        ("output", "y", "float16[?, 2]"),
    )
    assert operators.rows == (("MatMul", "1"), ("Relu", "1"))
    assert weights.rows == (("initializer", "w", "float16[4, 2]", "16"),)
    assert found.data["weights"][0]["bytes"] == 16


def test_checkpoint(tmp_path):
    path = tmp_path / "anything"  # told by its content
    tensors = {"w": np.zeros((2, 3), np.float32), "optim.m.w": np.zeros((2, 3), np.float32)}
    save_file(tensors, path, metadata={"step": "12"})
    found = describe(path)
    assert found.kind == "checkpoint"
    assert dict(found.facts)["step"] == "12"
    assert dict(found.facts)["bytes"] == "48"
    rows = set(found.sections[0].rows)
    assert rows == {("tensor", "w", "F32[2, 3]", "24"), ("slot", "optim.m.w", "F32[2, 3]", "24")}


@pytest.mark.parametrize("keep", [9, 40, -4])
def test_truncated_checkpoint(tmp_path, keep):
    path = tmp_path / "c.safetensors"
    save_file({"w": np.zeros((2, 3), np.float32)}, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError) as caught:
        describe(path)
    assert caught.value.diagnostics[0].code == "AOT-A213"


@pytest.mark.parametrize("content", [b"", b"hello, world", b"\0" * 64])
def test_neither(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        describe(path)
    assert caught.value.diagnostics[0].code == "AOT-A212"


def test_nothing_there(tmp_path):
    with pytest.raises(InputError) as caught:
        describe(tmp_path / "none")
    assert caught.value.diagnostics[0].code == "AOT-A211"
    with pytest.raises(InputError) as caught:
        describe(tmp_path)
    assert caught.value.diagnostics[0].code == "AOT-A212"


@pytest.mark.parametrize("what, code", [("byte", "AOT-A020"), ("version", "AOT-A011")])
def test_a_checkpoint_of_ours_is_checked(tmp_path, what, code):
    plan = Plan((Tensor("w", (3,), "float32", Kind.STATE, Role.TRAINABLE),), (), (), 64)
    raw = bytearray(statefile.dump(plan, {"w": np.ones(3, np.float32)}))
    path = tmp_path / "c.safetensors"
    path.write_bytes(raw)
    assert dict(describe(path).facts)["tensors"] == "1"
    if what == "byte":
        raw[-1] ^= 1
    else:
        raw = raw.replace(b'"aotrain.format":"1"', b'"aotrain.format":"9"')
    path.write_bytes(raw)
    with pytest.raises(InputError) as caught:
        describe(path)
    assert caught.value.diagnostics[0].code == code
