"""`aotrain doctor`: this machine in; what works, what is missing and what to do about it out."""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata

import click

from aotrain.errors import AotError, ExitCode
from aotrain.units import human_bytes

from .base import define
from .console import Console


@dataclass(frozen=True)
class Finding:
    """One line of the report. Only a `needed` one that is not `ok` fails the command."""

    name: str
    ok: bool
    detail: str
    hint: str = ""
    needed: bool = True


def release(version: str) -> tuple[int, ...]:
    """`0.1.14.post1` -> (0, 1, 14): the numbers that a pin looks at."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def python() -> Finding:
    """The interpreter's version."""
    ok = (3, 10) <= sys.version_info[:2] < (3, 14)
    detail = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    return Finding("Python", ok, detail, "" if ok else "aotrain needs Python 3.10 to 3.13")


def package(name: str, least: tuple[int, ...], below: tuple[int, ...] = (1 << 30,)) -> Finding:
    """An installed distribution whose version is in [least, below)."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", "install aotrain again: pip install .")
    if least <= release(version) < below:
        return Finding(name, True, version)
    wanted = f">={_dotted(least)}" + (f",<{_dotted(below)}" if below != (1 << 30,) else "")
    return Finding(name, False, version, f'pip install "{name}{wanted}"')


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def tvm() -> Finding:
    """TVM loads, and its wheel brings the LLVM code generator."""
    try:
        module = importlib.import_module("tvm")
    except (ImportError, OSError) as error:
        return Finding("TVM loads", False, str(error).splitlines()[0], "pip install apache-tvm")
    if not module.get_global_func("target.build.llvm", allow_missing=True):
        return Finding("TVM loads", False, "without LLVM", "install the wheel apache-tvm")
    return Finding("TVM loads", True, "with LLVM")


def compiler() -> Finding:
    """The C compiler that links kernels and builds the loader."""
    from aotrain import toolchain

    try:
        found = toolchain.find()
    except AotError as error:
        return Finding("C compiler", False, *_refusal(error))
    return Finding("C compiler", True, found.version)


def loader() -> Finding:
    """The loader builds here, or was built before."""
    from aotrain import runtime

    try:
        built = runtime.build()
    except AotError as error:
        return Finding("loader", False, *_refusal(error))
    size = human_bytes(built.aotrun.stat().st_size)
    return Finding("loader", True, f"aotrun, {size}, cached in {runtime.cache_folder()}")


def _refusal(error: AotError) -> tuple[str, str]:
    first = error.diagnostics[0]
    return first.message, first.hint


def threads() -> Finding:
    """How many threads a training step can use here."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding("threads", True, f"{count}")


def onnxruntime() -> Finding:
    """Optional: `export` checks with it, else with onnx's own slower evaluator."""
    try:
        return Finding("onnxruntime", True, metadata.version("onnxruntime"), needed=False)
    except metadata.PackageNotFoundError:
        detail = "not installed (optional: makes the check after an export faster)"
        return Finding("onnxruntime", False, detail, needed=False)


def vulkan() -> Finding:
    """Optional: what `--target vulkan` needs where it trains, not where it compiles."""
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        detail = "libvulkan.so.1 not found (optional: artifacts for `--target vulkan` need it)"
        hint = "Debian: apt install libvulkan1 mesa-vulkan-drivers"
        return Finding("Vulkan", False, detail, hint, needed=False)
    return Finding("Vulkan", True, "libvulkan.so.1", needed=False)


CHECKS: tuple[Callable[[], Finding], ...] = (
    python,
    lambda: package("apache-tvm", (0, 27), (0, 28)),
    lambda: package("apache-tvm-ffi", (0, 1, 14), (0, 1, 15)),
    lambda: package("onnx", (1, 18)),
    lambda: package("numpy", (1, 26)),
    lambda: package("safetensors", (0, 5)),
    tvm,
    compiler,
    loader,
    threads,
    onnxruntime,
    vulkan,
)


@define(
    "Check this machine: Python, TVM, C compiler, loader.",
    examples=(
        ("What works here", "aotrain doctor"),
        ("For a bug report", "aotrain doctor --json > doctor.json"),
    ),
)
def command(console: Console) -> None:
    """Builds the loader, if it was not. Exits with 4 where something that is needed is missing."""
    findings = [check() for check in CHECKS]
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        console.result(f"{_mark(finding):<8}{finding.name.ljust(width)}  {finding.detail}")
        if finding.hint and not finding.ok:
            console.result(f"{'':<8}{'':<{width}}  hint: {finding.hint}")
    ok = all(finding.ok for finding in findings if finding.needed)
    console.finish({"findings": [asdict(finding) for finding in findings]}, ok=ok)
    if not ok:
        click.get_current_context().exit(int(ExitCode.TOOLCHAIN))


def _mark(finding: Finding) -> str:
    if finding.ok:
        return "ok"
    return "MISSING" if finding.needed else "absent"
