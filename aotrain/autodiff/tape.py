"""A Relax function in, its bindings as a list that grows: what reverse mode reads and writes.

Expressions are appended in A-normal form: every nested call gets a variable of its own, with a type
and a name that no other variable of the function has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

Memo = dict[relax.Expr, relax.Expr]


@dataclass(frozen=True)
class Step:
    """One binding `var = value`; a MatchCast reads as an alias."""

    var: relax.Var
    value: relax.Expr
    binding: relax.Binding


class Tape:
    """The bindings of a dataflow function, in order; `emit` appends."""

    def __init__(self, function: relax.Function) -> None:
        self.function = function
        self.steps: list[Step] = []
        self.builder = relax.BlockBuilder()
        if isinstance(function.body, relax.SeqExpr):
            for block in function.body.blocks:
                self.steps += [Step(b.var, b.value, b) for b in block.bindings]
            self._body = function.body.body
        else:
            self._body = function.body
        self.vars: dict[str, relax.Var] = {p.name: p for p in function.params}
        self.vars |= {s.var.name: s.var for s in self.steps}
        self.known = {*function.params, *(s.var for s in self.steps)}
        self.aliases: dict[str, relax.Var] = {}  # further names, which win

    def emit(self, expr: relax.Expr, name: str, memo: Memo) -> relax.Expr:
        """Bind `expr` (nested calls first) to `name`; leaves and Tuples of leaves stay as they are.

        `memo` remembers what was bound, so that an expression that occurs twice is bound once.
        """
        if expr in memo:
            return memo[expr]
        memo[expr] = result = self._emit(expr, name, memo)
        return result

    def _emit(self, expr: relax.Expr, name: str, memo: Memo) -> relax.Expr:
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.emit(f, f"{name}_{i}", memo) for i, f in enumerate(expr)])
        if isinstance(expr, relax.TupleGetItem):
            whole = self.emit(expr.tuple_value, f"{name}_all", memo)
            if isinstance(whole, relax.Tuple):
                return whole.fields[expr.index]
            return self.bind(relax.TupleGetItem(whole, expr.index), name)
        if not isinstance(expr, relax.Call):
            return expr
        args = [self.emit(a, f"{name}_{_short(a)}", memo) for a in expr.args]
        return self.bind(relax.Call(expr.op, args, expr.attrs, expr.ty_args), name)

    def find(self, var: str | relax.Var) -> relax.Var | None:
        """This variable of the function, else the one of this name, if there is one."""
        if isinstance(var, relax.Var):
            if var in self.known:
                return var
            var = var.name
        return self.aliases.get(var, self.vars.get(var))

    def bind(self, value: relax.Expr, name: str) -> relax.Var:
        """Append `name = value` under a fresh name; `value` has leaves as arguments only."""
        value = self.builder.normalize(value)
        var = relax.DataflowVar(self._fresh(name), value.ty)
        self.vars[var.name] = var
        self.known.add(var)
        self.steps.append(Step(var, value, relax.VarBinding(var, value)))
        return var

    def _fresh(self, name: str) -> str:
        candidate, n = name, 1
        while candidate in self.vars:
            candidate, n = f"{name}_{n}", n + 1
        return candidate

    def results(self) -> list[relax.Expr]:
        """The fields of the Tuple that the function returns; a bare result is a Tuple of one."""
        body = self._body
        values = {s.var: s.value for s in self.steps}
        while isinstance(body, relax.Var) and body in values:
            if isinstance(values[body], relax.Tuple | relax.Var):
                body = values[body]
            else:
                break
        return list(body.fields) if isinstance(body, relax.Tuple) else [body]

    def finish(self, extra: Sequence[relax.Expr]) -> relax.Function:
        """One dataflow block of all bindings, returning the old results and then `extra`."""
        value = self.builder.normalize(relax.Tuple(self.results() + list(extra)))
        result = relax.Var(self._fresh("results"), value.ty)
        bindings = [s.binding for s in self.steps] + [relax.VarBinding(result, value)]
        body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
        old = self.function
        return relax.Function(old.params, body, value.ty, old.is_pure, old.attrs)

    def depending_on(
        self, sources: Iterable[relax.Var], carries: Callable[[relax.Type], bool]
    ) -> set[relax.Var]:
        """Every variable that uses lead to from `sources`, through types that `carries` accepts."""
        reached = set(sources)
        for step in self.steps:
            if carries(step.var.ty) and any(leaf in reached for leaf in leaves(step.value)):
                reached.add(step.var)
        return reached


def leaves(value: relax.Expr) -> list[relax.Var]:
    """The variables that a bound value reads."""
    if isinstance(value, relax.Var):
        return [value]
    if isinstance(value, relax.Tuple):
        return [leaf for f in value.fields for leaf in leaves(f)]
    if isinstance(value, relax.TupleGetItem):
        return leaves(value.tuple_value)
    if isinstance(value, relax.Call):
        return [leaf for a in value.args for leaf in leaves(a)]
    return []


def _short(expr: relax.Expr) -> str:
    """The operator's last name, to tell intermediates apart: "where", "matmul"."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return expr.op.name.rpartition(".")[2]
    return "t"
