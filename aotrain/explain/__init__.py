"""An error code in, its page out. The pages lie beside this file, one Markdown file a letter.

A page is a heading `## AOT-G012: what is wrong`, then why it happens and what to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

STAGES = {
    "I": "import",
    "G": "gradient",
    "S": "step",
    "K": "kernel",
    "M": "memory",
    "A": "artifact",
    "D": "data",
    "T": "target",
    "U": "usage",
    "X": "bug",
}
"""The letter of a code and the stage that raises it, which is also its file's name."""

CODE = re.compile(r"AOT-[A-Z]\d{3}")

_HEADING = re.compile(r"^## (AOT-[A-Z]\d{3}): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """What there is to say about one code. `text` is Markdown without the heading."""

    code: str
    title: str
    text: str


def pages() -> dict[str, Page]:
    """Every page by its code, in the order of the stages."""
    found = {}
    for stage in STAGES.values():
        text = (Path(__file__).parent / f"{stage}.md").read_text(encoding="utf-8")
        parts = _HEADING.split(text)[1:]  # code, title, body, code, title, body, ...
        for code, title, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            found[code] = Page(code, title, body.strip())
    return found


def normalize(text: str) -> str:
    """`g12`, `AOT-G12` or `aot-g012` -> `AOT-G012`; anything else upper-cased."""
    match = re.fullmatch(r"(?:AOT-?)?([A-Z])(\d{1,3})", text.strip().strip("[]").upper())
    return f"AOT-{match[1]}{int(match[2]):03d}" if match else text.upper()
