"""Tensors and kernels of all entries in, numbered once each, a `KernelGraph` out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx

from aotrain.passes.graph import Aliases, Kernel, KernelGraph
from aotrain.plan import Entry, Kind, Plan, Role, Tensor


class Table:
    """Tensors and kernels of all entries, each known once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.kernels: list[Kernel] = []
        self.constants: dict[int, np.ndarray] = {}
        self.named: dict[str, int] = {}
        self._constant_index: dict[tuple[Any, ...], int] = {}
        self._kernel_index: dict[Any, int] = {}

    def add(self, tensor: Tensor) -> int:
        """A new tensor's index."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def persistent(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        *,
        kind: Kind = Kind.STATE,
        role: Role | None = None,
        default: float | None = None,
    ) -> int:
        """The tensor that a user calls `name`, made on first mention."""
        if name not in self.named:
            self.named[name] = self.add(Tensor(name, shape, dtype, kind, role, "", default))
        return self.named[name]

    def constant(self, value: np.ndarray) -> int:
        """The CONSTANT tensor that holds `value`; equal values share one."""
        key = (value.shape, value.dtype.name, value.tobytes())
        if key not in self._constant_index:
            name = f"constant.{len(self.constants)}"
            index = self.add(Tensor(name, value.shape, value.dtype.name, Kind.CONSTANT))
            self._constant_index[key] = index
            self.constants[index] = value
        return self._constant_index[key]

    def kernel(self, name: str, func: tirx.PrimFunc, aliases: Aliases) -> int:
        """The kernel of `func`; structurally equal ones are one."""
        key = (tvm_ffi.StructuralKey(func.without_attr("global_symbol")), aliases)
        if key not in self._kernel_index:
            self._kernel_index[key] = len(self.kernels)
            self.kernels.append(Kernel(f"k{len(self.kernels)}_{name}"[:60], func, aliases))
        return self._kernel_index[key]

    def graph(self, entries: Sequence[Entry]) -> KernelGraph:
        """All of it, less the tensors that no entry mentions and nobody outside can name."""
        used = set(self.named.values())
        for entry in entries:
            used.update(i for launch in entry.launches for i in launch.args)
        kept = sorted(used)
        number = {old: new for new, old in enumerate(kept)}
        plan = Plan(
            tuple(self.tensors[i] for i in kept),
            tuple(kernel.name for kernel in self.kernels),
            tuple(_renumber(entry, number) for entry in entries),
        )
        constants = {number[i]: v for i, v in self.constants.items() if i in number}
        return KernelGraph(tuple(self.kernels), plan, constants)


def _renumber(entry: Entry, number: dict[int, int]) -> Entry:
    launches = tuple(
        replace(launch, args=tuple(number[i] for i in launch.args)) for launch in entry.launches
    )
    inputs = tuple(number[i] for i in entry.inputs)
    return Entry(entry.name, launches, inputs, tuple(number[i] for i in entry.outputs))
