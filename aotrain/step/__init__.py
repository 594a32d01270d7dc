"""Model and options in, one training step out: losses, optimizers, entry points."""

from aotrain.step.build import build
from aotrain.step.options import LossOptions, OptimizerOptions, StepOptions
from aotrain.step.program import EntryFunction, StateTensor, TrainStep

__all__ = [
    "EntryFunction",
    "LossOptions",
    "OptimizerOptions",
    "StateTensor",
    "StepOptions",
    "TrainStep",
    "build",
]
