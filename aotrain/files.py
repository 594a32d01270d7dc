"""A path in; whether it may be written or trusted, or a temporary one to write whole, out."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aotrain.errors import Diagnostic, InputError


def check_parent(path: Path) -> None:
    """Refuse (AOT-A002), before the work rather than after it, where nothing could be written."""
    parent = path.absolute().parent
    if not parent.is_dir():
        why = "that is no folder" if parent.exists() else "there is no such folder"
    elif not os.access(parent, os.W_OK | os.X_OK):
        why = "this user may not write there"
    else:
        return
    raise InputError(Diagnostic("AOT-A002", f"cannot write into '{parent}': {why}"))


def check_listed(folder: Path, *names: str) -> None:
    """Refuse (AOT-A010) files of an artifact that are not those that its manifest lists.

    A folder without a manifest passes: the loader alone needs none.
    """
    path = folder / "manifest.json"
    try:
        files = json.loads(path.read_bytes())["files"]
        expected = {name: files[name]["sha256"] for name in names if name in files}
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path} is truncated or corrupted"
        raise InputError(Diagnostic("AOT-A010", message, hint=_COPY)) from error
    for name, digest in expected.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            message = f"{folder / name} is truncated, corrupted or from another artifact"
            raise InputError(Diagnostic("AOT-A010", message, hint=_COPY))


_COPY = "copy the whole folder again, or compile the model again"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file so that `path` is the old one or the whole new one, never half of it.

        with replacing(Path("model.onnx")) as temporary:
            temporary.write_bytes(...)

    The temporary file lies in the same folder, since a rename across file systems is a copy.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
