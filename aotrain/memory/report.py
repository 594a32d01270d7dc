"""What the solver found and what it proved, as numbers, as text, and as JSON in an artifact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class EntryReport:
    """Memory and time of one entry: bytes and nanoseconds.

    `order_bound` <= the arena of any order without second runs. Where a memory budget was given,
    every schedule within it spends at least `extra_bound` ns on second runs; where a budget of time
    was given, every schedule within it needs `arena_bound` bytes.
    """

    name: str
    arena: int  # high water of the offsets
    load: int  # most bytes alive: arena - load is lost to fragmentation
    unbudgeted: int  # arena of the best order without second runs
    order_bound: int
    arena_bound: int
    nanoseconds: int  # of every launch once
    extra: int  # predicted time of second runs
    extra_bound: int
    again: tuple[tuple[int, str, int], ...]  # (position, launch, ns) of each second run
    peak_at: str  # the launch during which `load` bytes are alive
    peak_alive: tuple[tuple[str, int], ...]  # (tensor, bytes) alive then, largest first
    held: tuple[tuple[str, int, str], ...]  # (gradient, bytes, the launch its update waits for)
    runs: int
    curve: tuple[tuple[int, int, int], ...]  # (load, extra, extra_bound) of every plan found

    @property
    def gap(self) -> float:
        """How far `extra` can be above the least possible, as a fraction of the step's time."""
        return max(0, self.extra - self.extra_bound) / max(1, self.nanoseconds)


@dataclass(frozen=True)
class Report:
    """All entries. `block` = persistent bytes + the largest arena; `budget` limits it."""

    block: int
    persistent: int
    budget: int | None
    time_budget: float | None
    seconds: float | None  # None where it was read from an artifact, which has no wall time in it
    entries: tuple[EntryReport, ...]
    complete: bool = True  # False where the time limit cut the search short

    def entry(self, name: str) -> EntryReport:
        """The report of one entry; KeyError when there is none."""
        return {entry.name: entry for entry in self.entries}[name]

    def as_dict(self) -> dict[str, Any]:
        """For JSON; equal plans give equal text, so without `seconds`."""
        return {key: value for key, value in asdict(self).items() if key != "seconds"}

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Report:
        """What `as_dict` gave. KeyError or TypeError for anything else."""
        entries = tuple(
            EntryReport(**{k: _tuples(v) for k, v in e.items()}) for e in raw["entries"]
        )
        return Report(**{**raw, "seconds": None, "entries": entries})

    def notes(self) -> tuple[str, ...]:
        """A line for each entry that runs a launch again, for a summary."""
        return tuple(
            f"{e.name}: {len(e.again)} launches run again, {e.extra / max(1, e.nanoseconds):+.1%} "
            f"time (modelled; any plan {e.extra_bound / max(1, e.nanoseconds):+.1%} at least), "
            f"arena {e.arena / max(1, e.unbudgeted):.0%} of {e.unbudgeted:,} B"
            for e in self.entries
            if e.again
        )

    def render(self, shown: int = 8) -> str:
        """Text; the `shown` largest tensors and dearest second runs of each entry."""
        limit = "" if self.budget is None else f", budget {self.budget:,}"
        solved = "" if self.seconds is None else f"; solved in {self.seconds:.1f} s"
        lines = [
            f"memory   {self.block:,} B{limit}: persistent {self.persistent:,}, "
            f"arena {self.block - self.persistent:,}{solved}"
            + ("" if self.complete else "; the time limit cut the search short")
        ]
        for entry in self.entries:
            lines += ["", *_entry(entry, shown)]
        return "\n".join(lines)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _entry(entry: EntryReport, shown: int) -> list[str]:
    lost = entry.arena - entry.load
    lines = [
        f"{entry.name:<8} arena {entry.arena:,} B, {entry.arena / max(1, entry.unbudgeted):.0%} of "
        f"{entry.unbudgeted:,} without recomputation; fragmentation {lost:,} B",
        f"         bound {entry.order_bound:,} B for any order without recomputation, "
        f"{entry.arena_bound:,} B with it",
    ]
    if entry.again:
        lines += _again(entry, shown)
    lines.append(f"peak     {entry.load:,} B at {entry.peak_at}")
    lines += [f"         {nbytes:>12,} B  {name}" for name, nbytes in entry.peak_alive[:shown]]
    if len(entry.peak_alive) > shown:
        rest = sum(nbytes for _, nbytes in entry.peak_alive[shown:])
        lines.append(f"         {rest:>12,} B  in {len(entry.peak_alive) - shown} others")
    if entry.held:
        total = sum(nbytes for _, nbytes, _ in entry.held)
        lines.append(f"held     {total:,} B of that are gradients whose update has to wait")
        lines += [f"         {n:>12,} B  {name}, until {until}" for name, n, until in entry.held]
    return lines


def _again(entry: EntryReport, shown: int) -> list[str]:
    share, bound = (t / max(1, entry.nanoseconds) for t in (entry.extra, entry.extra_bound))
    dearest: Counter[str] = Counter()
    for _, name, nanoseconds in entry.again:
        dearest[name] += nanoseconds
    return [
        f"time     {share:+.2%} for {len(entry.again)} second runs; at least {bound:+.2%} in any "
        f"plan; gap {entry.gap:.2%}",
        *(f"         {t / 1e3:>12,.1f} us  {name}" for name, t in dearest.most_common(shown)),
    ]
