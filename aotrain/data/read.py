"""A data file in, its arrays by name out: npz, npy, csv, and IDX (MNIST's format), gz or not."""

from __future__ import annotations

import csv
import gzip
import io
import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from aotrain.errors import Diagnostic, InputError

Arrays = dict[str, np.ndarray]

FORMATS = ".npz, .npy, .csv, IDX (-ubyte, .idx), each also as .gz but .npz"

IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""Third byte of an IDX file; numbers are big-endian (yann.lecun.com/exdb/mnist)."""

_DAMAGED = (ValueError, EOFError, OSError, KeyError, struct.error, zipfile.BadZipFile, zlib.error)


def read(path: Path) -> Arrays:
    """All arrays of `path`, rows first.

    An npz has its own names; npy and IDX give one array named after the file ("labels" or "images"
    where the file's name says so); csv gives one float64 column a name, "0", "1", ... where it has
    no header line.

    Raises `InputError` with the codes of `aotrun`: AOT-D010 no such file, AOT-D011 unknown format
    or damaged.
    """
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "missing"
        raise InputError(Diagnostic("AOT-D010", f"no data file '{path}' ({kind})"))
    try:
        return _reader(path)(path)
    except InputError:
        raise
    except _DAMAGED as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> InputError:
    """The error for a damaged `path`, with the first line of the reason."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(Diagnostic("AOT-D011", f"cannot read '{path}': {reason}"))


def stored(path: Path) -> bool:
    """Whether `path` is an npz without compression, which the C loader reads as it is."""
    if path.suffix != ".npz":
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
    except (OSError, zipfile.BadZipFile):
        return False


def _reader(path: Path) -> Callable[[Path], Arrays]:
    plain = path.name.removesuffix(".gz")
    if path.suffix == ".npz":
        return _npz
    if plain.endswith(".npy"):
        return _npy
    if plain.endswith(".csv"):
        return _csv
    if is_idx(path):
        return _idx
    message = f"'{path}' is in no format that is read here"
    raise InputError(Diagnostic("AOT-D011", message, hint=f"known: {FORMATS}"))


def is_idx(path: Path) -> bool:
    """By its name, gz or not."""
    plain = path.name.removesuffix(".gz")
    return plain.endswith(("ubyte", ".idx")) or "-idx" in plain


def _bytes(path: Path) -> bytes:
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            return file.read()
    return path.read_bytes()


def _npz(path: Path) -> Arrays:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is no .npz, or truncated")
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _npy(path: Path) -> Arrays:
    data = _bytes(path)
    if not data.startswith(b"\x93NUMPY"):  # numpy would take anything else for a pickle
        raise ValueError("it does not begin as an .npy does")
    return {_name(path): np.load(io.BytesIO(data), allow_pickle=False)}


def _name(path: Path) -> str:
    for word in ("labels", "images"):
        if word in path.name:
            return word
    return path.name.partition(".")[0]


def _idx(path: Path) -> Arrays:
    data = _bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in IDX_DTYPES:
        raise ValueError("it does not begin as an IDX file does")
    rank = data[3]
    shape = struct.unpack_from(f">{rank}I", data, 4)
    values = np.frombuffer(data, IDX_DTYPES[data[2]], offset=4 + 4 * rank)
    if values.size != math.prod(shape):
        raise ValueError(f"{values.size} values where the header says {list(shape)}")
    return {_name(path): values.reshape(shape).astype(values.dtype.newbyteorder("="))}


def _csv(path: Path) -> Arrays:
    try:
        text = _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text") from error
    lines = [row for row in csv.reader(text.splitlines()) if row]
    if not lines:
        raise ValueError("it is empty")
    header = [cell.strip() for cell in lines[0]]
    if len(header) == 1 and ";" in header[0]:
        raise ValueError("its columns are separated by ';', not by ','")
    if all(_is_number(cell) for cell in header):
        header = [str(i) for i in range(len(header))]
    else:
        del lines[0]
    for number, row in enumerate(lines, 1):
        if len(row) != len(header):
            raise ValueError(f"row {number} has {len(row)} columns, the first has {len(header)}")
    if not lines:
        raise ValueError("it has a header line and no rows")
    if len(set(header)) != len(header):
        raise ValueError("two columns have the same name")
    values = _numbers(lines, header)
    return {name: values[:, i] for i, name in enumerate(header)}


def _numbers(lines: list[list[str]], header: list[str]) -> np.ndarray:
    """[rows, columns] float64; ValueError names the cell that is no number."""
    try:
        return np.array(lines, dtype=np.float64)
    except ValueError:
        for number, row in enumerate(lines, 1):
            for name, cell in zip(header, row, strict=True):
                if not _is_number(cell):
                    what = f"holds '{cell}', which is no number" if cell.strip() else "is empty"
                    raise ValueError(f"row {number}, column '{name}' {what}") from None
        raise


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
