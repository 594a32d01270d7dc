"""An artifact in, nanoseconds of each kernel of its train entry out (least of several steps)."""

from __future__ import annotations

import ctypes
from pathlib import Path

from aotrain.runtime import capi


def profile(artifact: Path, steps: int = 5, threads: int = 1) -> tuple[dict[str, int], list[int]]:
    """(ns by kernel, ns of the launches of each step); inputs are zeros."""
    library = capi.load(artifact)
    launches: list[dict[int, tuple[str, int]]] = []

    def note(_: object, launch: ctypes._Pointer[capi.Launch]) -> None:
        seen = launch.contents
        launches[-1][seen.index] = seen.kernel.decode(), seen.ns

    options = capi.Options(threads, capi.Trace(note), None)
    handle = ctypes.c_void_p()
    status = library.aot_open(str(artifact).encode(), ctypes.byref(options), ctypes.byref(handle))
    assert status == 0, status
    for _ in range(steps + 1):  # the first warms up
        launches.append({})
        library.aot_step(handle, None)
    library.aot_close(handle)
    times: dict[str, int] = {}
    for index in launches[0]:
        kernel = launches[0][index][0]
        least = min(step[index][1] for step in launches[1:])
        times[kernel] = min(least, times.get(kernel, least))
    return times, [sum(ns for _, ns in step.values()) for step in launches[1:]]
