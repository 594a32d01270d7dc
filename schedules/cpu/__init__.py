"""A PrimFunc out of FuseTIR and a target in, the scheduled PrimFunc and its rule's name out."""

from aotrain.schedules.cpu.driver import legalize_map, schedule

__all__ = ["legalize_map", "schedule"]
