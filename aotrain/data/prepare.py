"""A `--data` argument in; the same for `aotrun`, with files that it cannot read converted, out.

    train.npz (compressed)          -> <folder>/0.npz
    images-idx3-ubyte.gz:labels.npy -> <folder>/0-images-idx3-ubyte:labels.npy
    train.csv                       -> <folder>/0.npz, its columns bound to the inputs
    photos/ (a sub-folder a class)  -> x=<folder>/images-idx2-ubyte,y=<folder>/labels.npy

What `aotrun` reads by itself is passed on as it is: then `aotrain run` is no more than `aotrun`.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aotrain.data import images
from aotrain.data.bind import Target, bind
from aotrain.data.read import is_idx, read, stored, unreadable
from aotrain.data.write import write_npz
from aotrain.errors import Diagnostic, InputError
from aotrain.plan import TensorSpec


@dataclass(frozen=True)
class Prepared:
    """`spec` is the new `--data`, for the same `--map`; `notes` are choices to print."""

    spec: str
    notes: tuple[str, ...] = ()


def prepare(
    spec: str,
    folder: Path,
    inputs: Sequence[TensorSpec],
    mapping: Mapping[str, str],
    target: Target | None = None,
) -> Prepared:
    """Convert what `spec` names into `folder`, which outlives the run.

    `inputs`, `mapping` and `target` bind the columns of a csv, and choose the layout of images.

    Raises `InputError` for a file that is missing or damaged, what `bind` raises for a csv, and
    `images.convert` for a folder.
    """
    if Path(spec).is_dir():
        written, notes = images.convert(Path(spec), folder, inputs, target)
        # As below: under the names by which aotrun looks for them.
        named = [f"{mapping.get(name, name)}={path}" for name, path in written.items()]
        return Prepared(",".join(named), notes)
    if is_csv(spec):
        arrays, notes = bind(read(Path(spec)), inputs, mapping, target)
        made = folder / f"{_count(folder)}.npz"
        # Named as --map names them, so that aotrun finds them by the same --map.
        write_npz(made, {mapping.get(name, name): value for name, value in arrays.items()})
        return Prepared(str(made), notes)
    if Path(spec).exists():
        return Prepared(_convert(spec, folder))
    separator, split = _split(spec)
    parts = []
    for name, equals, path in split:
        if is_csv(path):
            message = f"'{path}': a csv file is not combined with others"
            raise InputError(Diagnostic("AOT-D011", message, hint="give it alone to --data"))
        parts.append(f"{name}{equals}{_convert(path, folder)}")
    return Prepared(separator.join(parts))


def load(
    spec: str,
    folder: Path,
    inputs: Sequence[TensorSpec],
    mapping: Mapping[str, str],
    target: Target | None = None,
) -> dict[str, np.ndarray]:
    """The arrays of `spec`, bound to `inputs`: what `aotrun` would make of it.

    `folder` is for temporary files. Raises as `prepare` and `bind` do.
    """
    made = prepare(spec, folder, inputs, mapping, target).spec
    parts = [("", "", made)] if Path(made).exists() else _split(made)[1]
    arrays: dict[str, np.ndarray] = {}
    pixels = set()
    for name, _, path in parts:
        found = read(Path(path))
        if name and len(found) == 1:
            found = {name: next(iter(found.values()))}
        if is_idx(Path(path)):
            pixels |= set(found)
        arrays |= found
    return bind(arrays, inputs, mapping, target, pixels)[0]


def needs_signature(spec: str) -> bool:
    """Whether `prepare` looks at the model's inputs."""
    return is_csv(spec) or Path(spec).is_dir()


def _split(spec: str) -> tuple[str, list[tuple[str, str, str]]]:
    """`a:b` or `x=a,y=b` -> its separator, and (name, "=", path) of each part."""
    separator = "," if "," in spec or "=" in spec else ":"
    return separator, [part.rpartition("=") for part in spec.split(separator)]


def is_csv(spec: str) -> bool:
    """By its name, gz or not."""
    return spec.removesuffix(".gz").endswith(".csv")


def _convert(name: str, folder: Path) -> str:
    """The path of the file, or of its unpacked copy in `folder`."""
    path = Path(name)
    if not path.is_file():
        return name  # aotrun says what is wrong with it
    if path.suffix == ".gz":
        copy = folder / f"{_count(folder)}-{path.stem}"
        try:
            with gzip.open(path) as packed, copy.open("wb") as plain:
                shutil.copyfileobj(packed, plain)
        except (OSError, EOFError) as error:
            raise unreadable(path, error) from error
        return str(copy)
    if path.suffix == ".npz" and not stored(path):
        copy = folder / f"{_count(folder)}.npz"
        write_npz(copy, read(path))
        return str(copy)
    return name


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())
