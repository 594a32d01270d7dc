"""Problems met while importing, as exceptions of converters; the driver turns them to diagnostics.

Codes: I001 file missing or unreadable, I002 not ONNX, I003 invalid graph, I004 opset, I005 external
data, I006 no importer for an operator, I007 attribute or mode not supported, I008 dimension not
bound, I009 size known only when running, I010 name or glob matches nothing, I011 shapes that do not
fit, I012 one tensor in two roles, I013 an input or output that is not a dense tensor, I014 a batch
that the model cannot take.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotrain.errors import AotError, Diagnostic, InputError, UnsupportedModelError

BROKEN = frozenset(
    {
        "AOT-I001",
        "AOT-I002",
        "AOT-I003",
        "AOT-I005",
        "AOT-I008",
        "AOT-I010",
        "AOT-I011",
        "AOT-I012",
    }
)
"""Codes for which the user's input is at fault; the others are a limit of ours."""


class Problem(Exception):  # noqa: N818
    """One reason why a node cannot be imported."""

    code = "AOT-I007"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def at(self, where: str) -> Diagnostic:
        """The diagnostic, placed at a node."""
        return Diagnostic(self.code, self.message, where, self.hint)


class Unsupported(Problem):
    """A valid node with an attribute or mode that we do not have."""


class NoConverter(Problem):
    """An operator without converter and without a function body in ONNX."""

    code = "AOT-I006"


class Dynamic(Problem):
    """A value or size that is known only when the model runs."""

    code = "AOT-I009"


class Invalid(Problem):
    """A graph that contradicts itself."""

    code = "AOT-I003"


class BadShape(Problem):
    """Shapes that do not fit each other."""

    code = "AOT-I011"


def raise_all(found: Iterable[Diagnostic]) -> None:
    """Raise one error with every diagnostic: InputError where one is the input's fault."""
    problems = tuple(dict.fromkeys(found))
    if not problems:
        return
    kind: type[AotError] = UnsupportedModelError
    if any(d.code in BROKEN for d in problems):
        kind = InputError
    raise kind(*problems)
