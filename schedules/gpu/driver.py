"""A fused PrimFunc in, its dispatches for a GPU and the name of the leading rule out.

    func -> stages (nest) -> copies inlined, pointwise runs joined (group) -> RULES

Each stage, or group of pointwise stages, becomes one or more dispatches by the first rule that
matches. No rule uses atomics: sums have one order, so that a run can be repeated bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TypeAlias

from tvm import tirx
from tvm.s_tir import SBlockRealize

from aotrain.schedules.cpu import nans, nest
from aotrain.schedules.cpu.group import Group, group, inline_copies
from aotrain.schedules.gpu import contraction, pointwise, reduction, serial
from aotrain.schedules.gpu.dispatch import Dispatch
from aotrain.schedules.gpu.kernel import GpuKernel

Part: TypeAlias = nest.Stage | Group
Written: TypeAlias = tuple[list[Dispatch], list[tirx.Buffer]]  # with the buffers they need

#: In order of trial; the first that returns dispatches has written the part.
RULES: list[tuple[str, Callable[[Part], Written | None]]] = [
    ("contraction", contraction.write),
    ("reduction", reduction.write),
    ("pointwise", pointwise.write),
    ("threads", serial.threads),
    ("serial", serial.single),
]


def schedule(func: tirx.PrimFunc) -> tuple[GpuKernel, str]:
    """Schedule a PrimFunc out of LegalizeOps, FuseOps and FuseTIR.

    Returns the kernel and the name of the rule that wrote its costliest part. Results are those of
    the function as it came, but for the order of float sums.
    """
    kernel = nest.parse(func)
    if kernel is None or any(_leaks(stage) for stage in kernel.stages):
        return _whole(func), "serial"
    kernel = inline_copies(kernel)
    dispatches: list[Dispatch] = []
    temps = list(kernel.temps)
    costs: list[tuple[int, str]] = []
    for part in group(kernel):
        name, (found, needed) = _first(part)
        dispatches += [replace(d, body=nans.keep(d.body)) for d in found]
        temps += needed
        costs.append((_cost(part), name))
    touched = nest.variables([d.body for d in dispatches])
    used = tuple(t for t in temps if t in touched)
    return GpuKernel(tuple(func.params), used, tuple(dispatches)), max(costs)[1]


def _first(part: Part) -> tuple[str, Written]:
    for name, rule in RULES:
        found = rule(part)
        if found is not None:
            return name, found
    raise AssertionError("the last rule takes everything")


def _leaks(stage: nest.Stage) -> bool:
    """Whether a later stage may use what this one binds: then they are one thread's work."""
    return isinstance(stage.loops, tirx.Bind)


def _whole(func: tirx.PrimFunc) -> GpuKernel:
    body, temps = func.body, ()
    if isinstance(body, SBlockRealize):
        body, temps = body.block.body, tuple(body.block.alloc_buffers)
    return GpuKernel(tuple(func.params), temps, (serial.alone("serial", body),))


def _cost(part: Part) -> int:
    stages = part.stages if isinstance(part, Group) else (part,)
    return sum(prod(a.extent for a in s.axes or ()) for s in stages)
