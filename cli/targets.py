"""`aotrain targets`: nothing in; what `--target` takes out."""

from __future__ import annotations

import click

from .base import define
from .console import Console, table


@define(
    "List the targets and what each needs.",
    examples=(
        ("What --target takes", "aotrain targets"),
        ("What a spelling means", "aotrain targets cpu:haswell"),
    ),
)
@click.argument("target", required=False)
def command(console: Console, target: str | None) -> None:
    """With TARGET, its full name: what 'cpu' is on this machine, for instance.

    A target of another architecture than this machine's needs a C compiler that can build for it;
    the package ziglang brings one.
    """
    from aotrain import targets

    if target is not None:
        name = targets.get(target).name
        console.result(name)
        console.finish({"target": target, "name": name})
        return
    rows = [
        ("cpu", targets.get("cpu").name, "this machine"),
        *((f"cpu:{arch}", targets.get(f"cpu:{arch}").name, "generic") for arch in _architectures()),
        ("cpu:PROCESSOR", "", "a processor of this machine's architecture, by LLVM's name"),
        ("cpu:ARCH,PROCESSOR", "", "a processor of another architecture"),
        ("vulkan", targets.get("vulkan").name, "any GPU with Vulkan 1.1"),
    ]
    console.result(table(rows, ("target", "full name", "what it is")))
    console.finish(
        {"targets": [{"target": t, "name": name, "summary": what} for t, name, what in rows]}
    )


def _architectures() -> tuple[str, ...]:
    from aotrain.targets.cpu import TRIPLES

    return tuple(TRIPLES)
