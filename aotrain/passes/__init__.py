"""Relax in, kernels and an unplaced plan out; a graph pass a file, `pipeline.py` lists them."""

from aotrain.passes.graph import Kernel, KernelGraph
from aotrain.passes.pipeline import lower

__all__ = ["Kernel", "KernelGraph", "lower"]
