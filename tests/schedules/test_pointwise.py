"""Pointwise groups: how they are joined, and what may share bytes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, te, tirx
from tvm.relax import op as R  # noqa: N812

from aotrain.ops import optimizer
from aotrain.schedules.cpu import schedule
from tests.schedules.kernels import TARGET, arguments, chain, check, lower, op

SHAPES = st.lists(st.sampled_from([1, 2, 3, 7, 16, 17, 33]), min_size=1, max_size=5)
few = settings(max_examples=15, deadline=None, derandomize=True)


def loops(func: tirx.PrimFunc) -> int:
    return func.script().count("T.vectorized")


@few
@given(SHAPES, st.data())
def test_broadcasts_and_transposes(shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    other = [1 if data.draw(st.booleans()) else n for n in shape]

    def build(builder, x, y):
        total = builder.emit(R.add(x, y))
        return builder.emit(R.permute_dims(R.nn.silu(total), order))

    for func in lower(build, shape, other):
        check(func)


@pytest.mark.parametrize(
    ("shape", "order", "rule"),
    [
        ((64, 128), [1, 0], "transposition"),
        ((3, 64, 5, 32), [0, 3, 2, 1], "transposition"),
        ((3, 64, 32), [1, 0, 2], "pointwise"),  # rows move as a whole
        ((64, 129), [1, 0], "pointwise"),
    ],
)
def test_transposes(shape: tuple[int, ...], order: list[int], rule: str) -> None:
    (func,) = lower(op(lambda x: R.permute_dims(x, order)), shape)
    assert check(func) == rule


def test_a_chain_is_one_loop_and_needs_no_memory() -> None:
    (func,) = lower(chain(R.nn.gelu, R.exp, R.nn.relu), (4, 32))
    scheduled, _ = schedule(func, TARGET)
    assert loops(scheduled) == 1
    assert "sblock_alloc_buffer" not in scheduled.script()


def test_padding_branches_on_no_lane() -> None:
    (func,) = lower(op(lambda x: R.nn.pad(x, [1, 1, 2, 3])), (5, 32))
    scheduled, _ = schedule(func, TARGET)
    assert loops(scheduled) == 3  # left, middle, right
    conditions = [line for line in scheduled.script().splitlines() if "if_then_else" in line]
    assert conditions
    assert not any("lane" in re.split(r"if_then_else|,", line)[1] for line in conditions)
    check(func)


def adamw(n: int) -> tirx.PrimFunc:
    scalars = [()] * 7
    names = [
        relax.Var(f"v{i}", relax.TensorType(list(s), "float32"))
        for i, s in enumerate([(n,)] * 4 + scalars)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", names):
        with builder.dataflow():
            output = builder.emit_output(optimizer.adamw(*names))
        builder.emit_func_output(output)
    module = relax.transform.LegalizeOps()(builder.get())
    (func,) = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]
    return func


def test_an_update_in_place_equals_one_out_of_place() -> None:
    func = adamw(1001)
    check(func)
    scheduled, rule = schedule(func, TARGET)
    assert rule == "pointwise"
    arrays = [np.abs(a) for a in arguments(func)]
    main = tvm.compile(
        tvm.IRModule({"main": scheduled.with_attr("global_symbol", "main")}), TARGET
    )["main"]
    apart = [tvm.runtime.tensor(a) for a in arrays]
    main(*apart)
    shared = [tvm.runtime.tensor(a) for a in arrays]
    # p', m', v' over p, m, v
    shared[-3:] = [shared[0], shared[2], shared[3]]
    main(*shared)
    for a, b in zip(apart[-3:], shared[-3:], strict=True):
        np.testing.assert_array_equal(b.numpy(), a.numpy())


def squared_plus_one(x: te.Tensor, name: str) -> te.Tensor:
    return te.compute((64,), lambda i: x[i] * x[i] + 1.0, name=name)


def test_shared_values_do_not_double_the_code() -> None:
    x = te.placeholder((64,), name="x")
    value = x
    for step in range(12):
        value = squared_plus_one(value, f"v{step}")
    scheduled, _ = schedule(te.create_prim_func([x, value]), TARGET)
    assert len(scheduled.script()) < 6000


def test_rows_shorter_than_a_vector_with_much_work() -> None:
    """[8, 5] whose elements cost hundreds of operations: work for threads, but no whole vector."""
    x, y = te.placeholder((8, 5), name="x"), te.placeholder((8,), name="y")

    def element(i: tirx.Var, j: tirx.Var) -> tirx.Expr:
        value = y[i]
        for _ in range(60):
            value = value * te.sqrt(te.abs(x[i, j]))
        return value

    check(te.create_prim_func([x, y, te.compute((8, 5), element, name="z")]))


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("extent", [6, 30, 48])
def test_reads_at_quotients_are_rows(times: int, extent: int) -> None:
    shape, small = (20, 24, extent, extent), (20, 24, extent // times, extent // times)
    x, z = te.placeholder(small, name="x"), te.placeholder(shape, name="z")

    def element(n, c, h, w):
        return x[n, c, h // times, w // times] * z[n, c, h, w] + x[n, c, h // times, w // times]

    func = te.create_prim_func([x, z, te.compute(shape, element)])
    scheduled, _ = schedule(func, TARGET)
    assert f"// T.int64({times})] *" not in scheduled.script()  # but for the rows themselves
    assert scheduled.script().count("row = ") == 1  # read twice, spread once
    check(func)
