"""The folder `model.aot/` in, its plan and manifest out, every byte verified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aotrain.artifact import manifest as manifests
from aotrain.artifact import statefile
from aotrain.artifact.planfile import unpack
from aotrain.errors import Diagnostic, InputError, raise_if_any
from aotrain.plan import Plan


@dataclass(frozen=True)
class Artifact:
    """What `read` found. `constants` maps tensor indices to values (bfloat16 as uint16)."""

    folder: Path
    plan: Plan
    manifest: dict[str, Any]
    labels: int | None
    ignore_index: int | None
    constants: Mapping[int, np.ndarray]

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.manifest.get("name", ""))

    def state(self) -> statefile.Checkpoint:
        """The initial state."""
        return statefile.load(self.folder / "state.safetensors")


def read(folder: Path) -> Artifact:
    """Read and verify an artifact.

    InputError: AOT-A010 (missing, truncated, corrupted, mixed from two), AOT-A011 (newer).
    """
    folder = Path(folder)
    manifest = _manifest(folder)
    raise_if_any(_damaged(folder, manifest["files"]), InputError)
    file = unpack((folder / "plan.bin").read_bytes())
    constants = {
        index: np.frombuffer(
            raw, "uint16" if (t := file.plan.tensors[index]).dtype == "bfloat16" else t.dtype
        ).reshape(t.shape)
        for index, raw in file.constants.items()
    }
    return Artifact(folder, file.plan, manifest, file.labels, file.ignore_index, constants)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / manifests.NAME
    try:
        manifest = json.loads(path.read_bytes())
        schema = str(manifest["schema"])
    except OSError as error:
        raise InputError(
            Diagnostic(
                "AOT-A010",
                f"cannot read {path}: {error.strerror}",
                hint="name a folder that aotrain compile wrote",
            )
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(Diagnostic("AOT-A010", f"{path} is truncated or corrupted")) from error
    if schema != manifests.SCHEMA:
        raise InputError(
            Diagnostic(
                "AOT-A011",
                f"{folder} has schema '{schema}', this aotrain reads '{manifests.SCHEMA}'",
                hint="upgrade aotrain, or compile the model again",
            )
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or "plan.bin" not in files:
        raise InputError(Diagnostic("AOT-A010", f"{path} is corrupted: it lists no files"))
    return dict(manifest)


def _damaged(folder: Path, files: Mapping[str, Any]) -> list[Diagnostic]:
    problems = []
    for name, expected in files.items():
        try:
            digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError as error:
            problems.append(
                Diagnostic("AOT-A010", f"cannot read {folder / name}: {error.strerror}")
            )
            continue
        if not isinstance(expected, dict) or digest != expected.get("sha256"):
            problems.append(
                Diagnostic(
                    "AOT-A010",
                    f"{folder / name} is truncated, corrupted or from another artifact",
                    hint="copy the whole folder again, or compile the model again",
                )
            )
    return problems
