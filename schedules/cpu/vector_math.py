"""TIR with float32 math calls in, the same TIR with branch-free polynomials out.

LLVM has no vector form of `exp`, `log`, `tanh`, `erf`: TVM lowers them to scalar libm calls, even
inside a vectorised loop (10 to 30 times slower). Each function below is an expression that
vectorises. Polynomials: `expf`, `logf`, `tanhf` of the Cephes library (S. Moshier); N. Juffa's
minimax approximations for erf. Errors over the whole range are measured in
`tests/schedules/test_vector_math.py`. NaN, infinities and overflow behave as in libm, save that
results of `exp` below the smallest normal float32 flush to zero.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx import Expr


def _f32(value: float) -> Expr:
    return tirx.const(value, "float32")


def _i32(value: int) -> Expr:
    return tirx.const(value, "int32")


def _keep_nan(x: Expr, value: Expr) -> Expr:
    """x where it is NaN, else `value`. By bits, since TVM's simplifier takes x != x for false."""
    bits = tirx.reinterpret("int32", x) & _i32(0x7FFFFFFF)
    return tirx.Select(bits > _i32(0x7F800000), x, value)


def _let(value: Expr, body: Callable[[Expr], Expr], dtype: str = "float32") -> Expr:
    """Bind `value` once, so that a polynomial does not repeat its argument's tree."""
    var = tirx.Var("t", dtype)
    return tirx.Let(var, value, body(var))


def _horner(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    result = _f32(coefficients[0])
    for c in coefficients[1:]:
        result = result * x + _f32(c)
    return result


_EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_LOG2E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
#: Math calls, each of what the one before made, that are expanded.
LONGEST = 2
#: ln of the largest float32, and of the smallest normal one.
_EXP_MAX, _EXP_MIN = 88.72283905206835, -87.33654475


def _power_of_two(n: Expr) -> Expr:
    return tirx.reinterpret("float32", (n + _i32(127)) << _i32(23))


def _exp_inside(x: Expr) -> Expr:
    """e^x for x whose result is a normal float32, and which is no NaN.

    x = n ln 2 + f with |f| <= ln 2 / 2: a degree-7 polynomial of f, times 2^n.
    """

    def scaled(f: Expr, n: Expr) -> Expr:
        poly = _horner(f, _EXP) * (f * f) + f + _f32(1.0)
        # In two factors, because 2^128 is no float32 while results up to the largest one are.
        half = n >> _i32(1)
        return poly * _power_of_two(half) * _power_of_two(n - half)

    def reduced(a: Expr) -> Expr:
        return _let(
            tirx.floor(a * _f32(_LOG2E) + _f32(0.5)),
            lambda n: _let(
                a - n * _f32(_LN2_HIGH) - n * _f32(_LN2_LOW),
                lambda f: _let(n.astype("int32"), lambda k: scaled(f, k), "int32"),
            ),
        )

    return _let(x, reduced)


def exp(x: Expr) -> Expr:
    """e^x, 0 and infinity beyond the range of normal results."""

    def body(a: Expr) -> Expr:
        inside = tirx.max(tirx.min(a, _f32(_EXP_MAX)), _f32(_EXP_MIN))
        value = tirx.Select(a < _f32(_EXP_MIN), _f32(0.0), _exp_inside(inside))
        value = tirx.Select(a > _f32(_EXP_MAX), _f32(float("inf")), value)
        return _keep_nan(a, value)

    return _let(x, body)


_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)


def log(x: Expr) -> Expr:
    """ln x: x = m 2^e with sqrt(1/2) <= m < sqrt(2), a degree-9 polynomial of m - 1."""

    def polynomial(m: Expr, e: Expr) -> Expr:
        return _let(
            m * m,
            lambda z: (
                m
                + (_horner(m, _LOG) * m * z + e * _f32(_LN2_LOW) - _f32(0.5) * z)
                + e * _f32(_LN2_HIGH)
            ),
        )

    def split(bits: Expr, shift: Expr) -> Expr:
        exponent = (((bits >> _i32(23)) - _i32(126)).astype("float32")) - shift
        mantissa = tirx.reinterpret("float32", (bits & _i32(0x007FFFFF)) | _i32(0x3F000000))
        return _let(mantissa, lambda m: centred(m, exponent))

    def centred(m: Expr, exponent: Expr) -> Expr:
        low = m < _f32(0.707106781186547524)
        return _let(
            tirx.Select(low, m + m, m) - _f32(1.0),
            lambda f: _let(
                exponent - tirx.Select(low, _f32(1.0), _f32(0.0)), lambda e: polynomial(f, e)
            ),
        )

    def body(a: Expr) -> Expr:
        tiny = a < _f32(1.17549435e-38)  # subnormal: scale by 2^24 first
        scaled = tirx.Select(tiny, a * _f32(16777216.0), a)
        shift = tirx.Select(tiny, _f32(24.0), _f32(0.0))
        value = _let(tirx.reinterpret("int32", scaled), lambda bits: split(bits, shift), "int32")
        value = tirx.Select(a == _f32(float("inf")), a, value)
        value = tirx.Select(a == _f32(0.0), _f32(float("-inf")), value)
        return _keep_nan(a, tirx.Select(a < _f32(0.0), _f32(float("nan")), value))

    return _let(x, body)


