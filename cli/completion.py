"""`aotrain completion SHELL`: a shell's name in, its completion script out on stdout."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .base import Among, define
from .console import Console

SHELLS = ("bash", "zsh", "fish")


@define(
    "Print the completion script of a shell.",
    examples=(
        ("For this bash only", 'eval "$(aotrain completion bash)"'),
        (
            "For every fish from now on",
            "aotrain completion fish > ~/.config/fish/completions/aotrain.fish",
        ),
    ),
)
@click.argument("shell", type=Among(SHELLS))
def command(console: Console, shell: str) -> None:
    """SHELL is bash, zsh or fish. Commands, options and fixed values complete."""
    from .app import cli

    made = get_completion_class(shell)
    assert made is not None
    script = made(cli, {}, "aotrain", "_AOTRAIN_COMPLETE").source()
    console.result(script)
    console.finish({"shell": shell, "script": script})
