"""An open session and data in; epochs of training steps, and what each came to, out.

The same batches in the same order as `aotrun`: step s is batch s mod n of epoch s div n, where n is
rows div batch, in the order that (seed, epoch) gives. So either continues what the other began.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aotrain.data import Target, bind, load
from aotrain.errors import Diagnostic, InputError, UsageError
from aotrain.plan import TensorSpec
from aotrain.runtime.arrays import as_array, fitting

if TYPE_CHECKING:
    from aotrain.runtime.session import Session

Arrays = dict[str, np.ndarray]
Epoch = dict[str, float]
"""epoch, step, loss (mean of its steps); with validation valid_loss, accuracy of a classifier."""

_WRAP = (1 << 64) - 1


def fit(
    session: Session,
    data: str | Path | Mapping[str, Any],
    *,
    epochs: int,
    seed: int,
    valid: str | Path | Mapping[str, Any] | None,
    mapping: Mapping[str, str],
    report: Callable[[Epoch], None],
) -> list[Epoch]:
    """`Session.fit`, whose docstring is the manual; all arguments are checked here."""
    if not 0 <= seed < 1 << 63:
        raise UsageError(Diagnostic("AOT-D001", f"seed = {seed} is not in [0, 2^63)"))
    rows = _load(session, "train", data, mapping)
    held_out = None if valid is None else _load(session, "eval", valid, mapping)
    batch = _batch(session, "train", rows)
    count = _rows(rows)
    if count < batch:
        message = f"the data has {count} rows, fewer than a batch of {batch}"
        raise InputError(Diagnostic("AOT-D018", message, hint="compile with a smaller batch"))
    per_epoch = count // batch
    step = int(session.info["step"])
    first = step // per_epoch
    found = []
    for epoch in range(first, first + epochs):
        order = shuffled(count, seed, epoch)
        losses = []
        for index in range(step % per_epoch, per_epoch):
            chosen = order[index * batch : (index + 1) * batch]
            losses.append(session.step(**{name: value[chosen] for name, value in rows.items()}))
        step = (epoch + 1) * per_epoch
        line: Epoch = {"epoch": epoch + 1, "step": step, "loss": float(np.mean(losses))}
        if held_out is not None:
            line |= evaluate(session, held_out)
        found.append(line)
        report(line)
    return found


def evaluate(session: Session, rows: Mapping[str, np.ndarray]) -> Epoch:
    """valid_loss and accuracy over all rows, each once, a last short batch included."""
    batch = _batch(session, "eval", rows)
    loss = weight = 0.0
    correct = count = 0
    for start in range(0, _rows(rows), batch):
        chosen = np.arange(start, min(start + batch, _rows(rows)))
        padded = np.pad(chosen, (0, batch - len(chosen)), mode="edge")
        result = session.eval(len(chosen), **{name: value[padded] for name, value in rows.items()})
        share = result.get("count", len(chosen))  # the mean is over so many
        if share:
            loss, weight = loss + share * result["loss"], weight + share
        correct, count = correct + int(result.get("correct", 0)), count + int(share)
    found: Epoch = {"valid_loss": loss / weight if weight else float("nan")}
    if count and "correct" in result:
        found["accuracy"] = correct / count
    return found


def _load(
    session: Session, entry: str, data: str | Path | Mapping[str, Any], mapping: Mapping[str, str]
) -> Arrays:
    """[rows, ...] for each input, in its dtype. Scalars are set, or keep what they hold."""
    views = session.inputs(entry)
    specs = [TensorSpec(n, v.shape, v.dtype.name) for n, v in views.items() if v.ndim]
    info = session.info
    target = None
    if info["classes"] > 0:
        ignored = info["ignored_label"]
        target = Target(specs[-1].name, info["classes"], None if ignored == -(2**63) else ignored)
    if isinstance(data, Mapping):
        arrays = {name: as_array(name, value) for name, value in data.items()}
        for name in [n for n, view in views.items() if not view.ndim and n in arrays]:
            views[name][...] = fitting(name, arrays.pop(name), views[name])
        return bind(arrays, specs, mapping, target)[0]
    if isinstance(data, str | os.PathLike):
        with tempfile.TemporaryDirectory() as folder:
            return load(os.fspath(data), Path(folder), specs, mapping, target)
    message = f"data is a {type(data).__name__}"
    hint = "give a path, or a mapping from the names of the inputs to arrays"
    raise UsageError(Diagnostic("AOT-D001", message, hint=hint))


def _batch(session: Session, entry: str, rows: Mapping[str, np.ndarray]) -> int:
    return int(session.inputs(entry)[next(iter(rows))].shape[0])


def _rows(arrays: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(arrays.values())))


def shuffled(rows: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch, int64 [rows]: Fisher-Yates over SplitMix64, as shuffle.c has it."""
    draws = _splitmix(next(_splitmix(seed)) ^ epoch)
    order = list(range(rows))
    for i in range(rows - 1, 0, -1):
        bound = i + 1
        limit = _WRAP - _WRAP % bound  # uniform by rejection
        draw = next(draws)
        while draw >= limit:
            draw = next(draws)
        other = draw % bound
        order[i], order[other] = order[other], order[i]
    return np.array(order, np.int64)


def _splitmix(state: int) -> Iterator[int]:
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _WRAP
        mixed = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _WRAP
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _WRAP
        yield mixed ^ mixed >> 31
