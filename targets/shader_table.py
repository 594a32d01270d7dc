"""Shaders in, the C source of their table out: `aot_shaders` of aot_shader_abi.h, data alone."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from aotrain.targets.spirv import Shader
from aotrain.targets.spirv.opcodes import Capability

FEATURES = {
    Capability.INT64: "AOT_SHADER_INT64",
    Capability.FLOAT64: "AOT_SHADER_FLOAT64",
    Capability.STORAGE_BUFFER_8BIT_ACCESS: "AOT_SHADER_STORAGE8",
}


@dataclass(frozen=True)
class ShaderKernel:
    """A kernel's dispatches, each with the launch arguments that its push constants point to.

    scratch: bytes of each tensor that the kernel needs between dispatches, after its own arguments.
    """

    symbol: str
    dispatches: tuple[tuple[Shader, tuple[int, ...]], ...]
    scratch: tuple[int, ...]
    thread_scratch: int = 0


def shader_table(kernels: Sequence[ShaderKernel]) -> str:
    """Equal shaders are written once."""
    lines = ['#include "aot_shader_abi.h"', ""]
    names: dict[bytes, str] = {}
    rows: list[str] = []
    first = [0]
    used: set[Capability] = set()
    threads = 0
    for kernel in kernels:
        for shader, args in kernel.dispatches:
            if shader.words not in names:
                names[shader.words] = f"words{len(names)}"
                lines.append(_array(names[shader.words], shader.words))
            label = f"args{len(rows)}"
            numbers = ", ".join(map(str, args)) or "0"
            lines.append(f"static const uint32_t {label}[] = {{{numbers}}};")
            across, down = shader.groups
            words = names[shader.words]
            rows.append(
                f"  {{{words}, {label}, {len(shader.words) // 4}, {len(args)}, {across}, {down}}},"
            )
            used |= shader.capabilities
            threads = max(threads, shader.threads)
        first.append(len(rows))
    features = " | ".join(FEATURES[c] for c in sorted(used) if c in FEATURES) or "0"
    lines += [
        f"static const uint32_t first[] = {{{', '.join(map(str, first))}}};",
        "static const aot_dispatch dispatches[] = {",
        *(rows or ["  {0, 0, 0, 0, 0, 0},"]),
        "};",
        '__attribute__((visibility("default"))) const aot_shader_library aot_shaders = {',
        f"    AOT_SHADER_ABI, {features}, {len(kernels)}, {threads}, first, dispatches}};",
    ]
    return "\n".join(lines) + "\n"


def _array(name: str, raw: bytes) -> str:
    words = struct.unpack(f"<{len(raw) // 4}I", raw)
    return f"static const uint32_t {name}[] = {{{','.join(map(str, words))}}};"
