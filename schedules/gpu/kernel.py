"""What `schedule` makes of a PrimFunc: its dispatches in order, and the buffers between them."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from aotrain.schedules.gpu.dispatch import Dispatch


@dataclass(frozen=True)
class GpuKernel:
    """`dispatches` run in order, each after the one before is done.

    params: the PrimFunc's buffers. temps: buffers in device memory, between dispatches.
    """

    params: tuple[tirx.Buffer, ...]
    temps: tuple[tirx.Buffer, ...]
    dispatches: tuple[Dispatch, ...]

    def __str__(self) -> str:
        return "\n".join(str(d) for d in self.dispatches)
