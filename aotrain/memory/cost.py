"""A plan in, a modelled time for each kernel out, for where none is measured.

A roofline: a launch takes `LAUNCH` ns, and then whichever is longer, its bytes (each argument once)
at `BYTES_PER_NS` or its arithmetic at `FLOPS_PER_NS`. The figures are those of one core of a server
CPU; only the ratios between kernels matter to what is recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping

from aotrain.plan import Plan

LAUNCH = 500  # ns
BYTES_PER_NS = 8.0  # = GB/s
FLOPS_PER_NS = 40.0  # = Gflop/s


def model_times(plan: Plan, flops: Mapping[int, float] | None = None) -> dict[int, int]:
    """Nanoseconds by kernel index. `flops` by kernel; a kernel without is bound by memory."""
    work = flops or {}
    found = {}
    for entry in plan.entries:
        for launch in entry.launches:
            nbytes = sum(plan.tensors[index].nbytes for index in launch.args)
            slower = max(nbytes / BYTES_PER_NS, work.get(launch.kernel, 0) / FLOPS_PER_NS)
            found[launch.kernel] = LAUNCH + round(slower)
    return found
