"""A target's name in, its description and code generator out; one file a target."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from aotrain.errors import Diagnostic, UsageError

if TYPE_CHECKING:
    from aotrain.targets.target import Target

NAMES = ("cpu", "vulkan")


def get(name: str) -> Target:
    """The target that `name` spells ("cpu", "cpu:haswell", "vulkan", ...). Raises UsageError."""
    kind, _, argument = name.partition(":")
    if kind == "cpu":
        from aotrain.targets import cpu

        return cpu.parse(argument)
    if kind == "vulkan":
        from aotrain.targets import vulkan

        return vulkan.parse(argument)
    close = difflib.get_close_matches(kind, NAMES, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"targets: {', '.join(NAMES)}"
    raise UsageError(Diagnostic("AOT-U011", f"unknown target '{name}'", "--target", hint))
