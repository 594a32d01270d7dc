"""A folder with a sub-folder of images for each class in; files that `aotrun` reads out.

    photos/cat/1.png  photos/dog/2.jpg    ->    images-idx2-ubyte [N, C*H*W], labels.npy [N]

Classes are numbered in the order of their sorted names. Images become gray, RGB or RGBA, as many
channels as the input has, in its layout, bytes 0 .. 255, which are float32 0 .. 1 to the model. Any
other scaling is the business of who writes an `.npz`; so is resizing, for no size is ever changed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aotrain.data.bind import Target
from aotrain.errors import Diagnostic, InputError, ToolchainError, raise_if_any
from aotrain.plan import TensorSpec

SUFFIXES = (".png", ".jpg", ".jpeg")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Channels -> Pillow's name for them."""

PLAIN = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB"})
"""Pillow's modes of 8 bits a channel."""

MOST = 5  # problems named before the rest are only counted


@dataclass(frozen=True)
class _Layout:
    """How an input holds an image. `size` is None where only the number of elements is known."""

    channels: int
    last: bool  # channels after the pixels
    size: tuple[int, int] | None  # height, width
    elements: int


def convert(
    root: Path, folder: Path, inputs: Sequence[TensorSpec], target: Target | None
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Write `folder`/images... and labels...; their paths by input, and choices to print.

    The image input is the first of `inputs`; `target` is the last, None where only images are
    wanted (then they may also lie in `root` itself).

    Raises InputError AOT-D022 for what does not fit, with the first files that do not, and
    ToolchainError AOT-D023 where Pillow is missing.
    """
    image = inputs[0]
    if len(inputs) > 1 + (target is not None):
        names = ", ".join(spec.name for spec in inputs)
        raise _misfit(f"a folder of images is an input and its class; the model takes {names}")
    layout = _layout(image)
    classes = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    if target is not None and len(classes) != target.classes:
        message = f"'{root}' has {len(classes)} sub-folders, the model {target.classes} classes"
        raise _misfit(message, "a sub-folder for each class, also for one without images")
    files = [(path, i) for i, name in enumerate(classes) for path in _images(root / name)]
    if target is None:
        files += [(path, 0) for path in _images(root)]
    if not files:
        raise _misfit(f"'{root}' holds no images", f"known: {', '.join(SUFFIXES)}")
    written = {image.name: folder / "images-idx2-ubyte"}
    _write_images(written[image.name], [path for path, _ in files], layout)
    if target is not None:
        written[target.name] = folder / "labels.npy"
        np.save(written[target.name], np.array([label for _, label in files], np.int64))
    named = ", ".join(f"{i} {name}" for i, name in enumerate(classes))
    order = "channels last" if layout.last else "channels first"
    notes = [f"{len(files)} images, {MODES[layout.channels]}, {order}, 0 to 1"]
    return written, (*notes, *([f"classes: {named}"] if target else []))


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def _layout(spec: TensorSpec) -> _Layout:
    """[N, C, H, W], [N, H, W, C], [N, H, W], or flat: [N, elements] of a gray image."""
    row = spec.shape[1:]
    elements = int(np.prod(row))
    if len(row) == 3 and row[0] in MODES:
        return _Layout(row[0], False, (row[1], row[2]), elements)
    if len(row) == 3 and row[2] in MODES:
        return _Layout(row[2], True, (row[0], row[1]), elements)
    if len(row) == 2:
        return _Layout(1, False, (row[0], row[1]), elements)
    if len(row) == 1:
        return _Layout(1, False, None, elements)
    raise _misfit(f"the input '{spec.name}' [rows, {', '.join(map(str, row))}] is no image")


def _write_images(out: Path, paths: Sequence[Path], layout: _Layout) -> None:
    problems: list[Diagnostic] = []
    with out.open("wb") as file:
        file.write(struct.pack(">BBBBII", 0, 0, 0x08, 2, len(paths), layout.elements))  # IDX
        for path in paths:
            try:
                file.write(_pixels(path, layout))
            except InputError as error:
                problems += error.diagnostics
    if len(problems) > MOST:
        more = f"{len(problems) - MOST} more images do not fit"
        problems = [*problems[:MOST], Diagnostic("AOT-D022", more)]
    raise_if_any(problems, InputError)


def _pixels(path: Path, layout: _Layout) -> bytes:
    library = _pillow()
    try:
        with library.open(path) as image:
            if image.mode not in PLAIN:
                raise _misfit(f"'{path}' has more than 8 bits a channel", "convert it to 8 bits")
            values = np.asarray(image.convert(MODES[layout.channels]))
    except InputError:
        raise
    except Exception as error:  # Pillow's decoders raise a dozen kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"cannot read '{path}': {reason}"
        raise InputError(Diagnostic("AOT-D022", message)) from error
    height, width = values.shape[:2]
    if (layout.size or (height, width)) != (height, width) or values.size != layout.elements:
        wanted = f"{layout.elements} pixels"
        if layout.size:
            wanted = f"{layout.size[1]}x{layout.size[0]} (width x height)"
        message = f"'{path}' is {width}x{height}, the model takes {wanted}"
        raise _misfit(message, "resize or crop the images beforehand, or export the model for them")
    if values.ndim == 3 and not layout.last:
        values = values.transpose(2, 0, 1)
    return values.tobytes()


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        message = "reading images needs Pillow"
        hint = "pip install 'aotrain[images]', or pip install pillow"
        raise ToolchainError(Diagnostic("AOT-D023", message, hint=hint)) from error
    return Image


def _misfit(message: str, hint: str = "") -> InputError:
    return InputError(Diagnostic("AOT-D022", message, hint=hint))
