"""If, Loop and Scan in, their bodies inlined out: conditions and trip counts are known now."""

from __future__ import annotations

import numpy as np
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.builder import Value, shape_of
from aotrain.importer.node import Converter, Node, normal_axis
from aotrain.importer.problems import Dynamic, Unsupported

MAX_TRIPS = 1024


def _if(n: Node) -> tuple[Value, ...]:
    condition = bool(n.known(0, "condition").reshape(()))
    branch = n.attr("then_branch" if condition else "else_branch")
    return tuple(n.walker.subgraph(branch, [], n.scope))


def _loop(n: Node) -> tuple[Value, ...]:
    """Carried values, then scan outputs stacked on a new first axis."""
    body = n.attr("body")
    trips = int(n.known(0, "trip count").reshape(())) if n.has(0) else None
    going = not n.has(1) or bool(n.known(1, "condition").reshape(()))
    carried = list(n.inputs[2:])
    stacked: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    trip = 0
    while going and (trips is None or trip < trips):
        if trip == MAX_TRIPS:
            raise Unsupported(f"Loop of more than {MAX_TRIPS} iterations cannot be unrolled")
        inputs = [np.array(trip, np.int64), np.array(True), *carried]
        condition, *results = n.walker.subgraph(body, inputs, n.scope)
        if not isinstance(condition, np.ndarray):
            raise Dynamic("Loop: the condition depends on the data")
        going = bool(condition.reshape(()))
        carried = results[: len(carried)]
        for column, value in zip(stacked, results[len(carried) :], strict=True):
            column.append(value)
        trip += 1
    return (*carried, *(_stack(n, column, 0) for column in stacked))


def _stack(n: Node, values: list[Value], axis: int) -> Value:
    if not values:
        raise Unsupported(f"{n.op_type} without iterations, but with scan outputs")
    if all(isinstance(v, np.ndarray) for v in values):
        return np.stack(values, axis)  # type: ignore[arg-type]
    parts = [n.builder.constant(v) if isinstance(v, np.ndarray) else v for v in values]
    return n.emit(R.stack(parts, axis))


def _scan(n: Node) -> tuple[Value, ...]:
    """States, then scan outputs; each scan input is cut along its axis."""
    if n.opset < 9:
        raise Unsupported("Scan of opset 8 is not supported")
    body, count = n.attr("body"), int(n.attr("num_scan_inputs"))
    states = list(n.inputs[: len(n.inputs) - count])
    first = len(states)
    axes = n.attr("scan_input_axes") or [0] * count
    backwards = n.attr("scan_input_directions") or [0] * count
    outputs = len(body.output) - first
    out_axes = n.attr("scan_output_axes") or [0] * outputs
    out_backwards = n.attr("scan_output_directions") or [0] * outputs
    axes = [normal_axis(a, n.rank(first + i)) for i, a in enumerate(axes)]
    trips = n.shape(first)[axes[0]] if count else 0
    if trips > MAX_TRIPS:
        raise Unsupported(f"Scan of more than {MAX_TRIPS} iterations cannot be unrolled")
    stacked: list[list[Value]] = [[] for _ in range(outputs)]
    for trip in range(trips):
        cut = [
            _at(n, first + i, axes[i], trips - 1 - trip if backwards[i] else trip)
            for i in range(count)
        ]
        results = n.walker.subgraph(body, [*states, *cut], n.scope)
        states = results[:first]
        for column, value in zip(stacked, results[first:], strict=True):
            column.append(value)
    columns = [c[::-1] if b else c for c, b in zip(stacked, out_backwards, strict=True)]
    rows = [_stack(n, c, _new_axis(c, a)) for c, a in zip(columns, out_axes, strict=True)]
    return (*states, *rows)


def _new_axis(values: list[Value], axis: int) -> int:
    return normal_axis(axis, len(shape_of(values[0])) + 1) if values else axis


def _at(n: Node, index: int, axis: int, position: int) -> Value:
    value = n.inputs[index]
    if isinstance(value, np.ndarray):
        return np.take(value, position, axis)
    cut = n.emit(R.strided_slice(n.x(index), [axis], [position], [position + 1]))
    shape = list(shape_of(cut))
    del shape[axis]
    return n.emit(R.reshape(cut, shape))


TABLE: dict[str, Converter] = {"If": _if, "Loop": _loop, "Scan": _scan}
