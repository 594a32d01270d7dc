"""Which static float tensors are parameters: graph in, name -> role out.

A value is *static* if it depends on no graph input (sizes of tensors are static). Every static
float tensor that feeds a data-dependent node is judged by where it goes in, through operators that
only move data (Identity, Transpose, Reshape, Gather by constants, ...):

strong  weights and biases of Conv, Gemm, MatMul, norms, recurrent layers, PRelu's slope, the table
        of a Gather: TRAINABLE, wherever the tensor comes from (an initializer, a Constant node, or
        computed: ConstantOfShape, DequantizeLinear of a stored int8 weight).
through operands of the arithmetic that makes a strong one (weight normalisation, softmax(w)):
        TRAINABLE in its place, if it is an initializer with more than one element, no mask and not
        named by the exporter that folded it.
buffer  mean and variance of BatchNormalization: BUFFER (FROZEN with batchnorm="frozen").
weak    an operand of Add, Sub, Mul, Div, Sum, Max, Min, Concat, Where: TRAINABLE if it is stored
        (initializer, Constant; ConstantOfShape of a stored shape for Add, Mul), has more than one
        element, and is not a mask, that is, two or more distinct values, all 0, 1 or <= -1e4; but
        FROZEN where it is a table of sines and cosines (`sinusoids.py`), and noted.
bent    the one stored tensor from which, with scalars, such an operand is computed (sigmoid(w),
        1 + w): TRAINABLE as in `through`, and noted. Of a table that is computed from several
        (slopes times distances, positions times frequencies) nothing is trained.
other   Clip bounds, pad values, Resize and quantisation scales, RNN initial states: constant.

Where several positions apply, the first of the list wins; strong with buffer is an error (one
tensor cannot be trained and be a running statistic). Scalars in arithmetic, such as an epsilon or a
temperature, stay constants; `trainable` globs override. A parameter that is moved only (a
transposed weight) stays the stored one, under its own name.

A parameter's name is that of a value of the file's graph: an initializer, or a node's output.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx

from aotrain.errors import Diagnostic
from aotrain.importer.flow import NO_NODE, Flow, captured, nested
from aotrain.importer.globs import matches
from aotrain.importer.options import ImportOptions
from aotrain.importer.read import decode
from aotrain.importer.sinusoids import sinusoids
from aotrain.plan import Role

NEUTRAL: dict[tuple[str, int], float] = {
    (op, index): value
    for op in (
        *("BatchNormalization", "InstanceNormalization", "GroupNormalization"),
        *("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"),
    )
    for index, value in ((1, 1.0), (2, 0.0))
}
"""(Norm, position) of scales and shifts: the value that changes nothing."""
MADE_UP = re.compile(r"val_\d+|onnx::\w+_\d+")
"""Names that PyTorch's exporters give to what they make; weights keep those of the module."""
MASK_BELOW = -1e4
FLOATS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
)


@dataclass(frozen=True)
class Roles:
    """`roles` of parameters by value name, in the order of the file; `problems` of globs, roles;
    `notes` on what one may want otherwise."""

    roles: dict[str, Role]
    problems: tuple[Diagnostic, ...]
    notes: tuple[str, ...] = ()


def classify(
    graph: onnx.GraphProto,
    inputs: set[str],
    stored: dict[str, np.ndarray],
    copies: dict[str, np.ndarray],
    options: ImportOptions,
) -> Roles:
    """Roles of the parameters.

    `inputs` are the data inputs, `stored` the float leaves and `copies` the merged ones, by name.
    """
    stored = stored | copies
    flow = Flow(graph, inputs, set(copies), {n for n, value in stored.items() if value.size == 1})
    problems: list[Diagnostic] = []
    roles: dict[str, Role] = {}
    weak: list[str] = []
    candidates = [n for n in flow.static if n in stored or n in flow.roots]
    for name in candidates:
        uses = flow.uses(name)
        if "strong" in uses and "buffer" in uses:
            problems.append(_conflict(name, flow))
        elif "buffer" in uses:
            roles[name] = Role.FROZEN if options.batchnorm == "frozen" else Role.BUFFER
        elif "strong" in uses and not _is_neutral(name, stored, flow):
            if not any(roles.get(n) is Role.TRAINABLE for n in flow.made_of(name)):
                roles[name] = Role.TRAINABLE
        elif _weak_weight(name, uses, stored, flow):
            roles[name] = Role.TRAINABLE
            weak.append(name)
        elif _is_made_into_weight(name, uses, stored, flow):
            roles[name] = Role.TRAINABLE
    tables = sinusoids({n: stored[n] for n in weak if n in stored})
    roles |= dict.fromkeys(tables, Role.FROZEN)
    roles, found = _override(roles, candidates, options)
    roles = {n: roles[n] for n in candidates if n in roles}
    return Roles(roles, (*problems, *found), _notes(roles, tables, flow))


