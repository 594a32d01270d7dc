"""A path or ModelProto in, a checked ModelProto with all data loaded and functions inlined out.

Nothing here serialises a whole model: protobuf ends at 2 GB. Files are checked by path, external
data is read tensor by tensor, and the inliner sees the graph without its initializers.
Models beyond 2 GB go the same way as small ones with external data.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import external_data_helper, inliner

from aotrain.errors import Diagnostic, InputError
from aotrain.importer.problems import raise_all

OLDEST_OPSET = 8
PROTOBUF_LIMIT = 2**31 - 1  # bytes of one serialised message


@dataclass(frozen=True)
class Source:
    """`model` as read, `graph` with local functions inlined, `opsets` by domain."""

    name: str
    model: onnx.ModelProto
    graph: onnx.GraphProto
    opsets: dict[str, int]


def read(source: Path | str | onnx.ModelProto) -> Source:
    """Read and check. Raises InputError for a broken file, UnsupportedModelError for its opset."""
    if isinstance(source, onnx.ModelProto):
        model, name = source, source.graph.name or "model"
        _check_text(model.graph, name)
        _check(model)
    else:
        path = Path(source)
        model, name = _load(path), path.stem
    opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
    _check_opset(opsets, name)
    inlined = _inline_local_functions(model)
    opsets |= {o.domain if o.domain != "ai.onnx" else "": o.version for o in inlined.opset_import}
    return Source(name, model, inlined.graph, opsets)


def _fail(code: str, message: str, where: str = "", hint: str = "") -> InputError:
    return InputError(Diagnostic(code, message, where, hint))


def _load(path: Path) -> onnx.ModelProto:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise _fail("AOT-I001", f"{path} {what}", hint="Give the path of an .onnx file.")
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise _fail("AOT-I001", f"{path} cannot be read: {error.strerror}") from error
    except (DecodeError, ValueError, UnicodeDecodeError) as error:
        raise _fail("AOT-I002", f"{path} is not an ONNX file") from error
    if not model.graph.node and not model.graph.output:
        raise _fail("AOT-I002", f"{path} is not an ONNX file: it holds no graph")
    _check_text(model.graph, path)
    _load_external(model, path)
    _check(path)
    return model


def _check_text(graph: onnx.GraphProto, path: Path | str) -> None:
    """Refuse names that are no text, which protobuf hands over as bytes, or no C strings."""
    names = [graph.name, *(v.name for v in (*graph.input, *graph.output, *graph.initializer))]
    names += [d.dim_param for v in graph.input for d in v.type.tensor_type.shape.dim]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [a.name for a in node.attribute]
    if not all(isinstance(name, str) and "\0" not in name for name in names):
        raise _fail("AOT-I002", f"{path} is damaged: a name in it is not text")


def _load_external(model: onnx.ModelProto, path: Path) -> None:
    """Fill in tensors whose bytes are in files beside the model."""
    missing: dict[str, list[str]] = {}
    outside = []
    for tensor in _tensors(model.graph):
        if not external_data_helper.uses_external_data(tensor):
            continue
        location = external_data_helper.ExternalDataInfo(tensor).location
        file = (path.parent / location).resolve()
        if not file.is_relative_to(path.parent.resolve()):
            outside.append(location)
        elif not file.is_file():
            missing.setdefault(location, []).append(tensor.name)
    problems = [
        Diagnostic(
            "AOT-I005",
            f"external data file '{name}' is missing",
            f"{path}, {len(tensors)} tensors, the first '{tensors[0]}'",
            "Copy it from where the model was exported to the model's folder.",
        )
        for name, tensors in missing.items()
    ]
    problems += [
        Diagnostic("AOT-I005", f"external data file '{name}' is outside the model's folder")
        for name in sorted(set(outside))
    ]
    raise_all(problems)
    try:
        for tensor in _tensors(model.graph):
            if external_data_helper.uses_external_data(tensor):
                external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
                tensor.data_location = onnx.TensorProto.DEFAULT
                del tensor.external_data[:]
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise _fail("AOT-I005", f"external data cannot be read: {error}", str(path)) from error


def _tensors(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """Every tensor of the graph: initializers and attributes, in subgraphs too."""
    found = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                found.append(attribute.t)
            found.extend(attribute.tensors)
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(
                attribute.graphs
            ):
                found += _tensors(inner)
    return found


def decode(tensor: onnx.TensorProto) -> np.ndarray:
    """The tensor's array; InputError where its bytes do not make one."""
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (KeyError, TypeError, ValueError) as error:
        raise _fail("AOT-I003", f"tensor '{tensor.name}' is damaged: {error}") from error


def _check(what: Path | onnx.ModelProto) -> None:
    """onnx.checker's verdict, cycles and undefined names included."""
    if isinstance(what, onnx.ModelProto) and what.ByteSize() > PROTOBUF_LIMIT:
        return  # the checker would serialise it; names are still checked by the walk
    try:
        onnx.checker.check_model(str(what) if isinstance(what, Path) else what)
    except UnicodeDecodeError as error:
        raise _fail("AOT-I003", "the model is not valid ONNX: text that is not UTF-8") from error
    except onnx.checker.ValidationError as error:
        text = str(error).strip()
        if _only_unknown_operator(text):
            return
        lines = text.partition("==> Context:")[0].split()
        newer = "ir_version" in text and "higher" in text
        hint = "Install a newer onnx, or export with an older version." if newer else _AGAIN
        message = f"the model is not valid ONNX: {' '.join(lines)}"
        raise _fail("AOT-I003", message, hint=hint) from error


_AGAIN = "Export it again; the exporter wrote an inconsistent graph."


def _only_unknown_operator(text: str) -> bool:
    """Whether the checker stumbled over an operator or opset it does not know: ours to report."""
    return "No Op registered for" in text or "opset version" in text.lower()


def _check_opset(opsets: dict[str, int], name: str) -> None:
    version, newest = opsets.get(""), onnx.defs.onnx_opset_version()
    if version is None or OLDEST_OPSET <= version <= newest:
        return
    hint = (
        f"Convert it: onnx.version_converter.convert_version(model, {OLDEST_OPSET + 5})."
        if version < OLDEST_OPSET
        else "Install a newer onnx, or export with an older opset."
    )
    raise_all(
        [
            Diagnostic(
                "AOT-I004",
                f"opset {version} is not supported, {OLDEST_OPSET} to {newest} are",
                name,
                hint,
            )
        ]
    )


def _inline_local_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without local functions, initializers untouched (and not copied where none is)."""
    if not model.functions:
        return model
    bare = onnx.ModelProto()
    bare.ir_version = model.ir_version
    bare.opset_import.extend(model.opset_import)
    bare.functions.extend(model.functions)
    graph = bare.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    graph.value_info.extend(model.graph.value_info)
    known = {i.name for i in model.graph.input}
    stand_ins = [t for t in model.graph.initializer if t.name not in known]
    graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in stand_ins
    )
    inlined = inliner.inline_local_functions(bare)
    del inlined.graph.input[len(model.graph.input) :]
    inlined.graph.initializer.extend(model.graph.initializer)
    return inlined
