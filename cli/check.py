"""`aotrain check MODEL`: an ONNX file in; per node whether it can be trained out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotrain.errors import ExitCode

from .base import Among, define, option
from .compile import LOSSES
from .console import Console, table
from .values import NamedInt, target_option

if TYPE_CHECKING:
    from aotrain.checker import NodeReport

_WORDS = {True: "yes", False: "NO", None: "-"}


@define(
    "Say of every node whether it can be trained, and why not.",
    examples=(
        ("Only the nodes in the way", "aotrain check model.onnx --problems"),
        ("With the sizes that it will have", "aotrain check model.onnx --batch 8 --dim seq=128"),
    ),
)
@click.argument("model", type=click.Path(path_type=Path))
@option("--problems", is_flag=True, help="List only the nodes that something is missing for.")
@option("--batch", type=click.IntRange(1), metavar="N", help="Rows a step.")
@option("--dim", "dims", type=NamedInt(), multiple=True, help="Size of a named dimension.")
@option("--freeze", multiple=True, metavar="GLOB", help="Weights to keep as they are.")
@option("--trainable", multiple=True, metavar="GLOB", help="Weights to train.")
@option(
    "--loss", type=Among(LOSSES), metavar="NAME", default="auto", help="As in 'aotrain compile'."
)
@target_option("Where it will train.")
def command(console: Console, model: Path, problems: bool, **options: Any) -> None:
    """Nothing is written. Each node of MODEL is imported, differentiated and lowered; 'NO' marks
    the step that fails, '-' one that was not reached. Exits with 3 where something is missing.
    """
    import aotrain

    report = aotrain.check(
        model,
        target=options["target"],
        loss=options["loss"],
        batch=options["batch"],
        dims=dict(options["dims"]),
        trainable=options["trainable"],
        freeze=options["freeze"],
    )
    rows = [_row(node) for node in report.nodes if not problems or node.reasons]
    header = ("node", "op", "import", "gradient", "kernel", "reason")
    if rows:
        console.result(table(rows, header))
    for problem in report.others:
        console.result(f"\n{problem.render()}")
    bad = sum(1 for node in report.nodes if node.reasons)
    verdict = "can be trained" if report.ok else f"{bad} of them cannot be trained as they are"
    console.say(f"\n{len(report.nodes)} nodes: {verdict}")
    console.finish(report.as_json(), ok=report.ok)
    if not report.ok:
        click.get_current_context().exit(int(ExitCode.UNSUPPORTED))


def _row(node: NodeReport) -> tuple[str, ...]:
    return (
        node.name,
        node.op_type,
        _WORDS[node.imported],
        _WORDS[node.differentiable],
        _WORDS[node.kernel],
        "; ".join(f"{reason.code} {reason.message}" for reason in node.reasons),
    )
