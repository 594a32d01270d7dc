"""ONNX nodes and values in, Relax bindings out: constants fold, functions and branches inline.

Every node takes the first of these ways that is open to it:

1. Control flow (If, Loop, Scan) walks its subgraph.
2. All inputs known: evaluated now, with onnx's reference evaluator. Shape arithmetic vanishes here.
3. A converter of the table.
4. The function body that ONNX defines for the operator, walked in a scope of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

from aotrain.errors import Diagnostic
from aotrain.importer.builder import FunctionBuilder, Value, dtype_of, shape_of
from aotrain.importer.converters import CONVERTERS
from aotrain.importer.model import Origin
from aotrain.importer.node import Converter, Node, Result
from aotrain.importer.problems import Invalid, NoConverter, Problem, Unsupported
from aotrain.plan import Role

AXES: dict[str, Callable[..., np.ndarray]] = {"Squeeze": np.squeeze, "Unsqueeze": np.expand_dims}
GENERATORS = frozenset({"RandomNormal", "RandomUniform"})
NEVER_FOLDED = frozenset(
    {
        *("If", "Loop", "Scan", "SequenceMap", "Dropout"),
        *("RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"),
    }
)
MAX_RECORDED = 1024  # elements: arrays up to it are compared between two batch sizes


class Poison:
    """The value of an output whose node could not be imported."""


POISON = Poison()


@dataclass
class Scope:
    """Names visible to a graph: its own and, for a subgraph, those around it."""

    values: dict[str, Value | Poison]
    opsets: dict[str, int]
    prefix: str = ""
    origin: Origin | None = None  # of the node whose function body this is


@dataclass
class Record:
    """What a walk saw, by scoped name: compared between two batch sizes."""

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of one node of the main graph."""

    node: onnx.NodeProto
    shapes: tuple[str, ...]
    problems: tuple[Diagnostic, ...]


