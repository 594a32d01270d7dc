"""ONNX file in, a `torch.nn.Module` out that owns its weights: the oracle and the competitor.

The graph becomes one straight-line `forward` of `torch.nn.functional` calls, the source that a
person would write: no interpreter in the loop, and `torch.compile` sees plain code. Covers the
operators of `tests.models`, in training mode; anything else is a KeyError that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

Attributes = dict[str, Any]


class OnnxModule(torch.nn.Module):
    """`forward(*inputs)` returns the file's first output.

    `names` maps the ONNX names of float initializers of rank >= 1 to attribute names: parameters,
    but for BatchNormalization's statistics, which are buffers. The rest is constant.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self.names: dict[str, str] = {}
        self._arrays = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        statistics = {
            name
            for node in model.graph.node
            if node.op_type == "BatchNormalization"
            for name in node.input[3:5]
        }
        self._values: dict[str, str] = {}
        for name, array in self._arrays.items():
            self._add(name, array, buffer=name in statistics)
        inputs = [self._local(value.name) for value in model.graph.input]
        lines = [self._line(node) for node in model.graph.node]
        result = self._values[model.graph.output[0].name]
        self.source = "\n    ".join(
            [f"def forward(self, {', '.join(inputs)}):", *lines, f"return {result}"]
        )
        scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.source, "<onnx>", "exec"), scope)
        self._forward = scope["forward"]

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The file's first output."""
        return self._forward(self, *inputs)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers under their ONNX names."""
        return {name: getattr(self, attribute) for name, attribute in self.names.items()}

    def _add(self, name: str, array: np.ndarray, *, buffer: bool) -> None:
        attribute = f"w{len(self._values)}"
        tensor = torch.from_numpy(array.copy())
        self._values[name] = f"self.{attribute}"
        if array.dtype == np.float32 and array.ndim:
            self.names[name] = attribute
        if array.dtype != np.float32 or not array.ndim or buffer:
            self.register_buffer(attribute, tensor)
        else:
            self.register_parameter(attribute, torch.nn.Parameter(tensor))

    def _local(self, name: str) -> str:
        return self._values.setdefault(name, f"v{len(self._values)}")

    def _line(self, node: onnx.NodeProto) -> str:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "LSTM":
            return self._lstm(node)
        # a constant operand that torch wants as Python numbers
        attributes["arrays"] = [self._arrays.get(name) for name in node.input]
        arguments = [self._values[name] for name in node.input]
        call = _RULES[node.op_type](arguments, attributes)
        return f"{', '.join(self._local(name) for name in node.output)} = {call}"

    def _lstm(self, node: onnx.NodeProto) -> str:
        """`torch.nn.LSTM` owns copies of W, R, B, its gates in the order i, f, g, o."""
        x, *weights = node.input
        w, r, b = (self._arrays[name] for name in weights)
        hidden = r.shape[2]
        lstm = torch.nn.LSTM(w.shape[2], hidden)
        order = np.concatenate([np.arange(hidden) + hidden * i for i in (0, 2, 3, 1)])
        with torch.no_grad():
            for target, source in (
                (lstm.weight_ih_l0, w[0]),
                (lstm.weight_hh_l0, r[0]),
                (lstm.bias_ih_l0, b[0, : 4 * hidden]),
                (lstm.bias_hh_l0, b[0, 4 * hidden :]),
            ):
                target.copy_(torch.from_numpy(source[order]))
        self.lstm = lstm
        for name in weights:
            delattr(self, self.names.pop(name))
        every, last = (self._local(name) for name in node.output)
        return f"{every}, ({last}, _) = self.lstm({self._values[x]})"


def _pair(values: list[int]) -> str:
    return str(tuple(values))


def _symmetric(pads: list[int]) -> str:
    half = len(pads) // 2
    assert pads[:half] == pads[half:], pads
    return _pair(pads[:half])


def _gemm(x: list[str], a: Attributes) -> str:
    assert a.get("transB") == 1
    return f"F.linear({', '.join(x)})"


def _conv(x: list[str], a: Attributes) -> str:
    bias = x[2] if len(x) > 2 else "None"
    stride, pads = _pair(a["strides"]), _symmetric(a["pads"])
    return f"F.conv2d({x[0]}, {x[1]}, {bias}, {stride}, {pads}, 1, {a['group']})"


def _batch_norm(x: list[str], a: Attributes) -> str:
    weight, bias, mean, variance = x[1:]
    rest = f"True, {1.0 - a['momentum']:.9g}, {a['epsilon']:.9g}"
    return f"F.batch_norm({x[0]}, {mean}, {variance}, {weight}, {bias}, {rest})"


def _layer_norm(x: list[str], a: Attributes) -> str:
    assert a["axis"] == -1
    return f"F.layer_norm({x[0]}, {x[1]}.shape, {x[1]}, {x[2]}, {a['epsilon']:.9g})"


def _clip(x: list[str], a: Attributes) -> str:
    low, high = (float(bound) for bound in a["arrays"][1:])
    return f"F.relu6({x[0]})" if (low, high) == (0, 6) else f"{x[0]}.clamp({low}, {high})"


def _max_pool(x: list[str], a: Attributes) -> str:
    window, strides = _pair(a["kernel_shape"]), _pair(a["strides"])
    return f"F.max_pool2d({x[0]}, {window}, {strides}, {_symmetric(a.get('pads', [0] * 4))})"


def _reshape(x: list[str], a: Attributes) -> str:
    shape = [f"{x[0]}.shape[{i}]" if n == 0 else str(n) for i, n in enumerate(a["arrays"][1])]
    return f"{x[0]}.reshape({', '.join(shape)})"


def _binary(symbol: str) -> Callable[[list[str], Attributes], str]:
    return lambda x, a: f"{x[0]} {symbol} {x[1]}"


_RULES: dict[str, Callable[[list[str], Attributes], str]] = {
    "Add": _binary("+"),
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": lambda x, a: f"torch.cat(({', '.join(x)}), {a['axis']})",
    "Conv": _conv,
    "ConvTranspose": lambda x, a: f"F.conv_transpose2d({', '.join(x)}, {_pair(a['strides'])})",
    "Div": _binary("/"),
    "Erf": lambda x, a: f"torch.erf({x[0]})",
    "Flatten": lambda x, a: f"torch.flatten({x[0]}, {a['axis']})",
    "Gather": lambda x, a: f"F.embedding({x[1]}, {x[0]})",
    "Gelu": lambda x, a: f"F.gelu({x[0]})",
    "Gemm": _gemm,
    "GlobalAveragePool": lambda x, a: f"F.adaptive_avg_pool2d({x[0]}, 1)",
    "LayerNormalization": _layer_norm,
    "MatMul": _binary("@"),
    "MaxPool": _max_pool,
    "Mul": _binary("*"),
    "ReduceMean": lambda x, a: f"{x[0]}.mean({_pair(a['arrays'][1].tolist())})",
    "Relu": lambda x, a: f"F.relu({x[0]})",
    "Reshape": _reshape,
    "Softmax": lambda x, a: f"torch.softmax({x[0]}, {a['axis']})",
    "Split": lambda x, a: f"{x[0]}.split({a['arrays'][1].tolist()}, {a['axis']})",
    "Squeeze": lambda x, a: f"{x[0]}.squeeze({int(a['arrays'][1][0])})",
    "Transpose": lambda x, a: f"{x[0]}.permute({', '.join(map(str, a['perm']))})",
    "Where": lambda x, a: f"torch.where({', '.join(x)})",
}
