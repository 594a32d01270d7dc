"""Artifact and checkpoint in; the user's own ONNX model with trained weights out.

The graph, its names, its opset and every byte that training does not touch stay as they were: only
initialisers (and weights in Constant nodes, and both in the bodies of If, Loop and Scan) that the
checkpoint holds under their ONNX names are replaced, BatchNorm's running statistics among them.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper

from aotrain.arguments import NONE, PATH, check_types
from aotrain.artifact import statefile
from aotrain.errors import Diagnostic, InputError, UsageError, raise_if_any
from aotrain.files import check_listed, check_parent, replacing
from aotrain.importer.flow import nested

SOURCE = "source.onnx"
"""In the artifact: the model as the user gave it; its weights may point into `STATE`."""

STATE = "state.safetensors"
"""In the artifact: the initial state."""

SLOTS = "optim."
"""What the names of an optimizer's slots begin with."""

PROTOBUF_LIMIT = (1 << 31) - (1 << 20)
"""Bytes: a protobuf message must stay under 2 GiB; one MiB is left for the graph itself."""


@dataclass(frozen=True)
class Exported:
    """What an export did. `error` is the largest |difference| of an output over the largest
    |output|, None where the check was not asked for; `evaluator` names who computed the reference.
    """

    path: Path
    replaced: tuple[str, ...]
    error: float | None
    evaluator: str | None


def export(
    artifact: str | Path,
    *,
    state: str | Path | None = None,
    output: str | Path,
    check: bool = True,
    force: bool = False,
) -> Exported:
    """Write the model that `artifact` was compiled from to `output`, with the weights of `state`.

    `state` is a checkpoint (safetensors), by default the artifact's initial state. Where `check`
    is set, the written model is evaluated on a random input by onnxruntime, or by onnx's reference
    evaluator where that is missing, and compared with the artifact's own `predict`.

    Raises `UsageError` where `output` exists and `force` is not set, `InputError` for an artifact
    or checkpoint that is missing, damaged or not of this model, and where the two disagree. Nothing
    is left at `output` then.
    """
    check_types(
        "export",
        {
            "artifact": (artifact, PATH),
            "state": (state, (*PATH, *NONE)),
            "output": (output, PATH),
        },
    )
    folder, target = Path(artifact), Path(output)
    if target.exists() and not force:
        message = f"'{target}' exists"
        raise UsageError(Diagnostic("AOT-A001", message, hint="--force (force=True) replaces it"))
    if target.is_dir():
        message, hint = f"'{target}' is a folder, so it is not replaced", "name a file with -o"
        raise UsageError(Diagnostic("AOT-A001", message, hint=hint))
    check_parent(target)
    model = read_source(folder)
    checkpoint = Path(state) if state is not None else folder / STATE
    initial = statefile.load(folder / STATE).tensors
    weights = statefile.load(checkpoint).tensors if state is not None else initial
    replaced = set_weights(model, weights, checkpoint, initial)
    result = None
    with replacing(target) as temporary:
        data = _save(model, temporary, target)
        try:
            if check:
                from aotrain import export_check  # loads an evaluator and the loader

                result = export_check.compare(folder, checkpoint, temporary)
        except BaseException:
            if data is not None:
                data.unlink(missing_ok=True)
            raise
    return Exported(
        target,
        replaced,
        result.error if result else None,
        result.evaluator if result else None,
    )


def embed_source(model: onnx.ModelProto, state_file: Path) -> bytes:
    """`model` for `SOURCE`, its weights as references into `state_file`, which lies beside it.

    ONNX's external data is a file name, an offset and a length, so a safetensors file serves: no
    weight is stored twice, and the result is a valid ONNX model of a size that protobuf can hold.
    A tensor whose bytes are not in `state_file` keeps its own.
    """
    header, start = _safetensors_header(state_file)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    with state_file.open("rb") as file:
        for name, tensor in weight_tensors(copy):
            entry = header.get(name)
            if entry is None or not tensor.HasField("raw_data"):
                continue
            begin, end = entry["data_offsets"]
            file.seek(start + begin)
            if file.read(end - begin) != tensor.raw_data:
                continue
            external_data_helper.set_external_data(
                tensor, state_file.name, offset=start + begin, length=end - begin
            )
            tensor.ClearField("raw_data")
    return copy.SerializeToString(deterministic=True)


def read_source(folder: Path) -> onnx.ModelProto:
    """The model that the artifact was compiled from, with all its weights."""
    path = folder / SOURCE
    hint = "give the folder that 'aotrain compile' wrote"
    if not path.is_file():
        message = f"'{folder}' holds no {SOURCE}"
        raise InputError(Diagnostic("AOT-A201", message, hint=hint))
    if not (folder / STATE).is_file():
        raise InputError(Diagnostic("AOT-A202", f"'{folder}' holds no {STATE}", hint=hint))
    check_listed(folder, SOURCE, STATE)
    try:
        model = onnx.load(path)
    except Exception as error:  # protobuf and onnx raise a dozen kinds here
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(Diagnostic("AOT-A202", f"'{path}' is damaged: {reason}")) from error
    for _, tensor in weight_tensors(model):
        if tensor.data_location == onnx.TensorProto.DEFAULT:
            tensor.ClearField("data_location")  # which loading set, and the user's file had not
    return model


