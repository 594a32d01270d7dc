"""A folder with two schedules of one kernel in, JSON of their times and difference on stdout out.

Runs as a process of its own (python -m aotrain.tuning.worker FOLDER THREADS SECONDS), so that what
a candidate does to it is done to it alone. Imports no TVM.

The artifact's train entry launches the incumbent, then the candidate, and so on: A B A B. Tensors
named "a.N" and "b.N" are what each has written.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path

import numpy as np

from aotrain.runtime import capi

LEAST, MOST = 10, 300  # steps


def main(folder: Path, threads: int, seconds: float) -> dict[str, object]:
    """{"ns": [[a, b] a step], "error": the largest relative difference after the first step}."""
    library = capi.load(folder)
    times: list[list[int]] = []

    def note(_: object, launch: ctypes._Pointer[capi.Launch]) -> None:
        times[-1].append(launch.contents.ns)

    options = capi.Options(threads, capi.Trace(note), None)
    handle = ctypes.c_void_p()
    if library.aot_open(str(folder).encode(), ctypes.byref(options), ctypes.byref(handle)):
        raise SystemExit("cannot open the trial")
    error, ends = None, time.perf_counter() + seconds
    while len(times) < LEAST or (time.perf_counter() < ends and len(times) < MOST):
        times.append([])
        if library.aot_step(handle, None):
            raise SystemExit("a launch failed")
        if error is None:
            error = _difference(library, handle)
    return {"ns": times[2:], "error": error}


def _difference(library: ctypes.CDLL, handle: ctypes.c_void_p) -> float:
    """Of all tensors "a.N" and "b.N": the largest difference, by the largest magnitude."""
    info, found = capi.Info(), {}
    library.aot_describe(handle, ctypes.byref(info))
    for index in range(info.tensors):
        tensor = capi.Tensor()
        library.aot_get_tensor(handle, index, ctypes.byref(tensor))
        raw = ctypes.string_at(tensor.data, tensor.bytes)
        dtype = capi.DTYPES[tensor.dtype]
        found[tensor.name.decode()] = np.frombuffer(raw, "u1" if dtype == "bfloat16" else dtype)
    worst = 0.0
    for name, a in found.items():
        if name.startswith("a."):
            one, other = np.float64(a), np.float64(found[f"b.{name[2:]}"])
            finite = np.isfinite(one)
            if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
                return float("inf")
            scale = max(float(np.max(np.abs(one[finite]), initial=0.0)), 1e-30)
            difference = float(np.max(np.abs(one - other)[finite], initial=0.0)) / scale
            worst = max(worst, difference if np.isfinite(difference) else float("inf"))
    return worst


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
