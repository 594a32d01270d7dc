"""A batch of 1 baked into constants: recognised by walking at the old and at the new batch.

    x [1, 3, 4]  -> Reshape to [1, 12]      x [8, 3, 4] -> Reshape to [8, 12]

Row-major order decides a Reshape: where exactly one dimension of the input differs between the
two walks, by the factor f = new / old, the dimension of the output at the same place in memory
grows by f and all others stay; where two could, nothing is changed. The target of the file is
replaced only if it is the same constant in both walks, so that a target that was computed from a
Shape keeps its own mind. Expand and Concat need the batch on a static operand: the dimension that
is the batch in the others grows with them. At the end no value may hold the batch in two of its
dimensions (examples would mix), and every output must follow.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from tvm.relax import op as R  # noqa: N812

from aotrain.errors import Diagnostic
from aotrain.importer.builder import shape_of
from aotrain.importer.converters.shape import reshape_target
from aotrain.importer.flow import SHAPE_ONLY, captured
from aotrain.importer.node import Node
from aotrain.importer.problems import BadShape
from aotrain.importer.walk import Record


class Generaliser:
    """Adjusts the inputs of a node before it is converted; `notes` says which nodes were."""

    def __init__(self, old: Record, before: int, after: int) -> None:
        self._old = old
        self._before, self._after = before, after
        self.changed: dict[str, list[str]] = {}
        self._outer: dict[str, int] = {}
        self._makers: dict[str, tuple[str, list[str]]] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """`batch 1 -> 32 in 3 Reshape nodes`, one line for each operator."""
        return tuple(
            f"batch {self._before} -> {self._after} in {len(names)} {op} node"
            f"{'s' if len(names) > 1 else ''} ({', '.join(names[:4])}"
            f"{', ...' if len(names) > 4 else ''})"
            for op, names in self.changed.items()
        )

    def stuck(self, graph: onnx.GraphProto, new: Record) -> list[Diagnostic]:
        """Outputs [old batch, ...] that did not follow: the model mixes or drops examples."""
        grown = {
            i.name for i in graph.input if self._old.shapes.get(i.name) != new.shapes.get(i.name)
        }
        dependent = reached(graph, grown)
        for name, shape in new.shapes.items():
            old = self._old.shapes.get(name, shape)
            if self.changed and sum(a != b for a, b in zip(old, shape, strict=False)) > 1:
                return [
                    Diagnostic(
                        "AOT-I014",
                        f"the model cannot take a batch of {self._after}: '{name}' {list(shape)}"
                        " would mix examples",
                        hint=f"Give --batch {self._before}, or export with a dynamic batch.",
                    )
                ]
        outputs = [o.name for o in graph.output if o.name in dependent]
        return [
            Diagnostic(
                "AOT-I014",
                f"the model cannot take a batch of {self._after}: output '{name}' stays"
                f" {list(new.shapes[name])}",
                hint=f"Give --batch {self._before}, as the file has, or export with a dynamic"
                " batch.",
            )
            for name in outputs
            if name in new.shapes
            and new.shapes[name] == self._old.shapes.get(name)
            and len(new.shapes[name]) > 1
            and new.shapes[name][0] == self._before
        ]

    def __call__(self, node: Node) -> None:
        """Adjust `node.inputs` in place."""
        self._follow(node)
        if node.proto.domain or node.op_type not in ("Reshape", "Expand", "Concat"):
            return
        olds = [
            self._old.shapes.get(node.scope.prefix + name) if name else None
            for name in node.proto.input
        ]
        out = self._old.shapes.get(node.scope.prefix + node.proto.output[0])
        if out is None or any(o is None for o in olds):
            return
        if node.op_type == "Concat":
            self._concat(node, olds)  # type: ignore[arg-type]
        elif self._baked(node, 1):
            adjust = self._reshape if node.op_type == "Reshape" else self._expand
            adjust(node, olds[0], out)  # type: ignore[arg-type]

    def _follow(self, node: Node) -> None:
        """Note how many elements stand outside of the batch in the node's inputs.

        A dimension may hold the batch as its inner part, [T B, E]: then what computes on it leaves
        it there, as far as the dimensions up to it are the same.
        """
        for index, name in enumerate(node.proto.input):
            key = node.scope.prefix + name
            old = self._old.shapes.get(key)
            if not name or key in self._outer or old is None or node.inputs[index] is None:
                continue
            new = node.walker.record.shapes.get(key, old)
            at = changed_axis(old, new) if len(old) == len(new) else None
            if at is not None:
                self._outer[key] = self._inherited(key, old, at)
        for name in node.proto.output:
            self._makers[node.scope.prefix + name] = (
                node.op_type,
                [node.scope.prefix + i for i in node.proto.input],
            )

    def _inherited(self, key: str, old: tuple[int, ...], at: int) -> int:
        op, sources = self._makers.get(key, ("", []))
        for source in sources:
            before = self._old.shapes.get(source, ())
            if source in self._outer and (op == "Reshape" or before[: at + 1] == old[: at + 1]):
                return self._outer[source]
        return math.prod(old[:at])

    def _baked(self, node: Node, index: int) -> bool:
        old = self._old.arrays.get(node.scope.prefix + node.proto.input[index])
        new = node.inputs[index]
        return isinstance(new, np.ndarray) and old is not None and np.array_equal(old, new)

    def _replace(self, node: Node, index: int, target: list[int]) -> None:
        node.inputs[index] = np.array(target, np.int64)
        names = self.changed.setdefault(node.op_type, [])
        if node.name not in names:
            names.append(node.name)

    def _reshape(self, node: Node, old_in: tuple[int, ...], old_out: tuple[int, ...]) -> None:
        new_in = node.shape()
        target = [int(d) for d in node.inputs[1].reshape(-1)]  # type: ignore[union-attr]
        outer = self._outer.get(node.scope.prefix + node.proto.input[0])
        wanted = grown_reshape(old_in, new_in, old_out, outer)
        if wanted is None:
            return
        try:
            natural = reshape_target(target, new_in, bool(node.attr("allowzero", 0)))
        except BadShape:
            natural = None
        if natural != wanted:
            self._replace(node, 1, wanted)

    def _expand(self, node: Node, old_in: tuple[int, ...], old_out: tuple[int, ...]) -> None:
        """A batch in the operand grows in the target with it."""
        new_in = node.shape()
        wanted = list(old_out)
        offset = len(old_out) - len(old_in)
        for i, (a, b) in enumerate(zip(old_in, new_in, strict=True)):
            if a != b and wanted[i + offset] == a:
                wanted[i + offset] = b
        target = [int(d) for d in node.inputs[1].reshape(-1)]  # type: ignore[union-attr]
        try:
            natural = list(np.broadcast_shapes(tuple(target), new_in))
        except ValueError:
            natural = []
        if natural != wanted:
            self._replace(node, 1, wanted)

    def _concat(self, node: Node, olds: list[tuple[int, ...]]) -> None:
        """Static operands (a class token expanded to a batch of 1) follow the others' batch."""
        news = [shape_of(v) for v in node.inputs]
        axis = node.axis(0)
        grown = {
            (i, b)
            for old, new in zip(olds, news, strict=True)
            for i, (a, b) in enumerate(zip(old, new, strict=True))
            if a != b and i != axis
        }
        for i, size in grown:
            for k, new in enumerate(news):
                if new[i] == self._before and olds[k][i] == self._before and new[i] != size:
                    wide = [size if j == i else d for j, d in enumerate(shape_of(node.inputs[k]))]
                    node.inputs[k] = node.emit(R.broadcast_to(node.x(k), wide))
                    names = self.changed.setdefault(node.op_type, [])
                    if node.name not in names:
                        names.append(node.name)


