"""The build of the loader: small, cached, reproducible, and dependent on libc alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aotrain import runtime, toolchain
from aotrain.errors import ToolchainError
from aotrain.runtime import building


def test_at_most_64_kib() -> None:
    built = runtime.build()
    assert built.aotrun.stat().st_size <= 64 * 1024
    assert built.library.stat().st_size <= 64 * 1024


def test_needs_libc_and_libm_alone() -> None:
    for file in (runtime.build().aotrun, runtime.build().library):
        out = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True)
        needed = re.findall(r"NEEDED.*\[(.*?)\]", out.stdout)
        libc = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"}
        assert set(needed) <= libc


def test_all_sources_are_listed() -> None:
    on_disk = {path.stem for path in building.SOURCES.glob("*.c")}
    assert on_disk == {*building.LIBRARY, *sum(building.BACKENDS.values(), ()), *building.PROGRAM}


def test_cached_and_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = runtime.build()
    assert tmp_path in first.library.parents
    stamp = first.library.stat().st_mtime_ns
    assert runtime.build() == first
    assert first.library.stat().st_mtime_ns == stamp
    assert [path.name for path in first.library.parent.parent.iterdir()] == [
        first.library.parent.name
    ]
    compiler = toolchain.find()
    building.compile_library(tmp_path / "again.so", compiler, building.small_flags(compiler))
    assert (tmp_path / "again.so").read_bytes() == first.library.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("triple", [(), ("-target", "aarch64-linux-gnu")])
def test_ziglang_builds_it(toy_artifact: Path, tmp_path: Path, triple: tuple[str, ...]) -> None:
    pytest.importorskip("ziglang")
    compiler = toolchain.Compiler((sys.executable, "-m", "ziglang", "cc", *triple), "")
    built = building.compile_into(tmp_path, compiler, building.small_flags(compiler))
    assert built.aotrun.stat().st_size <= 64 * 1024
    if not triple:
        command = [built.aotrun, toy_artifact, "--bench", "3"]
        assert subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ToolchainError, match="XDG_CACHE_HOME"):
        runtime.build()


def test_cache_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aotrain").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ToolchainError, match="XDG_CACHE_HOME"):
        runtime.build()
