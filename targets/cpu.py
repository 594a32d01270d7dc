"""Kernels for a CPU: scheduled PrimFuncs in, `kernels.so` with one launch table out.

cpu                    this machine
cpu:NAME               an LLVM processor name of this machine's architecture (haswell, znver4)
cpu:x86_64[,NAME]      a generic processor of an architecture, or one of its processors
cpu:aarch64[,NAME]
"""

from __future__ import annotations

import difflib
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from aotrain import runtime, toolchain
from aotrain.errors import Diagnostic, UsageError
from aotrain.files import writing
from aotrain.schedules import cpu
from aotrain.targets import c_abi
from aotrain.targets.launch_table import launch_table

TRIPLES = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
GENERIC = {"x86_64": "x86-64-v3", "aarch64": "generic"}


@dataclass(frozen=True)
class CpuTarget:
    """A processor. `arch` is "x86_64" or "aarch64", `processor` an LLVM name."""

    arch: str
    processor: str

    backend = "cpu"

    @property
    def name(self) -> str:
        """The canonical spelling, as the manifest records it."""
        return f"cpu:{self.arch},{self.processor}"

    @property
    def triple(self) -> str:
        """The triple for the C compiler and LLVM."""
        return TRIPLES[self.arch]

    @cached_property
    def tvm(self) -> tvm.target.Target:
        """The TVM target that schedules and code generation read."""
        config = {"kind": "llvm", "mtriple": self.triple, "mcpu": self.processor}
        return tvm.target.Target(config)

    def legalize_map(self) -> dict[str, Any]:
        """Legalizations that the schedules ask for."""
        return cpu.legalize_map(self.tvm)

    def schedule(
        self, func: tirx.PrimFunc, choices: Sequence[cpu.Choice] = ()
    ) -> tuple[tirx.PrimFunc, str]:
        """A PrimFunc with its loops scheduled, and the name of its costliest part's rule."""
        return cpu.schedule(func, self.tvm, choices)

    def lower(
        self, kernels: Sequence[tuple[str, tirx.PrimFunc, c_abi.Aliases]]
    ) -> list[c_abi.CKernel]:
        """Scheduled PrimFuncs -> C functions, with the scratch that each needs."""
        return c_abi.lower(kernels, self.tvm)

    def build(self, kernels: Sequence[c_abi.CKernel], output: Path) -> None:
        """Machine code and launch table of `kernels`, in order, as the shared object `output`.

        Raises ToolchainError when there is no C compiler to link with.
        """
        module = tvm.IRModule({kernel.symbol: kernel.func for kernel in kernels})
        code = tvm.get_global_func("target.build.llvm")(module, self.tvm)
        with tempfile.TemporaryDirectory() as folder:
            objects, table = Path(folder, "kernels.o"), Path(folder, "launch_table.c")
            with writing(objects):
                objects.write_bytes(_machine_code(code))
                table.write_text(launch_table(kernels))
            include = Path(runtime.__file__).parent
            toolchain.compile_shared(
                [table, objects],
                output,
                target_triple=self.triple,
                flags=["-std=c11", "-O2", f"-I{include}", "-s", "-Wl,--build-id=none", "-lm"],
            )


def _machine_code(code: tvm.runtime.Module) -> bytes:
    """An object file, written to memory: where a disk is full, LLVM would end the process."""
    with os.fdopen(os.memfd_create("kernels.o"), "rb") as file:
        code.write_to_file(f"/proc/self/fd/{file.fileno()}", "o")
        return file.read()


def parse(argument: str) -> CpuTarget:
    """`argument` is what follows "cpu:", or "" for this machine. Raises UsageError."""
    host = host_arch()
    if not argument:
        return CpuTarget(host, str(_llvm("llvm_get_system_cpu")()))
    arch, _, processor = argument.partition(",")
    if arch not in TRIPLES:
        arch, processor = host, argument
    processor = processor or GENERIC[arch]
    known = [str(name) for name in _llvm("llvm_get_cpu_archlist")(_probe(arch))]
    if processor not in known:
        close = difflib.get_close_matches(processor, [*known, *TRIPLES], n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "run `aotrain targets`"
        message = f"no {arch} processor is called '{processor}'"
        raise UsageError(Diagnostic("AOT-U010", message, f"--target cpu:{argument}", hint))
    return CpuTarget(arch, processor)


def host_arch() -> str:
    """This machine's architecture, by LLVM's name."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def _probe(arch: str) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mtriple": TRIPLES[arch]})


def _llvm(name: str) -> Any:
    return tvm.get_global_func(f"target.{name}")
