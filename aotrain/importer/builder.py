"""Relax calls in, one dataflow function out: every binding named after its ONNX node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import Constant

from aotrain.importer.model import Origin
from aotrain.importer.problems import BadShape, Dynamic

Value: TypeAlias = "np.ndarray | relax.Expr | list | None"
"""What an ONNX name stands for while importing: an array is known now (a constant of the graph), a
Relax expression is computed by the program, a list is an ONNX sequence, None an absent optional."""


def shape_of(value: Value) -> tuple[int, ...]:
    """The static shape of an array or expression."""
    if isinstance(value, np.ndarray):
        return value.shape
    assert value is not None and not isinstance(value, list)
    shape = value.ty.shape
    if shape is None or not all(isinstance(d, tvm.tirx.IntImm) for d in shape):
        raise Dynamic("the shape is known only when the model runs")
    return tuple(int(d) for d in shape)


def dtype_of(value: Value) -> str:
    """The dtype of an array or expression, as numpy names it."""
    if isinstance(value, np.ndarray):
        return value.dtype.name
    assert value is not None and not isinstance(value, list)
    return str(value.ty.dtype)


def describe(value: Value) -> str:
    """`float32[32,64]`, for messages."""
    if value is None:
        return "absent"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    return f"{dtype_of(value)}[{','.join(map(str, shape_of(value)))}]"


def _plain(message: str) -> str:
    """TVM's message without its notation for operators, types and integers."""
    lines = message.strip().splitlines()
    text = lines[-1] if lines else message
    text = re.sub(r"In ir\.Op\(.*support_level=\d+\), ?", "", text)
    text = re.sub(r"T\.int64\((-?\d+)\)", r"\1", text)
    return re.sub(r"^\S*Error: ", "", text)


class Names:
    """Hands out identifiers that are unique in one function."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        """`name` as an identifier, with a suffix where it is taken."""
        base = re.sub(r"\W", "_", name, flags=re.ASCII) or "value"
        if base[0].isdigit():
            base = "_" + base
        candidate = base
        while candidate in self._used:
            self._used[base] += 1
            candidate = f"{base}_{self._used[base]}"
        self._used[candidate] = 0
        return candidate


class FunctionBuilder:
    """Collects bindings; `emit` normalises (shapes and dtypes are inferred) and names."""

    def __init__(self) -> None:
        self.names = Names()
        self.origins: dict[str, Origin] = {}
        self._block = relax.BlockBuilder()
        self._bindings: list[relax.Binding] = []
        self._constants: dict[int, tuple[np.ndarray, Constant]] = {}

    def param(self, name: str, shape: Sequence[int], dtype: str, origin: Origin) -> relax.Var:
        """A parameter of the function."""
        var = relax.Var(self.names.fresh(name), relax.TensorType(list(shape), dtype))
        self.origins[var.name] = origin
        return var

    def constant(self, array: np.ndarray) -> Constant:
        """The array as a constant; the same array gives the same constant."""
        if id(array) not in self._constants:
            # The array is kept: its id must not be taken by another.
            dense = np.ascontiguousarray(array).reshape(array.shape)
            self._constants[id(array)] = (array, relax.const(dense, dtype_of(array)))
        return self._constants[id(array)][1]

    def emit(self, expr: relax.Expr, name: str, origin: Origin) -> relax.Expr:
        """Bind `expr` to a fresh variable called after `name`."""
        if isinstance(expr, relax.Var | Constant):
            return expr
        try:
            expr = self._block.normalize(expr)
        except (tvm.error.InternalError, ValueError, TypeError) as error:
            raise BadShape(f"{origin.op_type}: {_plain(str(error))}") from error
        var = relax.DataflowVar(self.names.fresh(name), expr.ty)
        self._bindings.append(relax.VarBinding(var, expr))
        self.origins[var.name] = origin
        return var

    def finish(self, params: Sequence[relax.Var], results: Sequence[relax.Expr]) -> relax.Function:
        """The function `params -> (*results,)`."""
        result = self._block.normalize(relax.Tuple(list(results)))
        out = relax.Var(self.names.fresh("results"), result.ty)
        self.origins[out.name] = Origin("Graph", "outputs")
        bindings = [*self._bindings, relax.VarBinding(out, result)]
        body = relax.SeqExpr([relax.DataflowBlock(bindings)], out)
        return relax.Function(list(params), body, out.ty)
