"""A graph in; what depends on data, and the positions that a static value reaches, out.

The tables say which positions of an operator hold weights, and which results are made of operands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import onnx

STRONG: dict[str, tuple[int, ...]] = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "DeformConv": (1, 3),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "Einsum": tuple(range(8)),
    "Gather": (0,),
    "PRelu": (1,),
    "BatchNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
    "SimplifiedLayerNormalization": (1,),
    "InstanceNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "LSTM": (1, 2, 3, 7),
    "GRU": (1, 2, 3),
    "RNN": (1, 2, 3),
}
BUFFERS: dict[str, tuple[int, ...]] = {"BatchNormalization": (3, 4)}
WEAK = frozenset(["Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Concat", "Where"])
WEAK_GENERATED = frozenset(["Add", "Mul"])
MOVES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(["Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"], (0,)),
    **dict.fromkeys(
        ["Cast", "CastLike", "Slice", "Split", "Gather", "Expand", "Tile", "DepthToSpace"], (0,)
    ),
    "Concat": tuple(range(64)),
}
"""Operators whose result holds the operand's own numbers: input positions that are followed."""
COMPUTES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(["Add", "Sub", "Mul", "Div", "MatMul", "PRelu"], (0, 1)),
    **dict.fromkeys(["Sum", "Mean", "Min", "Max", "Einsum"], tuple(range(8))),
    **dict.fromkeys(["Neg", "Abs", "Exp", "Log", "Sqrt", "Reciprocal", "Pow", "Clip"], (0,)),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Sigmoid", "Tanh", "Softplus", "Relu", "Elu"], (0,)),
    **dict.fromkeys(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1"], (0,)),
    **dict.fromkeys(["ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "LpNormalization"], (0,)),
    "Where": (1, 2),
}
"""Operators with a gradient by which a stored tensor becomes a weight: operand positions."""
SHAPE_ONLY = frozenset({"Shape", "Size"})
NO_NODE = onnx.NodeProto()


class Flow:
    """What depends on data, and where static values go."""

    def __init__(
        self, graph: onnx.GraphProto, inputs: set[str], copies: set[str], scalars: set[str]
    ) -> None:
        self.copies, self.scalars = copies, scalars
        self.dynamic = set(inputs)
        self.consumers: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        self.producer: dict[str, onnx.NodeProto] = {}
        self.leaves = {t.name for t in graph.initializer}
        self.static: list[str] = [t.name for t in graph.initializer]
        for node in graph.node:
            self._add(node)
        self.roots = {n for n in self.static if n in self.producer and self._is_root(n)}
        self._memo: dict[str, frozenset[str]] = {}

    def _add(self, node: onnx.NodeProto) -> None:
        read = [*node.input, *captured(node)]
        for index, name in enumerate(node.input):
            self.consumers[name].append((node, index))
        for inner in nested(node):
            self.dynamic.update(i.name for i in inner.input)
            self.leaves.update(t.name for t in inner.initializer)
            self.static += [t.name for t in inner.initializer]
            for child in inner.node:
                self._add(child)
        random = node.op_type.startswith("Random") and node.op_type.endswith("Like")
        moving = any(name in self.dynamic for name in read) or random
        for name in node.output:
            self.producer[name] = node
            if moving and node.op_type not in SHAPE_ONLY:
                self.dynamic.add(name)
            elif name:
                self.static.append(name)

    def _is_root(self, name: str) -> bool:
        """Whether the value is made, not moved, by its node."""
        node = self.producer[name]
        return name in self.copies or node.op_type == "Constant" or node.op_type not in MOVES

    def uses(self, name: str) -> frozenset[str]:
        """Kinds of position in data-dependent nodes that the value reaches."""
        if name not in self._memo:
            self._memo[name] = frozenset()  # a cycle cannot be; the entry bounds the recursion
            found: set[str] = set()
            for node, index in self.consumers[name]:
                found |= self._position(node, index)
            self._memo[name] = frozenset(found)
        return self._memo[name]

    def _position(self, node: onnx.NodeProto, index: int) -> set[str]:
        op = node.op_type
        if not any(out in self.dynamic for out in node.output):
            kinds = {kind for out in node.output for kind in self.uses(out)}
            if index in MOVES.get(op, ()) and not self.copies.intersection(node.output):
                return kinds
            if index not in COMPUTES.get(op, ()):
                return set()
            if kinds & {"strong", "through"}:
                return {"through"}
            alone = kinds & {"weak", "bent"} and len(self._sources(node)) == 1
            return {"bent"} if alone else set()
        if index in STRONG.get(op, ()):
            return {"strong"}
        if index in BUFFERS.get(op, ()):
            return {"buffer"}
        if op in WEAK and not (op == "Where" and index == 0):
            return {"generated", "weak"} if op in WEAK_GENERATED else {"weak"}
        if op == "Expand" and index == 0:
            return {"weak"}
        return set()

    def _sources(self, node: onnx.NodeProto) -> set[str]:
        """What the node's result is computed from, by moves and arithmetic; scalars are left out.

        A value that something else makes (a Range, an integer's Cast) is a source itself.
        """
        seen: set[str] = set()
        found = set()
        stack = [node]
        while stack:
            current = stack.pop()
            followed = (*MOVES.get(current.op_type, ()), *COMPUTES.get(current.op_type, ()))
            for name in {n for i, n in enumerate(current.input) if i in followed} - seen:
                seen.add(name)
                producer = self.producer.get(name)
                known = producer is not None and producer.op_type in MOVES.keys() | COMPUTES.keys()
                if producer is not None and known and name not in self.copies:
                    stack.append(producer)
                elif name not in self.scalars:
                    found.add(name)
        return found

    def made_of(self, name: str) -> set[str]:
        """Initializers that `name` is computed from by moves and arithmetic."""
        seen, stack = {name}, [name]
        while stack:
            current = stack.pop()
            node = self.producer.get(current, NO_NODE) if current not in self.copies else NO_NODE
            followed = (*MOVES.get(node.op_type, ()), *COMPUTES.get(node.op_type, ()))
            found = {n for index, n in enumerate(node.input) if index in followed} - seen
            seen |= found
            stack += found
        return {n for n in seen if self.is_kept(n)}

    def is_kept(self, name: str) -> bool:
        """Whether the tensor is an initializer, or the copy of a merged one."""
        return name in self.leaves or name in self.copies


def nested(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Subgraphs of the node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def captured(node: onnx.NodeProto) -> set[str]:
    """Names that the node's subgraphs read, their own ones included."""
    return {
        name
        for graph in nested(node)
        for inner in graph.node
        for name in (*inner.input, *captured(inner))
    }
