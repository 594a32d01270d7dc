"""Plan, state, constants and kernels in, a finished folder out, or nothing at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aotrain import runtime
from aotrain.artifact import manifest, statefile
from aotrain.artifact.planfile import FileDigest, PlanFile, pack
from aotrain.errors import Diagnostic, InputError, InternalError, UsageError, raise_if_any
from aotrain.files import folder_beside, writing
from aotrain.plan import Kind, Plan


def write(
    folder: Path,
    *,
    plan: Plan,
    state: Mapping[str, np.ndarray],
    constants: Mapping[int, np.ndarray],
    kernels: Path,
    info: Mapping[str, Any],
    labels: int | None,
    extra: Mapping[str, bytes] | None = None,
    force: bool = False,
) -> None:
    """Write the artifact to a temporary sibling and rename it to `folder`.

    `state` holds the initial value of every STATE tensor by name, `constants` of every CONSTANT
    tensor by index. `info` goes into the manifest: name, target, options; three keys mean something
    here: "triple" and "backend" choose the loader (absent: this machine, "cpu"), "ignore_index" is
    the label that the data readers let pass. `labels` is the number of classes in the train entry's
    target. `extra` are further files by name, which the loader does not read.

    Raises UsageError AOT-A001 if `folder` exists without `force`, or with it if it is no artifact,
    InputError AOT-A002 if it cannot be written, AOT-A021 for a state that does not fit the plan,
    ToolchainError if the loader cannot be built.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 (resolve() would follow a symbolic link)
    _check_free(folder, force)
    raw = _constant_bytes(plan, constants)
    built = runtime.build(info.get("triple"), info.get("backend", "cpu"))
    files = {"kernels.so": kernels.read_bytes(), "state.safetensors": statefile.dump(plan, state)}
    files["plan.bin"] = pack(
        PlanFile(
            plan,
            kernels=FileDigest.of(files["kernels.so"]),
            state=FileDigest.of(files["state.safetensors"]),
            name=str(info.get("name", "")),
            labels=labels,
            ignore_index=info.get("ignore_index"),
            constants=raw,
        )
    )
    files["aotrun"] = built.aotrun.read_bytes()
    files["libaotrun.so"] = built.library.read_bytes()
    files["aotrun.h"] = (runtime.SOURCES / "aotrun.h").read_bytes()
    files.update(extra or {})
    files[manifest.NAME] = manifest.dump(manifest.build(plan, info, labels, files))
    try:
        _place(folder, files)
    except OSError as error:
        raise InputError(
            Diagnostic("AOT-A002", f"cannot write {folder}: {error.strerror}")
        ) from error


def _check_free(folder: Path, force: bool) -> None:
    if not os.path.lexists(folder):
        return
    if not force:
        hint = "--force (force=True) replaces it, -o names another"
        raise UsageError(Diagnostic("AOT-A001", f"{folder} exists", hint=hint))
    ours = folder.is_dir() and not folder.is_symlink()
    if not ours or not ((folder / manifest.NAME).exists() or not any(folder.iterdir())):
        raise UsageError(
            Diagnostic(
                "AOT-A001",
                f"{folder} is no artifact, so it is not replaced",
                hint="move it away, or name another folder with -o",
            )
        )


def _constant_bytes(plan: Plan, constants: Mapping[int, np.ndarray]) -> dict[int, bytes]:
    raw = {}
    problems = []
    for index, tensor in enumerate(plan.tensors):
        if tensor.kind is not Kind.CONSTANT:
            continue
        value = constants.get(index)
        raw[index] = b"" if value is None else np.ascontiguousarray(value).tobytes()
        if value is None or len(raw[index]) != tensor.nbytes:
            problems.append(
                Diagnostic("AOT-A022", f"constant '{tensor.name}' has no value of its size")
            )
    raise_if_any(problems, InternalError)
    return raw


def _place(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder_beside(folder) as temporary:
        new = temporary / "new"
        new.mkdir()
        for name, content in files.items():
            with writing(folder / name):
                (new / name).write_bytes(content)
        for name in ("aotrun", "libaotrun.so", "kernels.so"):
            mode = (new / name).stat().st_mode
            (new / name).chmod(mode | (mode & 0o444) >> 2)  # executable for whoever may read it
        if folder.exists():
            folder.rename(temporary / "old")
        try:
            new.rename(folder)
        except OSError:
            if (temporary / "old").exists():
                (temporary / "old").rename(folder)
            raise
