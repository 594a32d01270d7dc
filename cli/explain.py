"""`aotrain explain CODE`: an error code in, its page out."""

from __future__ import annotations

import click

from aotrain.errors import Diagnostic, UsageError

from .base import define, did_you_mean
from .console import Console


@define(
    "Explain an error code.",
    examples=(
        ("What an error means and what to do", "aotrain explain AOT-G001"),
        ("Every code there is", "aotrain explain"),
    ),
)
@click.argument("code", required=False)
def command(console: Console, code: str | None) -> None:
    """Without CODE, lists all of them. 'g1' is short for AOT-G001."""
    from aotrain.explain import normalize, pages

    known = pages()
    if code is None:
        console.result("\n".join(f"{page.code}  {page.title}" for page in known.values()))
        console.finish({"codes": {page.code: page.title for page in known.values()}})
        return
    page = known.get(normalize(code))
    if page is None:
        hint = did_you_mean(normalize(code), known) or "'aotrain explain' lists all codes"
        raise UsageError(Diagnostic("AOT-U008", f"no error code '{code}'", hint=hint))
    console.result(f"{page.code}: {page.title}\n\n{page.text}")
    console.finish({"code": page.code, "title": page.title, "text": page.text})
