"""Calls in, an `onnx.ModelProto` out: nodes as exporters write them, seeded weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BATCH = "batch"
"""The name of the free first dimension of every model here."""


class Graph:
    """A graph under construction; methods return the names of values.

    Weights are drawn in the order of the calls, so one seed and one builder give one file.
    """

    def __init__(self, name: str, *, opset: int = 17, seed: int = 0) -> None:
        self.name = name
        self._opset = opset
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, np.ndarray] = {}
        self._inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, *shape: int, dtype: str = "float32") -> str:
        """A graph input `[batch, *shape]`."""
        self._inputs.append(_value(name, shape, dtype))
        return name

    def array(self, name: str, value: np.ndarray) -> str:
        """An initializer with this value."""
        assert name not in self._initializers, name
        self._initializers[name] = value
        return name

    def normal(self, name: str, shape: Sequence[int], std: float) -> str:
        """A float32 weight from N(0, std²)."""
        value = self._rng.standard_normal(tuple(shape)) * std
        return self.array(name, value.astype(np.float32))

    def he(self, name: str, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> str:
        """A float32 weight of variance gain / fan_in: He et al. 2015 for ReLU, gain 1 elsewhere."""
        return self.normal(name, shape, math.sqrt(gain / fan_in))

    def full(self, name: str, shape: Sequence[int], value: float) -> str:
        """A float32 weight, constant at first."""
        return self.array(name, np.full(tuple(shape), value, np.float32))

    def op(self, op_type: str, *inputs: str, name: str, **attributes: Any) -> str:
        """One node `/name/OpType` with one output."""
        return self.ops(op_type, *inputs, name=name, outputs=1, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: str, name: str, outputs: int, **attributes: Any
    ) -> list[str]:
        """One node `/name/OpType` with several outputs."""
        node = f"/{name}/{op_type}"
        names = [f"{node}_output_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(op_type, inputs, names, node, **attributes))
        return names

    def model(self, result: str, name: str, *shape: int) -> onnx.ModelProto:
        """The checked file, its only output `name` float32 `[batch, *shape]`."""
        self._nodes[-1].output[list(self._nodes[-1].output).index(result)] = name
        graph = helper.make_graph(
            self._nodes,
            self.name,
            self._inputs,
            [_value(name, shape, "float32")],
            [numpy_helper.from_array(v, k) for k, v in self._initializers.items()],
        )
        model = helper.make_model(
            graph,
            ir_version=8,
            opset_imports=[helper.make_opsetid("", self._opset)],
            producer_name="aotrain-tests",
        )
        onnx.checker.check_model(model, full_check=True)
        return model


def _value(name: str, shape: Sequence[int], dtype: str) -> onnx.ValueInfoProto:
    code = TensorProto.INT64 if dtype == "int64" else TensorProto.FLOAT
    return helper.make_tensor_value_info(name, code, [BATCH, *shape])
