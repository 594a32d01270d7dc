"""Nothing in; what the numbers were measured on, and how busy it was, out."""

from __future__ import annotations

import os
import platform
from pathlib import Path

FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "neon", "asimd", "sve")


def describe() -> str:
    """Processor, its vector extensions, cores, memory and system, in a line."""
    info = _cpuinfo()
    name = info.get("model name") or platform.machine()
    flags = set((info.get("flags") or info.get("Features") or "").split())
    found = ", ".join(flag for flag in FLAGS if flag in flags)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{name} ({found}), {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release().split('-')[0]}"
    )


def busy() -> float:
    """Processes that wanted a core over the last minute."""
    return os.getloadavg()[0]


def peak_resident() -> int:
    """Bytes: the most that this process has had resident.

    VmHWM, not getrusage: that one starts at the resident size of the process that forked this one.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/self/status has no VmHWM")


def _cpuinfo() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}
