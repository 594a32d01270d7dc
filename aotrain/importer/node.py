"""One ONNX node with its input values: all that a converter sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
from onnx import helper
from tvm import relax
from tvm.ir.expr import Constant

from aotrain.importer.builder import FunctionBuilder, Value, describe, dtype_of, shape_of
from aotrain.importer.model import Origin
from aotrain.importer.problems import Dynamic, Unsupported

if TYPE_CHECKING:
    from aotrain.importer.walk import Scope, Walker

Result: TypeAlias = "Value | tuple[Value, ...]"
Converter: TypeAlias = "Callable[[Node], Result]"


class Node:
    """A node in its scope. Inputs by position; attributes by name; `emit` binds a Relax call."""

    def __init__(
        self, proto: onnx.NodeProto, inputs: Sequence[Value], walker: Walker, scope: Scope
    ) -> None:
        self.proto = proto
        self.inputs = list(inputs)
        self.walker = walker
        self.scope = scope
        self.builder: FunctionBuilder = walker.builder
        self.opset: int = scope.opsets.get(proto.domain, 1)
        self.train: bool = walker.train
        self._attrs = {a.name: a for a in proto.attribute}
        outputs = [name for name in proto.output if name]
        self.name: str = proto.name or (outputs[0] if outputs else proto.op_type)
        self.origin = scope.origin or Origin(
            proto.op_type, self.name, tuple(describe(v) for v in inputs if v is not None)
        )

    @property
    def op_type(self) -> str:
        """The operator's name."""
        return str(self.proto.op_type)

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's Python value: int, float, str, list, array or graph."""
        if name not in self._attrs:
            return default
        value = helper.get_attribute_value(self._attrs[name])
        if isinstance(value, bytes):
            return value.decode()
        return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value

    def reject(self, name: str, *allowed: Any) -> None:
        """Unsupported unless attribute `name` is absent or one of `allowed`."""
        value = self.attr(name)
        if value is not None and value not in allowed:
            raise Unsupported(f"{self.op_type} with {name}={value} is not supported")

    def has(self, index: int) -> bool:
        """Whether the optional input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def wants(self, index: int) -> bool:
        """Whether somebody may use the output."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def x(self, index: int) -> relax.Expr:
        """Input as a Relax expression."""
        value = self.inputs[index]
        if isinstance(value, np.ndarray):
            return self.builder.constant(value)
        if value is None or isinstance(value, list):
            raise Unsupported(f"{self.op_type} needs a tensor as input {index}")
        return value

    def known(self, index: int, what: str) -> np.ndarray:
        """Input that must be a constant, such as axes; `what` names it in the message."""
        value = self.inputs[index]
        if not isinstance(value, np.ndarray):
            raise Dynamic(f"{self.op_type}: {what} must be known when compiling")
        return value

    def ints(self, what: str, index: int | None = None) -> list[int] | None:
        """Integers from attribute `what` or, in later opsets, input `index`; None if absent."""
        if index is not None and self.has(index):
            return [int(v) for v in self.known(index, what).reshape(-1)]
        value = self.attr(what)
        if value is None:
            return None
        return [int(v) for v in (value if isinstance(value, list) else [value])]

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The input's static shape."""
        return shape_of(self.inputs[index])

    def dtype(self, index: int = 0) -> str:
        """The input's dtype."""
        return dtype_of(self.inputs[index])

    def rank(self, index: int = 0) -> int:
        """Number of the input's dimensions."""
        return len(self.shape(index))

    def axis(self, default: int, name: str = "axis", rank: int | None = None) -> int:
        """Attribute `name` as a non-negative axis of input 0, or of a tensor of `rank`."""
        rank = self.rank() if rank is None else rank
        return normal_axis(int(self.attr(name, default)), rank)

    def is_float(self, index: int = 0) -> bool:
        """Whether the input holds floating-point numbers."""
        return "float" in self.dtype(index)

    def scalar(self, value: float, dtype: str | None = None) -> Constant:
        """A 0-d constant of input 0's dtype."""
        dtype = dtype or self.dtype()
        return relax.const(np.array(value, np_dtype(dtype)), dtype)

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind a call; returns its variable, with shape and dtype."""
        return self.builder.emit(expr, self.scope.prefix + self.name, self.origin)


def normal_axis(axis: int, rank: int) -> int:
    """Axis in [-rank, rank) to [0, rank)."""
    if not -rank <= axis < max(rank, 1):
        raise Unsupported(f"axis {axis} is outside a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def np_dtype(name: str) -> np.dtype:
    """A numpy dtype, the extension types of `ml_dtypes` among them."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
