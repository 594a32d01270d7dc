"""Nothing in, `model.onnx` out: a small convolutional network for 8x8 digits, not yet trained.

Run as `python make_model.py`; needs onnx and numpy alone. Any exporter's file would do: this one is
written by hand so that the example needs no framework.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED = 0


def build() -> onnx.ModelProto:
    """x [batch, 1, 8, 8] -> 2 x (Conv 3x3, BatchNormalization, Relu), MaxPool, Gemm -> logits."""
    rng = np.random.default_rng(SEED)
    weights: dict[str, np.ndarray] = {}

    def he(name: str, *shape: int) -> str:
        std = np.sqrt(2.0 / np.prod(shape[1:]))
        weights[name] = (rng.standard_normal(shape) * std).astype(np.float32)
        return name

    def full(name: str, size: int, value: float) -> str:
        weights[name] = np.full(size, value, np.float32)
        return name

    nodes, value = [], "x"

    def add(op_type: str, name: str, *inputs: str, **attributes: object) -> None:
        nonlocal value
        nodes.append(helper.make_node(op_type, [value, *inputs], [name], name, **attributes))
        value = name

    for i, (fan_in, out) in enumerate([(1, 16), (16, 32)], start=1):
        kernel = he(f"conv{i}.weight", out, fan_in, 3, 3)
        add("Conv", f"conv{i}", kernel, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, group=1)
        scale, bias = full(f"bn{i}.weight", out, 1.0), full(f"bn{i}.bias", out, 0.0)
        mean, var = full(f"bn{i}.running_mean", out, 0.0), full(f"bn{i}.running_var", out, 1.0)
        add("BatchNormalization", f"bn{i}", scale, bias, mean, var, epsilon=1e-5, momentum=0.9)
        add("Relu", f"relu{i}")
    add("MaxPool", "pool", kernel_shape=[2, 2], strides=[2, 2])
    add("Flatten", "flatten", axis=1)
    add("Gemm", "logits", he("fc.weight", 10, 32 * 4 * 4), full("fc.bias", 10, 0.0), transB=1)

    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, ir_version=8, opset_imports=opsets)
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    Path(__file__).with_name("model.onnx").write_bytes(build().SerializeToString())
