"""`aotrain compile MODEL -o ARTIFACT`: an ONNX file in, a standalone training program out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotrain.errors import Diagnostic, InputError

from .base import Among, define, option
from .console import Console, human_seconds
from .values import Bytes, NamedInt, NamedNumber, Share, target_option

if TYPE_CHECKING:
    import numpy as np

    from aotrain.compiler import Phase
    from aotrain.step.options import LossOptions

LOSSES = ("auto", "cross-entropy", "mse", "l1", "huber", "bce-with-logits", "output")
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adam", "adamw")


@define(
    "Compile an ONNX model to a standalone training program.",
    examples=(
        (
            "A classifier, for this machine",
            "aotrain compile model.onnx --loss cross-entropy --batch 64 -o model.aot",
        ),
        (
            "Fine-tune the layers named head.* and freeze all others",
            "aotrain compile net.onnx --freeze '*' --trainable 'head.*' --lr 1e-4 -o net.aot",
        ),
    ),
)
@click.argument("model", type=click.Path(path_type=Path))
@option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@target_option("Where it will train; 'aotrain targets' lists them.")
@option(
    "--loss",
    type=Among(LOSSES),
    metavar="NAME",
    default="auto",
    help=f"One of {', '.join(LOSSES)}. auto is cross-entropy for a classifier, else mse.",
)
@option(
    "--optimizer",
    type=Among(OPTIMIZERS),
    metavar="NAME",
    default="adamw",
    help=f"One of {', '.join(OPTIMIZERS)}; adamw without it.",
)
@option("--lr", type=float, metavar="X", help="Learning rate; it can be changed when running.")
@option(
    "--batch",
    type=click.IntRange(1),
    metavar="N",
    help="Rows a step (32 where the file leaves it open).",
)
@option("--dim", "dims", type=NamedInt(), multiple=True, help="Size of a named dimension.")
@option(
    "--freeze", multiple=True, metavar="GLOB", advanced=True, help="Weights to keep as they are."
)
@option(
    "--memory-budget",
    type=Bytes(),
    metavar="SIZE",
    help="Limit of all tensors together, such as 300MiB; some work is then done twice.",
)
@option(
    "--recompute-budget",
    type=Share(),
    metavar="SHARE",
    advanced=True,
    help="Limit of the time of work done twice, such as 10%; alone: as little memory as it buys.",
)
@option(
    "--times",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    advanced=True,
    help="Measured kernels, from 'aotrun ARTIFACT --bench N --profile --json', for budgets.",
)
@option("--no-tuning", is_flag=True, advanced=True, help="Ignore what 'aotrain tune' found here.")
@option("--force", is_flag=True, help="Replace the output where it exists.")
@option(
    "--trainable",
    multiple=True,
    metavar="GLOB",
    advanced=True,
    help="Weights to train; applied after --freeze.",
)
@option(
    "--batchnorm",
    type=Among(["train", "frozen"]),
    metavar="HOW",
    default="train",
    advanced=True,
    help="train: BatchNormalization by the batch; frozen: by its running statistics.",
)
@option(
    "--seed", type=int, metavar="N", default=0, advanced=True, help="Of dropout (0 without it)."
)
@option(
    "--set",
    "hyper",
    type=NamedNumber(),
    multiple=True,
    advanced=True,
    help="Default of a hyperparameter, such as weight_decay=0.1.",
)
@option("--ignore-index", type=int, metavar="N", advanced=True, help="Label that does not count.")
@option(
    "--class-axis",
    type=int,
    metavar="N",
    advanced=True,
    help="Axis of the classes; found without it.",
)
@option(
    "--label-smoothing", type=click.FloatRange(0, 1), metavar="X", advanced=True, help="0 to 1."
)
@option(
    "--class-weights",
    type=click.Path(path_type=Path),
    advanced=True,
    help="A weight for each class: .npy, or text with a number a line.",
)
@option(
    "--pos-weight",
    type=click.Path(path_type=Path),
    advanced=True,
    help="Weights of the positives in bce-with-logits, in a file as well.",
)
@option(
    "--delta", type=float, metavar="X", advanced=True, help="Where huber turns from square to line."
)
@option("--reduction", type=Among(["mean", "sum"]), advanced=True, help="Over rows (default mean).")
@option("--loss-output", metavar="NAME", advanced=True, help="Model output that the loss takes.")
@option(
    "--dump",
    type=click.Path(path_type=Path, file_okay=False),
    advanced=True,
    help="Folder for every intermediate form, one file a phase.",
)
def command(console: Console, model: Path, output: Path, **options: Any) -> None:
    """MODEL is an ONNX file, exported for inference or for training. The folder that -o names is
    all that a device needs: machine code, memory plan, initial weights, and the loader itself.
    """
    import aotrain

    phases: list[Phase] = []

    def show(phase: Phase) -> None:
        phases.append(phase)
        line = f"{phase.name:<12}{human_seconds(phase.seconds):>10}  {phase.figure}"
        console.say(line.rstrip())
        for note in phase.notes:
            console.say(f"{'':<24}{note}")

    console.say(f"{model} -> {output}, for {options['target']}")
    started = time.perf_counter()
    artifact = aotrain.compile(
        model,
        output=output,
        target=options["target"],
        loss=loss_options(options),
        optimizer=options["optimizer"],
        lr=options["lr"],
        hyper=dict(options["hyper"]),
        batch=options["batch"],
        dims=dict(options["dims"]),
        trainable=options["trainable"],
        freeze=options["freeze"],
        batchnorm=options["batchnorm"],
        seed=options["seed"],
        memory_budget=options["memory_budget"],
        recompute_budget=options["recompute_budget"],
        times=options["times"],
        tuning=not options["no_tuning"],
        force=options["force"],
        dump=options["dump"],
        report=show,
    )
    seconds = time.perf_counter() - started
    console.say(f"\nwrote {output} in {human_seconds(seconds)}. Next:")
    console.say(f"  aotrain run {output} --data train.npz --epochs 5 --save trained.safetensors")
    console.say(f"  aotrain inspect {output}")
    console.finish(
        {
            "output": str(artifact.path),
            "seconds": seconds,
            "phases": [
                {
                    "name": phase.name,
                    "seconds": phase.seconds,
                    "figure": phase.figure,
                    "notes": list(phase.notes),
                }
                for phase in phases
            ],
        }
    )


def loss_options(options: Mapping[str, Any]) -> LossOptions:
    """The options of the loss that were given; all others keep their defaults."""
    from aotrain.step.options import LossOptions

    given = {
        "output": options["loss_output"],
        "axis": options["class_axis"],
        "ignore_index": options["ignore_index"],
        "label_smoothing": options["label_smoothing"],
        "reduction": options["reduction"],
        "delta": options["delta"],
        "class_weights": read_weights(options["class_weights"]),
        "pos_weight": read_weights(options["pos_weight"]),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return LossOptions(kind=options["loss"], **chosen)


def read_weights(path: Path | None) -> np.ndarray | None:
    """Numbers of a .npy file, or of a text file with one a line; None for no path."""
    if path is None:
        return None
    import numpy as np

    from aotrain.data import read

    if path.suffix in (".npy", ".npz"):
        return np.asarray(next(iter(read(path).values())), np.float32)
    try:
        return np.loadtxt(path, dtype=np.float32, ndmin=1, delimiter=",")
    except ValueError as error:
        raise InputError(Diagnostic("AOT-D011", f"cannot read '{path}': {error}")) from error
