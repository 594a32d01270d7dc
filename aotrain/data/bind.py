"""Arrays of a file and a model's inputs in; one array an input, in its shape and dtype, out.

An input takes the array that `--map` names, else the one of its own name, else the one array that
is left and fits it. Everything that does not fit is collected and raised once.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from aotrain.errors import Diagnostic, InputError, raise_if_any
from aotrain.plan import TensorSpec

Arrays = dict[str, np.ndarray]

ONE_HOT = "labels are class indices: one_hot.argmax(1)"


@dataclass(frozen=True)
class Target:
    """What the last input holds, where it is class indices: 0 .. classes-1, or `ignored`."""

    name: str
    classes: int
    ignored: int | None = None


@dataclass
class _Binding:
    """Inputs bound so far, arrays not yet taken, problems met, choices to print."""

    left: Arrays
    bound: Arrays = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def bind(
    arrays: Mapping[str, np.ndarray],
    inputs: Sequence[TensorSpec],
    mapping: Mapping[str, str] | None = None,
    target: Target | None = None,
    pixels: Set[str] = frozenset(),
) -> tuple[Arrays, tuple[str, ...]]:
    """`arrays` under the inputs' names, [rows, *shape[1:]], and the choices worth printing.

    `inputs` have the batch as their first dimension; the arrays may have any number of rows, all
    the same. A row of another shape but the same number of elements is reshaped (8x8 to 64); an
    input that `--map` gives several columns, "a,b,c", stacks them. Integers become floats and
    floats that are whole numbers become integers; any other change of value is refused. Bytes of
    the arrays that `pixels` names are 0 .. 1 where the input is float.

    Raises `InputError` with the codes of `aotrun`: AOT-D013 no array for an input, AOT-D014 shape,
    AOT-D015 dtype, AOT-D019 value, AOT-D016 and AOT-D018 rows, AOT-D017 label out of range.
    """
    state = _Binding(left=dict(arrays))
    bytes_ = [id(arrays[name]) for name in pixels if arrays[name].dtype == np.uint8]
    _bind_named(state, inputs, mapping or {})
    _bind_fitting(state, [spec for spec in inputs if spec.name not in (mapping or {})])
    converted = {}
    for spec in inputs:
        if spec.name in state.bound:
            found = state.bound[spec.name]
            if id(found) in bytes_ and np.issubdtype(np.dtype(spec.dtype), np.floating):
                found = found.astype(np.float32) / np.float32(255)
            labels = target is not None and target.name == spec.name
            value = _convert(found, spec, state.problems, ONE_HOT if labels else "")
            if value is not None:
                converted[spec.name] = value
    _check_rows(converted, state.problems)
    if target is not None and target.name in converted:
        _check_labels(converted[target.name], target, state.problems)
    raise_if_any(state.problems, InputError)
    return converted, tuple(state.notes)


def _bind_named(state: _Binding, inputs: Sequence[TensorSpec], mapping: Mapping[str, str]) -> None:
    names = [spec.name for spec in inputs]
    for name in mapping:
        if name not in names:
            message = f"--map: the model has no input '{name}'"
            state.problems.append(Diagnostic("AOT-D013", message, hint=_close(name, names)))
    for name in names:
        columns = mapping.get(name, name if name in state.left else "")
        if not columns:
            continue
        parts = [columns] if columns in state.left else columns.split(",")
        missing = [part for part in parts if part not in state.left]
        for part in missing:
            message = f"--map: the data has no array '{part}'"
            hint = _close(part, list(state.left))
            state.problems.append(Diagnostic("AOT-D013", message, hint=hint))
        if not missing:
            taken = [state.left.pop(part) for part in parts]
            state.bound[name] = taken[0] if len(taken) == 1 else _stack(name, taken, state)


def _stack(name: str, columns: list[np.ndarray], state: _Binding) -> np.ndarray:
    """Columns [rows] side by side: [rows, columns]."""
    if len({column.shape for column in columns}) > 1:
        held = ", ".join(str(list(column.shape)) for column in columns)
        message = f"--map: the columns of '{name}' differ in their shapes: {held}"
        state.problems.append(Diagnostic("AOT-D014", message))
        return columns[0]
    return np.stack(columns, axis=1)


def _bind_fitting(state: _Binding, inputs: Sequence[TensorSpec]) -> None:
    """Inputs without a name in the data: the one array that fits, or all columns together."""
    wanting = [spec for spec in inputs if spec.name not in state.bound]
    for spec in sorted(wanting, key=lambda spec: -math.prod(spec.shape[1:])):
        fitting = [name for name, value in state.left.items() if _fits(value, spec)]
        if len(fitting) == 1:
            state.bound[spec.name] = state.left.pop(fitting[0])
            state.notes.append(f"input '{spec.name}' takes the array '{fitting[0]}'")
        elif _are_columns(state.left, spec):
            state.bound[spec.name] = np.stack(list(state.left.values()), axis=1)
            state.notes.append(f"input '{spec.name}' takes {len(state.left)} columns")
            state.left.clear()
        else:
            state.problems.append(_nothing_for(spec, state.left))


def _fits(value: np.ndarray, spec: TensorSpec) -> bool:
    """Same elements a row; and integers where the input wants integers."""
    if value.ndim == 0 or math.prod(value.shape[1:]) != math.prod(spec.shape[1:]):
        return False
    wants_whole = np.issubdtype(np.dtype(spec.dtype), np.integer)
    return not wants_whole or np.issubdtype(value.dtype, np.integer)


def _are_columns(left: Arrays, spec: TensorSpec) -> bool:
    width = math.prod(spec.shape[1:])
    return len(left) == width and all(value.ndim == 1 for value in left.values())


def _nothing_for(spec: TensorSpec, left: Arrays) -> Diagnostic:
    message = f"the data has no array for the input '{spec.name}' {_row(spec.shape)} {spec.dtype}"
    held = ", ".join(f"'{name}' {_row(value.shape)} {value.dtype}" for name, value in left.items())
    hint = f"--map {spec.name}=NAME; not yet taken: {held}" if held else "every array is taken"
    return Diagnostic("AOT-D013", message, hint=hint)


def _convert(
    value: np.ndarray, spec: TensorSpec, problems: list[Diagnostic], hint: str = ""
) -> np.ndarray | None:
    """`value` as [rows, *shape[1:]] of the input's dtype; None after a problem, with `hint`."""
    row = spec.shape[1:]
    if value.ndim == 0 or math.prod(value.shape[1:]) != math.prod(row):
        message = (
            f"'{spec.name}' has rows of {_row(value.shape)}, the model takes {_row(spec.shape)}"
        )
        problems.append(Diagnostic("AOT-D014", message, hint=hint))
        return None
    dtype = np.dtype(spec.dtype)
    if not (np.issubdtype(value.dtype, np.number) or value.dtype == np.bool_):
        message = f"'{spec.name}' is {value.dtype}, the model takes {spec.dtype}"
        problems.append(Diagnostic("AOT-D015", message))
        return None
    shaped = value.reshape(len(value), *row)
    bad = _first_lost(shaped, dtype)
    if bad is not None:
        message = f"'{spec.name}' holds {bad[1]} in row {bad[0]}, which is no {spec.dtype} value"
        problems.append(Diagnostic("AOT-D019", message))
        return None
    return shaped.astype(dtype)


