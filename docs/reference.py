"""The command line and the error pages in; docs/cli.md and the table of docs/errors.md out."""

from __future__ import annotations

from pathlib import Path

import click

from aotrain.cli.app import COMMANDS, cli
from aotrain.cli.base import SHOW_ALL
from aotrain.explain import pages

DOCS = Path(__file__).parent

CLI_HEAD = """# The command line

`aotrain COMMAND --help` shows the options that most runs need, `--help-all` every one, as here.
This page is made from them (`make docs`).

- Results go to stdout, progress and errors to stderr. With `--json`, stdout holds exactly one
  object, `{"schema": "aotrain/<command>/1", "ok": true, ...}`; after an error `"ok": false`,
  `exit_code` and `errors`. Fields may be added to a schema, none is removed or changes its meaning.
- Exit codes and the form of errors: [errors.md](errors.md).
- Nothing is ever overwritten without `--force`, but a checkpoint by `--save` and predictions by
  `run -o`; files appear whole or not at all.
- No command uses the network.
"""


def cli_page() -> str:
    """All of docs/cli.md."""
    parts = [CLI_HEAD]
    for name in COMMANDS:
        parent = click.Context(cli, info_name="aotrain", terminal_width=90)
        command = cli.get_command(parent, name)
        assert command is not None
        with command.make_context(name, [], parent=parent, resilient_parsing=True) as ctx:
            ctx.meta[SHOW_ALL] = True
            parts.append(f"## aotrain {name}\n\n```\n{ctx.get_help()}\n```\n")
    return "\n".join(parts)


def error_rows() -> list[str]:
    """The lines of the table in docs/errors.md."""
    return [f"| {page.code} | {page.title} |" for page in pages().values()]


def main() -> None:
    """Write both files."""
    (DOCS / "cli.md").write_text(cli_page())
    errors = DOCS / "errors.md"
    head = errors.read_text().partition("| code | means |")[0]
    errors.write_text("\n".join([head + "| code | means |", "|---|---|", *error_rows(), ""]))


if __name__ == "__main__":
    main()
