"""A line for a node, an ONNX model out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
Arg = Any
"""A shape: a float32 input; an array: an input of this value; `Const`: an initializer."""


@dataclass(frozen=True)
class Const:
    """An initializer."""

    value: Any
    dtype: str = "int64"

    @property
    def array(self) -> np.ndarray:
        return np.asarray(self.value, self.dtype)


@dataclass
class NodeCase:
    """One node with its arguments; `id` is the test's name."""

    op: str
    args: Sequence[Arg]
    attrs: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    outputs: int = 1
    positive: bool = False  # inputs above 0.1, for log and its like

    @property
    def id(self) -> str:
        attrs = ",".join(
            f"{k}={v}" for k, v in self.attrs.items() if not isinstance(v, onnx.GraphProto)
        )
        return f"{self.op}-{self.opset}[{attrs}]{'x'.join(str(_shape(a)) for a in self.args)}"

    def feeds(self) -> dict[str, np.ndarray]:
        """Values of the inputs."""
        rng = np.random.default_rng(7)
        found = {}
        for i, arg in enumerate(self.args):
            if isinstance(arg, tuple):
                x = rng.normal(size=arg)
                found[f"x{i}"] = (np.abs(x) + 0.1 if self.positive else x).astype(np.float32)
            elif isinstance(arg, np.ndarray):
                found[f"x{i}"] = arg
        return found

    def model(self) -> onnx.ModelProto:
        feeds = self.feeds()
        names = ["" if a is None else f"x{i}" for i, a in enumerate(self.args)]
        outputs = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, name="node", **self.attrs)
        constants = {f"x{i}": a.array for i, a in enumerate(self.args) if isinstance(a, Const)}
        return model([node], feeds, outputs, constants, self.opset)


def _shape(arg: Arg) -> str:
    if isinstance(arg, tuple):
        return str(list(arg))
    return (
        "-" if arg is None else str(np.asarray(arg.value if isinstance(arg, Const) else arg).shape)
    )


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, np.ndarray] | dict[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    """A model; inputs by example, or by float32 shape with names for symbolic dimensions."""
    infos = []
    for name, value in inputs.items():
        if isinstance(value, np.ndarray):
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            infos.append(helper.make_tensor_value_info(name, kind, value.shape))
        else:
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, value))
    graph = helper.make_graph(
        nodes,
        "graph",
        infos,
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = min(made.ir_version, 10)
    inferred = onnx.shape_inference.infer_shapes(made)
    for out, typed in zip(made.graph.output, inferred.graph.output, strict=True):
        out.CopyFrom(typed)
        if not out.type.tensor_type.HasField("shape"):  # norms: of the input's shape
            out.type.CopyFrom(infos[0].type)
    return made


def f32(*values: float) -> np.ndarray:
    """A float32 vector."""
    return np.array(values, np.float32)
