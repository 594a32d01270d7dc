"""A plan and the rules that wrote its kernels in, a warning of much time in scalar loops out."""

from __future__ import annotations

from collections.abc import Mapping

from aotrain.memory.cost import LAUNCH
from aotrain.plan import Plan

SCALAR_RULES = ("fallback", "serial")
SLOWDOWN = 16
"""How many times as long a scalar loop takes as the model of vector loops says, about."""
SHARE, SMALL = 0.01, LAUNCH + 1000
"""Of a step's time, and nanoseconds of a kernel: what is below is not worth a line."""


def warnings(plan: Plan, rules: Mapping[str, str], times: Mapping[int, int]) -> tuple[str, ...]:
    """One line where launches of scalar kernels take more than SHARE of a training step.

    `times` are modelled nanoseconds by kernel index, as if every kernel ran as vectors.
    """
    total, scalar, where = 0, 0, {}
    for launch in plan.entry("train").launches:
        took = times[launch.kernel]
        slow = rules.get(plan.kernels[launch.kernel]) in SCALAR_RULES and took > SMALL
        took += (SLOWDOWN - 1) * (took - LAUNCH) if slow else 0
        total += took
        if slow:
            scalar += took
            where[launch.origin or plan.kernels[launch.kernel]] = took
    if scalar <= SHARE * total:
        return ()
    most = sorted(where, key=lambda origin: -where[origin])[:3]
    more = f" and {len(where) - len(most)} more" if len(where) > len(most) else ""
    return (
        f"warning: no vector schedule fits {'; '.join(most)}{more}: scalar loops, about "
        f"{scalar / total:.0%} of a step's time",
    )
