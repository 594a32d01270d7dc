"""`aotrain inspect PATH`: a model, an artifact or a checkpoint in, tables out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .base import define, option
from .console import Console, table

if TYPE_CHECKING:
    from aotrain.describe import Section


@define(
    "Describe a model, an artifact or a checkpoint.",
    examples=(
        ("The parameters of an artifact", "aotrain inspect model.aot | grep trainable"),
        ("What its memory is used for, as a page", "aotrain inspect model.aot --report page.html"),
    ),
)
@click.argument("path", type=click.Path(path_type=Path))
@option(
    "--memory",
    is_flag=True,
    help="Of an artifact: its peak, what is alive then, what runs twice, and what is proven.",
)
@option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write that as one HTML page, with every tensor over the step.",
)
def command(console: Console, path: Path, memory: bool, report: Path | None) -> None:
    """PATH is an ONNX file, a folder that 'aotrain compile' wrote, or a safetensors file.

    One line a thing, with the same words first, so that grep finds it. Needs neither a device nor
    a compiler.
    """
    if memory or report is not None:
        _memory(console, path, report)
        return
    from aotrain.describe import describe

    found = describe(path)
    width = max(len(name) for name, _ in found.facts)
    blocks = ["\n".join(f"{name.ljust(width)}  {value}" for name, value in found.facts)]
    blocks += [_block(section) for section in found.sections if section.rows]
    console.result("\n\n".join(blocks))
    console.finish({"kind": found.kind, "path": str(path), **found.data})


def _memory(console: Console, path: Path, page: Path | None) -> None:
    from aotrain.describe_memory import read_report, write_page

    artifact, found = read_report(path)
    console.result(found.render())
    if page is not None:
        write_page(page, artifact, found)
        console.say(f"\nwrote {page}")
    console.finish({"kind": "memory", "path": str(path), **found.as_dict()})


def _block(section: Section) -> str:
    return f"{section.title}\n{table(section.rows, section.header, right=section.align)}"
