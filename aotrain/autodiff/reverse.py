"""A dataflow function and requests in, the same function with the gradients appended out.

    f(x, w) = (loss,)    Request("loss", (w,))    →    f(x, w) = (loss, d_w)

Reverse mode (Griewank & Walther, Evaluating Derivatives, ch. 3): bindings are visited from the
value back to what it is differentiated by, each turning the cotangent of its result into
cotangents of its arguments by the rule in `vjp.RULES`; several uses of a variable add up. Only
bindings on a path from a `wrt` to the value are visited, so the input gradient of a first layer is
never computed. New variables are called `d_<variable>`, intermediate ones with the operator's name
behind.

Not handled: control flow, calls of other functions, Tuples within Tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax

from aotrain.autodiff import rules  # noqa: F401  fills the table
from aotrain.autodiff.tape import Step, Tape
from aotrain.autodiff.vjp import (
    Gradient,
    Gradients,
    NoGradientError,
    Vjp,
    dtype,
    find_rule,
    is_float,
    shape,
)
from aotrain.errors import Diagnostic, UnsupportedModelError, UsageError, raise_if_any

if TYPE_CHECKING:
    from aotrain.importer.model import Origin


@dataclass(frozen=True)
class Request:
    """Ask for d `value` / d w for every w of `wrt`, in order.

    `value`: a float result of the function with one element, or any variable bound in it.
    `wrt`: parameters or bound variables. Either may name the gradient of an earlier request, `d_x`
    for the one by `x` (the latest, where several were asked for): gradients of gradients.
    """

    value: str | relax.Var
    wrt: tuple[relax.Var | str, ...]


def differentiate(
    function: relax.Function,
    requests: Sequence[Request],
    *,
    origins: Mapping[str, Origin] | None = None,
    inherited: MutableMapping[str, Origin] | None = None,
) -> relax.Function:
    """Append the gradients that `requests` name to the Tuple that `function` returns.

    The result returns (*results, *gradients): request by request, each gradient with the shape and
    dtype of its `wrt`, zeros where no path leads to the value. Dead bindings are dropped and equal
    ones merged.

    `origins` maps variable names to ONNX nodes, for messages; `inherited` receives the node behind
    every variable that differentiation adds: that of the forward call whose rule made it.

    Raises:
        UsageError: a request names no variable, a non-scalar value or a non-float (AOT-G00[45]).
        UnsupportedModelError: every call on the way that has no gradient (AOT-G00[123]).
    """
    tape = Tape(function)
    gradients: list[relax.Expr] = []
    problems = _control_flow(tape, origins or {})
    raise_if_any(problems, UnsupportedModelError)
    swept: dict[relax.Var, dict[relax.Var, relax.Expr]] = {}
    for request in requests:
        value = _find_value(tape, request.value)
        wrt = [_find_wrt(tape, w) for w in request.wrt]
        if value not in swept:
            asked = [w for r in requests if tape.find(r.value) == value for w in r.wrt]
            known = [_find_wrt(tape, w) for w in asked if tape.find(w) is not None]
            sweep = _Sweep(tape, value, known, origins or {}, inherited)
            swept[value] = sweep.run()
            problems += sweep.problems
        gradients += [swept[value][w] for w in wrt]
    raise_if_any(problems, UnsupportedModelError)
    return _clean(tape.finish(gradients))


def differentiable(call: relax.Call) -> str | None:
    """Why `call`, with typed arguments, has no gradient; None when it has one.

    The call is tried as if a gradient of every float argument that is not a constant were needed.
    """
    tape = Tape(relax.Function([], relax.Tuple([]), is_pure=True))
    call = tape.builder.normalize(call)
    y = relax.Var("y", call.ty)
    need = tuple(not isinstance(a, tvm.ir.GenericConst) and is_float(a.ty) for a in call.args)
    count = len(y.ty.fields) if isinstance(y.ty, tvm.ir.TupleType) else 1
    fields = y.ty.fields if isinstance(y.ty, tvm.ir.TupleType) else [y.ty]
    cotangents = tuple(relax.Var(f"dy{i}", fields[i]) for i in range(count))

    def bind(gradients: Gradients) -> None:
        for gradient, needed in zip(gradients, need, strict=True):
            if needed and gradient is not None:
                parts = gradient if isinstance(gradient, Sequence) else [gradient]
                for part in parts:
                    tape.emit(part, "d", {})

    try:
        _pull_back(Vjp(call, y, cotangents, need), bind)
    except NoGradientError as refusal:
        return str(refusal)
    return None


def _pull_back(v: Vjp, bind: Callable[[Gradients], None]) -> None:
    """Bind the rule's gradients; NoGradientError with a reason when there are none."""
    if not isinstance(v.call.op, tvm.ir.Op):
        raise NoGradientError("is a function, whose calls are not differentiated", "AOT-G003")
    found = find_rule(v.call.op)
    if found is None:
        raise NoGradientError("has no gradient rule", "AOT-G001")
    try:
        bind(found(v))
    except NoGradientError:
        raise
    except Exception as error:  # whatever a rule, of TVM's or ours, trips over
        message = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise NoGradientError(f"has a gradient rule that fails: {message}") from error


