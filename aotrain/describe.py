"""A path in; what lies there out: an ONNX model, an artifact or a checkpoint, without a device.

Reads files only: no TVM, no kernel is loaded.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotrain.errors import Diagnostic, InputError

STATE_FORMAT = "aotrain.format"
"""Key of the metadata that checkpoints of ours have."""

SAFETENSORS_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Section:
    """A table of the report. `align` has an "r" for each right-aligned column."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    align: str = ""


@dataclass(frozen=True)
class Description:
    """`facts` are single lines; `data` says the same for `--json`, in numbers."""

    kind: str  # "model", "artifact" or "checkpoint"
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    data: dict[str, Any] = field(default_factory=dict)


def describe(path: Path) -> Description:
    """What lies at `path`, told from its content and not from its name.

    Raises `InputError`: AOT-A211 nothing there, AOT-A212 neither of the three, AOT-A213 damaged.
    """
    if path.is_dir():
        if not (path / "manifest.json").is_file():
            message = f"'{path}' is a folder without manifest.json"
            hint = "an artifact is the folder that 'aotrain compile' wrote"
            raise InputError(Diagnostic("AOT-A212", message, hint=hint))
        from aotrain.describe_artifact import describe_artifact

        return describe_artifact(path)
    if not path.is_file():
        raise InputError(Diagnostic("AOT-A211", f"no file or folder '{path}'"))
    if looks_like_safetensors(path):
        return describe_checkpoint(path)
    return describe_model(path)


def looks_like_safetensors(path: Path) -> bool:
    """Eight bytes of length, then a JSON object (the format's README)."""
    with path.open("rb") as file:
        head = file.read(9)
    return len(head) == 9 and head[8:] == b"{" and path.suffix != ".onnx"


def safetensors_header(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str], int]:
    """Tensor table by name, metadata, and the offset in bytes of the first tensor's data."""
    with path.open("rb") as file:
        prefix = file.read(8)
        size = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        text = file.read(size) if size <= 100_000_000 else b""
    try:
        header = json.loads(text)
        metadata = header.pop("__metadata__", {})
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(Diagnostic("AOT-A213", f"'{path}' has a damaged header")) from error
    if path.stat().st_size != 8 + size + end:
        message = f"'{path}' is {path.stat().st_size} bytes, its header says {8 + size + end}"
        raise InputError(Diagnostic("AOT-A213", message, hint="it is truncated or damaged"))
    return header, metadata, 8 + size


def describe_checkpoint(path: Path) -> Description:
    """Tensors by role, and the metadata (step, hyperparameters, ...).

    Raises `InputError`: AOT-A213 damaged header, AOT-A020 corrupted, AOT-A011 newer.
    """
    from aotrain.artifact import statefile

    header, metadata, _ = safetensors_header(path)
    if STATE_FORMAT in metadata:  # ours: its checksum and version can be told
        statefile.load(path)
    rows = []
    for name, entry in header.items():
        shape = tuple(entry["shape"])
        nbytes = math.prod(shape) * SAFETENSORS_BYTES.get(entry["dtype"], 0)
        kind = "slot" if name.startswith("optim.") else "tensor"
        rows.append((kind, name, f"{entry['dtype']}{list(shape)}", str(nbytes)))
    total = sum(int(row[3]) for row in rows)
    facts = [
        ("checkpoint", path.name),
        ("tensors", str(len(rows))),
        ("bytes", str(total)),
        *sorted(metadata.items()),
    ]
    tensors = Section("tensors", ("kind", "name", "type", "bytes"), tuple(rows), "lllr")
    data = {
        "tensors": [
            {"kind": kind, "name": name, "type": type_, "bytes": int(nbytes)}
            for kind, name, type_, nbytes in rows
        ],
        "metadata": metadata,
    }
    return Description("checkpoint", tuple(facts), (tensors,), data)


def describe_model(path: Path) -> Description:
    """Signature, operators and initialisers of an ONNX file; external weights are not read."""
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError, whose module has no types
        message = f"'{path}' is no ONNX model, artifact or checkpoint"
        raise InputError(Diagnostic("AOT-A212", message)) from error
    if not model.graph.node:
        message = f"'{path}' is no ONNX model, artifact or checkpoint"
        raise InputError(Diagnostic("AOT-A212", message, hint="it holds no graph"))
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    weights = _weights(model)
    given = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in given]
    signature = [("input", value.name, _type(value)) for value in inputs]
    signature += [("output", value.name, _type(value)) for value in model.graph.output]
    counts = Counter(node.op_type for node in model.graph.node)
    operators = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    facts = (
        ("model", model.graph.name or path.name),
        ("opset", ", ".join(f"{domain} {version}" for domain, version in opsets.items())),
        ("producer", f"{model.producer_name} {model.producer_version}".strip() or "unknown"),
        ("nodes", str(len(model.graph.node))),
        ("weights", f"{len(weights)}, {sum(int(row[3]) for row in weights)} bytes"),
    )
    sections = (
        Section("signature", ("kind", "name", "type"), tuple(signature)),
        Section("operators", ("op", "nodes"), tuple((op, str(n)) for op, n in operators), "lr"),
        Section("weights", ("kind", "name", "type", "bytes"), tuple(weights), "lllr"),
    )
    data = {
        "name": model.graph.name,
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "nodes": len(model.graph.node),
        "opset": opsets,
        "signature": [{"kind": kind, "name": name, "type": t} for kind, name, t in signature],
        "operators": dict(operators),
        "weights": [
            {"kind": kind, "name": name, "type": t, "bytes": int(n)} for kind, name, t, n in weights
        ],
    }
    return Description("model", facts, sections, data)


def _weights(model: Any) -> list[tuple[str, str, str, str]]:
    """Rows for initialisers and for Constant nodes that hold a tensor."""
    from onnx import helper

    from aotrain.exporter import weight_tensors

    rows = []
    initialisers = {tensor.name for tensor in model.graph.initializer}
    for name, tensor in weight_tensors(model):
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        nbytes = math.prod(tensor.dims) * dtype.itemsize
        kind = "initializer" if name in initialisers else "constant"
        rows.append((kind, name, f"{dtype.name}{list(tensor.dims)}", str(nbytes)))
    return rows


def _type(value: Any) -> str:
    """`float32[batch, 3, 224, 224]`; `?` where the file names no size."""
    from onnx import helper

    tensor = value.type.tensor_type
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    except KeyError:
        return "no tensor"
    return f"{dtype}[{', '.join(_dim(dim) for dim in tensor.shape.dim)}]"


def _dim(dim: Any) -> str:
    return dim.dim_param or (str(dim.dim_value) if dim.HasField("dim_value") else "?")
