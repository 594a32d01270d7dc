"""TVM target in, the facts of its instruction set that a CPU schedule needs out."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.target import Target

#: LLVM processor names of which the vector width is known even when the target lists no features.
_AVX512_CPUS = ("znver4", "znver5", "skylake-avx512", "cascadelake", "icelake", "sapphirerapids")
_AVX512_MORE = (
    "graniterapids",
    "emeraldrapids",
    "cooperlake",
    "tigerlake",
    "x86-64-v4",
    "rocketlake",
)
_AVX2_CPUS = ("haswell", "broadwell", "skylake", "znver", "alderlake", "x86-64-v3", "raptorlake")
_ARM = ("aarch64", "arm64")


@dataclass(frozen=True)
class Isa:
    """A vector instruction set: what bounds a register tile.

    lanes: float32 elements in a vector register; registers: how many of them there are.
    """

    name: str
    lanes: int
    registers: int


AVX512 = Isa("avx512", 16, 32)
AVX2 = Isa("avx2", 8, 16)
NEON = Isa("neon", 4, 32)
SSE = Isa("sse", 4, 16)
#: C code, which has no vectors of its own: a C compiler finds them in plain loops.
SCALAR = Isa("scalar", 1, 16)


def _has(target: Target, feature: str) -> bool:
    return any(str(entry).lstrip("+") == feature for entry in target.attrs.get("mattr", ()) or ())


def of(target: Target) -> Isa:
    """The instruction set that `target` (kind `llvm` or `c`) may use."""
    if target.kind.name == "c":
        return SCALAR
    cpu = str(target.attrs.get("mcpu", "") or "")
    triple = str(target.attrs.get("mtriple", "") or "")
    if triple.startswith(_ARM) or _has(target, "neon"):
        return NEON
    if cpu.startswith(_AVX512_CPUS + _AVX512_MORE) or _has(target, "avx512f"):
        return AVX512
    if cpu.startswith(_AVX2_CPUS) or _has(target, "avx2"):
        return AVX2
    return SSE
