"""Arrays in; an npz without compression out, which the C loader reads as it lies on the disk."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write `arrays`, C-ordered and little-endian, to `path`.

    As `numpy.savez`, but the names may be any, "file" too.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, value in arrays.items():
            plain = np.asarray(value, dtype=value.dtype.newbyteorder("<"), order="C")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, plain, allow_pickle=False)
