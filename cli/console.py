"""What a command says in; the right stream, colour and amount out.

Results go to stdout. Progress, notes and errors go to stderr. With `--json` stdout carries exactly
one object, so everything else is silent or on stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click


def wants_color(color: str, stream: TextIO) -> bool:
    """Whether to colour: `--color` first, then NO_COLOR (no-color.org), then the terminal."""
    if color in ("always", "never"):
        return color == "always"
    return not os.environ.get("NO_COLOR") and stream.isatty()


def paint(text: str, enabled: bool, **style: Any) -> str:
    """`text` in a style, where enabled; the words must be enough without it."""
    return click.style(text, **style) if enabled else text


def schema_of(command: str) -> str:
    """Name and version of a command's JSON object; a field may be added without a new version."""
    return f"aotrain/{command}/1"


@dataclass(frozen=True)
class Console:
    """The common options of one command, and how to print under them."""

    command: str = ""
    as_json: bool = False
    quiet: bool = False
    verbose: int = 0
    progress: bool = True
    color: str = "auto"
    debug: bool = False

    def say(self, text: str = "", **style: Any) -> None:
        """A line of the human report on stdout; silent under --json and -q."""
        if not self.as_json and not self.quiet:
            print(paint(text, wants_color(self.color, sys.stdout), **style), flush=True)

    def result(self, text: str) -> None:
        """What was asked for, on stdout even under -q; under --json `finish` prints it instead."""
        if not self.as_json:
            print(text, flush=True)

    def note(self, text: str) -> None:
        """A line about the work, on stderr; silent under -q."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def finish(self, data: Mapping[str, Any], *, ok: bool = True) -> None:
        """The command's JSON object, under --json."""
        if self.as_json:
            print(json.dumps({"schema": schema_of(self.command), "ok": ok, **data}, indent=2))


def table(rows: Sequence[Sequence[str]], header: Sequence[str], *, right: str = "") -> str:
    """Columns two blanks apart; column i is right-aligned where `right[i]` is "r"."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def cell(text: str, i: int) -> str:
        return text.rjust(widths[i]) if right[i : i + 1] == "r" else text.ljust(widths[i])

    return "\n".join("  ".join(cell(c, i) for i, c in enumerate(line)).rstrip() for line in lines)


def human_seconds(seconds: float) -> str:
    """`85 ms`, `1.23 s` or `2 min 05 s`."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
