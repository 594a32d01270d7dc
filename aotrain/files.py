"""A final path in; a temporary one beside it out, renamed when all went well, removed otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
