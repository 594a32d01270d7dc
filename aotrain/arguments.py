"""Arguments of a Python call in; AOT-U012 for each of a wrong type, all at once, out.

The functions that users call begin with this, so that a mistake is not a TypeError from within.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from aotrain.errors import Diagnostic, UsageError, raise_if_any

PATH = (str, os.PathLike)
NONE = (type(None),)
WHOLE = (Integral,)  # numpy's integers too
NUMBER = (Real,)
MAPPING = (Mapping,)
CALLABLE: tuple[Any, ...] = (Callable,)

_WORDS: dict[Any, str] = {
    str: "a str",
    os.PathLike: "a path",
    type(None): "None",
    Integral: "a whole number",
    Real: "a number",
    Mapping: "a mapping",
    Callable: "a function",
    Sequence: "several of them",
    bool: "a bool",
}


def check_types(function: str, arguments: Mapping[str, tuple[Any, tuple[type, ...]]]) -> None:
    """Raise UsageError unless each (value, types) of `arguments` agree; a bool is no number."""
    problems = []
    for name, (value, types) in arguments.items():
        if isinstance(value, types) and (not isinstance(value, bool) or bool in types):
            continue
        words = [_WORDS.get(kind, f"a {kind.__name__}") for kind in types]
        message = f"{function}: {name} = {value!r:.60} is of type {type(value).__name__}"
        problems.append(Diagnostic("AOT-U012", message, hint=f"it takes {' or '.join(words)}"))
    raise_if_any(problems, UsageError)


def globs(function: str, name: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """One pattern or several, as a tuple; AOT-U012 for anything else."""
    check_types(function, {name: (given, (str, Sequence))})
    found = (given,) if isinstance(given, str) else tuple(given)
    check_types(function, {f"{name}[{i}]": (glob, (str,)) for i, glob in enumerate(found)})
    return found
