"""What the step builder hands on: entry points as Relax over one named state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from aotrain.plan import Role, TensorSpec

if TYPE_CHECKING:
    import tvm

    from aotrain.importer.model import Origin


@dataclass(frozen=True)
class StateTensor:
    """A persistent tensor with its initial value: parameter, slot, buffer or counter.

    Parameters and buffers keep their ONNX names; slots are `optim.<slot>.<parameter>`; counters are
    `step` (int64 scalar) and `rng` (uint32[2] = seed, step).
    """

    name: str
    role: Role
    value: np.ndarray


@dataclass(frozen=True)
class EntryFunction:
    """How to call one function of the module, by name instead of by position.

    `params[i]` names the function's i-th parameter: a state tensor, a hyperparameter or an input.
    `results[i]` names the i-th field of the Tuple that it returns: the name of a state tensor means
    "becomes the new value of it", any other is an output.
    """

    name: str  # "train", "eval", "predict": also the name in the module
    params: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class TrainStep:
    """The whole step. `inputs` are the batch: the model's inputs, then the target if there is one.

    `train`   (state, hyper, inputs)       -> "loss", new state
    `eval`    (state, inputs, "rows")      -> "loss", and "correct", "count" for a classifier;
              `rows` (int32 scalar input): only the first so many rows of the batch count, so that a
              last short batch is padded without changing the result
    `predict` (state, the model's inputs)  -> the model's outputs, under their ONNX names

    `loss` is a float32 scalar, `correct` and `count` are int32 scalars.
    Hyperparameters are float32 scalars with their defaults (`lr`, `weight_decay`, ...).
    """

    module: tvm.IRModule
    entries: tuple[EntryFunction, ...]
    state: tuple[StateTensor, ...]
    inputs: tuple[TensorSpec, ...]
    hyper: dict[str, float]
    origins: dict[str, Origin] = field(default_factory=dict)
    labels: int | None = None  # number of classes, where the target holds class indices
    ignore_index: int | None = None  # the label that does not count, where there are labels
    notes: tuple[str, ...] = ()  # decisions to print: "loss (auto): cross-entropy of output ..."
