"""The loader under sanitizers and valgrind, its readers on mutated files, its mallocs counted."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from aotrain import toolchain
from aotrain.artifact import planfile
from aotrain.runtime import building
from tests.runtime import toy

HERE = Path(__file__).parent
CHECKED = ("-O1", "-g", "-Werror", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
ASAN = (*CHECKED, "-O0", "-fsanitize=address,undefined")
TSAN = (*CHECKED, "-fsanitize=thread")
CASES = 20_000


def compile_test(out: Path, source: str, flags: tuple[str, ...]) -> Path:
    """`source` with the library and aotrun's readers."""
    readers = ("convert", "idx", "npy", "npz") if source == "fuzz.c" else ()
    files = [str(building.SOURCES / f"{name}.c") for name in (*building.LIBRARY, "host", *readers)]
    if source == "fuzz.c":
        files.append(str(HERE / "refuse.c"))
    toolchain.build(
        toolchain.find(),
        [*building.FLAGS, *flags, f"-I{building.SOURCES}", str(HERE / source), *files]
        + ["-rdynamic", *building.LIBRARIES],
        out,
    )
    return out


def supports(flags: tuple[str, ...], folder: Path) -> bool:
    source = folder / "probe.c"
    source.write_text("int main(void) { return 0; }\n")
    try:
        toolchain.build(toolchain.find(), [*flags, str(source)], folder / "probe")
    except toolchain.ToolchainError:
        return False
    return subprocess.run([folder / "probe"], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def asan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asan")
    if not supports(ASAN, folder):
        pytest.skip("the C compiler has no AddressSanitizer")
    return folder


def run(*command: object, cwd: Path | None = None) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("threads", [1, 3])
def test_no_allocation_after_open(toy_artifact: Path, tmp_path: Path, threads: int) -> None:
    flags = ("-O1", "-Werror", "-DCOUNT_ALLOCATIONS")
    program = compile_test(tmp_path / "count", "exercise.c", flags)
    out = run(program, toy_artifact, tmp_path / "s.safetensors", threads)
    assert out == "done, 0 allocations\n"


def test_sanitizers(toy_artifact: Path, asan: Path) -> None:
    program = compile_test(asan / "exercise", "exercise.c", ASAN)
    for threads in (1, 4):
        run(program, toy_artifact, asan / "s.safetensors", threads)


def test_threads_do_not_race(toy_artifact: Path, tmp_path: Path) -> None:
    if not supports(TSAN, tmp_path):
        pytest.skip("the C compiler has no ThreadSanitizer, or it does not run here")
    program = compile_test(tmp_path / "race", "exercise.c", TSAN)
    run(program, toy_artifact, tmp_path / "s.safetensors", 4)


@pytest.mark.parametrize("sanitizer", ["", "thread", "address,undefined"])
def test_pool_runs_every_task_once(tmp_path: Path, sanitizer: str) -> None:
    flags = (*CHECKED, f"-fsanitize={sanitizer}") if sanitizer else CHECKED[:-2]
    if not supports(flags, tmp_path):
        pytest.skip(f"the C compiler has no {sanitizer} sanitizer, or it does not run here")
    program = compile_test(tmp_path / "pool", "pool_check.c", flags)
    for threads in (1, 2, 7):
        run(program, threads, 2000)


def test_aotrun_under_sanitizers(toy_artifact: Path, asan: Path) -> None:
    built = building.compile_into(asan, toolchain.find(), ASAN)
    data = asan / "train.npz"
    np.savez(data, **toy.batch(22))
    run(
        *(built.aotrun, toy_artifact, "--data", data, "--valid", data, "--epochs", 3),
        *("--save", asan / "a.safetensors", "--save-every", 2, "--keep", 2),
        *("--predict", data, "-o", asan / "out.npz", "--map", "x=x"),
    )
    run(built.aotrun, toy_artifact, "--json")
    run(built.aotrun, toy_artifact, "--bench", 5, "--data", data)


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_valgrind(toy_artifact: Path, tmp_path: Path) -> None:
    program = compile_test(tmp_path / "exercise", "exercise.c", ("-O1", "-g", "-Werror"))
    valgrind = (
        "valgrind",
        "-q",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=all",
    )
    run(*valgrind, program, toy_artifact, tmp_path / "s.safetensors", 2)


def without_our_keys(raw: bytes) -> bytes:
    """A checkpoint as another tool writes it: no checksum stops a mutated one early."""
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    metadata = header["__metadata__"]
    header["__metadata__"] = {k: v for k, v in metadata.items() if not k.startswith("aotrain.")}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + raw[8 + length :]


def seeds(folder: Path, artifact: Path) -> list[tuple[str, Path, bool]]:
    """(reader, a good file for it, whether a checksum guards it)."""
    state = artifact / "state.safetensors"
    (folder / "foreign.safetensors").write_bytes(without_our_keys(state.read_bytes()))
    np.savez(folder / "good.npz", **toy.batch(5), z=np.zeros((2, 2), "u1"))
    np.save(folder / "good.npy", np.arange(6, dtype="<i4").reshape(2, 3))
    idx = struct.pack(">HBBIII", 0, 8, 3, 2, 3, 4) + bytes(range(24))
    (folder / "good.idx").write_bytes(idx)
    plan = (artifact / "plan.bin").read_bytes()
    end = planfile.HEADER.unpack_from(plan)[4]
    (folder / "good.tables").write_bytes(plan[planfile.HEADER.size : end])
    return [
        ("npz", folder / "good.npz", False),
        ("npy", folder / "good.npy", False),
        ("idx", folder / "good.idx", False),
        ("tables", folder / "good.tables", False),
        ("plan", artifact / "plan.bin", True),
        ("state", state, True),
        ("state", folder / "foreign.safetensors", False),
    ]


def test_mutated_files(toy_artifact: Path, asan: Path) -> None:
    program = compile_test(asan / "fuzz", "fuzz.c", ASAN)
    for reader, good, guarded in seeds(asan, toy_artifact):
        cases = CASES // 10 if reader in ("plan", "state") else CASES
        extra = [toy_artifact] if reader == "state" else []
        out = run(program, reader, good, cases, 1, *extra, cwd=asan)
        accepted, total = int(out.split()[0]), int(out.split()[2])
        assert total == cases
        if guarded:  # an edit may change nothing
            assert accepted < cases // 20, out
        else:  # both outcomes are exercised
            assert 0 < accepted < cases, out


@pytest.mark.parametrize("backend", building.BACKENDS)
def test_flags_are_strict(backend: str, tmp_path: Path) -> None:
    strict = ("-O2", "-Werror", "-Wconversion", "-Wno-sign-conversion", "-Wshadow", "-pedantic")
    names = (*building.LIBRARY, *building.BACKENDS[backend], *building.PROGRAM)
    sources = [f"{name}.c" for name in names]
    flags = (*building.FLAGS, *strict, *sources, *building.LIBRARIES)
    toolchain.build(toolchain.find(), flags, tmp_path / "aotrun", building.SOURCES)
    assert os.access(tmp_path / "aotrun", os.X_OK)
