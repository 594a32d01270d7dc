"""Finding a C compiler, and what is said when there is none or it fails."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from aotrain import toolchain
from aotrain.errors import ExitCode, ToolchainError


@pytest.fixture(autouse=True)
def fresh() -> None:
    toolchain._find.cache_clear()


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_cc_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "mycc", "echo my compiler 1.0")
    monkeypatch.setenv("CC", f"{program} -flag")
    assert toolchain.find() == toolchain.Compiler((str(program), "-flag"), "my compiler 1.0")


def test_none_names_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError) as caught:
        toolchain.find()
    assert caught.value.exit_code == ExitCode.TOOLCHAIN
    text = caught.value.render()
    assert "AOT-T001" in text and "gcc" in text and "ziglang" in text


def test_ziglang_where_the_system_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: object())
    assert toolchain.find().command[1:] == ("-m", "ziglang", "cc")
    other = toolchain.find("aarch64-unknown-linux-gnu").command
    assert other[1:] == ("-m", "ziglang", "cc", "-target", "aarch64-linux-gnu")


def test_cross_compiler_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "riscv64-linux-gnu-gcc", "echo cross 1.0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = toolchain.find("riscv64-unknown-linux-gnu")
    assert found == toolchain.Compiler(("riscv64-linux-gnu-gcc",), "cross 1.0")


def test_compile_shared(tmp_path: Path) -> None:
    source, out = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text("int answer(void) { return ANSWER; }\n")
    toolchain.compile_shared([source], out, flags=["-DANSWER=42"])
    assert ctypes.CDLL(str(out)).answer() == 42


def test_failure_shows_the_compilers_words_and_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("int answer(void) { return nothing; }\n")
    with pytest.raises(ToolchainError, match="AOT-T002") as caught:
        toolchain.compile_shared([source], tmp_path / "a.so")
    assert "nothing" in caught.value.diagnostics[0].where
    assert [path.name for path in tmp_path.iterdir()] == ["a.c"]
