"""What the importer hands on: a forward program in Relax, and what ONNX knows and Relax forgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from aotrain.plan import Role, TensorSpec

if TYPE_CHECKING:
    import onnx
    import tvm


@dataclass(frozen=True)
class Parameter:
    """A named float tensor of the model with its initial value and its role.

    `role` is TRAINABLE, FROZEN or BUFFER; everything else in the file is a constant of the graph.
    """

    name: str
    value: np.ndarray
    role: Role

    @property
    def spec(self) -> TensorSpec:
        """Name, shape and dtype."""
        return TensorSpec(self.name, self.value.shape, self.value.dtype.name)


@dataclass(frozen=True)
class Origin:
    """The ONNX node behind a Relax binding, for messages."""

    op_type: str
    node: str  # the node's name, or its first output where it has none
    shapes: tuple[str, ...] = ()  # the inputs' shapes, "float32[32,64]"

    def __str__(self) -> str:
        shapes = f" ({', '.join(self.shapes)})" if self.shapes else ""
        return f"{self.op_type} node '{self.node}'{shapes}"


@dataclass(frozen=True)
class Model:
    """The importer's result.

    `module` holds two dataflow functions over the same parameters in the same order:

        train(*inputs, *parameters, *buffers, rng) -> (*outputs, *new_buffers)
        infer(*inputs, *parameters, *buffers)      -> (*outputs,)

    `rng` is `uint32[2]` = (seed, step): dropout draws by counter from it. Every binding's variable
    name is unique in its function and a key of `origins`. Results are always a Tuple.
    """

    name: str
    source: onnx.ModelProto  # as read, before any normalisation: what `export` writes back into
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[Parameter, ...]  # TRAINABLE and FROZEN
    buffers: tuple[Parameter, ...]  # BUFFER
    module: tvm.IRModule
    origins: dict[str, Origin] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # decisions to print: "batch 1 -> 32 in 3 Reshape nodes"
