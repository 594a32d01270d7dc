"""What a user may choose of a training step, checked without looking at a model."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from aotrain.errors import Diagnostic

LOSSES = ("auto", "cross-entropy", "mse", "l1", "huber", "bce-with-logits", "output")
REDUCTIONS = ("mean", "sum")


@dataclass(frozen=True)
class LossOptions:
    """A loss, with the meaning and the defaults that `torch.nn.functional` gives it.

    `output` names the model's output that feeds the loss; the default is the first float one.
    Cross-entropy alone: `axis` of the classes (default: that of the model's own softmax, the last
    after a matrix product, else 1), `ignore_index`, `class_weights` [C], `label_smoothing`.
    Huber alone: `delta`. BCE alone: `pos_weight`, which broadcasts to the output.
    """

    kind: str = "auto"
    output: str | None = None
    axis: int | None = None
    ignore_index: int = -100
    class_weights: np.ndarray | None = None
    label_smoothing: float = 0.0
    reduction: str = "mean"
    delta: float = 1.0
    pos_weight: np.ndarray | None = None


DEFAULT_HYPER: dict[str, dict[str, float]] = {
    "sgd": {"lr": 1e-3, "weight_decay": 0.0},
    "momentum": {"lr": 1e-3, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0},
    "nesterov": {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.0},
    "adam": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0},
    "adamw": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 1e-2},
}
"""Optimizer -> its hyperparameters; the values are those of `torch.optim`, and 0.9 for momentum."""

HYPER_RANGE: dict[str, tuple[float, float]] = {
    "lr": (0.0, np.inf), "momentum": (0.0, np.inf), "dampening": (-np.inf, np.inf),
    "weight_decay": (0.0, np.inf), "beta1": (0.0, 1.0), "beta2": (0.0, 1.0), "eps": (0.0, np.inf),
}  # fmt: skip
"""Hyperparameter -> least value, and the bound that it stays below."""


@dataclass(frozen=True)
class OptimizerOptions:
    """An optimizer of `DEFAULT_HYPER`; `hyper` overrides the defaults of its scalars."""

    kind: str = "adamw"
    hyper: Mapping[str, float] = field(default_factory=dict)

    def resolved(self) -> dict[str, float]:
        """Every hyperparameter of the optimizer with its default value at run time."""
        return {**DEFAULT_HYPER[self.kind], **{k: float(v) for k, v in self.hyper.items()}}


@dataclass(frozen=True)
class StepOptions:
    """All choices; `seed` starts the random numbers of dropout (0 <= seed < 2^32)."""

    loss: LossOptions = LossOptions()
    optimizer: OptimizerOptions = OptimizerOptions()
    seed: int = 0


def check(options: StepOptions) -> list[Diagnostic]:
    """Every problem that shows without a model."""
    problems = _check_loss(options.loss) + _check_optimizer(options.optimizer)
    if not isinstance(options.seed, int) or not 0 <= options.seed < 2**32:
        problems.append(Diagnostic("AOT-S008", f"seed {options.seed} is not in [0, 2^32)"))
    return problems


def close_match(word: str, known: Iterable[str]) -> str:
    """A hint: the nearest of `known`, and all of them."""
    known = list(known)
    lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(word.lower(), lower, 1)
    nearest = f"did you mean '{lower[found[0]]}'? " if found else ""
    return f"{nearest}known: {', '.join(known)}"


def _check_loss(loss: LossOptions) -> list[Diagnostic]:
    problems = []
    if loss.kind not in LOSSES:
        hint = close_match(loss.kind, LOSSES)
        problems.append(Diagnostic("AOT-S004", f"unknown loss '{loss.kind}'", hint=hint))
    if loss.reduction not in REDUCTIONS:
        hint = close_match(loss.reduction, REDUCTIONS)
        problems.append(Diagnostic("AOT-S008", f"unknown reduction '{loss.reduction}'", hint=hint))
    if not 0.0 <= loss.label_smoothing <= 1.0:
        message = f"label smoothing {loss.label_smoothing} is not in [0, 1]"
        problems.append(Diagnostic("AOT-S008", message))
    if not -(2**63) <= loss.ignore_index < 2**63:
        message = f"the ignored label {loss.ignore_index} is no int64"
        problems.append(Diagnostic("AOT-S008", message))
    if not loss.delta > 0.0:
        message = f"the delta of the Huber loss is {loss.delta}, not positive"
        problems.append(Diagnostic("AOT-S008", message))
    return problems


def _check_optimizer(optimizer: OptimizerOptions) -> list[Diagnostic]:
    if optimizer.kind not in DEFAULT_HYPER:
        hint = close_match(optimizer.kind, DEFAULT_HYPER)
        return [Diagnostic("AOT-S002", f"unknown optimizer '{optimizer.kind}'", hint=hint)]
    problems, known = [], DEFAULT_HYPER[optimizer.kind]
    for name, value in optimizer.hyper.items():
        if name not in known:
            message = f"{optimizer.kind} has no hyperparameter '{name}'"
            hint = close_match(name, known)
            owners = [k for k, defaults in DEFAULT_HYPER.items() if name in defaults]
            hint += f"; optimizers with '{name}': {', '.join(owners)}" if owners else ""
            problems.append(Diagnostic("AOT-S003", message, hint=hint))
            continue
        least, bound = HYPER_RANGE[name]
        if not isinstance(value, int | float | np.number) or not least <= value < bound:
            message = f"{name} = {value} of {optimizer.kind} is not in [{least}, {bound})"
            problems.append(Diagnostic("AOT-S003", message))
    return problems
