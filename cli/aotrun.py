"""An artifact, options and data in; its own `aotrun` run, with its output and exit code, out.

`run` and `eval` are this much more than `aotrun`: data files that the C loader does not read are
converted to a temporary folder first. Everything else, progress included, is aotrun's own.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from aotrain.errors import Diagnostic, ExitCode, InputError, InternalError, UsageError
from aotrain.files import check_listed

from .console import Console

if TYPE_CHECKING:
    from aotrain.data import Target
    from aotrain.plan import TensorSpec

_ERROR = re.compile(r"^error\[(AOT-\w+)\]: (.*?)(?:\n\nhint: (.*))?$", re.MULTILINE)


@dataclass
class Call:
    """A command line of aotrun. `data` are its options that name data files."""

    artifact: Path
    data: Mapping[str, str | None]
    mapping: Mapping[str, str]
    options: Mapping[str, object] = field(default_factory=dict)
    pairs: Sequence[tuple[str, str]] = ()

    def run(self, console: Console) -> None:
        """Run it, print its results, and end this process with its exit code."""
        with self._command(console) as command:
            code = _run_as_json(console, command) if console.as_json else _run(console, command)
        click.get_current_context().exit(code)

    def results(self, console: Console, *more: str) -> dict[str, Any]:
        """Its JSON object; where it fails, this process ends with its error and exit code."""
        with self._command(console) as command:
            code, data = _capture([*command, *more])
        if code:
            console.finish({"exit_code": code, "errors": data["errors"]}, ok=False)
            click.get_current_context().exit(code)
        return data

    @contextmanager
    def _command(self, console: Console) -> Iterator[list[str]]:
        """The command line, while the converted data exists."""
        self._check_outputs()
        with ExitStack() as stack:
            command = [str(self._program()), str(self.artifact), *self._words()]
            for pair in self.mapping.items():
                command += ["--map", "=".join(pair)]
            for option, spec in self.data.items():
                if spec is not None:
                    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                    command += self._data(console, option, spec, folder)
            yield command

    def _program(self) -> Path:
        program = self.artifact / "aotrun"
        if program.is_file():
            check_listed(self.artifact, "aotrun")  # a truncated one would end by a signal
            return program.absolute()
        message = f"no artifact at '{self.artifact}'"
        hint = "name a folder that 'aotrain compile' wrote"
        raise InputError(Diagnostic("AOT-A010", message, hint=hint))

    def _check_outputs(self) -> None:
        """aotrun refuses to replace what it reads; of converted data it sees the copy only."""
        for option in ("save", "output"):
            path = Path(str(self.options.get(option) or ""))
            for spec in self.data.values():
                if spec and path.is_file() and Path(spec).is_file() and path.samefile(spec):
                    message = f"--{option}: '{path}' is read as well, so it is not replaced"
                    hint = "name another file"
                    raise UsageError(Diagnostic("AOT-A001", message, hint=hint))

    def _words(self) -> list[str]:
        words = []
        for name, value in self.options.items():
            if value is not None:
                words += [f"--{name}", str(value)]
        for name, pair in self.pairs:
            words += [f"--{name}", pair]
        return words

    def _data(self, console: Console, option: str, spec: str, folder: Path) -> list[str]:
        from aotrain.data import needs_signature, prepare

        entry = {"data": "train", "valid": "eval"}.get(option, "predict")
        needed = needs_signature(spec)
        inputs, target = _signature(self.artifact, entry) if needed else ((), None)
        prepared = prepare(spec, folder, inputs, self.mapping, target)
        for note in prepared.notes:
            console.note(f"{spec}: {note}")
        return [f"--{option}", prepared.spec]


def _signature(artifact: Path, entry: str) -> tuple[tuple[TensorSpec, ...], Target | None]:
    """Inputs of an entry point that come from data, and what the labels may be."""
    from aotrain.artifact import read
    from aotrain.data import Target

    found = read(artifact)
    plan = found.plan
    specs = [plan.tensors[index].spec for index in plan.entry(entry).inputs]
    batches = tuple(spec for spec in specs if spec.shape)  # not the scalar `rows`
    if found.labels is None or entry == "predict":
        return batches, None
    return batches, Target(batches[-1].name, found.labels, found.ignore_index)


def _run(console: Console, command: list[str]) -> int:
    if console.quiet:
        command = [*command, "--quiet"]
    if not console.progress:
        command = [*command, "--no-progress"]
    with _child(command) as process:
        return _exit_code(process.wait())


def _run_as_json(console: Console, command: list[str]) -> int:
    """aotrun's own object, under this command's schema, with its errors in it."""
    code, data = _capture(command)
    console.finish({**data, "exit_code": code}, ok=code == 0)
    return code


def _capture(command: list[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON object of aotrun, with "errors" after a failure; they are printed, too."""
    pipe = subprocess.PIPE
    with _child([*command, "--json"], stdout=pipe, stderr=pipe, text=True) as process:
        output, errors = process.communicate()
    sys.stderr.write(errors)
    code = _exit_code(process.returncode)
    try:
        data: dict[str, Any] = json.loads(output)
    except ValueError:
        data = {}
    data.pop("schema", None)
    if code:
        data["errors"] = [
            {"code": code_, "message": message, "where": "", "hint": hint or ""}
            for code_, message, hint in _ERROR.findall(errors)
        ]
    return code, data


@contextmanager
def _child(command: list[str], **streams: Any) -> Iterator[subprocess.Popen[str]]:
    """The running program. SIGTERM is passed on to it; Ctrl-C reaches it by itself.

    A terminal sends SIGINT to both. A second one would kill aotrun before it has saved, so it is
    passed on only where there is no terminal.
    """
    try:
        process = subprocess.Popen(command, **streams)
    except OSError as error:
        message = f"cannot run '{command[0]}': {error.strerror}"
        hint = "was it compiled for another machine? 'aotrain inspect' shows its target"
        raise InputError(Diagnostic("AOT-A010", message, hint=hint)) from error

    def forward(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM or not sys.stdin.isatty():
            process.send_signal(number)

    previous = {n: signal.signal(n, forward) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        with process:
            yield process
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _exit_code(returncode: int) -> int:
    if returncode >= 0:
        return returncode
    name = signal.Signals(-returncode).name
    if -returncode in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        return int(ExitCode.INTERRUPTED)
    hint = "out of memory? dmesg tells" if name == "SIGKILL" else "please report it as a bug"
    raise InternalError(Diagnostic("AOT-X002", f"aotrun was ended by {name}", hint=hint))