_TANH = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)


def tanh(x: Expr) -> Expr:
    """Odd polynomial for |x| < 0.625, 1 - 2 / (e^(2|x|) + 1) with the sign of x beyond."""

    def body(a: Expr) -> Expr:
        small = _let(a * a, lambda z: _horner(z, _TANH) * z * a + a)
        size = tirx.max(a, _f32(0.0) - a)
        large = _let(
            _f32(1.0)
            - _f32(2.0) / (_exp_inside(tirx.min(size, _f32(10.0)) * _f32(2.0)) + _f32(1.0)),
            lambda t: tirx.Select(a < _f32(0.0), _f32(0.0) - t, t),
        )
        value = tirx.Select(size < _f32(0.625), small, large)
        return _keep_nan(a, value)

    return _let(x, body)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x)."""
    return _f32(1.0) / (_f32(1.0) + exp(_f32(0.0) - x))


#: (erf(x) - x) / x for |x| <= 0.93 as a polynomial of x^2, highest power first.
_ERF_NEAR = (
    -5.96761703e-4,
    4.99119423e-3,
    -2.67681349e-2,
    1.12819925e-1,
    -3.76125336e-1,
    1.28379166e-1,
)
#: (ln(1 - erf(x)) + x) / x for 0.93 <= x <= 4, as a polynomial of x, highest power first.
_ERF_FAR = (
    -1.72853470e-5,
    3.83197126e-4,
    -3.88396438e-3,
    2.42546219e-2,
    -1.06777877e-1,
    -6.34846687e-1,
    -1.28717512e-1,
)
_ERF_SPLIT = 0.927734375


def erf(x: Expr) -> Expr:
    """Odd polynomial near 0, 1 - e^p(|x|) with the sign of x beyond."""

    def body(a: Expr) -> Expr:
        near = _let(a * a, lambda z: _horner(z, _ERF_NEAR)) * a + a
        size = tirx.max(a, _f32(0.0) - a)
        inside = tirx.min(size, _f32(4.0))  # where erf rounds to 1
        complement = _exp_inside(_let(inside, lambda t: _horner(t, _ERF_FAR) * t - t))
        far = _let(_f32(1.0) - complement, lambda t: tirx.Select(a < _f32(0.0), _f32(0.0) - t, t))
        return _keep_nan(a, tirx.Select(size < _f32(_ERF_SPLIT), near, far))

    return _let(x, body)


def _power(x: Expr, exponent: Expr) -> Expr | None:
    """x^c for the constants that models use, as products and roots."""
    if not isinstance(exponent, tirx.FloatImm):
        return None
    c = float(exponent.value)
    if c == 0.5:
        return tirx.sqrt(x)
    if c == -0.5:
        return _f32(1.0) / tirx.sqrt(x)
    if c not in (-2.0, -1.0, 1.0, 2.0, 3.0, 4.0):
        return None

    def product(a: Expr) -> Expr:
        result = a
        for _ in range(abs(int(c)) - 1):
            result = result * a
        return result if c > 0 else _f32(1.0) / result

    return _let(x, product)


def _rsqrt(x: Expr) -> Expr:
    return _f32(1.0) / tirx.sqrt(x)


_UNARY = {
    "tirx.exp": exp,
    "tirx.log": log,
    "tirx.tanh": tanh,
    "tirx.sigmoid": sigmoid,
    "tirx.erf": erf,
    "tirx.rsqrt": _rsqrt,
}


def _expanded(call: ir.Call) -> Expr:
    name = getattr(call.op, "name", "")
    if name == "tirx.pow":
        power = _power(call.args[0], call.args[1])
        return call if power is None else power
    return _UNARY[name](call.args[0])


def _is_math(call: ir.Call) -> bool:
    name = getattr(call.op, "name", "")
    return str(getattr(call.ty, "dtype", "")) == "float32" and (
        name in _UNARY or name == "tirx.pow"
    )


def _depth(expr: Expr, bound: dict[tirx.Var, int]) -> int:
    """At least how many math calls stand one in the other; `bound` has that of variables."""
    calls: list[bool] = []
    inner = [0]
    tvm_ffi.structural_walk(
        expr,
        (ir.Call, lambda call: calls.append(_is_math(call))),
        (tirx.Var, lambda var, _: inner.append(bound.get(var, 0))),
    )
    return sum(calls) + max(inner)


def rewrite(body: tirx.Stmt) -> tirx.Stmt:
    """`body` with its float32 calls to exp, log, tanh, sigmoid, erf, rsqrt and pow expanded.

    A call of what two others made (the tanh of a softplus) stays: TVM's analyzers copy a variable's
    value into its uses, so that their time is exponential in the length of such a chain.
    """
    bound: dict[tirx.Var, int] = {}

    def bind(let: tirx.Let) -> None:
        bound[let.var] = _depth(let.value, bound)

    def expand(call: ir.Call) -> Expr:
        if not _is_math(call) or _depth(call.args[0], bound) >= LONGEST:
            return call
        return _expanded(call)

    tvm_ffi.structural_walk(body, (tirx.Let, bind), order="pre")
    return tvm_ffi.structural_map(body, (ir.Call, expand), order="pre")