class _Sweep:
    """One reverse pass: from `value` to all of `wrt`."""

    def __init__(
        self,
        tape: Tape,
        value: relax.Var,
        wrt: Sequence[relax.Var],
        origins: Mapping[str, Origin],
        inherited: MutableMapping[str, Origin] | None,
    ) -> None:
        self.tape, self.value, self.wrt = tape, value, wrt
        self.origins, self.inherited = origins, inherited
        self.active = tape.depending_on(wrt, is_float)
        self.problems: list[Diagnostic] = []
        # variable -> index of the Tuple field (0 for a tensor) -> cotangent so far
        self.cotangents: dict[relax.Var, dict[int, relax.Expr]] = {}

    def run(self) -> dict[relax.Var, relax.Expr]:
        """The gradient of `value` by each of `wrt`."""
        if self.value in self.active:
            one = relax.const(1.0, dtype(self.value))
            dims = shape(self.value)
            self._add(self.value, 0, relax.op.broadcast_to(one, dims) if dims else one, {})
        for step in reversed(list(self.tape.steps)):
            if step.var in self.active and step.var in self.cotangents:
                before = len(self.tape.steps)
                self._visit(step)
                self._inherit(step, before)
        found = {w: self._result(w) for w in self.wrt}
        self.tape.aliases |= {f"d_{w.name}": g for w, g in found.items()}
        return found

    def _visit(self, step: Step) -> None:
        found, value = self.cotangents[step.var], step.value
        if isinstance(value, relax.Call):
            self._visit_call(step, value)
        elif isinstance(value, relax.Var):
            for index, cotangent in found.items():
                self._add(value, index, cotangent, {})
        elif isinstance(value, relax.Tuple):
            for index, cotangent in found.items():
                self._give(value.fields[index], cotangent, {})
        elif isinstance(value, relax.TupleGetItem):
            if isinstance(value.tuple_value, relax.Var):
                self._add(value.tuple_value, value.index, found[0], {})
            else:
                self._give(value.tuple_value.fields[value.index], found[0], {})
        else:
            assert isinstance(value, tvm.ir.GenericConst), f"unknown binding {value}"

    def _visit_call(self, step: Step, call: relax.Call) -> None:
        fields = step.var.ty.fields if isinstance(step.var.ty, tvm.ir.TupleType) else [step.var.ty]
        found = self.cotangents[step.var]
        cotangents = tuple(found.get(i) for i in range(len(fields)))
        need = tuple(self._needs(a) for a in call.args)
        memo: dict[relax.Expr, relax.Expr] = {}

        def bind(gradients: Gradients) -> None:
            for arg, gradient in zip(call.args, gradients, strict=True):
                self._give(arg, gradient, memo)

        try:
            _pull_back(Vjp(call, step.var, cotangents, need), bind)
        except NoGradientError as refusal:
            self._refuse(step, call, refusal)

    def _refuse(self, step: Step, call: relax.Call, refusal: NoGradientError) -> None:
        """Report, and go on as if the gradient were zero, to find every problem at once."""
        names = ("name", "name_hint", "global_symbol")
        name = next((getattr(call.op, n) for n in names if hasattr(call.op, n)), "this")
        self._report(refusal.code, step.var, f"{name} {refusal}")
        for arg in call.args:
            if self._needs(arg):
                self._give(arg, _zeros(arg.ty), {})

    def _report(self, code: str, var: relax.Var, message: str) -> None:
        origin = self.origins.get(var.name)
        where = str(origin) if origin else f"variable '{var.name}'"
        hint = "freeze the parameters before this node, or leave it out of the path to the loss"
        self.problems.append(Diagnostic(code, message, where, hint))

    def _needs(self, arg: relax.Expr) -> bool:
        if isinstance(arg, relax.Tuple):
            return any(self._needs(f) for f in arg.fields)
        return isinstance(arg, relax.Var) and arg in self.active

    def _give(self, arg: relax.Expr, gradient: Gradient, memo: dict) -> None:
        """Add `gradient` to the cotangent of an argument: a variable, or a Tuple of them."""
        if not self._needs(arg) or gradient is None:
            return
        if isinstance(arg.ty, relax.TensorType):
            self._add(arg, 0, gradient, memo)
            return
        for index in range(len(arg.ty.fields)):
            if isinstance(gradient, relax.Expr):
                part = relax.TupleGetItem(gradient, index)
            else:
                part = gradient[index]
            if part is None:
                continue
            if isinstance(arg, relax.Tuple):
                self._give(arg.fields[index], part, memo)
            elif is_float(arg.ty.fields[index]):
                self._add(arg, index, part, memo)

    def _add(self, var: relax.Var, index: int, gradient: relax.Expr, memo: dict) -> None:
        name = f"d_{var.name}"
        new = self.tape.emit(gradient, name, memo)
        fields = self.cotangents.setdefault(var, {})
        if index in fields:
            new = self.tape.emit(relax.op.add(fields[index], new), f"{name}_sum", {})
        fields[index] = new

    def _result(self, w: relax.Var) -> relax.Expr:
        found = self.cotangents.get(w, {}).get(0)
        if found is None:
            found = _zeros(w.ty)
        result = self.tape.emit(found, f"d_{w.name}", {})
        return result if isinstance(result, relax.Var) else self.tape.bind(result, f"d_{w.name}")

    def _inherit(self, step: Step, before: int) -> None:
        origin = self.origins.get(step.var.name) or (self.inherited or {}).get(step.var.name)
        if self.inherited is not None and origin is not None:
            self.inherited.update({s.var.name: origin for s in self.tape.steps[before:]})


