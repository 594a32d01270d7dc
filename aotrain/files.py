"""A path in; whether it may be written or trusted, or a temporary one to write whole, out."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
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
def writing(path: Path) -> Iterator[None]:
    """Name `path` (AOT-A002) where the system, as of a full disk, says only that writing failed."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        message = f"cannot write '{path}': {error.strerror}"
        raise InputError(Diagnostic("AOT-A002", message)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file so that `path` is the old one or the whole new one, never half of it.

        with replacing(Path("model.onnx")) as temporary:
            temporary.write_bytes(...)

    The temporary file lies in the same folder, since a rename across file systems is a copy.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path):
            yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A folder for what will be renamed to `path`, and gone afterwards.

    A killed process cannot remove its own; the next one for the same `path` does, which it knows by
    the lock that died with its owner.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with _locked(left) as ours:
            if ours:
                shutil.rmtree(left, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        with _locked(temporary):
            yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Whether the folder was locked for this process; not where it is another's, or no folder."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        yield _try_lock(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