def changed_axis(old: tuple[int, ...], new: tuple[int, ...]) -> int | None:
    """The one dimension that grew by a whole factor; None where there is none, or several."""
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if len(changed) != 1 or 0 in old or new[changed[0]] % old[changed[0]]:
        return None
    return changed[0]


def grown_reshape(
    old_in: tuple[int, ...],
    new_in: tuple[int, ...],
    old_out: tuple[int, ...],
    outer: int | None = None,
) -> list[int] | None:
    """The output's shape at the new batch; None where that is not provable.

    `outer` elements stand outside of the batch in row-major order; by default those of the
    dimensions before the one that grew. In the output the batch is the dimension of 1 at that place
    (the same position first), or a part of the dimension that contains the place. Where the place
    is the border of two dimensions, either could be meant ([T, B, E] to [T B, E] or to [T, B E]).
    """
    at = changed_axis(old_in, new_in)
    if at is None:
        return None
    outer = math.prod(old_in[:at]) if outer is None else outer
    starts = [math.prod(old_out[:j]) for j in range(len(old_out) + 1)]
    places = range(len(old_out))
    rules = (
        [j for j in places if j == at and starts[j] == outer and old_out[j] == 1],
        [j for j in places if starts[j] == outer and old_out[j] == 1],
        [j for j in places if starts[j] < outer < starts[j + 1] or starts[j] == outer == 1],
    )
    place = next((found[0] for found in rules if found), None)
    if place is None:
        return None
    factor = new_in[at] // old_in[at]
    return [d * factor if j == place else d for j, d in enumerate(old_out)]


def reached(graph: onnx.GraphProto, names: set[str]) -> set[str]:
    """Values that depend on the data of `names` (not on their sizes alone)."""
    found = set(names)
    for node in graph.node:
        if node.op_type not in SHAPE_ONLY and found.intersection({*node.input, *captured(node)}):
            found.update(node.output)
    return found
