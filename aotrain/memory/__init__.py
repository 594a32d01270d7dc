"""A plan's launches ordered, run again where a budget asks for it, placed in bytes, and checked.

problem (what the solver sees) · order, remat (which launch runs when) · pack (where tensors lie)
· validate, equivalent (checks that share no code with these) · report. Imports no TVM.
"""

from aotrain.memory.cost import model_times
from aotrain.memory.pack import pack
from aotrain.memory.report import Report
from aotrain.memory.solve import Solution, solve
from aotrain.memory.validate import validate

__all__ = ["Report", "Solution", "model_times", "pack", "solve", "validate"]
