"""What lowering hands on: kernels as PrimFuncs and an unplaced plan of their launches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from aotrain.plan import Plan

if TYPE_CHECKING:
    from tvm import tirx

Aliases = tuple[tuple[int, int], ...]
"""Pairs (output position, input position) of a PrimFunc's parameters that share their bytes."""


@dataclass(frozen=True)
class Kernel:
    """A PrimFunc as legalised and fused, before its schedule.

    Launches pass its parameters in order, less those outputs that `aliases` puts over an input.
    """

    name: str
    func: tirx.PrimFunc
    aliases: Aliases = ()


@dataclass(frozen=True)
class KernelGraph:
    """`plan` has no offsets yet and its kernels are `kernels`, in order.

    `constants` maps indices of CONSTANT tensors to their values.
    """

    kernels: tuple[Kernel, ...]
    plan: Plan
    constants: dict[int, np.ndarray] = field(default_factory=dict)
