"""examples/embed.c: compiled as its first lines say, and run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from aotrain import artifact, runtime, toolchain

EXAMPLE = Path(__file__).parents[2] / "examples" / "embed.c"


def test_embedding_example(toy_artifact: Path, tmp_path: Path) -> None:
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{toy_artifact}"]
    library = str(toy_artifact / "libaotrun.so")
    link = [str(EXAMPLE), library, f"-Wl,-rpath,{toy_artifact}"]
    toolchain.build(toolchain.find(), [*flags, *link], tmp_path / "embed")
    out = tmp_path / "trained.safetensors"
    command = [tmp_path / "embed", toy_artifact, out]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert len(losses) == 5 and losses[-1] < 0.2 * losses[0]
    assert artifact.read_checkpoint(out).step == 100


def test_the_header_is_the_whole_interface() -> None:
    """At most 15 functions, all of them in libaotrun.so, and nothing else is."""
    header = (runtime.SOURCES / "aotrun.h").read_text()
    declared = {
        line.split("(")[0].split()[-1].lstrip("*")
        for line in header.splitlines()
        if line.startswith("AOT_API ")
    }
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", runtime.build().library],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert {line.split()[-1] for line in listing.splitlines()} == declared
    assert len(declared) <= 15


def test_the_header_serves_cplusplus(tmp_path: Path) -> None:
    source = tmp_path / "use.cpp"
    source.write_text('#include "aotrun.h"\nint main() { aot_close(nullptr); }\n')
    library = runtime.build().library
    command = ["c++", "-Wall", "-Werror", f"-I{runtime.SOURCES}", source, library]
    command += [f"-Wl,-rpath,{library.parent}", "-o", tmp_path / "use"]
    if subprocess.run(["sh", "-c", "command -v c++"], capture_output=True).returncode == 0:
        subprocess.run(command, check=True)
        subprocess.run([tmp_path / "use"], check=True)
