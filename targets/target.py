"""What the compiler asks of every target; `cpu.py` and `vulkan.py` are two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import tvm
from tvm import tirx


class LoweredKernel(Protocol):
    """A kernel as the plan sees it."""

    @property
    def scratch(self) -> tuple[int, ...]:
        """Bytes of the tensors that it needs beyond its own arguments, which follow them."""

    @property
    def thread_scratch(self) -> int:
        """Bytes that one task may push on its thread's scratch stack."""


class Target(Protocol):
    """A machine. Kernels go through `schedule`, `lower` and `build`, each in its own form."""

    backend: str  # the loader's: a key of runtime.building.BACKENDS

    @property
    def name(self) -> str:
        """The canonical spelling, as the manifest records it."""

    @property
    def triple(self) -> str:
        """The triple of the host, for the C compiler."""

    @property
    def tvm(self) -> tvm.target.Target:
        """The TVM target that Relax's passes read."""

    def legalize_map(self) -> dict[str, Any]:
        """Legalizations for `relax.transform.LegalizeOps` that the schedules ask for."""

    def schedule(self, func: tirx.PrimFunc, choices: Sequence[Any] = ()) -> tuple[Any, str]:
        """A PrimFunc out of FuseTIR -> its scheduled form, and the leading rule's name.

        `choices` are what `aotrain tune` found for it.
        """

    def lower(self, kernels: Sequence[tuple[str, Any, Any]]) -> Sequence[LoweredKernel]:
        """(name, scheduled form, aliases) -> what `build` takes, with the scratch that it needs."""

    def build(self, kernels: Sequence[Any], output: Path) -> None:
        """The kernels, in order, as `kernels.so`. Raises ToolchainError."""
