"""Parameters and their gradients in; updated parameters, slots and counters out.

    sgd         p <- p - lr (g + wd p)
    momentum    b <- mu b + (1 - dampening) (g + wd p), at first b = g + wd p;   p <- p - lr b
    nesterov    b <- mu b + g + wd p;                   p <- p - lr (g + wd p + mu b)
    adam        g + wd p in place of g;                 p <- p - lr m^ / (sqrt v^ + eps)
    adamw       p <- (1 - lr wd) p, then as Adam with g

as in `torch.optim`. The bias corrections of Adam are state, shared by all parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from aotrain.importer.model import Origin, Parameter
from aotrain.ops import optimizer as ops
from aotrain.plan import Role
from aotrain.step.graph import Graph
from aotrain.step.program import StateTensor

_ADAM_SHARED = (("optim.bias_correction1", "beta1"), ("optim.bias_correction2", "beta2"))


@dataclass(frozen=True)
class Rule:
    """An optimizer: its operator, its slots, the scalars of its operator in order."""

    update: Callable[..., relax.Call]
    slots: tuple[str, ...]
    scalars: tuple[str, ...]
    shared: tuple[tuple[str, str], ...] = ()  # bias corrections, and the beta of each


_ADAM = ("lr", "beta1", "beta2", "eps", "weight_decay", *(name for name, _ in _ADAM_SHARED))

RULES = {
    "sgd": Rule(ops.sgd, (), ("lr", "weight_decay")),
    "momentum": Rule(ops.momentum, ("momentum",), ("lr", "momentum", "weight_decay", "gain")),
    "nesterov": Rule(ops.nesterov, ("momentum",), ("lr", "momentum", "weight_decay")),
    "adam": Rule(ops.adam, ("m", "v"), _ADAM, _ADAM_SHARED),
    "adamw": Rule(ops.adamw, ("m", "v"), _ADAM, _ADAM_SHARED),
}


def slots(kind: str, trainable: Sequence[Parameter]) -> list[StateTensor]:
    """The optimizer's state before the first step: zeros, float32 for 16-bit parameters.

    Order: slot by slot, each over the parameters, then the bias corrections.
    """
    state = []
    for slot in RULES[kind].slots:
        for p in trainable:
            dtype = np.float64 if p.value.dtype == np.float64 else np.float32
            zeros = np.zeros(p.value.shape, dtype)
            state.append(StateTensor(f"optim.{slot}.{p.name}", Role.SLOT, zeros))
    zero = np.zeros((), np.float32)
    return state + [StateTensor(name, Role.SLOT, zero) for name, _ in RULES[kind].shared]


def emit_updates(
    graph: Graph,
    kind: str,
    env: dict[str, relax.Var],
    gradients: dict[str, relax.Expr],
) -> dict[str, relax.Expr]:
    """New values of the parameters named in `gradients` and of all slots, by state name.

    `env` holds the parameters, slots, counters and hyperparameters of the step by name.
    """
    rule, new = RULES[kind], {}
    graph.origin = Origin("Optimizer", kind)
    for name, beta in rule.shared:
        new[name] = graph.emit(ops.bias_correction(env[name], env[beta]), f"new.{name}")
    scalars = {**env, **new}
    if "gain" in rule.scalars:
        gain = ops.momentum_gain(env["step"], env["dampening"])
        scalars["gain"] = graph.emit(gain, "optim.gain")
    for name, gradient in gradients.items():
        graph.origin = Origin(f"Optimizer {kind}", name)
        state = [name, *(f"optim.{slot}.{name}" for slot in rule.slots)]
        values = [env[s] for s in state]
        call = rule.update(values[0], gradient, *values[1:], *(scalars[s] for s in rule.scalars))
        whole = graph.emit(call, f"update.{name}")
        for index, s in enumerate(state):
            field = relax.TupleGetItem(whole, index)
            new[s] = graph.emit(field, f"new.{s}") if rule.slots else whole
    return new
