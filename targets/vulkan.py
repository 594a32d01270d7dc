"""Kernels for a GPU with Vulkan: PrimFuncs in, `kernels.so` with SPIR-V modules as data out.

vulkan       Vulkan 1.1 with the limits that every device guarantees
vulkan:1.1   the same

One artifact runs on all devices that have the features which its kernels use: 64-bit integers where
tensors are int64 (class indices, token ids, the step counter), 8-bit storage where they are bool.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from aotrain import runtime, toolchain
from aotrain.errors import Diagnostic, UnsupportedModelError, UsageError, raise_if_any
from aotrain.files import writing
from aotrain.plan import ITEM_BYTES
from aotrain.schedules import gpu
from aotrain.schedules.gpu import GpuKernel
from aotrain.targets.c_abi import Aliases
from aotrain.targets.cpu import TRIPLES, host_arch
from aotrain.targets.shader_table import ShaderKernel, shader_table
from aotrain.targets.spirv import emit

VERSIONS = ("1.1",)


@dataclass(frozen=True)
class VulkanTarget:
    """A version of Vulkan. The host's part of the artifact is for this machine's architecture."""

    version: str

    backend = "vulkan"

    @property
    def name(self) -> str:
        """The canonical spelling, as the manifest records it."""
        return f"vulkan:{self.version}"

    @property
    def triple(self) -> str:
        """The triple of the host, for the C compiler."""
        return TRIPLES[host_arch()]

    @cached_property
    def tvm(self) -> tvm.target.Target:
        """The target that Relax's passes see: for a host they give the plain bodies we schedule."""
        return tvm.target.Target({"kind": "llvm", "mtriple": self.triple})

    def legalize_map(self) -> dict[str, Any]:
        """Legalizations that the schedules ask for: none."""
        return {}

    def schedule(self, func: tirx.PrimFunc, choices: Sequence[Any] = ()) -> tuple[GpuKernel, str]:
        """A PrimFunc's dispatches, and the name of the rule that wrote its costliest part."""
        return gpu.schedule(func)

    def lower(self, kernels: Sequence[tuple[str, GpuKernel, Aliases]]) -> list[ShaderKernel]:
        """Dispatches -> SPIR-V. UnsupportedModelError AOT-K002 for what has no translation."""
        problems: list[Diagnostic] = []
        result = []
        for name, kernel, aliases in kernels:
            try:
                result.append(_lower(name, kernel, dict(aliases)))
            except UnsupportedModelError as error:
                problems += error.diagnostics
        raise_if_any(problems, UnsupportedModelError)
        return result

    def build(self, kernels: Sequence[ShaderKernel], output: Path) -> None:
        """The shaders of `kernels`, in order, as the shared object `output`.

        Raises ToolchainError when there is no C compiler to write it with.
        """
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder, "shader_table.c")
            with writing(table):
                table.write_text(shader_table(kernels))
            include = Path(runtime.__file__).parent
            toolchain.compile_shared(
                [table],
                output,
                target_triple=self.triple,
                flags=["-std=c11", f"-I{include}", "-s", "-Wl,--build-id=none"],
            )


def _lower(name: str, kernel: GpuKernel, aliases: dict[int, int]) -> ShaderKernel:
    position: dict[tirx.Buffer, int] = {}
    own = [i for i in range(len(kernel.params)) if i not in aliases]
    for i, buffer in enumerate(kernel.params):
        position[buffer] = own.index(aliases.get(i, i))
    for i, buffer in enumerate(kernel.temps):
        position[buffer] = len(own) + i
    shaders = [emit(dispatch, list(position)) for dispatch in kernel.dispatches]
    return ShaderKernel(
        name,
        tuple((s, tuple(position[buffer] for buffer in s.buffers)) for s in shaders),
        tuple(_nbytes(buffer) for buffer in kernel.temps),
    )


def _nbytes(buffer: tirx.Buffer) -> int:
    return prod(int(n) for n in buffer.shape) * ITEM_BYTES[str(buffer.dtype)]


def parse(argument: str) -> VulkanTarget:
    """`argument` is what follows "vulkan:", or "". Raises UsageError."""
    version = argument or VERSIONS[0]
    if version not in VERSIONS:
        message = f"no Vulkan version '{version}'"
        hint = f"versions: {', '.join(VERSIONS)}"
        raise UsageError(Diagnostic("AOT-U010", message, f"--target vulkan:{argument}", hint))
    return VulkanTarget(version)
