"""A curve of one point in, the same curve with points of less memory and more time out."""

from __future__ import annotations

from aotrain.memory.curve import Curve


def explore(curve: Curve, *, deadline: float, seed: int) -> None:
    """Nothing yet."""