class Walker:
    """Walks a graph once, for the function `train` or `infer`."""

    def __init__(
        self,
        builder: FunctionBuilder,
        train: bool,
        rng: relax.Var,
        lift: Callable[[str, np.ndarray], Value],
        roles: dict[str, Role] | None = None,
        adjust: Callable[[Node], None] = lambda node: None,
    ) -> None:
        self.builder = builder
        self.train = train
        self.rng = rng
        self.lift = lift
        self.roles = roles or {}
        self.adjust = adjust
        self.record = Record()
        self.outcomes: list[Outcome] = []
        self.problems: list[Diagnostic] = []
        self.new_buffers: dict[str, Value] = {}  # by parameter name, in `train`
        self.buffer_of: dict[str, str] = {}  # Relax variable of a BUFFER -> its parameter name
        self.salt = 0  # of the next Dropout
        self.copies: dict[str, np.ndarray] = {}  # outputs of Identity that are parameters
        self._depth = 0
        self._reported = 0  # problems of nodes of the main graph before the current one

    def graph(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> None:
        """Walk the nodes, in order; their outputs are then in `scope.values`."""
        self._depth += 1
        for proto in nodes:
            self._node(proto, scope)
        self._depth -= 1

    def subgraph(
        self, graph: onnx.GraphProto, inputs: Sequence[Value], outer: Scope
    ) -> list[Value]:
        """Walk a branch or a loop's body once, with these inputs; returns its outputs."""
        values: dict[str, Value | Poison] = dict(outer.values)
        for tensor in graph.initializer:
            array = onnx.numpy_helper.to_array(tensor)
            values[tensor.name] = self.settle(outer.prefix + tensor.name, array)
        values.update(zip((i.name for i in graph.input), inputs, strict=False))
        scope = Scope(values, outer.opsets, outer.prefix, outer.origin)
        self.graph(graph.node, scope)
        return [self._healthy(scope.values[o.name]) for o in graph.output]

    def _node(self, proto: onnx.NodeProto, scope: Scope) -> None:
        problems: list[Problem] = []
        try:
            values = [_look_up(name, scope) for name in proto.input]
            if any(isinstance(v, Poison) for v in values):
                if not _has_way(proto, scope):
                    problems.append(_no_converter(proto, scope))
                results: Sequence[Value | Poison] = [POISON] * len(proto.output)
            else:
                results = self._convert(Node(proto, values, self, scope))
        except Problem as problem:
            problems.append(problem)
            results = [POISON] * len(proto.output)
        for name, value in zip(proto.output, results, strict=False):
            if name:
                scope.values[name] = self.settle(scope.prefix + name, value)
        self._report(proto, scope, problems)

    def _convert(self, node: Node) -> Sequence[Value]:
        if node.op_type == "Identity" and node.scope.prefix + node.proto.output[0] in self.copies:
            return [self.copies[node.proto.output[0]]]
        self.adjust(node)
        key = f"{node.proto.domain}::{node.op_type}" if node.proto.domain else node.op_type
        if self._may_fold(node):
            folded = _evaluate(node)
            if folded is not None:
                return folded
        converter = CONVERTERS.get(key)
        if converter is not None:
            result = _call(converter, node)
            return result if isinstance(result, tuple) else (result,)
        return self._inline(node)

    def _may_fold(self, node: Node) -> bool:
        if node.op_type in GENERATORS:  # noise is drawn anew in every run; initial weights are not
            return any(node.scope.prefix + name in self.roles for name in node.proto.output)
        return node.op_type not in NEVER_FOLDED and all(map(_is_known, node.inputs))

    def settle(self, name: str, value: Value | Poison) -> Value | Poison:
        """Note the value's shape; make it a parameter where it was chosen to be one."""
        if isinstance(value, np.ndarray):
            if name in self.roles:
                value = self.lift(name, value)
            elif value.size <= MAX_RECORDED:
                self.record.arrays[name] = value
        if value is not None and not isinstance(value, Poison | list):
            self.record.shapes[name] = shape_of(value)
        return value

    def _inline(self, node: Node) -> Sequence[Value]:
        """Walk the body that ONNX's own schema gives for the operator."""
        body = _function_body(node)
        if body is None:
            raise _no_converter(node.proto, node.scope)
        scope = Scope(
            {},
            {o.domain: o.version for o in body.opset_import},
            f"{node.scope.prefix}{node.name}/",
            node.origin,
        )
        scope.values.update(dict.fromkeys(body.input))
        scope.values.update(zip(body.input, node.inputs, strict=False))
        schema = _schema(node.proto, node.scope.opsets)
        attributes = {
            name: a.default_value
            for name, a in (schema.attributes.items() if schema else ())
            if a.default_value.name
        }
        attributes.update({a.name: a for a in body.attribute_proto})
        attributes.update({a.name: a for a in node.proto.attribute})
        self.graph([_bind(n, attributes) for n in body.node], scope)
        return [self._healthy(scope.values.get(name)) for name in body.output]

    @staticmethod
    def _healthy(value: Value | Poison) -> Value:
        if isinstance(value, Poison):
            raise _Reported("already reported")
        return value

    def _report(self, proto: onnx.NodeProto, scope: Scope, problems: list[Problem]) -> None:
        name = scope.prefix + (proto.name or next((o for o in proto.output if o), proto.op_type))
        shapes = tuple(
            f"{i}{list(self.record.shapes[scope.prefix + i])}"
            for i in proto.input
            if scope.prefix + i in self.record.shapes
        )
        where = f"{proto.op_type} node '{name}'" + (f" ({', '.join(shapes)})" if shapes else "")
        self.problems += [p.at(where) for p in problems if not isinstance(p, _Reported)]
        if self._depth == 1:
            self.outcomes.append(Outcome(proto, shapes, tuple(self.problems[self._reported :])))
            self._reported = len(self.problems)


class _Reported(Problem):
    """A consequence of a problem that is already in the list."""


def _call(converter: Converter, node: Node) -> Result:
    """The converter's result. What it does not expect becomes a problem of this node."""
    try:
        return converter(node)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        text = f"{type(error).__name__}: {error}"
        raise Unsupported(f"{node.op_type} cannot be imported ({text})") from error


def _look_up(name: str, scope: Scope) -> Value | Poison:
    if name and name not in scope.values:
        raise Invalid(f"'{name}' is read before it is computed")
    return scope.values[name] if name else None


def _is_known(value: Value) -> bool:
    if isinstance(value, list):
        return all(map(_is_known, value))
    return value is None or isinstance(value, np.ndarray)


def _evaluate(node: Node) -> list[Value] | None:
    """The node's outputs by onnx's reference evaluator; None where it cannot."""
    if node.op_type == "Constant":
        value = _constant(node)
        return None if value is None else [value]
    feeds = {
        n: v for n, v in zip(node.proto.input, node.inputs, strict=True) if n and v is not None
    }
    axes = node.attr("axes")
    if node.op_type in AXES and axes is not None:  # onnx 1.23 evaluates opset 13's in their place
        return [AXES[node.op_type](node.inputs[0], tuple(axes))]
    try:
        evaluator = ReferenceEvaluator(_seeded(node.proto), opsets=dict(node.scope.opsets))
        outputs = evaluator.run(None, feeds)
    except Exception:  # the evaluator raises anything; the converter then has its say
        return None
    return [np.asarray(v) if not isinstance(v, list) else v for v in outputs]


def _seeded(proto: onnx.NodeProto) -> onnx.NodeProto:
    """A generator of weights with a seed, of its output's name where the file gives none."""
    if proto.op_type not in GENERATORS or any(a.name == "seed" for a in proto.attribute):
        return proto
    seeded = onnx.NodeProto()
    seeded.CopyFrom(proto)
    seed = zlib.crc32(proto.output[0].encode()) % 2**24  # exact in float32, the attribute's type
    seeded.attribute.append(helper.make_attribute("seed", float(seed)))
    return seeded


def _constant(node: Node) -> np.ndarray | None:
    for name, dtype in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        value = node.attr(name)
        if value is not None:
            return np.array(value, dtype)
    tensor = node.attr("value")
    return None if tensor is None else onnx.numpy_helper.to_array(tensor)


def _has_way(proto: onnx.NodeProto, scope: Scope) -> bool:
    key = f"{proto.domain}::{proto.op_type}" if proto.domain else proto.op_type
    if key in CONVERTERS:
        return True
    schema = _schema(proto, scope.opsets)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _no_converter(proto: onnx.NodeProto, scope: Scope) -> NoConverter:
    domain = f" of domain '{proto.domain}'" if proto.domain else ""
    return NoConverter(
        f"operator {proto.op_type}{domain} (opset {scope.opsets.get(proto.domain, '?')})"
        " cannot be imported",
        "Export the model with standard ONNX operators, or cut the graph before this node.",
    )


def _schema(proto: onnx.NodeProto, opsets: dict[str, int]) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(proto.op_type, opsets.get(proto.domain, 1), proto.domain)
    except onnx.defs.SchemaError:
        return None


def _function_body(node: Node) -> onnx.FunctionProto | None:
    """The schema's body, the context-dependent one by the input types at hand."""
    schema = _schema(node.proto, node.scope.opsets)
    if schema is None:
        return None
    if schema.has_function:
        return _parse(schema.get_function_with_opset_version(_newest(schema, node, False)))
    if not schema.has_context_dependent_function:
        return None
    types = []
    for value in node.inputs:
        if value is None or isinstance(value, list):
            types.append(onnx.TypeProto().SerializeToString())
            continue
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype_of(value)))
        types.append(helper.make_tensor_type_proto(kind, shape_of(value)).SerializeToString())
    body = schema.get_context_dependent_function_with_opset_version(
        _newest(schema, node, True), node.proto.SerializeToString(), types
    )
    return _parse(body)


def _newest(schema: onnx.defs.OpSchema, node: Node, contextual: bool) -> int:
    """The newest opset of a body not above the model's; the oldest where all are above."""
    versions = (
        schema.context_dependent_function_opset_versions
        if contextual
        else schema.function_opset_versions
    )
    fitting = [v for v in versions if v <= node.opset]
    return int(max(fitting) if fitting else min(versions))


def _parse(body: bytes | onnx.FunctionProto) -> onnx.FunctionProto | None:
    if not isinstance(body, bytes):
        return body
    function = onnx.FunctionProto()
    function.ParseFromString(body)
    return function if function.node else None


def _bind(node: onnx.NodeProto, attributes: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """The node with references to the function's attributes replaced, in subgraphs too."""
    bound = onnx.NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in attributes:
                copy = bound.attribute.add()
                copy.CopyFrom(attributes[attribute.ref_attr_name])
                copy.name = attribute.name
            continue
        copy = bound.attribute.add()
        copy.CopyFrom(attribute)
        if attribute.type == onnx.AttributeProto.GRAPH:
            del copy.g.node[:]
            copy.g.node.extend([_bind(inner, attributes) for inner in attribute.g.node])
    return bound
