"""`aotrain eval ARTIFACT --data FILE`: checkpoint and data in, loss and accuracy out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .base import define, option
from .console import Console
from .values import NamedWord


@define(
    "Loss and accuracy of an artifact on a data file.",
    examples=(
        (
            "A trained checkpoint on held-out rows",
            "aotrain eval model.aot --state trained.safetensors --data test.npz",
        ),
        ("The initial weights, for a script", "aotrain eval model.aot --data test.csv --json"),
    ),
)
@click.argument("artifact", type=click.Path(path_type=Path))
@option(
    "--data",
    required=True,
    metavar="FILE",
    help="Rows to evaluate on: npz, npy, csv, IDX, or images.",
)
@option("--state", metavar="FILE", help="Checkpoint; without it the initial weights.")
@option(
    "--map",
    "mapping",
    type=NamedWord(),
    multiple=True,
    help="Array or csv columns that serve an input.",
)
@option(
    "--threads", type=click.IntRange(1), metavar="N", help="All cores of this process without it."
)
def command(
    console: Console,
    artifact: Path,
    data: str,
    state: str | None,
    mapping: Any,
    threads: int | None,
) -> None:
    """Every row counts once, a last short batch included. Data as in 'aotrain run'."""
    from .aotrun import Call

    options = {"resume": state, "threads": threads}
    Call(artifact, {"valid": data}, dict(mapping), options).run(console)
