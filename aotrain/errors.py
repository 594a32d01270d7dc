"""Problems in, one readable report and an exit code out: the only way aotrain refuses anything.

A stage *collects* `Diagnostic`s and raises one `AotError` with all of them; the command line prints
`AotError.render()` on stderr and exits with `exit_code`. Codes are `AOT-<letter><number>`, the
letter naming the stage: I import, G gradient, S step, K kernel, M memory, A artifact, D data,
T target and toolchain, U usage, X a bug of ours.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class ExitCode(enum.IntEnum):
    """What the process returns; the same for every command."""

    DONE = 0
    INPUT = 1  # the user's model, data or file
    USAGE = 2
    UNSUPPORTED = 3  # a model that is valid, but that we cannot train
    TOOLCHAIN = 4  # device, compiler or linker missing
    BUDGET = 5  # memory budget infeasible
    BUG = 70
    INTERRUPTED = 130


@dataclass(frozen=True)
class Diagnostic:
    """One problem: what is wrong, where in the user's terms, and what to do about it."""

    code: str
    message: str
    where: str = ""  # the ONNX node, file or option, with the shapes that matter
    hint: str = ""

    def render(self) -> str:
        """Lines as the terminal shows them, without colour."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.where:
            lines += [f"  at {line}" for line in self.where.splitlines()]
        if self.hint:
            lines += ["", f"hint: {self.hint}"]
        return "\n".join(lines)


class AotError(Exception):
    """One or more diagnostics. Subclasses differ only in the exit code."""

    exit_code = ExitCode.INPUT

    def __init__(self, *diagnostics: Diagnostic) -> None:
        assert diagnostics
        super().__init__(diagnostics[0].message)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """All diagnostics, a blank line between."""
        return "\n\n".join(d.render() for d in self.diagnostics)


class InputError(AotError):
    """A broken or missing file, data of the wrong shape, dtype or range."""


class UsageError(AotError):
    """A flag or argument that makes no sense."""

    exit_code = ExitCode.USAGE


class UnsupportedModelError(AotError):
    """A valid model that needs an operator, gradient or kernel we do not have."""

    exit_code = ExitCode.UNSUPPORTED


class ToolchainError(AotError):
    """No C compiler, no device, no driver."""

    exit_code = ExitCode.TOOLCHAIN


class BudgetError(AotError):
    """A memory budget, or one of recomputation, that no plan found keeps."""

    exit_code = ExitCode.BUDGET


class InternalError(AotError):
    """An invariant of ours is broken, such as a plan that its validator refuses."""

    exit_code = ExitCode.BUG


def raise_if_any(diagnostics: Iterable[Diagnostic], kind: type[AotError]) -> None:
    """Raise one `kind` that carries every diagnostic, if there is one."""
    found = tuple(diagnostics)
    if found:
        raise kind(*found)
