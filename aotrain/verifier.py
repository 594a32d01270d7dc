"""An artifact in; one line for every thing that must hold of it, out: files, plan, state, a step.

What loads machine code runs in a process of its own, which may be ended by an instruction that this
processor does not have.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aotrain import exporter, memory, toolchain
from aotrain.arguments import NONE, PATH, check_types
from aotrain.artifact import Artifact, read, read_checkpoint
from aotrain.errors import AotError, Diagnostic, InputError
from aotrain.plan import Kind, Role


@dataclass(frozen=True)
class Check:
    """`ok` is None for what was not checked, `detail` then says why; `problems` of a failure."""

    name: str
    ok: bool | None
    detail: str
    problems: tuple[Diagnostic, ...] = ()


def verify(artifact: str | Path, *, state: str | Path | None = None) -> list[Check]:
    """Check the folder, and a checkpoint for it (None: the initial state); every check is listed.

    files: SHA-256 of each; plan: the compiler's own validator; state: each tensor there, in its
    shape, and finite; model: what `export` starts from; loader: it opens the folder and allocates
    what was planned; step: a finite loss from random inputs.
    """
    check_types("verify", {"artifact": (artifact, PATH), "state": (state, (*PATH, *NONE))})
    folder, checkpoint = Path(artifact), None if state is None else Path(state)
    found: list[Artifact] = []
    checks = [_check("files", lambda: _files(folder, found))]
    if not found:
        rest = ("plan", "state", "model", "loader", "step")
        return [*checks, *(Check(name, None, "the files are damaged") for name in rest)]
    known = found[0]
    checks += [
        _check("plan", lambda: _plan(known)),
        _check("state", lambda: _state(known, checkpoint)),
        _check("model", lambda: _model(folder)),
    ]
    triple = str(known.manifest.get("triple") or "")
    reason = "" if all(check.ok for check in checks) else "something before it failed"
    if triple and not toolchain.is_native(triple):
        reason = f"it is for {triple}, this machine is not"
    if reason:
        return [*checks, *(Check(name, None, reason) for name in ("loader", "step"))]
    return [*checks, *_run(known, checkpoint)]


def _check(name: str, run: Callable[[], str]) -> Check:
    try:
        return Check(name, True, run())
    except AotError as error:
        return Check(name, False, error.diagnostics[0].message, error.diagnostics)


def _files(folder: Path, found: list[Artifact]) -> str:
    found.append(read(folder))
    files = found[0].manifest["files"]
    return f"{len(files)} files, {sum(entry['bytes'] for entry in files.values()):,} bytes"


def _plan(artifact: Artifact) -> str:
    plan = artifact.plan
    memory.validate(plan)
    launches = sum(len(entry.launches) for entry in plan.entries)
    return f"{launches} launches, {len(plan.tensors)} tensors in {plan.block_bytes:,} bytes"


def _state(artifact: Artifact, checkpoint: Path | None) -> str:
    state = artifact.state() if checkpoint is None else read_checkpoint(checkpoint)
    source = checkpoint or artifact.folder / exporter.STATE
    problems = []
    tensors = [t for t in artifact.plan.tensors if t.kind is Kind.STATE]
    for tensor in tensors:
        value = state.tensors.get(tensor.name)
        if tensor.role is Role.COUNTER:
            continue  # in the metadata, which the loader reads
        if value is None:
            problems.append(f"'{tensor.name}' is missing")
        elif value.shape != tensor.shape:
            problems.append(f"'{tensor.name}' is {list(value.shape)}, not {list(tensor.shape)}")
        elif value.dtype.kind == "f" and not np.isfinite(value).all():
            problems.append(f"'{tensor.name}' holds NaN or infinity")
    if problems:
        raise InputError(*(Diagnostic("AOT-A020", f"{source}: {problem}") for problem in problems))
    return f"{len(tensors)} tensors, after {state.step} steps"


def _model(folder: Path) -> str:
    model = exporter.read_source(folder)
    return f"{len(model.graph.node)} nodes, for export"


def _run(artifact: Artifact, checkpoint: Path | None) -> list[Check]:
    """The checks "loader" and "step", from a child that prints them."""
    command = [
        sys.executable,
        "-m",
        "aotrain.verifier",
        str(artifact.folder),
        str(checkpoint or ""),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        report = json.loads(done.stdout)
        return [_opened(artifact, report), _stepped(report)]
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        hint = "was it compiled for a newer processor? compile it here, or with --target cpu:NAME"
        problem = Diagnostic("AOT-A010", f"loading or running it ended by {name}", hint=hint)
    else:
        problem = Diagnostic("AOT-X001", f"the check failed: {done.stderr.strip()[-500:]}")
    failed = Check("loader", False, problem.message, (problem,))
    return [failed, Check("step", None, "something before it failed")]


def _opened(artifact: Artifact, report: dict[str, Any]) -> Check:
    if "refused" in report:
        problem = Diagnostic(*report["refused"])
        return Check("loader", False, problem.message, (problem,))
    planned, allocated = artifact.plan.block_bytes, report["block_bytes"]
    if planned != allocated:
        message = f"the plan needs {planned} bytes, the loader allocated {allocated}"
        return Check("loader", False, message, (Diagnostic("AOT-X001", message),))
    return Check("loader", True, f"{allocated:,} bytes allocated, as planned")


def _stepped(report: dict[str, Any]) -> Check:
    if "refused" in report:
        return Check("step", None, "something before it failed")
    if "loss" in report:
        return Check("step", True, f"loss {report['loss']:.6g} from random inputs")
    problem = Diagnostic(*report["not_finite"])
    return Check("step", False, problem.message, (problem,))


def _child(folder: str, checkpoint: str) -> dict[str, Any]:
    """Open, step once, and say how it went."""
    from aotrain.export_check import random_inputs
    from aotrain.runtime import Session

    report: dict[str, Any] = {}
    try:
        with Session(folder) as session:
            if checkpoint:
                session.load(checkpoint)
            report["block_bytes"] = session.block_bytes
            try:
                report["loss"] = session.step(**random_inputs(session.inputs(), seed=0))
            except AotError as error:
                report["not_finite"] = _fields(error)
    except AotError as error:
        report["refused"] = _fields(error)
    return report


def _fields(error: AotError) -> list[str]:
    first = error.diagnostics[0]
    return [first.code, first.message, first.where, first.hint]


if __name__ == "__main__":
    print(json.dumps(_child(*sys.argv[1:])))
