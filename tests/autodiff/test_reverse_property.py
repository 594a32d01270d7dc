"""Random graphs: reverse mode agrees with differences, whatever uses what, and cleans up.

The functions are interpreted with NumPy, so that no compiler has to run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from aotrain.autodiff import Request, differentiate

op = relax.op
SIZE = 3

UNARY = {"sin": op.sin, "tanh": op.tanh, "negative": op.negative, "sigmoid": op.sigmoid}
BINARY = {"add": op.add, "subtract": op.subtract, "multiply": op.multiply}


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Steps (operator, earlier values..); values 0 and 1 are the parameters."""
    steps: list[tuple[Any, ...]] = []
    for count in range(2, 2 + draw(st.integers(1, 12))):
        value = st.integers(0, count - 1)
        kind = draw(st.sampled_from(["unary", "binary", "split", "scale"]))
        if kind == "unary":
            steps.append((draw(st.sampled_from(sorted(UNARY))), draw(value)))
        elif kind == "binary":
            steps.append((draw(st.sampled_from(sorted(BINARY))), draw(value), draw(value)))
        elif kind == "split":  # two halves of a concatenation, swapped
            steps.append(("swap", draw(value), draw(value), draw(st.booleans())))
        else:  # broadcasts a row's sum
            steps.append(("scale", draw(value)))
    return steps


def build(steps: list[tuple[Any, ...]], roots: list[int]) -> relax.Function:
    params = [relax.Var(n, relax.TensorType((SIZE,), "float64")) for n in ("a", "b")]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            values: list[relax.Var] = list(params)
            for kind, *args in steps:
                values.append(builder.emit(_expression(builder, kind, values, args)))
            losses = [
                builder.emit(op.sum(values[r % len(values)]), name_hint=f"loss{i}")
                for i, r in enumerate(roots)
            ]
            result = builder.emit_output(relax.Tuple(losses))
        builder.emit_func_output(result)
    return builder.get()["main"]


def _expression(
    builder: relax.BlockBuilder, kind: str, values: list[relax.Var], args: list[Any]
) -> relax.Expr:
    if kind in UNARY:
        return UNARY[kind](values[args[0]])
    if kind in BINARY:
        return BINARY[kind](values[args[0]], values[args[1]])
    if kind == "swap":
        joined = builder.emit(op.concat([values[args[0]], values[args[1]]], axis=0))
        halves = builder.emit(op.split(joined, 2, axis=0))
        return relax.TupleGetItem(halves, int(args[2]))
    x = values[args[0]]
    return op.multiply(x, op.sum(x, axis=[0], keepdims=True))


def interpret(function: relax.Function, *inputs: np.ndarray) -> list[np.ndarray]:
    """Evaluate the operators that these graphs and their gradients use."""
    env: dict[Any, Any] = dict(zip(function.params, inputs, strict=True))

    def value(expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):
            return [value(f) for f in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return value(expr.tuple_value)[expr.index]
        if isinstance(expr, relax.ShapeExpr):
            return tuple(int(d) for d in expr.values)
        if isinstance(expr, relax.Call):
            return call(expr)
        if isinstance(expr, tvm.tirx.IntImm):
            return int(expr)
        return env[expr] if isinstance(expr, relax.Var) else np.asarray(expr.value.numpy())

    def call(expr: relax.Call) -> Any:
        name, args = expr.op.name.removeprefix("relax."), [value(a) for a in expr.args]
        a = expr.attrs
        special = {
            "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
            "broadcast_to": np.broadcast_to,
            "reshape": np.reshape,
            "zeros": np.zeros,
            "sum": lambda x: np.sum(
                x, None if a.axis is None else tuple(map(int, a.axis)), keepdims=bool(a.keepdims)
            ),
            "concat": lambda xs: np.concatenate(xs, int(a.axis)),
            "split": lambda x: np.split(x, 2, int(a.axis)),
            "strided_slice": lambda x, axes, begin, end: x[begin[0] : end[0]],
        }
        return special.get(name, getattr(np, name, None))(*args)

    for binding in function.body.blocks[0].bindings:
        env[binding.var] = value(binding.value)
    return env[function.body.body]


@settings(max_examples=60, deadline=None)
@given(graphs(), st.lists(st.integers(0, 20), min_size=1, max_size=2), st.integers(0, 99))
def test_random_graphs(steps: list[tuple[Any, ...]], roots: list[int], seed: int) -> None:
    function = build(steps, roots)
    a, b = function.params
    requests = [Request(f"loss{i}", (b, a)) for i in range(len(roots))]
    after = differentiate(function, requests)
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(-1, 1, SIZE) for _ in function.params]
    found = interpret(after, *inputs)
    count = len(roots)
    np.testing.assert_allclose(found[:count], interpret(function, *inputs))
    for i in range(count):
        for j, which in enumerate((1, 0)):
            expected = differences(function, inputs, which, i)
            gradient = found[count + 2 * i + j]
            scale = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7 * scale)
    check_clean(after)


def differences(
    function: relax.Function, inputs: list[np.ndarray], which: int, result: int
) -> np.ndarray:
    gradient = np.zeros(SIZE)
    for k in range(SIZE):
        sides = []
        for sign in (1, -1):
            moved = [x.copy() for x in inputs]
            moved[which][k] += sign * 1e-5
            sides.append(float(interpret(function, *moved)[result]))
        gradient[k] = (sides[0] - sides[1]) / 2e-5
    return gradient


def check_clean(function: relax.Function) -> None:
    """Unique names, every binding used, no call twice, nothing read before it is bound."""
    relax.analysis.well_formed(tvm.IRModule({"main": function}))  # raises
    bindings = list(function.body.blocks[0].bindings)
    names = [b.var.name for b in bindings]
    assert len(set(names)) == len(names)
    known, read, calls = set(function.params), set(), set()
    for binding in bindings:
        used = relax.analysis.free_vars(binding.value)
        assert known.issuperset(used)
        read.update(used)
        known.add(binding.var)
        if isinstance(binding.value, relax.Call):
            key = (binding.value.op.name, tuple(binding.value.args), str(binding.value.attrs))
            assert key not in calls or not used
            calls.add(key)
    assert {b.var for b in bindings[:-1]} <= read
