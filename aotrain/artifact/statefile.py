"""State tensors ⇄ a checkpoint (safetensors); `runtime/state.h` describes the format.

The safetensors package writes its metadata in no fixed order, and an artifact must be the same
bytes for the same input, so the few lines of writing are here.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aotrain.errors import Diagnostic, InputError
from aotrain.plan import ITEM_BYTES, Kind, Plan, Role, Tensor

FORMAT = "1"
_ZEROS = "0" * 8
_NAMES = {
    "bool": "BOOL", "int8": "I8", "uint8": "U8", "int16": "I16", "uint16": "U16", "float16": "F16",
    "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "int64": "I64",
    "uint64": "U64", "float64": "F64",
}  # fmt: skip
_DTYPES = {code: name for name, code in _NAMES.items()}


@dataclass(frozen=True)
class Checkpoint:
    """`tensors` by name (bfloat16 as uint16 bit patterns) and the file's metadata as it stands.

    Counters are in `metadata` in decimal: `{"step": "120", "rng": "7 120", ...}`.
    """

    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]

    @property
    def step(self) -> int:
        """Training steps that the state has seen."""
        return int(self.metadata.get("aotrain.step", self.metadata.get("step", "0")))


def dump(plan: Plan, state: Mapping[str, np.ndarray]) -> bytes:
    """A checkpoint with all STATE tensors of the plan. `state` maps their names to values.

    InputError AOT-A021 lists every tensor that is missing or of another shape or dtype.
    """
    tensors = [t for t in plan.tensors if t.kind is Kind.STATE]
    problems = [p for t in tensors if (p := _mismatch(t, state.get(t.name)))]
    if problems:
        raise InputError(*problems)
    counters = {
        t.name: " ".join(str(int(v)) for v in np.ravel(state[t.name]))
        for t in tensors
        if t.role is Role.COUNTER
    }
    metadata = {"aotrain.crc32": _ZEROS, "aotrain.format": FORMAT}
    metadata |= {"aotrain.step": counters.get("step", "0")} | counters
    header: dict[str, object] = {"__metadata__": metadata}
    data: list[bytes] = []
    at = 0
    # Wide items first, so that all of them are aligned.
    for tensor in sorted(tensors, key=lambda t: -ITEM_BYTES[t.dtype]):
        if tensor.role is Role.COUNTER:
            continue
        raw = np.ascontiguousarray(state[tensor.name]).tobytes()
        header[tensor.name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + len(raw)],
        }
        data.append(raw)
        at += len(raw)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file = struct.pack("<Q", len(text)) + text + b"".join(data)
    return file.replace(_ZEROS.encode(), f"{zlib.crc32(file):08x}".encode(), 1)


def load(path: Path) -> Checkpoint:
    """Read and check a checkpoint, ours or another tool's. InputError AOT-A020, AOT-A011."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(Diagnostic("AOT-A020", f"cannot read {path}: {error.strerror}")) from error
    try:
        header, data = _split(raw)
        metadata = {str(k): str(v) for k, v in header.pop("__metadata__", {}).items()}
        tensors = {name: _tensor(data, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise InputError(
            Diagnostic("AOT-A020", f"{path} is truncated, corrupted or no safetensors file")
        ) from error
    if metadata.get("aotrain.format", FORMAT) != FORMAT:
        raise InputError(
            Diagnostic(
                "AOT-A011",
                f"{path} has format version '{metadata['aotrain.format']}', "
                f"this aotrain reads {FORMAT}",
            )
        )
    if not _intact(raw, metadata):
        raise InputError(
            Diagnostic("AOT-A020", f"{path} is corrupted: its checksum does not match")
        )
    return Checkpoint(tensors, metadata)


def _intact(raw: bytes, metadata: Mapping[str, str]) -> bool:
    """Whether the checksum fits; another tool's file has none and passes."""
    crc = metadata.get("aotrain.crc32")
    if crc is None:
        return not any(key.startswith("aotrain.") for key in metadata)
    zeroed = raw.replace(crc.encode(), _ZEROS.encode(), 1)
    return crc == f"{zlib.crc32(zeroed):08x}"


def _mismatch(tensor: Tensor, value: np.ndarray | None) -> Diagnostic | None:
    expected = f"{tensor.dtype}{list(tensor.shape)}"
    if value is None:
        return Diagnostic("AOT-A021", f"no value for the state tensor '{tensor.name}'")
    dtype = value.dtype.name
    same_dtype = dtype == tensor.dtype or (tensor.dtype == "bfloat16" and dtype == "uint16")
    if same_dtype and value.shape == tensor.shape:
        return None
    return Diagnostic(
        "AOT-A021", f"state tensor '{tensor.name}' is {dtype}{list(value.shape)}, not {expected}"
    )


def _split(raw: bytes) -> tuple[dict, memoryview]:
    (length,) = struct.unpack_from("<Q", raw)
    if length > len(raw) - 8:
        raise ValueError("truncated")
    return json.loads(raw[8 : 8 + length]), memoryview(raw)[8 + length :]


def _tensor(data: memoryview, entry: dict) -> np.ndarray:
    begin, end = entry["data_offsets"]
    dtype = _DTYPES[entry["dtype"]]
    if not 0 <= begin <= end <= len(data):
        raise ValueError("outside the file")
    values = np.frombuffer(data[begin:end], "uint16" if dtype == "bfloat16" else dtype)
    return values.reshape(entry["shape"])
