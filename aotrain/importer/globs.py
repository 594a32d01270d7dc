"""A glob and names in, the names that match, or an error with close ones, out."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence

from aotrain.errors import Diagnostic


def matches(glob: str, names: Sequence[str], flag: str) -> tuple[list[str], Diagnostic | None]:
    """Names that the glob matches, case-sensitively; a diagnostic where there is none."""
    found = [n for n in names if n == glob or fnmatch.fnmatchcase(n, glob)]
    if found:
        return found, None
    bare = glob.strip("*?.")
    close = difflib.get_close_matches(bare, names, 3, 0.4)
    close = close or [n for n in names if bare and bare.lower() in n.lower()][:3]
    hint = f"Did you mean {', '.join(close)}?" if close else _some(names)
    return [], Diagnostic("AOT-I010", f"{flag} '{glob}' matches no parameter", hint=hint)


def _some(names: Sequence[str]) -> str:
    if not names:
        return "The model has no parameters."
    listed = ", ".join(names[:5])
    return f"The model has {listed}{', ...' if len(names) > 5 else ''}."
