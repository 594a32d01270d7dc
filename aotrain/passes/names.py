"""A module before and after FuseOps in, the ONNX origin of each launch out.

FuseOps groups bindings into functions marked "Primitive", names a group's result anew, and makes
one function of equal groups, so that a function's name does not tell where a call of it came from.
But the bindings of a group are those of the module before: walking both finds them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax


def group_origins(
    before: tvm.IRModule, after: tvm.IRModule, entry: str, origins: Mapping[str, object]
) -> dict[str, str]:
    """Name of each binding of `entry` after FuseOps -> its group's origins, plus signs between."""
    return _Twins(before[entry], after, origins).walk(after[entry])


class _Twins:
    """Finds the binding before fusion that computed what a binding after it computes."""

    def __init__(
        self, before: relax.Function, after: tvm.IRModule, origins: Mapping[str, object]
    ) -> None:
        self.before, self.after, self.origins = before, after, origins
        same = {param: param for param in before.params}
        self.known: dict[Any, deque[relax.Var]] = {}
        for binding in bindings(before):
            same[binding.var] = binding.var
            self.known.setdefault(_key(binding.value, same), deque()).append(binding.var)

    def walk(self, function: relax.Function) -> dict[str, str]:
        twins: dict[relax.Var, Any] = dict(zip(function.params, self.before.params, strict=True))
        found = {}
        for binding in bindings(function):
            made: dict[str, None] = {}
            twins[binding.var] = self._twin(binding.value, twins, made)
            found[binding.var.name] = " + ".join(made)
        return found

    def _twin(self, value: relax.Expr, twins: Mapping[relax.Var, Any], made: dict) -> Any:
        group = self._group(value)
        if group is None:
            waiting = self.known.get(_key(value, twins))
            if not waiting:
                return None
            twin = waiting.popleft() if len(waiting) > 1 else waiting[0]
            origin = origin_of(twin.name, self.origins)
            if origin:
                made[origin] = None
            return twin
        inner = dict(zip(group.params, (_mapped(a, twins) for a in value.args), strict=True))
        for binding in bindings(group):
            inner[binding.var] = self._twin(binding.value, inner, made)
        return _mapped(group.body.body, inner)

    def _group(self, value: relax.Expr) -> relax.Function | None:
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.GlobalVar):
            return None
        callee = self.after[value.op]
        return callee if isinstance(callee, relax.Function) else None


def _mapped(expr: relax.Expr, twins: Mapping[relax.Var, Any]) -> Any:
    """What `expr` is before fusion: a variable, a tuple of such, or a hash of anything else."""
    if isinstance(expr, relax.Var):
        return twins.get(expr)
    if isinstance(expr, relax.Tuple):
        return tuple(_mapped(field, twins) for field in expr.fields)
    if isinstance(expr, tvm.ir.GlobalVar):
        return expr.name_hint
    return tvm_ffi.structural_hash(expr)


def _key(value: relax.Expr, twins: Mapping[relax.Var, Any]) -> Any:
    if isinstance(value, relax.Call):
        name = getattr(value.op, "name", str(value.op))
        return (name, *(_mapped(a, twins) for a in value.args))
    if isinstance(value, relax.TupleGetItem):
        return ("item", _mapped(value.tuple_value, twins), value.index)
    return ("value", _mapped(value, twins))


def origin_of(name: str, origins: Mapping[str, object]) -> str:
    """The origin of a binding's variable, "" when it has none."""
    return str(origins.get(name, ""))


def bindings(function: relax.Function) -> Iterator[relax.Binding]:
    """All bindings of a function in order."""
    for block in function.body.blocks:
        yield from block.bindings
