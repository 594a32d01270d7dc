"""Relax dataflow functions in, one longer function out: where the step is put together.

graph = Graph()
logits, = graph.inline(forward)
loss = graph.emit(relax.op.sum(logits), "loss")
function = graph.finish([*forward.params], [loss], "train")
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax
from tvm.relax.analysis import free_vars

from aotrain.importer.model import Origin


class Graph:
    """Bindings in order, under unique names; what no result needs is dropped at the end."""

    def __init__(self, origins: dict[str, Origin] | None = None) -> None:
        """`origins` receives `self.origin` under the name of each variable emitted."""
        self.origins = {} if origins is None else origins
        self.origin: Origin | None = None
        self._builder = relax.BlockBuilder()
        self._bindings: list[relax.Binding] = []
        self._names: set[str] = set()
        self.values: dict[relax.Var, relax.Expr] = {}  # variable -> what it is bound to

    def param(self, name: str, shape: Sequence[int], dtype: str) -> relax.Var:
        """A fresh parameter; `finish` decides its position."""
        return relax.Var(self._unique(name), relax.TensorType(list(shape), dtype))

    def inline(self, function: relax.Function) -> list[relax.Expr]:
        """Append the body of `function` and return the fields of its Tuple.

        Its parameters and variables stay the same objects: inline a function into one graph only,
        and before anything else is emitted, for its names are kept.
        """
        assert not self._names
        body = function.body
        for block in body.blocks:
            for binding in block.bindings:
                self._bindings.append(binding)
                self.values[binding.var] = binding.value
        self._names |= {v.name for v in [*function.params, *self.values]}
        result = body.body
        while result in self.values and not isinstance(result, relax.Tuple):
            result = self.values[result]
        assert isinstance(result, relax.Tuple), "a model's function returns a Tuple"
        return list(result.fields)

    def emit(self, expr: relax.Expr, name: str) -> relax.Var:
        """Bind one call, whose arguments are bound already, to a variable called `name`."""
        expr = self._builder.normalize(expr)
        var = relax.DataflowVar(self._unique(name), expr.ty)
        self._bindings.append(relax.VarBinding(var, expr))
        self.values[var] = expr
        if self.origin is not None:
            self.origins[var.name] = self.origin
        return var

    def finish(
        self, params: Sequence[relax.Var], results: Sequence[relax.Expr], name: str
    ) -> relax.Function:
        """The function `name(*params) -> (*results,)`."""
        value = self._builder.normalize(relax.Tuple(list(results)))
        output = relax.Var(self._unique("results"), relax.TupleType([r.ty for r in results]))
        live, kept = set(free_vars(value)), [relax.VarBinding(output, value)]
        for binding in reversed(self._bindings):
            if binding.var in live:
                kept.append(binding)
                live |= set(free_vars(binding.value))
        block = relax.DataflowBlock(kept[::-1])
        body = self._builder.normalize(relax.SeqExpr([block], output))
        function = relax.Function(list(params), body, output.ty)
        return function.with_attr("global_symbol", name)

    def _unique(self, name: str) -> str:
        fresh, count = name, 1
        while fresh in self._names:
            count += 1
            fresh = f"{name}_{count}"
        self._names.add(fresh)
        return fresh
