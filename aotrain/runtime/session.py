"""An artifact's folder in, training in this process out: the C loader through ctypes.

All arrays that `view` gives are the loader's own bytes: writing to them is setting an input, and
they speak DLPack. Arrays passed in may be anything with `__dlpack__` or numpy's array protocol.
"""

from __future__ import annotations

import ctypes
import operator
import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aotrain.arguments import CALLABLE, MAPPING, NONE, check_types
from aotrain.errors import (
    AotError,
    Diagnostic,
    InputError,
    InternalError,
    ToolchainError,
    UsageError,
)
from aotrain.plan import Kind, Role
from aotrain.runtime import capi
from aotrain.runtime.arrays import fitting
from aotrain.runtime.fit import fit

if TYPE_CHECKING:
    from aotrain.exporter import Exported

_Views = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
"""Of an entry point: inputs and outputs by name."""


class NotFiniteError(InputError):
    """The step ran, but its loss is NaN or infinite."""


class Session:
    """An open artifact. Use it as a context manager, or call `close`.

    Every method raises an `aotrain.errors.AotError` with the loader's message. One call runs at a
    time: calls from several threads wait for each other. Views stay valid after `close`, for the
    memory goes with the last of them.
    """

    def __init__(self, path: str | Path, threads: int | None = None) -> None:
        """Open the folder. `threads=None`: `AOTRUN_NUM_THREADS`, else this process's cores."""
        folder = self.path = Path(os.fsdecode(_path(path)))
        if not folder.is_dir():
            raise InputError(
                Diagnostic(
                    "AOT-A010",
                    f"no artifact at {folder}",
                    hint="name a folder that aotrain compile wrote",
                )
            )
        self._c = capi.load(folder)
        self._lock = threading.RLock()
        self._handle = capi.Handle(self._c)
        options = capi.Options(0 if threads is None else _whole("threads", threads, 1))
        self._check(
            self._c.aot_open(
                _path(folder), ctypes.byref(options), ctypes.byref(self._handle.pointer)
            )
        )
        self._tensors: dict[str, np.ndarray] = {}  # by name, the first of each, as aot_find has it
        self._kinds: dict[str, tuple[Kind, Role | None]] = {}
        self._state: int | None = None  # a state tensor's index
        by_index = [self._describe(index) for index in range(self.info["tensors"])]
        self._entries = {
            name: entry
            for name in ("train", "eval", "predict")
            if (entry := self._entry(name, by_index))
        }

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session; its memory goes with the last view. A second call does nothing."""
        with self._lock:
            self._tensors.clear()
            self._entries.clear()
            self._handle = capi.Handle(self._c)

    @property
    def info(self) -> dict[str, Any]:
        """`aot_info` of aotrun.h: name, threads, block_bytes, step, ..."""
        info = capi.Info()
        self._check(self._c.aot_describe(self._open, ctypes.byref(info)))
        values = {name: getattr(info, name) for name, _ in capi.Info._fields_}
        return {**values, "name": info.name.decode()}

    @property
    def block_bytes(self) -> int:
        """Bytes that the loader allocated for all tensors: the plan's peak."""
        return int(self.info["block_bytes"])

    def step(self, **inputs: Any) -> float:
        """One training step; the loss. Inputs not given keep what they hold.

        NotFiniteError, with the step number, when the loss is NaN or infinite; InputError for a
        label that is no class, and nothing has run then.
        """
        loss = ctypes.c_float()
        with self._lock:
            self._feed("train", inputs)
            self._check(self._c.aot_step(self._open, ctypes.byref(loss)))
        return loss.value

    def eval(self, rows: int | None = None, **inputs: Any) -> dict[str, float | int]:
        """{"loss"} over the first `rows` rows (None: all); of a classifier "correct", "count"."""
        result = capi.Result()
        count = 0 if rows is None else _whole("rows", rows, 0)
        with self._lock:
            self._feed("eval", inputs)
            self._check(self._c.aot_eval(self._open, count, ctypes.byref(result)))
        found: dict[str, float | int] = {"loss": result.loss}
        if result.count >= 0:
            found |= {"correct": result.correct, "count": result.count}
        return found

    def fit(
        self,
        data: str | Path | Mapping[str, Any],
        *,
        epochs: int = 1,
        valid: str | Path | Mapping[str, Any] | None = None,
        map: Mapping[str, str] | None = None,
        seed: int = 0,
        report: Callable[[dict[str, float]], None] | None = None,
    ) -> list[dict[str, float]]:
        """Train `epochs` more passes over `data`; what each came to, also given to `report`.

        `data` and `valid` are a path as `aotrain run` takes it (`.npz`, `.csv`, a folder of images,
        ...) or arrays [rows, ...] by the names of the inputs, NumPy's or DLPack's; `map` is the
        array for an input by its name. Batches and their order are those of `aotrun --seed`; rows
        that fill no batch are left out of an epoch. A dict holds "epoch", "step", "loss" (mean of
        the steps) and, with `valid`, "valid_loss" and a classifier's "accuracy".

        InputError for data that does not fit, NotFiniteError, with the step, for such a loss.
        """
        optional = {"map": (map, (*MAPPING, *NONE)), "report": (report, (*CALLABLE, *NONE))}
        check_types("fit", optional)
        return fit(
            self,
            data,
            epochs=_whole("epochs", epochs, 1),
            seed=_whole("seed", seed, 0),
            valid=valid,
            mapping=map or {},
            report=report or (lambda line: None),
        )

    def predict(self, **inputs: Any) -> dict[str, np.ndarray]:
        """The model's outputs under their ONNX names, as copies."""
        with self._lock:
            self._feed("predict", inputs)
            self._check(self._c.aot_predict(self._open))
            return {name: view.copy() for name, view in self.outputs("predict").items()}

    def view(self, name: str) -> np.ndarray:
        """The tensor's own bytes as a writable array (bfloat16 as uint16).

        On a GPU, a state tensor's bytes are those at the time of this call, and what is written
        into them counts until the next step: ask again after it.
        """
        with self._lock:
            self._sync()
            return self._named(name)

    def inputs(self, entry: str = "train") -> dict[str, np.ndarray]:
        """Views of an entry point's inputs, in the model's order. UsageError for an unknown one."""
        return dict(self._signature(entry)[0])

    def outputs(self, entry: str = "train") -> dict[str, np.ndarray]:
        """Views of an entry point's outputs."""
        return dict(self._signature(entry)[1])

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of all state tensors: parameters, buffers, slots (`optim.*`), counters."""
        with self._lock:
            self._sync()
            return {name: self._named(name).copy() for name in self._state_names()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set all state tensors; nothing is changed unless every one is there and fits."""
        check_types("load_state_dict", {"state": (state, MAPPING)})
        names = self._state_names()
        unknown = sorted(set(state) - set(names)) + sorted(set(names) - set(state))
        if unknown:
            raise InputError(
                *(
                    Diagnostic(
                        "AOT-A020",
                        f"state tensor '{n}' is {'not in the model' if n in state else 'missing'}",
                    )
                    for n in unknown
                )
            )
        arrays = [(t := self._named(n), fitting(n, v, t)) for n, v in state.items()]
        with self._lock:
            self._sync()
            for target, array in arrays:
                target[...] = array

    def set(self, **hyper: float) -> None:
        """Set hyperparameters, as in `set(lr=1e-3)`; they stay until they are set again."""
        for name, value in hyper.items():
            try:
                number = float(value)
            except (TypeError, ValueError) as error:
                message = f"{name} = {value!r} is no number"
                raise UsageError(Diagnostic("AOT-D001", message)) from error
            self._check(self._c.aot_set_hyper(self._open, _text("name", name), number))

    def save(self, path: str | Path, notes: Mapping[str, str] | None = None) -> None:
        """Write a checkpoint atomically. `notes` (key < 32, value < 96 bytes) are its metadata."""
        check_types("save", {"notes": (notes, (*MAPPING, *NONE))})
        try:
            pairs = [
                capi.Note(_text("note", k), _text("note", v)) for k, v in (notes or {}).items()
            ]
        except ValueError as error:
            raise UsageError(Diagnostic("AOT-D001", f"a note is too long: {error}")) from error
        array = (capi.Note * len(pairs))(*pairs)
        with self._lock:
            self._check(self._c.aot_save(self._open, _path(path), array, len(pairs)))

    def export(self, output: str | Path, *, check: bool = True, force: bool = False) -> Exported:
        """Write the ONNX model with the weights as they are now: `aotrain.export`."""
        from aotrain.exporter import export  # imports onnx

        with tempfile.TemporaryDirectory() as folder:
            state = Path(folder, "state.safetensors")
            self.save(state)
            return export(self.path, state=state, output=output, check=check, force=force)

    def load(self, path: str | Path) -> None:
        """Read a checkpoint; after an error the state is as it was."""
        with self._lock:
            self._check(self._c.aot_load(self._open, _path(path), None, 0))

    def _require_open(self) -> None:
        if not self._handle.pointer:
            raise UsageError(Diagnostic("AOT-D001", "the session is closed"))

    @property
    def _open(self) -> ctypes.c_void_p:
        self._require_open()
        return self._handle.pointer

    def _check(self, status: int) -> None:
        if status == 0:
            return
        text = (self._c.aot_error(self._handle.pointer) or b"").decode(errors="replace")
        code, _, rest = text.partition(": ")
        message, _, hint = rest.partition("\nhint: ")
        kinds: dict[int, type[AotError]] = {
            capi.NOT_FINITE: NotFiniteError,
            capi.BAD_ARGUMENT: UsageError,
            capi.KERNEL: InternalError,
            capi.DEVICE: ToolchainError,
        }
        raise kinds.get(status, InputError)(Diagnostic(code, message, hint=hint))

    def _describe(self, index: int) -> tuple[str, np.ndarray | None]:
        tensor = capi.Tensor()
        self._check(self._c.aot_get_tensor(self._open, index, ctypes.byref(tensor)))
        name, kind = tensor.name.decode(), capi.KINDS[tensor.kind]
        if kind is Kind.TEMP:
            return name, None
        if kind is Kind.STATE:
            self._state = index
        dtype = capi.DTYPES[tensor.dtype]
        buffer = (ctypes.c_uint8 * tensor.bytes).from_address(tensor.data)
        buffer.owner = self._handle  # the view keeps the bytes alive
        array = np.ndarray(
            tuple(tensor.shape[: tensor.rank]),
            "uint16" if dtype == "bfloat16" else dtype,
            buffer=buffer,
        )
        if name not in self._tensors:
            self._tensors[name] = array
            self._kinds[name] = (kind, capi.ROLES[tensor.role])
        return name, array

    def _sync(self) -> None:
        """Make the bytes of state those that the last step left: asking for one of them does."""
        pointer, tensor = self._open, capi.Tensor()
        if self._state is not None:
            self._check(self._c.aot_get_tensor(pointer, self._state, ctypes.byref(tensor)))

    def _entry(self, name: str, by_index: Sequence[tuple[str, np.ndarray | None]]) -> _Views | None:
        found = capi.Signature()
        if self._c.aot_entry(self._open, name.encode(), ctypes.byref(found)):
            return None

        def views(indices: Sequence[int]) -> dict[str, np.ndarray]:
            return {by_index[i][0]: a for i in indices if (a := by_index[i][1]) is not None}

        return views(found.inputs[: found.input_count]), views(found.outputs[: found.output_count])

    def _signature(self, entry: str) -> _Views:
        self._require_open()
        try:
            return self._entries[entry]
        except KeyError:
            raise UsageError(Diagnostic("AOT-D001", f"no entry point '{entry}'")) from None

    def _state_names(self) -> list[str]:
        self._require_open()
        return [name for name, (kind, _) in self._kinds.items() if kind is Kind.STATE]

    def _named(self, name: str) -> np.ndarray:
        self._require_open()
        try:
            return self._tensors[name]
        except KeyError:
            known = ", ".join(sorted(self._tensors)[:20])
            raise UsageError(
                Diagnostic("AOT-D001", f"no tensor '{name}'", hint=f"there are: {known}")
            ) from None

    def _feed(self, entry: str, inputs: Mapping[str, Any]) -> None:
        allowed = self._signature(entry)[0]
        for name in inputs:
            if name not in allowed:
                raise UsageError(
                    Diagnostic(
                        "AOT-D001",
                        f"{entry} has no input '{name}'",
                        hint=f"it takes: {', '.join(allowed)}",
                    )
                )
        arrays = [(allowed[n], fitting(n, value, allowed[n])) for n, value in inputs.items()]
        for target, array in arrays:
            target[...] = array


def _whole(name: str, value: Any, least: int) -> int:
    """`value` as a C int; UsageError for anything else."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not least <= number < 2**31:
        message = f"{name} = {value!r} is no whole number from {least} on"
        raise UsageError(Diagnostic("AOT-D001", message))
    return number


def _path(path: str | Path) -> bytes:
    try:
        return _text("path", os.fspath(path))
    except TypeError as error:
        raise UsageError(Diagnostic("AOT-D001", f"{path!r} is no path")) from error


def _text(what: str, text: Any) -> bytes:
    """For C: without a NUL, which would end it early."""
    encoded = os.fsencode(text) if isinstance(text, str | bytes) else b"\0"
    if b"\0" in encoded:
        raise UsageError(Diagnostic("AOT-D001", f"{what} {text!r} is no text without NUL"))
    return encoded
