"""argv in, exit code out: the table of commands, and the one place where failures become text."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from .base import HELP_NAMES, NoSuchCommand
from .failures import report

COMMANDS = {
    "check": "Say of every node whether it can be trained, and why not.",
    "compile": "Compile an ONNX model to a standalone training program.",
    "run": "Train an artifact on a data file.",
    "eval": "Loss and accuracy of an artifact on a data file.",
    "bench": "Time a training step, and say what the time is made of.",
    "tune": "Find better schedules for a model's kernels on this machine.",
    "verify": "Check an artifact: files, plan, state, loader, a step.",
    "inspect": "Describe a model, an artifact or a checkpoint.",
    "export": "Write trained weights back into the ONNX model.",
    "targets": "List the targets and what each needs.",
    "doctor": "Check this machine: Python, TVM, C compiler, loader.",
    "explain": "Explain an error code.",
    "completion": "Print the completion script of a shell.",
}
"""Name and summary of each command; `cli/<name>.py` holds it as `command`."""


class CommandTable(click.Group):
    """The commands of `COMMANDS`; a command's module is imported when it is called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table, which is the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None where there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f".{cmd_name}", __package__).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but an unknown name is our own error, with the closest matches."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise NoSuchCommand(args[0], list(COMMANDS), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table itself: importing ten modules to list them would make help slow."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


EXAMPLES = """\b
Examples:
  aotrain compile model.onnx --loss cross-entropy -o model.aot
  aotrain run model.aot --data train.npz --epochs 5 --save trained.safetensors
"""


@click.group(
    cls=CommandTable,
    context_settings={"help_option_names": HELP_NAMES, "max_content_width": 100},
    epilog=EXAMPLES,
    invoke_without_command=True,
)
@click.version_option(package_name="aotrain", prog_name="aotrain", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Compile an ONNX model to a standalone training program, and train it.

    'aotrain COMMAND --help' describes a command; 'aotrain explain CODE' an error.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code (see `errors.ExitCode`); never raises."""
    arguments = list(argv)
    with _noting_interrupts() as interrupts:
        try:
            code = cli.main(
                arguments,
                prog_name="aotrain",
                complete_var="_AOTRAIN_COMPLETE",
                standalone_mode=False,
            )
        except Exception as error:
            return int(report(click.Abort() if interrupts else error, arguments))
    return code if isinstance(code, int) else 0


@contextmanager
def _noting_interrupts() -> Iterator[list[int]]:
    """A list that Ctrl-C adds to, besides raising KeyboardInterrupt.

    Raised in a callback of TVM's, that exception comes out of it as a RuntimeError without a word.
    """
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        signal.default_int_handler(number, frame)

    if threading.current_thread() is not threading.main_thread():
        yield noted  # signals belong to the main thread
        return
    previous = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, previous)


def main() -> NoReturn:
    """The console script `aotrain`."""
    sys.exit(run(sys.argv[1:]))
