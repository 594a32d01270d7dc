"""Diagnostics of each stage beside the nodes that they name; other nodes passed or wait."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx import save as save_model

from aotrain import passes, step
from aotrain.checker import check
from aotrain.errors import Diagnostic, InputError, UnsupportedModelError, UsageError
from aotrain.importer.model import Origin


@pytest.fixture
def model(tmp_path):
    """x [batch, 4] -> MatMul 'fc' -> Relu without a name -> y."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
            helper.make_node("Relu", ["h"], ["y"]),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(np.eye(4, 3, dtype=np.float32), "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    save_model(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def raising(error):
    def stage(*_, **__):
        raise error

    return stage


def verdicts(report):
    return [(n.name, n.imported, n.differentiable, n.kernel) for n in report.nodes]


def test_a_good_model(model):
    report = check(model)
    assert report.ok
    assert verdicts(report) == [("fc", True, True, True), ("y", True, True, True)]


def test_a_missing_gradient(model, monkeypatch):
    where = str(Origin("Relu", "y", ("float32[32,3]",)))
    problems = [Diagnostic("AOT-G001", f"{i} has no rule", where) for i in range(2)]
    monkeypatch.setattr(step, "build", raising(UnsupportedModelError(*problems)))
    report = check(model)
    assert not report.ok
    assert verdicts(report) == [("fc", True, True, None), ("y", True, False, None)]
    assert report.nodes[1].reasons == tuple(problems)
    assert report.as_json()["nodes"][1]["reasons"][0]["code"] == "AOT-G001"


def test_a_missing_kernel(model, monkeypatch):
    problem = Diagnostic("AOT-K001", "no kernel for foo", str(Origin("MatMul", "fc")))
    monkeypatch.setattr(passes, "lower", raising(UnsupportedModelError(problem)))
    report = check(model)
    assert verdicts(report) == [("fc", True, True, False), ("y", True, True, True)]


def test_a_problem_of_no_node(model, monkeypatch):
    problem = Diagnostic("AOT-S001", "nothing to train")
    monkeypatch.setattr(step, "build", raising(UnsupportedModelError(problem)))
    report = check(model)
    assert not report.ok
    assert report.others == (problem,)
    assert verdicts(report) == [("fc", True, None, None), ("y", True, None, None)]


def test_no_model_and_no_such_target(tmp_path, model):
    with pytest.raises(InputError):
        check(tmp_path / "none.onnx")
    with pytest.raises(UsageError):
        check(model, target="toaster")
