"""`aotrain export ARTIFACT -o MODEL`: artifact and checkpoint in, trained ONNX model out."""

from __future__ import annotations

from pathlib import Path

import click

from .base import define, option
from .console import Console


@define(
    "Write trained weights back into the ONNX model.",
    examples=(
        (
            "The model with the weights of a checkpoint",
            "aotrain export model.aot --state trained.safetensors -o trained.onnx",
        ),
        (
            "Without the comparison after writing",
            "aotrain export model.aot --state best.safetensors --no-check -o best.onnx",
        ),
    ),
)
@click.argument("artifact", type=click.Path(path_type=Path))
@option("-o", "--output", type=click.Path(path_type=Path), required=True, help="ONNX file.")
@option("--state", type=click.Path(path_type=Path), help="Checkpoint; without it initial weights.")
@option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Evaluate the result and compare it with the artifact's predictions.",
)
@option("--force", is_flag=True, help="Replace the output where it exists.")
def command(
    console: Console, artifact: Path, output: Path, state: Path | None, check: bool, force: bool
) -> None:
    """The graph, its names and its opset stay as they were in the file that ARTIFACT was compiled
    from; only weights change, BatchNorm's running statistics among them.
    """
    import aotrain

    done = aotrain.export(artifact, state=state, output=output, check=check, force=force)
    console.say(f"wrote {done.path}: {len(done.replaced)} tensors replaced")
    if done.error is not None:
        console.say(f"checked by {done.evaluator}: outputs differ by {done.error:.1e} at most")
    console.finish(
        {
            "output": str(done.path),
            "replaced": list(done.replaced),
            "evaluator": done.evaluator,
            "error": done.error,
        }
    )
