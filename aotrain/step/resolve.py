"""Model and loss options in, a `Loss` that suits the model out, or every reason why none does."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import chain, count

import numpy as np

from aotrain.errors import Diagnostic
from aotrain.importer.model import Model
from aotrain.ops.loss import wide
from aotrain.plan import TensorSpec
from aotrain.step.graph import Graph
from aotrain.step.loss import Loss
from aotrain.step.options import LossOptions, close_match
from aotrain.step.output import Logits, affine_axis, behind_sigmoid, behind_softmax, shape

FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class _Seen:
    """What the train function shows of the output: its own shape, and what stands behind it."""

    spec: TensorSpec
    softmax: Logits | None
    sigmoid: Logits | None
    affine: int | None


def resolve(model: Model, options: LossOptions) -> tuple[Loss | None, list[Diagnostic]]:
    """The loss, or None and what is wrong. `options` passed `options.check`."""
    index, problem = _find_output(model, options.output)
    if problem:
        return None, [problem]
    seen = _look(model, index)
    kind = _decide(model, seen) if options.kind == "auto" else options.kind
    batch = next((s.shape[0] for s in model.inputs if s.shape), 1)
    stray = _stray(kind, options)
    if stray:
        return None, stray
    loss = Loss(options, kind, index, seen.spec, batch)
    if kind == "cross-entropy":
        loss, problems = _cross_entropy(loss, seen)
    elif kind == "output":
        problems = []
    else:
        loss, problems = _pointwise(loss, seen)
    if problems:
        return None, problems
    loss = _with_target(model, loss)
    return replace(loss, notes=_notes(loss, seen)), []


_OWNERS = {
    "axis": ("--class-axis", "cross-entropy"),
    "ignore_index": ("--ignore-index", "cross-entropy"),
    "class_weights": ("--class-weights", "cross-entropy"),
    "label_smoothing": ("--label-smoothing", "cross-entropy"),
    "delta": ("--delta", "huber"),
    "pos_weight": ("--pos-weight", "bce-with-logits"),
}
"""Field of `LossOptions` -> its flag, and the only loss that it means something to."""


def _stray(kind: str, options: LossOptions) -> list[Diagnostic]:
    """Options that were given, but that a loss of `kind` would pass over in silence."""
    plain, problems = LossOptions(), []
    for name, (flag, owner) in _OWNERS.items():
        value, default = getattr(options, name), getattr(plain, name)
        given = value is not None if default is None else value != default
        if given and owner != kind:
            message = f"{flag} means nothing to {kind}"
            problems.append(Diagnostic("AOT-S008", message, hint=f"it belongs to {owner}"))
    return problems


def no_float_output(model: Model) -> list[Diagnostic]:
    """A model whose outputs are all integers or booleans has nothing to differentiate."""
    if any(spec.dtype in FLOATS for spec in model.outputs):
        return []
    where = f"outputs: {', '.join(map(_shown, model.outputs))}"
    message = "the model has no float output, so it has no loss"
    hint = "export it without what makes classes of its scores (ArgMax, TopK, Cast)"
    return [Diagnostic("AOT-S005", message, where, hint)]


def _find_output(model: Model, name: str | None) -> tuple[int, Diagnostic | None]:
    names = [o.name for o in model.outputs]
    if name is not None and name not in names:
        message = f"the model has no output '{name}' for the loss"
        return -1, Diagnostic("AOT-S005", message, hint=close_match(name, names))
    for index, spec in enumerate(model.outputs):
        if name in (None, spec.name) and spec.dtype in FLOATS:
            return index, None
    listed = ", ".join(_shown(o) for o in model.outputs)
    message = f"output '{name}' is not float, so it has no loss"
    return -1, Diagnostic("AOT-S005", message, f"outputs: {listed}")


def _look(model: Model, index: int) -> _Seen:
    graph = Graph()
    output = graph.inline(model.module["train"])[index]
    spec = TensorSpec(model.outputs[index].name, shape(output), str(output.ty.dtype))
    return _Seen(
        spec,
        behind_softmax(graph.values, output),
        behind_sigmoid(graph.values, output),
        affine_axis(graph.values, output),
    )


def _decide(model: Model, seen: _Seen) -> str:
    """`auto`: cross-entropy for softmax or logits, else MSE; a scalar is the loss itself.

    Logits are [N, C] or [N, C, 1, 1] made by an affine layer, or what it makes in a model whose
    inputs are tokens.
    """
    dims = seen.spec.shape
    if seen.softmax:
        return "cross-entropy"
    if not dims:
        return "output"
    tokens = all(s.dtype in ("int32", "int64") for s in model.inputs)
    flat = len(dims) >= 2 and math.prod(dims[2:]) == 1
    if seen.affine is not None and dims[seen.affine] > 1 and (flat or tokens):
        return "cross-entropy"
    return "mse"


def _cross_entropy(loss: Loss, seen: _Seen) -> tuple[Loss, list[Diagnostic]]:
    spec, options = seen.spec, loss.options
    rank = len(spec.shape)
    if not rank:
        message = f"cross-entropy needs a class axis, which the scalar '{spec.name}' lacks"
        return loss, [Diagnostic("AOT-S006", message, hint="--loss output takes it as the loss")]
    axis = options.axis if options.axis is not None else _default_axis(seen)
    if not -rank <= axis < rank:
        message = f"'{spec.name}' has no axis {axis} for the classes"
        return loss, [Diagnostic("AOT-S006", message, _shown(spec))]
    axis %= rank
    classes, problems = spec.shape[axis], []
    if classes < 2:
        message = f"cross-entropy over axis {axis} of '{spec.name}' has a single class"
        hint = "bce-with-logits suits one logit, mse a regression"
        problems.append(Diagnostic("AOT-S006", message, _shown(spec), hint))
    weights = options.class_weights
    if weights is not None and np.shape(weights) != (classes,):
        message = f"class weights have shape {list(np.shape(weights))}, not [{classes}]"
        problems.append(Diagnostic("AOT-S007", message, _shown(spec)))
    # A softmax over another axis than the classes is no part of the loss.
    through = seen.softmax is not None and seen.softmax.axis == axis
    return replace(loss, axis=axis, look_through=through), problems


def _default_axis(seen: _Seen) -> int:
    if seen.softmax:
        return seen.softmax.axis
    if seen.affine is not None:
        return seen.affine
    return min(1, len(seen.spec.shape) - 1)


def _pointwise(loss: Loss, seen: _Seen) -> tuple[Loss, list[Diagnostic]]:
    if loss.kind != "bce-with-logits":
        return loss, []
    problems, spec, weight = [], seen.spec, loss.options.pos_weight
    if weight is not None and not _broadcasts(np.shape(weight), spec.shape):
        message = f"pos_weight of shape {list(np.shape(weight))} does not broadcast to the output"
        problems.append(Diagnostic("AOT-S007", message, _shown(spec)))
    return replace(loss, look_through=seen.sigmoid is not None), problems


def _broadcasts(source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(source, target) == target
    except ValueError:
        return False


def _with_target(model: Model, loss: Loss) -> Loss:
    if loss.kind == "output":
        return loss
    specs = (*model.inputs, *model.outputs, *(p.spec for p in model.parameters + model.buffers))
    taken = {s.name for s in specs}
    names = chain(("y", "target", "labels"), (f"target_{i}" for i in count()))
    name = next(n for n in names if n not in taken)
    dims, dtype = loss.fed.shape, wide(loss.fed.dtype)
    if loss.kind == "cross-entropy":
        dims, dtype = dims[: loss.axis] + dims[loss.axis + 1 :], "int64"
    return replace(loss, target=TensorSpec(name, dims, dtype))


def _notes(loss: Loss, seen: _Seen) -> tuple[str, ...]:
    chosen = "loss (auto)" if loss.options.kind == "auto" else "loss"
    line = f"{chosen}: {loss.kind} of output '{loss.fed.name}' {_shown(loss.fed, name=False)}"
    if loss.kind == "cross-entropy":
        line += f", {loss.classes} classes on axis {loss.axis}"
    notes = [line]
    if loss.target is not None:
        notes.append(f"target: input {_shown(loss.target)}")
    if loss.look_through:
        ends = {"cross-entropy": seen.softmax, "bce-with-logits": seen.sigmoid}[loss.kind]
        activation = ends.op.rpartition(".")[2] if ends else ""
        notes.append(f"the loss takes the logits before the output's {activation}")
    if not loss.repeat:
        notes.append("the loss has no batch axis: eval counts every row, padded ones too")
    return tuple(notes)


def _shown(spec: TensorSpec, *, name: bool = True) -> str:
    dims = f"{spec.dtype}[{','.join(map(str, spec.shape))}]"
    return f"'{spec.name}' {dims}" if name else dims
