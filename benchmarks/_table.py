"""Measured figures in, a table for a terminal or for Markdown out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

OURS = "aotrain"
LEAN = "aotrain --recompute-budget 2%"


@dataclass
class Figures:
    """One contender on one model. `reason` says why it has no numbers."""

    ms: list[float] = field(default_factory=list)  # of every step
    peak_bytes: int = 0
    warm_up_s: float = 0.0  # the first three steps; torch.compile compiles there
    reason: str = ""

    @property
    def median(self) -> float:
        """Milliseconds a step."""
        return statistics.median(self.ms)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, relative to the median."""
        low, _, high = statistics.quantiles(self.ms, n=4)
        return (high - low) / 2 / self.median


@dataclass
class Result:
    """One model: what the compiler says, and every contender's figures by its name."""

    model: str
    batch: int
    contenders: dict[str, Figures]
    compile_s: float = 0.0
    program_bytes: int = 0
    artifact_bytes: int = 0
    block_bytes: int = 0


def times(results: Sequence[Result], names: Sequence[str]) -> list[list[str]]:
    """Milliseconds a step with the spread, and how many times ours each of the others takes."""
    others = [name for name in names if name not in (OURS, LEAN)]
    rows = [["model", "batch", *(f"{n}, ms" for n in names), *(f"{n} / {OURS}" for n in others)]]
    for result in results:
        found = result.contenders
        row = [result.model, str(result.batch), *(_time(found[name]) for name in names)]
        rows.append(row + [_ratio(found[name], found[OURS]) for name in others])
    return rows


def sizes(results: Sequence[Result], names: Sequence[str]) -> list[list[str]]:
    """Resident memory of the training processes, and what the compiler wrote and took."""
    head = ["model", *(f"{n}, MiB" for n in names), "planned, MiB"]
    rows = [[*head, "program, KiB", "artifact, MiB", "compile, s"]]
    for result in results:
        row = [result.model]
        row += [_mib(result.contenders[name].peak_bytes) for name in names]
        row += [_mib(result.block_bytes), f"{result.program_bytes / 1024:.0f}"]
        rows.append([*row, _mib(result.artifact_bytes), f"{result.compile_s:.1f}"])
    return rows


def notes(results: Sequence[Result]) -> list[str]:
    """Why some cells are empty."""
    return [
        f"{name} on {result.model}: {figures.reason}"
        for result in results
        for name, figures in result.contenders.items()
        if figures.reason
    ]


def summary(results: Sequence[Result], names: Sequence[str]) -> str:
    """The geometric mean, over the models, of what the fastest of the others takes by ours."""
    ratios = []
    for result in results:
        found = result.contenders
        others = [found[n].median for n in names if n not in (OURS, LEAN) and found[n].ms]
        if others and found[OURS].ms:
            ratios.append(min(others) / found[OURS].median)
    if not ratios:
        return ""
    mean, count = statistics.geometric_mean(ratios), len(ratios)
    return f"the fastest of the others takes {mean:.2f} times ours (geometric mean of {count})"


def text(rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(lines)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of GitHub's dialect."""
    head, *body = rows
    ruler = ["---"] + ["--:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ruler, *body])


def _time(figures: Figures) -> str:
    return f"{figures.median:.2f} ±{figures.spread:.0%}" if figures.ms else "-"


def _ratio(theirs: Figures, ours: Figures) -> str:
    return f"{theirs.median / ours.median:.2f}" if theirs.ms and ours.ms else "-"


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f}" if nbytes else "-"
