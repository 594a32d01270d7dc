"""C sources or objects in, a shared object or program out, by the C compiler that is to be had.

For this machine: `$CC`, `cc`, `gcc` or `clang`, else the PyPI package ziglang. For another triple:
`<triple>-gcc` on the PATH (Debian's cross compilers), else ziglang, which has all targets built in.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotrain.errors import Diagnostic, ToolchainError


@dataclass(frozen=True)
class Compiler:
    """`command` is argv without arguments; `version` the first line that `--version` prints."""

    command: tuple[str, ...]
    version: str

    @property
    def is_zig(self) -> bool:
        """Whether it is ziglang's clang, whose linker takes fewer options."""
        return "ziglang" in self.command


def find(target_triple: str | None = None) -> Compiler:
    """The C compiler for the triple (None: this machine). ToolchainError AOT-T001 without one."""
    return _find(target_triple, os.environ.get("CC", ""))


def compile_shared(
    sources: Sequence[Path],
    out: Path,
    *,
    target_triple: str | None = None,
    flags: Sequence[str] = (),
) -> None:
    """Compile and link `sources` (C files, objects, archives) into the shared object `out`.

    `flags` come last, so they win. ToolchainError AOT-T002 with the compiler's words on failure;
    `out` is then not written.
    """
    build(
        find(target_triple),
        ["-shared", "-fPIC", *(str(s.resolve()) for s in sources), *flags],
        out.resolve(),
    )


def build(compiler: Compiler, arguments: Sequence[str], out: Path, cwd: Path | None = None) -> None:
    """Run the compiler with `arguments` and `-o out`; ToolchainError AOT-T002 when it fails."""
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    command = [*compiler.command, *arguments, "-o", str(temporary)]
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise ToolchainError(
                Diagnostic(
                    "AOT-T002",
                    f"{compiler.command[0]} failed to build {out.name}",
                    where=done.stderr.strip()[:4000],
                    hint=f"the command was: {shlex.join(command)}",
                )
            )
        temporary.replace(out)
    except OSError as error:
        raise ToolchainError(
            Diagnostic("AOT-T002", f"cannot run {compiler.command[0]}: {error.strerror}")
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


@functools.lru_cache
def _find(target_triple: str | None, cc: str) -> Compiler:
    native = target_triple is None or is_native(target_triple)
    candidates = [tuple(shlex.split(cc))] if cc and native else []
    if native:
        candidates += [("cc",), ("gcc",), ("clang",)]
    else:
        candidates += [(f"{target_triple}-gcc",), (f"{_short(target_triple)}-gcc",)]
    for command in candidates:
        if shutil.which(command[0]):
            return _probe(command)
    if importlib.util.find_spec("ziglang"):
        zig = (sys.executable, "-m", "ziglang", "cc")
        return _probe(zig if native else (*zig, "-target", _short(target_triple)))
    what = "C compiler" if native else f"C compiler for {target_triple}"
    raise ToolchainError(
        Diagnostic(
            "AOT-T001",
            f"no {what} found",
            hint=f"install {'gcc or clang' if native else candidates[-1][0]}, or the PyPI package "
            "ziglang: pip install 'aotrain[zig]'",
        )
    )


def _probe(command: tuple[str, ...]) -> Compiler:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    except OSError as error:
        raise ToolchainError(
            Diagnostic("AOT-T001", f"cannot run the C compiler {command[0]}: {error.strerror}")
        ) from error
    return Compiler(command, (done.stdout or done.stderr).partition("\n")[0])


def _short(triple: str | None) -> str:
    """Without the vendor, as Debian and Zig write it: aarch64-unknown-linux-gnu and so on."""
    parts = (triple or "").split("-")
    return "-".join([parts[0], *parts[2:]] if len(parts) == 4 else parts)


def is_native(triple: str) -> bool:
    """Whether programs for the triple run on this machine."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    return triple.split("-")[0] == machine and sys.platform.rstrip("0123456789") in triple
