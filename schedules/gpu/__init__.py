"""A PrimFunc out of FuseTIR in, its dispatches on a GPU and its rule's name out."""

from aotrain.schedules.gpu.driver import schedule
from aotrain.schedules.gpu.kernel import GpuKernel

__all__ = ["GpuKernel", "schedule"]
