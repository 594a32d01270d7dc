"""A model in, what keeps it from being trained out: nothing trainable, names that clash.

An entry point's parameters and results are told apart by name alone, so that a parameter called
"loss" could not be told from the loss.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotrain.errors import Diagnostic
from aotrain.importer.model import Model
from aotrain.plan import Role

ROWS = "rows"
"""The scalar input of `eval`."""

STATE = frozenset({"step", "rng"})
"""Counters; with slots and hyperparameters, what every entry point shares."""

RESERVED = STATE | {"loss", "correct", "count", ROWS}


def check_model(model: Model, hyper: Iterable[str]) -> list[Diagnostic]:
    """Every problem of the model itself, with an optimizer whose scalars are called `hyper`."""
    problems, reserved = [], RESERVED | set(hyper)
    if all(p.role is not Role.TRAINABLE for p in model.parameters):
        message = f"model '{model.name}' has no trainable parameter"
        hint = "name what to train with --trainable GLOB"
        if not model.parameters:
            message, hint = f"model '{model.name}' holds no float weight that could be trained", ""
        problems.append(Diagnostic("AOT-S001", message, hint=hint))
    state = {p.name for p in (*model.parameters, *model.buffers)}
    groups = {"an input": [s.name for s in model.inputs], "a weight": sorted(state)}
    for kind, names in groups.items():
        for name in names:
            if name in reserved or name.startswith("optim."):
                message = f"'{name}' is {kind} of the model, and a name that the training step uses"
                problems.append(Diagnostic("AOT-S010", message, hint="rename it in the ONNX file"))
    for spec in model.outputs:
        if spec.name in state:
            message = f"output '{spec.name}' of the model is a weight, which predict cannot return"
            hint = "add an Identity node before the output"
            problems.append(Diagnostic("AOT-S010", message, hint=hint))
        elif spec.name in STATE | set(hyper) or spec.name.startswith("optim."):
            message = f"output '{spec.name}' of the model has a name that the training step uses"
            problems.append(Diagnostic("AOT-S010", message, hint="rename it in the ONNX file"))
    return problems