def _zeros(ty: relax.Type) -> Any:
    """A zero gradient of this type: of a Tuple, the list of its fields'."""
    if isinstance(ty, tvm.ir.TupleType):
        return [_zeros(f) if is_float(f) else None for f in ty.fields]
    return relax.op.zeros(ty.shape, dtype(ty))


def _control_flow(tape: Tape, origins: Mapping[str, Origin]) -> list[Diagnostic]:
    branches = [s.var.name for s in tape.steps if isinstance(s.value, relax.If)]
    message = "a branch (If) is not differentiated"
    return [
        Diagnostic("AOT-G003", message, str(origins.get(name, f"variable '{name}'")))
        for name in branches
    ]


def _find_value(tape: Tape, value: str | relax.Var) -> relax.Var:
    name = value if isinstance(value, str) else value.name
    var = tape.find(value)
    if var is None:
        message = f"no variable '{name}' to differentiate"
        raise UsageError(Diagnostic("AOT-G004", message))
    if not is_float(var.ty) or not isinstance(var.ty, relax.TensorType):
        raise UsageError(Diagnostic("AOT-G004", f"'{name}' is not a float tensor: {var.ty}"))
    if any(d != 1 for d in shape(var)):
        message = f"'{name}' has shape {list(shape(var))}, but only one element has a gradient"
        raise UsageError(Diagnostic("AOT-G004", message, hint="reduce it with a sum or a mean"))
    return var


def _find_wrt(tape: Tape, wrt: relax.Var | str) -> relax.Var:
    name = wrt if isinstance(wrt, str) else wrt.name
    var = tape.find(wrt)
    if var is None or not isinstance(var.ty, relax.TensorType) or not is_float(var.ty):
        kind = "no such variable" if var is None else f"not a float tensor: {var.ty}"
        raise UsageError(
            Diagnostic("AOT-G005", f"nothing to differentiate by at '{name}' ({kind})")
        )
    return var


def _clean(function: relax.Function) -> relax.Function:
    """Drop what no result needs, merge equal calls."""
    module = tvm.IRModule({"main": function})
    drop, merge = (
        relax.transform.DeadCodeElimination(["main"]),
        relax.transform.EliminateCommonSubexpr(),
    )
    return drop(merge(drop(module)))["main"]
