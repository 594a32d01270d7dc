"""Every rule against central differences in float64 and against PyTorch's gradients."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from aotrain.autodiff import Request, differentiate
from aotrain.autodiff.vjp import RULES, ZERO
from tests.autodiff import cases_elementwise, cases_network, cases_own, cases_tensor
from tests.autodiff.case import Case
from tests.autodiff.evaluate import compile_functions

FAMILIES = (
    cases_elementwise.FAMILIES | cases_tensor.FAMILIES | cases_network.FAMILIES | cases_own.FAMILIES
)
CASES = [(family, i) for family, cases in FAMILIES.items() for i in range(len(cases))]
IDS = [FAMILIES[f][i].name for f, i in CASES]
GOLDEN = Path(__file__).with_name("golden")


class Namespace:
    """What a case's `relax` builds with; a number becomes a constant of the case's dtype."""

    op, TupleGetItem = relax.op, relax.TupleGetItem

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def const(self, value: Any, dtype: str = "") -> relax.Expr:
        return relax.const(value, dtype or self.dtype)


def build(case: Case) -> relax.Function:
    """(value, gradients..) of a case as one function."""
    arrays = case.arrays()
    params = [
        relax.Var(f"x{i}", relax.TensorType(a.shape, a.dtype.name)) for i, a in enumerate(arrays)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            value = builder.emit(_weighted_sum(case, builder, params), name_hint="value")
            result = builder.emit_output(relax.Tuple([value]))
        builder.emit_func_output(result)
    wrt = tuple(p for p, a in zip(params, arrays, strict=True) if a.dtype.kind == "f")
    return differentiate(builder.get()["main"], [Request("value", wrt)])


def _weighted_sum(case: Case, builder: relax.BlockBuilder, params: list[relax.Var]) -> relax.Expr:
    y = case.relax(Namespace(case.dtype), *params)
    parts = [builder.emit(p) for p in (y if isinstance(y, tuple) else (y,))]
    if isinstance(parts[0].ty, tvm.ir.TupleType):
        count = len(parts[0].ty.fields)
        parts = [builder.emit(relax.TupleGetItem(parts[0], i)) for i in range(count)]
    weights = case.weights([tuple(int(d) for d in p.ty.shape) for p in parts])
    terms = [
        relax.op.sum(relax.op.multiply(p, relax.const(w, case.dtype)))
        for p, w in zip(parts, weights, strict=True)
    ]
    return functools.reduce(relax.op.add, terms)


@functools.cache
def compiled(family: str) -> Any:
    return compile_functions({f"f{i}": build(c) for i, c in enumerate(FAMILIES[family])})


@functools.cache
def golden(family: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{family}.npz") as file:
        return dict(file)


@pytest.mark.parametrize(("family", "index"), CASES, ids=IDS)
def test_gradient(family: str, index: int) -> None:
    case = FAMILIES[family][index]
    assert case.torch or case.differences, "checks nothing"
    arrays = case.arrays()
    run = compiled(family)[f"f{index}"]
    value, *gradients = run(arrays)
    floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    assert [g.shape for g in gradients] == [arrays[i].shape for i in floats]
    if case.torch is not None:
        check_golden(case, golden(family), [value, *gradients])
    if case.differences:
        for i, gradient in zip(floats, gradients, strict=True):
            expected = differences(run, arrays, i)
            np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)


def check_golden(case: Case, table: dict[str, np.ndarray], found: list[np.ndarray]) -> None:
    name = case.name.replace("/", "|")
    tolerance = 2e-6 if case.dtype == "float64" else 2e-5
    for i, array in enumerate(found):
        expected = table[f"{name}|{i}"]
        np.testing.assert_allclose(
            array, expected, rtol=tolerance, atol=tolerance, err_msg=f"result {i}"
        )


def differences(run: Any, arrays: list[np.ndarray], which: int, step: float = 1e-4) -> np.ndarray:
    """Central differences of fourth order by every element of one input."""
    x = arrays[which]
    result = np.zeros(x.size)

    def value(i: int, offset: float) -> float:
        moved = x.copy()
        moved.reshape(-1)[i] += offset
        return float(run([*arrays[:which], moved, *arrays[which + 1 :]])[0])

    for i in range(x.size):
        near = value(i, step) - value(i, -step)
        far = value(i, 2 * step) - value(i, -2 * step)
        result[i] = (8 * near - far) / (12 * step)
    return result.reshape(x.shape)


def test_every_rule_has_a_case() -> None:
    used: set[str] = set()
    for family, index in CASES:
        case = FAMILIES[family][index]
        params = [
            relax.Var(f"x{i}", relax.TensorType(a.shape, a.dtype.name))
            for i, a in enumerate(case.arrays())
        ]
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            builder.emit_func_output(_weighted_sum(case, builder, params))
        for binding in builder.get()["main"].body.blocks[0].bindings:
            if isinstance(binding.value, relax.Call):
                used.add(binding.value.op.name)
    rules = {n for n, r in RULES.items() if r.__module__.startswith("aotrain.autodiff.rules")}
    assert rules - ZERO - used == set()


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_is_kept_and_everything_lowers(family: str) -> None:
    functions = {}
    for i, case in enumerate(FAMILIES[family]):
        function = build(case.in_float32())
        dtypes = {str(f.dtype) for f in function.ret_ty.fields}
        assert dtypes == {"float32"}, case.name
        functions[f"f{i}"] = function.with_attr("global_symbol", f"f{i}")
    with tvm.target.Target("llvm"):  # sort and scan are lowered by target
        module = relax.backend.DispatchSortScan()(tvm.IRModule(functions))
    lowered = relax.transform.LegalizeOps()(module)
    names = {
        binding.value.op.name
        for name in functions
        for binding in lowered[name].body.blocks[0].bindings
        if isinstance(binding.value, relax.Call)
    }
    assert names - {"relax.call_tir"} == set()
