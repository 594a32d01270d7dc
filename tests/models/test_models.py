"""Every builder gives the same checked file twice, and onnxruntime and PyTorch agree about it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import TINY, Case

onnxruntime = pytest.importorskip("onnxruntime")


def _training_form(model: onnx.ModelProto) -> onnx.ModelProto:
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            node.attribute.append(onnx.helper.make_attribute("training_mode", 1))
            node.output.extend([f"{node.output[0]}.mean", f"{node.output[0]}.var"])
    return model


def _reference(model: onnx.ModelProto, case: Case, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    # its optimizer folds a training-form BatchNormalization into the Conv before it, wrongly
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {case.input: x})[0]


@pytest.mark.parametrize("case", TINY.values(), ids=TINY)
def test_builds_the_same_file_twice(case: Case) -> None:
    assert case.build().SerializeToString() == case.build().SerializeToString()


@pytest.mark.parametrize("case", TINY.values(), ids=TINY)
def test_logits_have_the_class_axis(case: Case) -> None:
    [(x, labels)] = case.batches(1)
    logits = _reference(case.build(), case, x)
    logits = np.moveaxis(logits, 1, -1) if case.pixels else logits
    assert logits.shape == (*labels.shape, case.classes)
    assert np.isfinite(logits).all()
    assert 0 <= labels.min() <= labels.max() < case.classes


@pytest.mark.parametrize("case", TINY.values(), ids=TINY)
def test_pytorch_mirror_computes_the_file(case: Case) -> None:
    torch = pytest.importorskip("torch")
    from tests.models.torch_module import OnnxModule

    [(x, _)] = case.batches(1)
    with torch.no_grad():
        logits = OnnxModule(case.build())(torch.from_numpy(x)).numpy()
    want = _reference(_training_form(case.build()), case, x)
    np.testing.assert_allclose(logits, want, rtol=1e-5, atol=1e-5)
