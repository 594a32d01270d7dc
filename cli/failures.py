"""An exception in; its message on stderr (and as JSON on stdout where asked) and an exit code out.

The only place that knows how a failure looks. Options are read from the raw arguments, because a
failure may come before they are parsed.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence

import click

from aotrain.errors import AotError, Diagnostic, ExitCode, UsageError

from .base import BadChoice, NoSuchCommand, closest, did_you_mean
from .console import paint, schema_of, wants_color


def report(error: Exception, argv: Sequence[str]) -> ExitCode:
    """Print `error` in our form and return the exit code for it."""
    if isinstance(error, click.Abort):  # click's name for Ctrl-C
        print("interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    if "--debug" in argv:
        traceback.print_exception(error, file=sys.stderr)
    failure = as_aot_error(error)
    print(_colored(failure.diagnostics, argv), file=sys.stderr)
    if isinstance(failure, UsageError):
        codes = ""
    else:
        codes = ", ".join(dict.fromkeys(d.code for d in failure.diagnostics))
    if codes and sys.stderr.isatty():
        first = failure.diagnostics[0].code
        print(f"\n'aotrain explain {first}' says more.", file=sys.stderr)
    if "--json" in argv:
        print(json.dumps(_as_json(failure, argv), indent=2))
    return failure.exit_code


def as_aot_error(error: Exception) -> AotError:
    """`error` itself, or what it means in our terms; anything unknown is a bug of ours."""
    if isinstance(error, AotError):
        return error
    if isinstance(error, click.UsageError):
        return UsageError(_usage(error))
    if isinstance(error, MemoryError):
        return _OutOfMemoryError(Diagnostic("AOT-U006", "not enough memory", hint=_MEMORY_HINT))
    if isinstance(error, OSError):
        return AotError(_os_error(error))
    return _BugError(_bug(error))


class _BugError(AotError):
    exit_code = ExitCode.BUG


class _OutOfMemoryError(AotError):
    exit_code = ExitCode.TOOLCHAIN


_MEMORY_HINT = "try a smaller --batch, or a machine with more memory"
_BUG_HINT = (
    "this is a bug of aotrain's, not yours. Please report it with the output of\n"
    "      'aotrain doctor' and of the same command with --debug"
)


def _bug(error: Exception) -> Diagnostic:
    text = str(error).strip().splitlines()
    summary = f"{type(error).__name__}{': ' + text[0] if text else ''}"
    return Diagnostic("AOT-X001", f"unexpected failure: {summary}", hint=_BUG_HINT)


def _os_error(error: OSError) -> Diagnostic:
    name = error.filename if error.filename is not None else ""
    reason = error.strerror or str(error)
    subject = f"'{name}': " if name else ""
    return Diagnostic("AOT-U007", f"{subject}{reason[:1].lower()}{reason[1:]}")


def _usage(error: click.UsageError) -> Diagnostic:
    """One diagnostic for a command line that click refused."""
    path = error.ctx.command_path if error.ctx else "aotrain"
    see = f"'{path} --help' lists what there is"
    if isinstance(error, NoSuchCommand):
        return Diagnostic("AOT-U001", error.message, hint=did_you_mean(error.name, error.known))
    if isinstance(error, click.NoSuchOption):
        message = f"'{path}' has no option '{error.option_name}'"
        return Diagnostic("AOT-U002", message, hint=_option_hint(error) or see)
    if isinstance(error, click.MissingParameter):
        return Diagnostic("AOT-U003", f"'{path}' needs {_parameter(error)}", hint=see)
    if isinstance(error, BadChoice):
        message = f"{_parameter(error)}: {error.message}"
        return Diagnostic("AOT-U004", message, hint=did_you_mean(error.value, error.known))
    if isinstance(error, click.BadParameter):
        return Diagnostic("AOT-U004", f"{_parameter(error)}: {_decapitalize(error.message)}")
    return Diagnostic("AOT-U005", _decapitalize(error.format_message()), hint=see)


def _option_hint(error: click.NoSuchOption) -> str:
    if error.ctx is None:
        return ""
    params = error.ctx.command.get_params(error.ctx)
    known = [name for param in params for name in (*param.opts, *param.secondary_opts)]
    close = closest(error.option_name, known)
    return f"did you mean {' or '.join(close)}?" if close else ""


def _parameter(error: click.BadParameter) -> str:
    """The option or argument as the user types it."""
    param = error.param
    if param is None:
        return str(error.param_hint or "the command line")
    if isinstance(param, click.Argument):
        return param.make_metavar(error.ctx) if error.ctx else str(param.name).upper()
    return max(param.opts, key=len)


def _decapitalize(text: str) -> str:
    text = text.strip().rstrip(".")
    return text[:1].lower() + text[1:]


def _colored(diagnostics: Sequence[Diagnostic], argv: Sequence[str]) -> str:
    enabled = wants_color(_color_option(argv), sys.stderr)
    blocks = []
    for diagnostic in diagnostics:
        tag = f"error[{diagnostic.code}]:"
        head = paint(tag, enabled, fg="red", bold=True)
        blocks.append(diagnostic.render().replace(tag, head, 1))
    return "\n\n".join(blocks)


def _color_option(argv: Sequence[str]) -> str:
    for i, argument in enumerate(argv):
        if argument.startswith("--color="):
            return argument.partition("=")[2]
        if argument == "--color" and i + 1 < len(argv):
            return argv[i + 1]
    return "auto"


def _as_json(failure: AotError, argv: Sequence[str]) -> dict[str, object]:
    name = next((argument for argument in argv if not argument.startswith("-")), "aotrain")
    return {
        "schema": schema_of(name),
        "ok": False,
        "exit_code": int(failure.exit_code),
        "errors": [
            {"code": d.code, "message": d.message, "where": d.where, "hint": d.hint}
            for d in failure.diagnostics
        ],
    }
