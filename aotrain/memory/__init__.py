"""A plan's tensors placed in one block of bytes, and the placement checked. Imports no TVM."""

from aotrain.memory.order import order
from aotrain.memory.pack import pack
from aotrain.memory.validate import validate

__all__ = ["order", "pack", "validate"]
