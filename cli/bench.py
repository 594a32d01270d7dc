"""`aotrain bench ARTIFACT`: an artifact in; the time of a step, and what it is made of, out."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotrain.errors import Diagnostic, InputError
from aotrain.units import human_bytes

from .base import define, option
from .console import Console, table
from .values import NamedWord

if TYPE_CHECKING:
    from aotrain.bench import Times

COUNT = click.IntRange(1)


@define(
    "Time a training step, and say what the time is made of.",
    examples=(
        ("On two cores", "aotrain bench model.aot --threads 2"),
        (
            "Before and after a change",
            "aotrain bench old.aot --json > old.json && aotrain bench new.aot --baseline old.json",
        ),
    ),
)
@click.argument("artifact", type=click.Path(path_type=Path))
@option("--steps", type=COUNT, metavar="N", default=50, show_default=True, help="Steps a round.")
@option("--rounds", type=COUNT, metavar="N", default=5, show_default=True, help="Processes.")
@option("--threads", type=COUNT, metavar="N", help="All cores of this process without it.")
@option("--baseline", type=click.Path(path_type=Path), help="Report of --json to compare with.")
@option("--data", metavar="FILE", advanced=True, help="Its first batch; zeros without it.")
@option(
    "--map",
    "mapping",
    type=NamedWord(),
    multiple=True,
    advanced=True,
    help="Array or csv columns that serve an input.",
)
@option("--kernels", type=COUNT, metavar="N", default=5, advanced=True, help="Slowest to list (5).")
def command(
    console: Console,
    artifact: Path,
    steps: int,
    rounds: int,
    threads: int | None,
    baseline: Path | None,
    data: str | None,
    mapping: Any,
    kernels: int,
) -> None:
    """Each round is an aotrun of its own that warms up for three steps; the median of their medians
    counts, and how far they lie apart is the spread. A last one times every kernel: "memory" is
    what moving the kernels' arguments takes at this machine's copying speed, "launch" what the
    shortest launch takes, "compute" the rest. The artifact's state is not changed.
    """
    from aotrain import bench
    from aotrain.artifact import read

    from .aotrun import Call

    before = None if baseline is None else _report(baseline)
    plan = read(artifact).plan
    call = Call(artifact, {"data": data}, dict(mapping), {"bench": steps, "threads": threads})
    found = bench.times([call.results(console)["bench"] for _ in range(rounds)])
    profile = call.results(console, "--profile")["launches"]
    used = threads or len(os.sched_getaffinity(0))
    parts = bench.parts(plan, profile)
    share = bench.shares(parts, bench.copying_speed(plan.block_bytes, used))
    ratio = None if before is None else bench.ratio(found, before)
    _print(console, found, share, ratio)
    total = sum(part.ns for part in parts) or 1
    rows = [
        [f"{k.ns * 1e-6:.3f}", f"{k.ns / total:.0%}", str(k.launches), k.name, _short(k.origin)]
        for k in bench.by_kernel(parts)[:kernels]
    ]
    header = ("ms", "share", "launches", "kernel", "from")
    console.result(f"\n{table(rows, header, right='rrrll')}")
    console.say(f"\n{bench.advice(share)}")
    if found.noisy:
        console.note(
            f"warning: the rounds differ by {found.spread:.0%}: the machine is busy, or throttles"
        )
    console.finish(
        {
            **found.__dict__,
            "noisy": found.noisy,
            "threads": used,
            "steps": steps,
            "rounds": rounds,
            "shares": share,
            "kernels": [part.__dict__ for part in parts],
            "baseline": None if ratio is None else {"file": str(baseline), "ratio": ratio},
        }
    )


def _report(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_bytes())
        if not float(report["median_ms"]) > 0:
            raise ValueError
    except OSError as error:
        message = f"cannot read '{path}': {error.strerror}"
        raise InputError(Diagnostic("AOT-D010", message)) from error
    except (ValueError, KeyError, TypeError) as error:
        message = f"'{path}' is no report of 'aotrain bench --json'"
        raise InputError(Diagnostic("AOT-D011", message)) from error
    return dict(report)


def _print(console: Console, found: Times, share: dict[str, float], ratio: float | None) -> None:
    console.result(
        f"step      median {found.median_ms:.3f} ms, p90 {found.p90_ms:.3f} ms, "
        f"least {found.least_ms:.3f} ms, spread {found.spread:.1%}"
    )
    if ratio is not None:
        within = ", within the spread" if abs(ratio - 1) <= found.spread else ""
        console.result(f"baseline  {ratio:.2f} times its median{within}")
    console.result(f"samples   {found.samples_per_second:,.0f} a second")
    console.result(
        f"memory    {human_bytes(found.block_bytes)} planned and allocated, "
        f"{human_bytes(found.resident_bytes)} resident at most"
    )
    console.result(f"made of   {', '.join(f'{name} {part:.0%}' for name, part in share.items())}")


def _short(origin: str, width: int = 60) -> str:
    """Without shapes, and cut; the report of --json has it whole."""
    names = re.sub(r" \([^)]*\)", "", origin)
    return names if len(names) <= width else f"{names[: width - 3]}..."