def _notes(roles: dict[str, Role], tables: set[str], flow: Flow) -> tuple[str, ...]:
    frozen = [n for n, role in roles.items() if n in tables and role is Role.FROZEN]
    bent = [
        n
        for n, role in roles.items()
        if role is Role.TRAINABLE and "bent" in flow.uses(n) and "strong" not in flow.uses(n)
    ]
    notes = []
    if frozen:
        notes.append(f"frozen, tables of sines and cosines (--trainable trains): {_few(frozen)}")
    if bent:
        notes.append(f"trained through arithmetic (--freeze keeps): {_few(bent)}")
    return tuple(notes)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def stored_floats(
    graph: onnx.GraphProto, initializers: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Float initializers and Constant nodes, in subgraphs too, by name.

    `initializers` are those of the graph, decoded, so that no weight is held twice.
    """
    known = initializers or {}
    found = {
        t.name: known[t.name] if t.name in known else decode(t)
        for t in graph.initializer
        if t.data_type in FLOATS
    }
    for node in graph.node:
        for inner in nested(node):
            found |= stored_floats(inner)
        if node.op_type == "Constant" and node.domain == "":
            for a in node.attribute:
                if a.name == "value" and a.t.data_type in FLOATS:
                    found[node.output[0]] = decode(a.t)
    return found


def merged(graph: onnx.GraphProto, stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Identity nodes that stand for a tensor of its own: name -> value.

    PyTorch's exporter stores tensors that are equal (a fresh model's ones and zeros, layers that
    were copied) once, and writes an Identity for each of the others. Trained, they part. Tensors
    that look shared on purpose stay so: values that are not all the same, one use of them being
    the table of a Gather (an embedding tied to the output layer).
    """
    tables = {n.input[0] for n in graph.node if n.op_type == "Gather"}
    initial = {t.name for t in graph.initializer}
    readers = Counter(name for n in graph.node for name in (*n.input, *captured(n)))
    found = {}
    for node in graph.node:
        source = node.input[0] if node.op_type == "Identity" and not node.domain else ""
        if source not in initial or source not in stored or readers[source] < 2:
            continue
        value = stored[source].reshape(-1)
        if np.all(value == value[:1]) or not tables.intersection((source, node.output[0])):
            found[node.output[0]] = stored[source]
    return found


def _is_made_into_weight(
    name: str, uses: frozenset[str], stored: dict[str, np.ndarray], flow: Flow
) -> bool:
    if not uses & {"through", "bent"} or name not in stored or not flow.is_kept(name):
        return False
    folded = MADE_UP.fullmatch(name) is not None  # what arithmetic was before the export
    return stored[name].size > 1 and not is_mask(stored[name]) and not folded


def _is_neutral(name: str, stored: dict[str, np.ndarray], flow: Flow) -> bool:
    """Ones for scales or zeros for shifts of norms that the exporter made up: no weight.

    ONNX's norms demand what a framework's may lack (`affine=False`), and an exported GroupNorm is
    an InstanceNormalization of groups with weights of its own behind it. They stand in a Constant
    node; or, as exporters that lift constants write it, in an initializer or ConstantOfShape that
    has a name of PyTorch's exporter, or is read behind the Reshape that makes the groups.
    """
    producer = flow.producer.get(name, NO_NODE)
    users = flow.consumers[name]
    value = _fill(producer) if producer.op_type == "ConstantOfShape" else stored.get(name)
    neutral = {NEUTRAL.get((node.op_type, index)) for node, index in users}
    if value is None or len(neutral) != 1 or not np.all(value.reshape(-1) == neutral.pop()):
        return False
    operands = {flow.producer.get(node.input[0], NO_NODE).op_type for node, _ in users}
    grouped = {node.op_type for node, _ in users} == {"InstanceNormalization"}
    halves = grouped and operands == {"Reshape"}
    return producer.op_type == "Constant" or MADE_UP.fullmatch(name) is not None or halves


def _fill(node: onnx.NodeProto) -> np.ndarray:
    """The one element of a ConstantOfShape."""
    given = next((decode(a.t) for a in node.attribute if a.name == "value"), None)
    return np.zeros(1, np.float32) if given is None else given


def _weak_weight(
    name: str, uses: frozenset[str], stored: dict[str, np.ndarray], flow: Flow
) -> bool:
    if name in stored:
        return "weak" in uses and stored[name].size > 1 and not is_mask(stored[name])
    node = flow.producer[name]
    return (
        "generated" in uses and node.op_type == "ConstantOfShape" and node.input[0] in flow.leaves
    )


def is_mask(array: np.ndarray) -> bool:
    """Two or more distinct values, all of them 0, 1 or so negative that softmax gives 0."""
    values = array.reshape(-1)
    typical = (values == 0) | (values == 1) | (values <= MASK_BELOW)
    return bool(np.all(typical) and np.any(values != values[:1]))


def _override(
    roles: dict[str, Role], candidates: list[str], options: ImportOptions
) -> tuple[dict[str, Role], list[Diagnostic]]:
    """Freeze, then train, what the globs name.

    `--trainable` reaches parameters first, running statistics left out; only a glob that names none
    of them makes constants (a temperature, a statistic by its own name) trainable.
    """
    problems: list[Diagnostic] = []
    roles = dict(roles)
    for glob in options.freeze:
        names, problem = matches(glob, list(roles), "--freeze")
        problems += [problem] if problem else []
        roles.update(dict.fromkeys(names, Role.FROZEN))
    for glob in options.trainable:
        weights = [n for n, role in roles.items() if role is not Role.BUFFER]
        names, problem = matches(glob, weights, "--trainable")
        if problem:
            names, problem = matches(glob, candidates, "--trainable")
        problems += [problem] if problem else []
        roles.update(dict.fromkeys(names, Role.TRAINABLE))
    return roles, problems


def _conflict(name: str, flow: Flow) -> Diagnostic:
    users = [f"{n.op_type} '{n.name or n.output[0]}' input {i}" for n, i in flow.consumers[name]]
    return Diagnostic(
        "AOT-I012",
        f"'{name}' is a running statistic of BatchNormalization and a weight at once",
        "\n".join(users[:4]),
        "An optimizer of ONNX files merged equal tensors; export without it, or give"
        " --batchnorm frozen.",
    )
