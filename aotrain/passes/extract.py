"""Legalised, fused entry functions in, a `KernelGraph` out: the end of Relax.

    lv  = call_tir(matmul, (x, w))        launch matmul(x, w, t0)
    lv1 = reshape(lv, (32, 1, 10))        (t0 by another name)
    lv2 = call_tir(sgd, (w, lv1, lr))     launch sgd(w, t0, lr), writing w in place
    return (lv2,)                         result "w": lv2 is the new w

Kernels that are structurally equal become one. A result that cannot be computed where it belongs is
copied there at the end of the entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir.expr import GenericConst

from aotrain.errors import Diagnostic, UnsupportedModelError, raise_if_any
from aotrain.passes.graph import KernelGraph
from aotrain.passes.names import bindings, origin_of
from aotrain.passes.placement import Call, place
from aotrain.passes.table import Table
from aotrain.passes.views import RESHAPE
from aotrain.plan import Entry, Kind, Tensor
from aotrain.step.program import EntryFunction, TrainStep


def extract(
    module: tvm.IRModule, step: TrainStep, origins: Mapping[str, Mapping[str, str]]
) -> KernelGraph:
    """All entries of `step`, whose lowered functions are in `module`, as one graph.

    `origins` maps the bindings of each entry, by name, to their ONNX origin. Raises
    UnsupportedModelError with every operator that has no kernel.
    """
    table = Table()
    for state in step.state:
        table.persistent(state.name, state.value.shape, state.value.dtype.name, role=state.role)
    for name, default in step.hyper.items():
        table.persistent(name, (), "float32", kind=Kind.HYPER, default=default)
    problems: list[Diagnostic] = []
    entries = []
    for entry in step.entries:
        walk = _Walk(table, module, step, entry, origins[entry.name], problems)
        entries.append(walk.run())
    raise_if_any(problems, UnsupportedModelError)
    return table.graph(entries)


class _Walk:
    """One entry function, binding by binding."""

    def __init__(
        self,
        table: Table,
        module: tvm.IRModule,
        step: TrainStep,
        entry: EntryFunction,
        origins: Mapping[str, str],
        problems: list[Diagnostic],
    ) -> None:
        self.table, self.module, self.step, self.entry = table, module, step, entry
        self.origins, self.problems = origins, problems
        self.values: dict[relax.Var, Any] = {}  # a tensor index, or a list of them
        self.calls: list[Call] = []

    def run(self) -> Entry:
        function = self.module[self.entry.name]
        inputs = [
            self._param(name, var)
            for name, var in zip(self.entry.params, function.params, strict=True)
        ]
        for binding in bindings(function):
            self.values[binding.var] = self._value(binding.value, binding.var)
        results = _flatten(self._value(function.body.body, None))
        if self.problems:
            return Entry(self.entry.name, (), (), ())
        places = dict(zip(self.entry.results, results, strict=True))
        shapes = _flatten(_shape_like(function.body.body.ty, lambda ty: tuple(map(int, ty.shape))))
        seen = dict(zip(self.entry.results, shapes, strict=True))
        launches, outputs = place(self.table, self.calls, places, seen)
        return Entry(self.entry.name, launches, tuple(i for i in inputs if i >= 0), outputs)

    def _param(self, name: str, var: relax.Var) -> int:
        """Bind one parameter; its index where it is an INPUT, else -1."""
        shape, dtype = tuple(int(n) for n in var.ty.shape), str(var.ty.dtype)
        index = self.table.persistent(name, shape, dtype, kind=Kind.INPUT)
        self.values[var] = index
        return index if self.table.tensors[index].kind is Kind.INPUT else -1

    def _value(self, expr: relax.Expr, var: relax.Var | None) -> Any:
        if isinstance(expr, relax.Var):
            return self.values[expr]
        if isinstance(expr, relax.Tuple):
            return [self._value(item, None) for item in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self._value(expr.tuple_value, None)[expr.index]
        if isinstance(expr, GenericConst):
            return self.table.constant(expr.value.numpy())
        assert isinstance(expr, relax.Call), f"{type(expr)} in a lowered function"
        assert var is not None
        return self._call(expr, var)

    def _call(self, call: relax.Call, var: relax.Var) -> Any:
        name = getattr(call.op, "name", str(call.op))
        if name == RESHAPE:
            return self._value(call.args[0], None)
        if name != "relax.call_tir":
            self._no_kernel(name, var)
            return _shape_like(var.ty, lambda _: -1)
        kernel = call.args[0].name_hint
        if needs_runtime(self.module[kernel]):
            self._no_kernel(kernel, var)
            return _shape_like(var.ty, lambda _: -1)
        origin = self.origins.get(var.name) or origin_of(var.name, self.step.origins)
        inputs = _flatten(self._value(call.args[1], None))

        def temp(ty: relax.TensorType) -> int:
            shape = tuple(int(n) for n in ty.shape)
            tensor = Tensor(var.name, shape, str(ty.dtype), Kind.TEMP, origin=origin)
            return self.table.add(tensor)

        value = _shape_like(var.ty, temp)
        self.calls.append(Call(kernel, self.module[kernel], inputs, _flatten(value), origin))
        return value

    def _no_kernel(self, operator: str, var: relax.Var) -> None:
        message = f"no kernel for {operator}"
        where = origin_of(var.name, self.step.origins) or f"binding '{var.name}'"
        hint = "run `aotrain check` for the whole model"
        self.problems.append(Diagnostic("AOT-K001", message, where, hint))


def needs_runtime(func: tirx.PrimFunc) -> bool:
    """Whether `func` calls into TVM's own runtime library (sorts do), which no artifact carries."""
    found: list[bool] = []

    def visit(call: relax.Call) -> None:
        found.append("call_packed" in getattr(call.op, "name", ""))

    tvm_ffi.structural_walk(func.body, (relax.Call, visit))
    return any(found)


def _flatten(value: Any) -> list[Any]:
    return [i for item in value for i in _flatten(item)] if isinstance(value, list) else [value]


def _shape_like(ty: relax.Type, leaf: Any) -> Any:
    """`leaf(type)` for a tensor, a list of them for a tuple of tensors."""
    if isinstance(ty, relax.TupleType):
        return [_shape_like(item, leaf) for item in ty.fields]
    return leaf(ty)
