"""Reports of `aotrun --bench --json` and a plan in; times, spread, and what they are made of, out.

A step's time is divided by a roofline: what moving each kernel's arguments once would take at this
machine's copying speed is "memory"; the shortest launch seen, for each launch, is "launch"; the
rest is "compute". It is a model, meant to say where to look first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotrain.plan import Plan

NOISY = 0.1
"""Spread of the rounds' medians, relative, above which a comparison means little."""

SMALLEST, LARGEST = 1 << 20, 1 << 27  # bytes of a copy


@dataclass(frozen=True)
class Times:
    """Of several rounds, each a process of its own. Milliseconds a step; memory in bytes."""

    median_ms: float  # of the rounds' medians
    p90_ms: float  # the median of the rounds'
    least_ms: float
    spread: float  # (largest - least median) / median
    samples_per_second: float
    block_bytes: int  # planned, and allocated
    resident_bytes: int  # the process's peak, code and stacks included

    @property
    def noisy(self) -> bool:
        """Whether the rounds disagree by more than `NOISY`."""
        return self.spread > NOISY


def times(rounds: Sequence[Mapping[str, Any]]) -> Times:
    """`rounds` are the "bench" objects of aotrun."""
    medians = [line["median_ms"] for line in rounds]
    median = statistics.median(medians)
    return Times(
        median,
        statistics.median(line["p90_ms"] for line in rounds),
        min(line["least_ms"] for line in rounds),
        (max(medians) - min(medians)) / median,
        statistics.median(line["samples_per_second"] for line in rounds),
        int(rounds[0]["block_bytes"]),
        max(int(line["resident_bytes"]) for line in rounds),
    )


@dataclass(frozen=True)
class Part:
    """One launch of a step: nanoseconds, and bytes of its arguments."""

    kernel: str
    origin: str
    ns: int
    nbytes: int


def parts(plan: Plan, launches: Sequence[Mapping[str, Any]]) -> list[Part]:
    """The train entry's launches with their measured times, in order."""
    planned = plan.entry("train").launches
    return [
        Part(
            seen["kernel"],
            seen["origin"],
            int(seen["ns"]),
            sum(plan.tensors[index].nbytes for index in dict.fromkeys(launch.args)),
        )
        for launch, seen in zip(planned, launches, strict=False)  # a profile ends at 8192
    ]


@dataclass(frozen=True)
class Kernel:
    """All launches of a kernel in a step; `origin` is that of the slowest."""

    name: str
    origin: str
    launches: int
    ns: int


def by_kernel(found: Sequence[Part]) -> list[Kernel]:
    """The slowest first."""
    groups: dict[str, list[Part]] = {}
    for part in found:
        groups.setdefault(part.kernel, []).append(part)
    kernels = [
        Kernel(name, max(some, key=lambda p: p.ns).origin, len(some), sum(p.ns for p in some))
        for name, some in groups.items()
    ]
    return sorted(kernels, key=lambda kernel: -kernel.ns)


def shares(found: Sequence[Part], bytes_per_ns: float) -> dict[str, float]:
    """{"launch", "memory", "compute"}: shares of the profile's time, which add up to 1."""
    total = sum(part.ns for part in found)
    if not total:
        return {"launch": 0.0, "memory": 0.0, "compute": 0.0}
    least = min(part.ns for part in found)
    launch = least * len(found)
    memory = sum(min(part.ns - least, part.nbytes / bytes_per_ns) for part in found)
    return {
        "launch": launch / total,
        "memory": memory / total,
        "compute": (total - launch - memory) / total,
    }


def copying_speed(nbytes: int, threads: int) -> float:
    """Bytes a nanosecond (read and written) of `threads` that copy, over `nbytes` in all.

    Of a size like the model's: what fits into a cache is moved at a cache's speed.
    """
    each = min(max(nbytes, SMALLEST), LARGEST) // (2 * threads)
    pairs = [(np.ones(each, np.uint8), np.empty(each, np.uint8)) for _ in range(threads)]
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(7):
            began = time.perf_counter_ns()
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), pairs))
            best = min(best, time.perf_counter_ns() - began)
    return 2 * each * threads / best


def advice(share: Mapping[str, float]) -> str:
    """What to try first."""
    most = max(share, key=lambda name: share[name])
    return {
        "launch": "mostly launches: a larger --batch gives each kernel more to do",
        "memory": "mostly memory: a larger --batch reads weights and slots less often a sample;"
        " sgd and momentum have fewer slots than adamw",
        "compute": "mostly arithmetic: more --threads, or a smaller model; 'aotrain compile' for"
        " this very processor uses its widest vectors",
    }[most]


def ratio(found: Times, baseline: Mapping[str, Any]) -> float:
    """Our median over that of a report of `aotrain bench --json`. KeyError, TypeError, ValueError
    for anything else."""
    return found.median_ms / float(baseline["median_ms"])
