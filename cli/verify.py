"""`aotrain verify ARTIFACT`: an artifact in; whether files, plan, state and a step hold, out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotrain.errors import ExitCode

from .base import define, option
from .console import Console

if TYPE_CHECKING:
    from aotrain.verifier import Check


@define(
    "Check an artifact: files, plan, state, loader, a step.",
    examples=(
        ("After copying it to a device that has Python", "aotrain verify model.aot"),
        (
            "Whether a checkpoint still fits",
            "aotrain verify model.aot --state trained.safetensors",
        ),
    ),
)
@click.argument("artifact", type=click.Path(path_type=Path))
@option("--state", type=click.Path(path_type=Path), help="Checkpoint to check with it.")
def command(console: Console, artifact: Path, state: Path | None) -> None:
    """Every file against its SHA-256; the memory plan by the compiler's validator; the state by the
    plan; then the loader opens it and takes one step on random inputs, if it is for this machine.
    Nothing is written. Exits with 1 where something does not hold.
    """
    from aotrain.verifier import verify

    checks = verify(artifact, state=state)
    for check in checks:
        console.result(f"{_mark(check):<8}{check.name:<8}{check.detail}")
    problems = [problem for check in checks for problem in check.problems]
    for problem in problems:
        console.result(f"\n{problem.render()}")
    ok = all(check.ok is not False for check in checks)
    errors = [
        {"code": d.code, "message": d.message, "where": d.where, "hint": d.hint} for d in problems
    ]
    lines = [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks]
    console.finish({"checks": lines, "errors": errors}, ok=ok)
    if not ok:
        click.get_current_context().exit(int(ExitCode.INPUT))


def _mark(check: Check) -> str:
    return {True: "ok", False: "FAILED", None: "-"}[check.ok]