def _first_lost(value: np.ndarray, dtype: np.dtype) -> tuple[int, object] | None:
    """Row and value of the first element that is not finite or that the dtype cannot hold.

    Rounding a float is no loss in this sense.
    """
    if np.issubdtype(dtype, np.floating):
        lost = ~np.isfinite(value)
    elif np.issubdtype(value.dtype, np.floating):
        with np.errstate(invalid="ignore"):
            lost = value.astype(dtype) != value
    else:
        lost = value.astype(dtype) != value
    if not lost.any():
        return None
    index = tuple(int(i) for i in np.argwhere(lost)[0])
    return index[0], value[index]


def _check_rows(arrays: Arrays, problems: list[Diagnostic]) -> None:
    counts = {name: len(value) for name, value in arrays.items()}
    if len(set(counts.values())) > 1:
        held = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        problems.append(Diagnostic("AOT-D016", f"the arrays differ in their rows: {held}"))
    elif counts and not any(counts.values()):
        problems.append(Diagnostic("AOT-D018", "the data has no rows"))


def _check_labels(labels: np.ndarray, target: Target, problems: list[Diagnostic]) -> None:
    bad = (labels < 0) | (labels >= target.classes)
    if target.ignored is not None:
        bad &= labels != target.ignored
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        message = (
            f"label {labels[index]} of '{target.name}' in row {index[0]} is out of range: "
            f"the model has {target.classes} classes, 0 to {target.classes - 1}"
        )
        problems.append(Diagnostic("AOT-D017", message))


def _row(shape: Sequence[int]) -> str:
    """`[rows, 8, 8]`."""
    return f"[{', '.join(['rows', *map(str, shape[1:])])}]"


def _close(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(known)}" if known else ""
