"""`aotrain run ARTIFACT --data FILE`: an artifact and data in, a trained checkpoint out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .base import define, option
from .console import Console
from .values import NamedNumber, NamedWord

COUNT = click.IntRange(1)


@define(
    "Train an artifact on a data file.",
    examples=(
        (
            "Five epochs, with the accuracy on held-out rows after each",
            "aotrain run m.aot --data train.npz --valid test.npz --epochs 5 --save m.safetensors",
        ),
        (
            "Five more, exactly as if it had not stopped",
            "aotrain run m.aot --data train.npz --epochs 10 --resume m.safetensors "
            "--save m.safetensors",
        ),
    ),
)
@click.argument("artifact", type=click.Path(path_type=Path))
@option(
    "--data", required=True, metavar="FILE", help="Rows to train on: npz, npy, csv, IDX, or images."
)
@option("--valid", metavar="FILE", help="Rows to evaluate on after each epoch.")
@option("--epochs", type=COUNT, metavar="N", help="Train until so many are done (1 without it).")
@option("--lr", type=float, metavar="X", help="Learning rate, instead of the one compiled in.")
@option("--save", metavar="FILE", help="Checkpoint, written after epochs and at the end.")
@option("--resume", metavar="FILE", help="Checkpoint to continue from, bit for bit.")
@option(
    "--map",
    "mapping",
    type=NamedWord(),
    multiple=True,
    help="Array or csv columns that serve an input.",
)
@option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    help="Order of the rows, and dropout (0 without it).",
)
@option("--threads", type=COUNT, metavar="N", help="All cores of this process without it.")
@option(
    "--steps",
    type=COUNT,
    metavar="N",
    advanced=True,
    help="Instead of --epochs: until so many are done.",
)
@option("--set", "hyper", type=NamedNumber(), multiple=True, advanced=True, help="Hyperparameter.")
@option(
    "--save-every",
    type=COUNT,
    metavar="N",
    advanced=True,
    help="Also write FILE-<step> every N steps.",
)
@option(
    "--keep",
    type=COUNT,
    metavar="N",
    advanced=True,
    help="Checkpoints of --save-every to keep (3).",
)
@option("--predict", metavar="FILE", advanced=True, help="Rows to predict when done.")
@option("-o", "--output", metavar="FILE", advanced=True, help="npz for what --predict gives.")
def command(console: Console, artifact: Path, mapping: Any, hyper: Any, **options: Any) -> None:
    """Runs ARTIFACT/aotrun, which needs neither this program nor Python.

    FILE may be a pair, images:labels or x=a.npy,y=b.npy, or a folder with a sub-folder of images
    for each class ('aotrain explain AOT-D022'). Each input takes the array of its own
    name, the one that --map gives it, or the one that is left. What aotrun does not read (csv, gz,
    compressed npz, images) is unpacked to a temporary folder first.
    """
    from .aotrun import Call

    if not options["save"] and not options["output"]:
        console.note("note: what is learned is not kept without --save FILE")
    data = {name: options.pop(name) for name in ("data", "valid", "predict")}
    Call(
        artifact,
        data,
        dict(mapping),
        {name.replace("_", "-"): value for name, value in options.items()},
        [("set", f"{name}={value!r}") for name, value in hyper],
    ).run(console)
