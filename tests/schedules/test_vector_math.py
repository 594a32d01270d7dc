"""The polynomials against float64, in units in the last place, over the whole float32 range."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from aotrain.schedules.cpu import schedule
from tests.schedules.kernels import TARGET

COUNT = 1 << 15
TINY, HUGE = 1.1754944e-38, 3.4028235e38

#: name: (TIR function, float64 reference, range, largest error in ulp)
FUNCTIONS = {
    "exp": (tirx.exp, np.exp, (-87.3, 88.7), 1.5),
    "log": (tirx.log, np.log, (TINY, HUGE), 1.5),
    "tanh": (tirx.tanh, np.tanh, (-30.0, 30.0), 2.0),
    "sigmoid": (tirx.sigmoid, lambda x: 1 / (1 + np.exp(-x)), (-87.0, 87.0), 3.0),
    "erf": (tirx.erf, np.vectorize(math.erf), (-6.0, 6.0), 1.5),
    "rsqrt": (tirx.rsqrt, lambda x: 1 / np.sqrt(x), (TINY, HUGE), 2.0),
}


def compiled(function: Callable) -> Callable[[np.ndarray], np.ndarray]:
    """`function` over a vector of COUNT elements, as scheduled."""
    x = te.placeholder((COUNT,), name="x")
    y = te.compute((COUNT,), lambda i: function(x[i]), name="y")
    kernel, _ = schedule(te.create_prim_func([x, y]), TARGET)
    module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    main = tvm.compile(module, TARGET)["main"]

    def call(values: np.ndarray) -> np.ndarray:
        padded = np.resize(np.asarray(values, "float32"), COUNT)
        result = tvm.runtime.tensor(np.zeros(COUNT, "float32"))
        main(tvm.runtime.tensor(padded), result)
        return result.numpy()[: len(values)]

    return call


def samples(low: float, high: float) -> np.ndarray:
    """Evenly over [low, high], and over all binary orders of magnitude in it, both signs."""
    random = np.random.default_rng(0)
    half = COUNT // 2
    even = random.uniform(low, min(high, 1e4), half)
    top = math.log2(max(abs(low), high))
    orders = np.exp2(random.uniform(-126, top, half))
    if low < 0:
        orders *= random.choice([-1.0, 1.0], half)
    both = np.concatenate([even, orders]).astype("float32")
    return both[(both >= low) & (both <= high)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_in_ulp(name: str) -> None:
    function, reference, (low, high), bound = FUNCTIONS[name]
    x = samples(low, high)
    exact = reference(x.astype("float64"))
    normal = np.abs(exact) >= TINY
    error = np.abs(compiled(function)(x) - exact) / np.spacing(np.abs(exact).astype("float32"))
    assert error[normal].max() <= bound


@pytest.mark.parametrize(
    ("name", "arguments", "values"),
    [
        ("exp", [np.inf, -np.inf, np.nan, 0.0, 89.0, -104.0], [np.inf, 0, np.nan, 1, np.inf, 0]),
        ("log", [np.inf, 0.0, np.nan, -1.0, 1.0], [np.inf, -np.inf, np.nan, np.nan, 0]),
        ("tanh", [np.inf, -np.inf, np.nan, 0.0], [1, -1, np.nan, 0]),
        ("sigmoid", [np.inf, -np.inf, np.nan, 0.0], [1, 0, np.nan, 0.5]),
        ("erf", [np.inf, -np.inf, np.nan, 0.0], [1, -1, np.nan, 0]),
    ],
)
def test_special_values(name: str, arguments: list[float], values: list[float]) -> None:
    found = compiled(FUNCTIONS[name][0])(np.array(arguments))
    np.testing.assert_array_equal(found, np.array(values, "float32"))


def test_log_of_subnormals() -> None:
    x = np.array([1e-42, 1e-40, 5e-39], "float32")
    np.testing.assert_allclose(compiled(tirx.log)(x), np.log(x.astype("float64")), rtol=2e-7)


@pytest.mark.parametrize("exponent", [-2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0, 2.5])
def test_power_by_a_constant(exponent: float) -> None:
    x = samples(0.01, 100.0)
    call = compiled(lambda v: tirx.power(v, tirx.const(exponent, "float32")))
    np.testing.assert_allclose(call(x), x.astype("float64") ** exponent, rtol=4e-7)


def test_no_scalar_math_call_is_left() -> None:
    x = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: tirx.erf(tirx.exp(x[i])) + tirx.tanh(x[i]), name="y")
    kernel, _ = schedule(te.create_prim_func([x, y]), TARGET)
    text = kernel.script()
    assert not any(call in text for call in ("T.exp", "T.erf", "T.tanh"))


def test_a_chain_of_functions_stays_fit_for_the_analyzers() -> None:
    """sigmoid(log(1 + exp x)): time to lower was exponential in the length of such a chain."""

    def chain(x: tirx.Expr) -> tirx.Expr:
        return tirx.sigmoid(tirx.log(tirx.exp(x) + tirx.const(1.0, "float32")))

    x = te.placeholder((COUNT,), name="x")
    kernel, _ = schedule(
        te.create_prim_func([x, te.compute((COUNT,), lambda i: chain(x[i]))]), TARGET
    )
    text = kernel.script()
    assert "T.sigmoid(" in text and "T.exp(" not in text and "T.log(" not in text
    values = np.linspace(-20, 20, 1000, dtype="float32")
    expected = 1 / (1 + 1 / (1 + np.exp(values.astype("float64"))))
    np.testing.assert_allclose(compiled(chain)(values), expected, rtol=1e-6)
