"""The types of aotrun.h, as the C compiler lays them out and as ctypes does."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from aotrain import artifact, runtime, toolchain
from aotrain.runtime import capi

TYPES = {
    "aot_launch": capi.Launch,
    "aot_options": capi.Options,
    "aot_info": capi.Info,
    "aot_tensor": capi.Tensor,
    "aot_signature": capi.Signature,
    "aot_result": capi.Result,
    "aot_note": capi.Note,
}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, ...]]:
    """Of each type its size, then the offset of each field."""
    folder = tmp_path_factory.mktemp("layouts")
    lines = []
    for name, kind in TYPES.items():
        fields = ", ".join(f"offsetof({name}, {field})" for field, _ in kind._fields_)
        shown = " ".join(["%zu"] * (1 + len(kind._fields_)))
        lines.append(f'printf("{name} {shown}\\n", sizeof({name}), {fields});')
    source = folder / "layouts.c"
    body = "\n".join(lines)
    includes = '#include <stddef.h>\n#include <stdio.h>\n#include "aotrun.h"\n'
    source.write_text(f"{includes}int main(void) {{\n{body}\nreturn 0; }}\n")
    program = folder / "layouts"
    toolchain.build(toolchain.find(), [f"-I{runtime.SOURCES}", str(source)], program)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {name: tuple(map(int, numbers)) for name, *numbers in rows}


@pytest.mark.parametrize("name", TYPES)
def test_layout(name: str, layouts: dict[str, tuple[int, ...]]) -> None:
    kind = TYPES[name]
    offsets = [getattr(kind, field).offset for field, _ in kind._fields_]
    assert (ctypes.sizeof(kind), *offsets) == layouts[name]


def test_a_trace_sees_each_launch_of_a_step(toy_artifact: Path) -> None:
    library, seen = capi.load(toy_artifact), []
    trace = capi.Trace(lambda _, launch: seen.append(launch.contents.kernel.decode()))
    options, handle = capi.Options(1, trace, None), capi.Handle(library)
    opened = library.aot_open(
        bytes(toy_artifact), ctypes.byref(options), ctypes.byref(handle.pointer)
    )
    assert opened == 0
    library.aot_step(handle.pointer, None)
    plan = artifact.read(toy_artifact).plan
    assert seen == [plan.kernels[launch.kernel] for launch in plan.entry("train").launches]
