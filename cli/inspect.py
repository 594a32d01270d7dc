"""`aotrain inspect PATH`: a model, an artifact or a checkpoint in, tables out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .base import define
from .console import Console, table

if TYPE_CHECKING:
    from aotrain.describe import Section


@define(
    "Describe a model, an artifact or a checkpoint.",
    examples=(
        ("The parameters of an artifact", "aotrain inspect model.aot | grep trainable"),
        ("What a checkpoint holds", "aotrain inspect trained.safetensors"),
    ),
)
@click.argument("path", type=click.Path(path_type=Path))
def command(console: Console, path: Path) -> None:
    """PATH is an ONNX file, a folder that 'aotrain compile' wrote, or a safetensors file.

    One line a thing, with the same words first, so that grep finds it. Needs neither a device nor
    a compiler.
    """
    from aotrain.describe import describe

    found = describe(path)
    width = max(len(name) for name, _ in found.facts)
    blocks = ["\n".join(f"{name.ljust(width)}  {value}" for name, value in found.facts)]
    blocks += [_block(section) for section in found.sections if section.rows]
    console.result("\n\n".join(blocks))
    console.finish({"kind": found.kind, "path": str(path), **found.data})


def _block(section: Section) -> str:
    return f"{section.title}\n{table(section.rows, section.header, right=section.align)}"
