"""An artifact in; what the memory solver found and proved of it out, as a report or as a page."""

from __future__ import annotations

from pathlib import Path

from aotrain.artifact import Artifact, read
from aotrain.artifact.manifest import REPORT
from aotrain.errors import Diagnostic, InputError
from aotrain.files import check_parent
from aotrain.memory import Report
from aotrain.memory.page import page


def read_report(folder: Path) -> tuple[Artifact, Report]:
    """InputError: AOT-A212 no artifact, AOT-A010 damaged, AOT-A011 from another version."""
    if not (folder / "manifest.json").is_file():
        message = f"'{folder}' is no artifact"
        hint = "only an artifact, the folder that 'aotrain compile' wrote, has a memory layout"
        raise InputError(Diagnostic("AOT-A212", message, hint=hint))
    artifact = read(folder)
    try:
        return artifact, Report.of(artifact.manifest[REPORT])
    except (KeyError, TypeError, AttributeError) as error:
        message = f"{folder} says nothing of its memory that this aotrain reads"
        hint = "compile the model again"
        raise InputError(Diagnostic("AOT-A011", message, hint=hint)) from error


def write_page(path: Path, artifact: Artifact, report: Report) -> None:
    """InputError AOT-A002 if `path` cannot be written."""
    check_parent(path)
    text = page(artifact.name or artifact.folder.name, artifact.plan, report)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot write '{path}': {error.strerror}"
        raise InputError(Diagnostic("AOT-A002", message)) from error
