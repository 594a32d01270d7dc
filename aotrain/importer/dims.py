"""Graph inputs with symbolic or fixed-1 dimensions in, static shapes out.

The batch is dimension 0. Where some input has a symbolic one, its name (of the first such input) is
the batch's, wherever it stands; where none has, dimension 0 of every input whose first dimension
equals the first input's.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass

import onnx
from onnx import helper

from aotrain.errors import Diagnostic
from aotrain.importer.options import ImportOptions
from aotrain.importer.problems import raise_all
from aotrain.plan import ITEM_BYTES, TensorSpec


@dataclass(frozen=True)
class Inputs:
    """The inputs at the batch asked for and, where that changes anything, at the file's own."""

    specs: tuple[TensorSpec, ...]
    baked: tuple[TensorSpec, ...] | None  # at batch `old`
    old: int
    new: int


def data_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Inputs that are not initializers (before IR version 4, those were inputs too)."""
    stored = {t.name for t in graph.initializer}
    return [i for i in graph.input if i.name not in stored]


def bind(graph: onnx.GraphProto, options: ImportOptions) -> Inputs:
    """Static input shapes. InputError names every dimension that is not bound, and its flag."""
    problems: list[Diagnostic] = []
    shapes: dict[str, list[int | str]] = {}
    dtypes: dict[str, str] = {}
    for value in data_inputs(graph):
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type"):
            problems.append(_not_tensor(value.name, value.type.WhichOneof("value") or "untyped"))
            continue
        dtypes[value.name] = _dtype(kind.elem_type)
        if dtypes[value.name] not in ITEM_BYTES:
            named = {"object": "one of strings"}.get(dtypes[value.name], dtypes[value.name])
            problems.append(_not_tensor(value.name, named))
        if not kind.HasField("shape"):
            problems.append(
                Diagnostic(
                    "AOT-I008", f"input '{value.name}' has no shape", hint="Export it with one."
                )
            )
            continue
        shapes[value.name] = [_dim(d) for d in kind.shape.dim]
    problems += _unknown_names(shapes, options)
    raise_all(problems)
    return _bind(shapes, dtypes, options)


def _dtype(kind: int) -> str:
    try:
        return str(helper.tensor_dtype_to_np_dtype(kind).name)
    except KeyError:
        return f"of unknown type {kind}"


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    """A size, or a name; "" where the file gives neither (-1 and "?" are some exporters' ways)."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else ""
    return str(dim.dim_param) if any(c.isalnum() for c in dim.dim_param) else ""


def _bind(
    shapes: dict[str, list[int | str]], dtypes: dict[str, str], options: ImportOptions
) -> Inputs:
    batch, name = _batch(shapes)
    new = _wanted_batch(batch, name, options)
    old = batch if isinstance(batch, int) else 1
    problems: list[Diagnostic] = []
    specs, baked = [], []
    for tensor, dims in shapes.items():
        sizes: list[int] = []
        before: list[int] = []
        for axis, dim in enumerate(dims):
            is_batch = dim == batch and ((axis == 0) or (isinstance(dim, str) and dim != ""))
            size = new if is_batch else _size(tensor, axis, dim, options)
            if size is None:
                problems.append(_unbound(tensor, axis, dim, is_batch))
                size = 1
            sizes.append(size)
            before.append(old if is_batch else size)
        specs.append(TensorSpec(tensor, tuple(sizes), dtypes[tensor]))
        baked.append(TensorSpec(tensor, tuple(before), dtypes[tensor]))
    raise_all(problems or _impossible(baked) or _impossible(specs))
    changed = baked != specs
    return Inputs(tuple(specs), tuple(baked) if changed else None, old, new or old)


def _batch(shapes: dict[str, list[int | str]]) -> tuple[int | str | None, str | None]:
    """Dimension 0 that is the batch: a name (perhaps ""), or a fixed size; None without inputs."""
    firsts = [dims[0] for dims in shapes.values() if dims]
    symbolic = [d for d in firsts if isinstance(d, str)]
    if symbolic:
        return symbolic[0], symbolic[0]
    return (firsts[0] if firsts else None), None


def _wanted_batch(batch: int | str | None, name: str | None, options: ImportOptions) -> int | None:
    if name and name in options.dims:
        return options.dims[name]
    if options.batch is not None:
        return options.batch
    if options.default_batch is not None and (batch == 1 or isinstance(batch, str)):
        return options.default_batch
    return batch if isinstance(batch, int) else None


def _size(tensor: str, axis: int, dim: int | str, options: ImportOptions) -> int | None:
    if isinstance(dim, int):
        return dim
    return options.dims.get(f"{tensor}:{axis}", options.dims.get(dim))


def _unbound(tensor: str, axis: int, dim: int | str, is_batch: bool) -> Diagnostic:
    flag = f"--dim {dim or f'{tensor}:{axis}'}=N"
    called = f"'{dim}'" if dim else "without a name"
    return Diagnostic(
        "AOT-I008",
        f"dimension {axis} of input '{tensor}', {called}, has no size",
        hint=f"Give --batch N or {flag}." if is_batch else f"Give {flag}.",
    )


MOST_BYTES = 2**48
"""Of one input: what 64-bit machines can address, and far from where sizes overflow."""


def _impossible(specs: list[TensorSpec]) -> list[Diagnostic]:
    """Inputs that hold more than any machine does."""
    problems = []
    for spec in specs:
        if math.prod(spec.shape) * ITEM_BYTES[spec.dtype] > MOST_BYTES:
            message = f"input '{spec.name}' of {list(spec.shape)} is larger than any memory"
            problems.append(
                Diagnostic("AOT-I008", message, hint="Give a smaller --batch or --dim.")
            )
    return problems


def _not_tensor(name: str, kind: str) -> Diagnostic:
    return Diagnostic("AOT-I013", f"input '{name}' is not a dense tensor of numbers but {kind}")


def _unknown_names(shapes: dict[str, list[int | str]], options: ImportOptions) -> list[Diagnostic]:
    known = {d for dims in shapes.values() for d in dims if isinstance(d, str) and d}
    placed = {
        f"{t}:{i}" for t, dims in shapes.items() for i, d in enumerate(dims) if isinstance(d, str)
    }
    problems = []
    for name, size in options.dims.items():
        if not isinstance(size, int):
            problems.append(_no_size(name, size))
        elif name not in known | placed:
            close = difflib.get_close_matches(name, known | placed, 3, 0.5)
            hint = f"Did you mean {', '.join(close)}?" if close else _listing(known)
            problems.append(Diagnostic("AOT-I010", f"no dimension is called '{name}'", hint=hint))
        elif size < 1:
            problems.append(Diagnostic("AOT-I008", f"dimension '{name}' cannot be {size}"))
    if options.batch is not None and not isinstance(options.batch, int):
        problems.append(_no_size("batch", options.batch))
    elif options.batch is not None and options.batch < 1:
        problems.append(Diagnostic("AOT-I008", f"a batch of {options.batch} is not possible"))
    return problems


def _no_size(name: str, size: object) -> Diagnostic:
    return Diagnostic("AOT-I008", f"{name} = {size!r} is no whole number")


def _listing(known: set[str]) -> str:
    return f"The model has {', '.join(sorted(known))}." if known else "The model names none."
