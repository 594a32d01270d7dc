"""A PrimFunc out of FuseTIR and a target in, the scheduled PrimFunc and its rule's name out."""

from aotrain.schedules.cpu.driver import candidates, legalize_map, schedule
from aotrain.schedules.cpu.tile import Choice

__all__ = ["Choice", "candidates", "legalize_map", "schedule"]
