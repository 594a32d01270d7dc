"""What is not a number stays so, in every element of a vector and of its remainder."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.schedules.cpu import schedule
from tests.schedules.kernels import TARGET, lower, op, run

AVX512 = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v4"})

UNARY = {
    "relu": R.nn.relu,
    "clip": lambda x: R.clip(x, 0.0, 6.0),
    "hard sigmoid": lambda x: R.clip(
        R.add(R.multiply(x, relax.const(0.2)), relax.const(0.5)), 0.0, 1.0
    ),
    "leaky": lambda x: R.nn.leakyrelu(x, 0.1),
    "floor": lambda x: R.maximum(x, relax.const(0.5)),
    "ceiling": lambda x: R.minimum(relax.const(0.5), x),
}


@pytest.mark.parametrize("target", [TARGET, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("name", UNARY)
def test_of_one_operand(name: str, target: tvm.target.Target) -> None:
    (func,) = lower(op(UNARY[name]), (5, 37))
    x = np.linspace(-3, 8, 5 * 37, dtype=np.float32).reshape(5, 37)
    x[0, ::3] = np.nan
    (*_, got) = run(schedule(func, target)[0], _arguments(func, x), target)
    (*_, plain) = run(func, _arguments(func, x), target)
    assert np.array_equal(np.isnan(got), np.isnan(x))
    np.testing.assert_array_equal(got[~np.isnan(x)], plain[~np.isnan(x)])


@pytest.mark.parametrize("operator", [R.maximum, R.minimum], ids=["maximum", "minimum"])
def test_of_two_operands(operator) -> None:
    (func,) = lower(op(operator), (3, 21), (3, 21))
    a, b = (np.random.default_rng(i).standard_normal((3, 21)).astype(np.float32) for i in (0, 1))
    a[0, :5], b[0, 3:9], a[2, -1] = np.nan, np.nan, np.nan
    exact = np.maximum(a, b) if operator is R.maximum else np.minimum(a, b)  # keep NaN, too
    (*_, got) = run(schedule(func, TARGET)[0], [a, b, np.zeros_like(a)])
    np.testing.assert_array_equal(got, exact)


def test_an_epilogue_keeps_them() -> None:
    def build(builder, x, w):
        return builder.emit(R.nn.relu(builder.emit(R.matmul(x, w))))

    (func,) = lower(build, (20, 32), (32, 40))
    x = np.random.default_rng(0).standard_normal((20, 32)).astype(np.float32)
    x[3, 4] = np.nan
    w = np.ones((32, 40), np.float32)
    scheduled, rule = schedule(func, TARGET)
    (*_, got) = run(scheduled, [x, w, np.zeros((20, 40), np.float32)])
    assert rule == "contraction"
    assert np.isnan(got[3]).all()
    assert not np.isnan(np.delete(got, 3, axis=0)).any()


def test_a_relu_is_one_instruction() -> None:
    (func,) = lower(op(R.nn.relu), (64, 64))
    module = tvm.IRModule({"main": schedule(func, AVX512)[0].with_attr("global_symbol", "main")})
    with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):
        assembly = tvm.compile(module, AVX512).mod.inspect_source("asm")
    assert "vmaxps" in assembly
    assert "vcmpltps" not in assembly


def _arguments(func, x: np.ndarray) -> list[np.ndarray]:
    """x, the scalars that the function was given as parameters, and space for the output."""
    arrays = []
    for parameter in func.params[1:-1]:
        arrays.append(np.asarray(0.5, str(parameter.dtype)))
    return [x, *arrays, np.zeros_like(x)]