def weight_tensors(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Initialisers and tensors of Constant nodes, under the names that their graphs use."""
    for graph in _graphs(model.graph):
        for tensor in graph.initializer:
            yield tensor.name, tensor
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                for attribute in node.attribute:
                    if attribute.name == "value":
                        yield node.output[0], attribute.t


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph, then the bodies of its nodes."""
    yield graph
    for node in graph.node:
        for body in nested(node):
            yield from _graphs(body)


def set_weights(
    model: onnx.ModelProto,
    weights: Mapping[str, np.ndarray],
    checkpoint: Path,
    initial: Mapping[str, np.ndarray] | None = None,
) -> tuple[str, ...]:
    """Replace the tensors of `model` that `weights` names; returns those names.

    A weight that a node computes (a copy by Identity, a ConstantOfShape, a dequantized tensor)
    becomes an initialiser in that node's place, unless it still has its value of `initial`.

    A checkpoint has more than weights (slots): those are passed over. But one that names none of
    the model's tensors, or one in another shape, belongs to another model.
    """
    replaced, problems = [], []
    tensors = list(weight_tensors(model))
    counts = Counter(name for name, _ in tensors)
    for name, tensor in tensors:
        value = weights.get(name)
        if value is None or (counts[name] > 1 and not _holds(tensor, (initial or {}).get(name))):
            continue
        if tuple(value.shape) != tuple(tensor.dims):
            message = f"'{name}' is {list(value.shape)} in '{checkpoint}'"
            where = f"initialiser '{name}' {list(tensor.dims)}"
            hint = "is this the checkpoint of another model?"
            problems.append(Diagnostic("AOT-A203", message, where, hint))
            continue
        _assign(tensor, value)
        replaced.append(name)
    rest = {n: v for n, v in weights.items() if n not in counts and not n.startswith(SLOTS)}
    found, lost = _set_computed(model, rest, initial or {})
    replaced += found
    if not replaced and not problems:
        message = f"'{checkpoint}' holds no weight of the model"
        hint = "'aotrain inspect' lists what each of them holds"
        problems.append(Diagnostic("AOT-A203", message, hint=hint))
    elif lost:
        message = f"the model has no tensor {', '.join(map(repr, lost))} at its top level"
        hint = "inline the model's functions (onnx.inliner) before you compile it"
        problems.append(Diagnostic("AOT-A203", message, f"'{checkpoint}'", hint))
    raise_if_any(problems, InputError)
    return tuple(replaced)


def _set_computed(
    model: onnx.ModelProto, weights: Mapping[str, np.ndarray], initial: Mapping[str, np.ndarray]
) -> tuple[list[str], list[str]]:
    """Put initialisers in the place of nodes -> (names that were set, names that no node has)."""
    made = {
        output: (graph, node)
        for graph in _graphs(model.graph)
        for node in graph.node
        for output in node.output
    }
    replaced, lost = [], []
    for name, value in weights.items():
        same = name in initial and np.array_equal(initial[name], value)
        if name not in made:
            lost.append(name)
        elif not same:
            graph, node = made[name]
            graph.node.remove(node)
            tensor = numpy_helper.from_array(value, name)
            graph.initializer.append(tensor)
            # Before IR 4, every initialiser of the model's own graph is an input as well.
            if model.ir_version < 4 and graph is model.graph:
                graph.input.append(
                    onnx.helper.make_tensor_value_info(name, tensor.data_type, value.shape)
                )
            replaced.append(name)
    return replaced, lost


def _holds(tensor: onnx.TensorProto, value: np.ndarray | None) -> bool:
    """Branches of an If may have tensors of one name: the trained one began with this value."""
    return value is not None and np.array_equal(numpy_helper.to_array(tensor), value)


def _assign(tensor: onnx.TensorProto, value: np.ndarray) -> None:
    """New bytes in the dtype and under the name that the tensor has."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if tensor.data_type == onnx.TensorProto.BFLOAT16 and value.dtype == np.uint16:
        value = value.view(dtype)  # a checkpoint gives bfloat16 as bit patterns
    doc = tensor.doc_string
    tensor.CopyFrom(numpy_helper.from_array(value.astype(dtype), tensor.name))
    if doc:
        tensor.doc_string = doc


def _save(model: onnx.ModelProto, path: Path, final: Path) -> Path | None:
    """Write to `path`. Weights that do not fit into one protobuf go into a second file, as ONNX
    does it, which is named after `final` and returned.
    """
    nbytes = sum(len(tensor.raw_data) for _, tensor in weight_tensors(model))
    if nbytes < PROTOBUF_LIMIT:
        path.write_bytes(model.SerializeToString(deterministic=True))
        return None
    data = final.with_name(f"{final.name}.data")
    with replacing(data) as temporary:
        onnx.save_model(
            model, path, save_as_external_data=True, location=temporary.name, size_threshold=1024
        )
    _relocate(path, data.name)
    return data


def _relocate(path: Path, location: str) -> None:
    """Point the external tensors of the model at `path` to the file `location`."""
    model = onnx.load(path, load_external_data=False)
    for _, tensor in weight_tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(model.SerializeToString(deterministic=True))


def _safetensors_header(path: Path) -> tuple[dict[str, dict[str, list[int]]], int]:
    """Tensor table and the offset in bytes of the data, as the format's README lays them out."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return header, 8 + size
