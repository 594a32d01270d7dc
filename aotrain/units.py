"""Numbers in, words for people out."""

from __future__ import annotations


def human_bytes(nbytes: float) -> str:
    """`12.3 MiB`; whole bytes below 1 KiB."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} GiB"
