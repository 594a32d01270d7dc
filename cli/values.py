"""Words of the command line in, values out: `name=3`, and completion of names from a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from .base import option


class NamedInt(click.ParamType):
    """`batch=32` -> ("batch", 32); the number is at least 1."""

    name = "name=n"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """The pair, or click's own complaint."""
        if isinstance(value, tuple):
            return value
        name, equals, number = value.rpartition("=")
        if not (equals and name and number.isdecimal() and int(number) > 0):
            self.fail(f"'{value}' is not NAME=N, such as seq=128", param, ctx)
        return name, int(number)


class NamedNumber(click.ParamType):
    """`weight_decay=0.1` -> ("weight_decay", 0.1)."""

    name = "name=x"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """The pair, or click's own complaint."""
        if isinstance(value, tuple):
            return value
        name, equals, number = value.partition("=")
        try:
            if equals and name:
                return name, float(number)
        except ValueError:
            pass
        self.fail(f"'{value}' is not NAME=X, such as lr=0.01", param, ctx)


class NamedWord(click.ParamType):
    """`x=images` -> ("x", "images")."""

    name = "input=array"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The pair, or click's own complaint."""
        if isinstance(value, tuple):
            return value
        name, equals, word = value.partition("=")
        if not (equals and name and word):
            self.fail(f"'{value}' is not INPUT=ARRAY, such as x=images", param, ctx)
        return name, word


class Bytes(click.ParamType):
    """`300MiB` -> 314572800; also plain bytes, kB, MB, GB, KiB, GiB."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes, or click's own complaint."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?b?|b?)", value.strip().lower())
        if not match or float(match[1]) == 0:
            self.fail(f"'{value}' is no number of bytes, such as 300MiB", param, ctx)
        power = " kmg".index(match[2][:1].replace("b", "") or " ")
        return int(float(match[1]) * (1024 if "i" in match[2] else 1000) ** power)


class Share(click.ParamType):
    """`10%` or `0.1` -> 0.1."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The fraction, or click's own complaint."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", value.strip())
        if not match:
            self.fail(f"'{value}' is no share, such as 10%", param, ctx)
        return float(match[1]) / (100 if match[2] else 1)


def target_option(text: str) -> Callable[[Callable], Callable]:
    """`--target NAME`, of the commands that compile; `text` is its help."""
    return option(
        "--target",
        metavar="NAME",
        default="cpu",
        show_default=True,
        shell_complete=_targets,
        help=text,
    )


def _targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of targets that begin so; for the shell."""
    from aotrain.targets import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]
