"""What every command shares: help in two lengths, common options, close matches.

@define("Train an artifact.", examples=(("What it shows", "aotrain run model.aot ..."), ...))
@click.argument("artifact")
@option("--epochs", type=int, help="...")
@option("--seed", type=int, advanced=True, help="only under --help-all")
def command(console: Console, artifact: str, epochs: int, seed: int) -> None: ...
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from .console import Console

HELP_NAMES = ["-h", "--help"]
SHOW_ALL = "aotrain.help_all"  # key in Context.meta: help shows advanced options too

Example = tuple[str, str]  # (what it does, the command line)


def closest(word: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Those of `known` that `word` may have meant, the closest first."""
    folded = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), folded, n=limit, cutoff=0.6)
    return [folded[name] for name in found]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'a' or 'b'?`, or the whole list where nothing is close and it is short."""
    names = list(known)
    close = closest(word, names)
    if close:
        return f"did you mean {' or '.join(repr(name) for name in close)}?"
    return f"known: {', '.join(names)}" if 0 < len(names) <= 16 else ""


class NoSuchCommand(click.UsageError):
    """A command that does not exist; `known` are those that do."""

    def __init__(self, name: str, known: Sequence[str], ctx: click.Context) -> None:
        super().__init__(f"no command '{name}'", ctx)
        self.name = name
        self.known = known


class BadChoice(click.BadParameter):
    """A value outside a fixed list."""

    def __init__(self, value: str, known: Sequence[str], **where: Any) -> None:
        super().__init__(f"'{value}' is none of {', '.join(known)}", **where)
        self.value = value
        self.known = known


class Among(click.Choice):
    """A choice whose error suggests the closest value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value itself, or `BadChoice`."""
        if value in self.choices:
            return value
        raise BadChoice(str(value), [str(name) for name in self.choices], ctx=ctx, param=param)


class Option(click.Option):
    """An option; an `advanced` one is listed by `--help-all` only."""

    def __init__(self, *args: Any, advanced: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.advanced = advanced

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """None hides it from this help."""
        if self.advanced and not ctx.meta.get(SHOW_ALL):
            return None
        return super().get_help_record(ctx)


option = functools.partial(click.option, cls=Option)


class Command(click.Command):
    """A command whose help ends with its examples."""

    def __init__(self, *args: Any, examples: Sequence[Example] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, each with a line that says what it does."""
        with formatter.section("Examples"):
            for i, (what, line) in enumerate(self.examples):
                if i:
                    formatter.write_paragraph()
                formatter.write(f"  # {what}\n  {line}\n")


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[SHOW_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_COMMON: tuple[click.Option, ...] = (
    Option(["--json", "as_json"], is_flag=True, help="One JSON object on stdout, nothing else."),
    Option(["-q", "--quiet"], is_flag=True, advanced=True, help="Print errors and results only."),
    Option(["-v", "--verbose"], count=True, advanced=True, help="Print more."),
    Option(["--no-progress"], is_flag=True, advanced=True, help="No progress bar or lines."),
    Option(
        ["--color"],
        type=Among(["auto", "always", "never"]),
        metavar="WHEN",
        default="auto",
        advanced=True,
        help="always, never or auto: on a terminal, unless NO_COLOR is set.",
    ),
    Option(["--debug"], is_flag=True, advanced=True, help="Show the traceback of an error."),
    Option(
        ["--help-all"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_show_all,
        help="Show every option and exit.",
    ),
)


def define(summary: str, *, examples: Sequence[Example]) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function whose first argument is its `Console`.

    `summary` is the first line of its help, the function's docstring the rest.
    """

    def decorate(function: Callable[..., Any]) -> Command:
        @functools.wraps(function)
        def invoke(
            as_json: bool,
            quiet: bool,
            verbose: int,
            no_progress: bool,
            color: str,
            debug: bool,
            **arguments: Any,
        ) -> Any:
            ctx = click.get_current_context()
            console = Console(
                command=ctx.info_name or "",
                as_json=as_json,
                quiet=quiet,
                verbose=verbose,
                progress=not no_progress,
                color=color,
                debug=debug,
            )
            return function(console, **arguments)

        details = inspect.cleandoc(function.__doc__ or "")
        own: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))
        return Command(
            name=function.__module__.rpartition(".")[2],
            callback=invoke,
            params=[*own, *_COMMON],
            help=f"{summary}\n\n{details}".strip(),
            short_help=summary,
            examples=examples,
            context_settings={"help_option_names": HELP_NAMES, "max_content_width": 100},
        )

    return decorate
