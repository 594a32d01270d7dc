"""The loader's C sources in, `aotrun` and `libaotrun.so` in the user's cache out."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aotrain import toolchain
from aotrain.errors import Diagnostic, ToolchainError

SOURCES = Path(__file__).parent

LIBRARY = (
    "api", "crc", "error", "file", "json", "plan", "pool", "run", "state_read", "state_write",
    "tables",
)  # fmt: skip
BACKENDS = {
    "cpu": ("host",),
    "vulkan": ("vulkan", "vulkan_device", "vulkan_record"),
}
PROGRAM = (
    "bench", "convert", "data", "describe", "idx", "main", "npy", "npz", "npz_write", "options",
    "outputs", "predict", "profile", "progress", "report", "shuffle", "train",
)  # fmt: skip
"""C files, without `.c`: the library's, one of the backends', and what `aotrun` adds to them."""

FLAGS = (
    "-std=c11", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-Wall", "-Wextra",
    "-fvisibility=hidden", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables",
    "-ffunction-sections", "-fdata-sections", "-pthread",
)  # fmt: skip
SMALL = ("-s", "-Wl,-z,now", "-Wl,--gc-sections", "-Wl,--build-id=none", "-Wl,--hash-style=gnu")
LIBRARIES = ("-lm", "-ldl")


@dataclass(frozen=True)
class Built:
    """Paths in the cache; copy them, do not move them."""

    aotrun: Path
    library: Path


def build(target_triple: str | None = None, backend: str = "cpu") -> Built:
    """The loader for a triple (None: this machine) and a backend.

    Cached under the hash of sources, compiler and flags; concurrent builds do no harm. Raises
    ToolchainError without a compiler.
    """
    compiler = toolchain.find(target_triple)
    folder = cache_folder() / "runtime" / _key(compiler, backend)
    built = Built(folder / "aotrun", folder / "libaotrun.so")
    if built.aotrun.exists() and built.library.exists():
        return built
    temporary = _temporary_beside(folder)
    try:
        compile_into(temporary, compiler, small_flags(compiler), backend)
        try:
            temporary.rename(folder)
        except OSError:  # another process was first
            if not built.library.exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return built


def small_flags(compiler: toolchain.Compiler) -> tuple[str, ...]:
    """Flags for size, by what the compiler knows.

    GNU ld pads segments to pages unless told not to; zig's linker does not know the option. Zig's
    clang vectorizes even at -Os.
    """
    if compiler.is_zig:
        return (*SMALL, "-Os", "-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops")
    return (*SMALL, "-Os", "-Wl,-z,noseparate-code")


def compile_into(
    folder: Path, compiler: toolchain.Compiler, flags: tuple[str, ...], backend: str = "cpu"
) -> Built:
    """Compile both into `folder`, without the cache; `flags` choose optimisation and checks."""
    built = Built(folder / "aotrun", folder / "libaotrun.so")
    program = (*LIBRARY, *BACKENDS[backend], *PROGRAM)
    _compile(built.aotrun, compiler, program, ("-fPIE", "-pie", *flags))
    compile_library(built.library, compiler, flags, backend)
    return built


def compile_library(
    out: Path, compiler: toolchain.Compiler, flags: tuple[str, ...], backend: str = "cpu"
) -> None:
    """Compile libaotrun.so alone, as `out`."""
    shared = ("-shared", "-fPIC", "-Wl,-soname,libaotrun.so")
    _compile(out, compiler, (*LIBRARY, *BACKENDS[backend]), (*shared, *flags))


def _compile(
    out: Path, compiler: toolchain.Compiler, names: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    # Relative source paths: the result must not depend on where the package is installed.
    sources = [f"{name}.c" for name in names]
    toolchain.build(compiler, [*FLAGS, *flags, *sources, *LIBRARIES], out, SOURCES)


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/aotrain`, else `~/.cache/aotrain`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aotrain"


def _key(compiler: toolchain.Compiler, backend: str) -> str:
    sources = (LIBRARY, BACKENDS[backend], PROGRAM)
    digest = hashlib.sha256(
        repr((compiler, FLAGS, small_flags(compiler), LIBRARIES, sources)).encode()
    )
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:20]


def _temporary_beside(folder: Path) -> Path:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".building-", dir=folder.parent))
    except OSError as error:
        raise ToolchainError(
            Diagnostic(
                "AOT-T003",
                f"cannot write to the cache folder {folder.parent}: {error.strerror}",
                hint="set XDG_CACHE_HOME to a folder that can be written",
            )
        ) from error
