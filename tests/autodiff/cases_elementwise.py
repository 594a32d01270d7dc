"""Gradient cases: unary, binary and activation operators."""

from __future__ import annotations

import numpy as np

from tests.autodiff.case import Case, apart, array, uniform


def _unary(name: str, x: np.ndarray, torch: str | None = None, where: str = "op") -> Case:
    def relax(r, x):
        space = r.op.nn if where == "nn" else r.op
        return getattr(space, name)(x)

    def reference(t, x):
        return getattr(t, torch or name)(x)

    return Case(f"{name}", relax, reference, (x,))


def _function(name: str, x: np.ndarray, **attrs: float) -> Case:
    return Case(
        f"{name}{attrs or ''}",
        lambda r, x: getattr(r.op.nn, name)(x, **attrs),
        lambda t, x: getattr(t.nn.functional, name)(x, **attrs),
        (x,),
    )


def _binary(name: str, a: np.ndarray, b: np.ndarray, torch: str | None = None) -> Case:
    return Case(
        f"{name}{a.shape}{b.shape}",
        lambda r, a, b: getattr(r.op, name)(a, b),
        lambda t, a, b: getattr(t, torch or name)(a, b),
        (a, b),
    )


UNARY = [
    *[
        _unary(n, apart(2, 3, 5))
        for n in ("negative", "abs", "square", "exp", "sin", "cos", "tanh")
    ],
    *[_unary(n, apart(7)) for n in ("sinh", "cosh", "sigmoid", "erf", "floor", "ceil", "sign")],
    *[_unary(n, apart(11)) for n in ("round", "trunc", "atan", "asinh")],
    *[_unary(n, uniform(0.3, 3.0, 1, 7)) for n in ("log", "sqrt", "rsqrt")],
    *[_unary(n, uniform(-0.9, 0.9, 13)) for n in ("asin", "acos", "atanh", "tan")],
    _unary("acosh", uniform(1.2, 4.0, 5)),
    Case(
        "clip",
        lambda r, x: r.op.clip(x, -0.5, 1.0),
        lambda t, x: t.clip(x, -0.5, 1.0),
        (apart(17),),
    ),
    Case(
        "clip at its ends",
        lambda r, x: r.op.clip(x, -1, 2),
        lambda t, x: t.clip(x, -1, 2),
        (array(-1, 2, 0, -3, 3),),
        differences=False,
    ),
    Case("abs at 0", lambda r, x: r.op.abs(x), lambda t, x: t.abs(x), (array(0, -0.0, 1),), False),
    Case(
        "relu at 0",
        lambda r, x: r.op.nn.relu(x),
        lambda t, x: t.relu(x),
        (array(0, -0.0, 1, -1),),
        differences=False,
    ),
    Case(
        "relu6 at its ends",
        lambda r, x: r.op.nn.relu6(x),
        lambda t, x: t.clip(x, 0, 6),
        (array(0, 6, 3, 7, -1),),
        differences=False,
    ),
    Case(
        "astype",
        lambda r, x: r.op.astype(r.op.astype(x, "float32"), x.ty.dtype),
        lambda t, x: x.float().double(),
        (apart(5),),
        differences=False,  # float32 rounds more than a difference step
    ),
]

ACTIVATION = [
    *[_function(n, apart(3, 7)) for n in ("relu", "silu", "gelu", "selu")],
    Case(
        "gelu_tanh",
        lambda r, x: r.op.nn.gelu_tanh(x),
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
        (apart(2, 11),),
    ),
    Case(
        "leakyrelu",
        lambda r, x: r.op.nn.leakyrelu(x, 0.2),
        lambda t, x: t.nn.functional.leaky_relu(x, 0.2),
        (apart(2, 11),),
    ),
    _function("softplus", apart(13)),
    _function("softplus", apart(13), beta=2.0, threshold=1.5),
    Case(
        "prelu of channels",
        lambda r, x, s: r.op.nn.prelu(x, s, 1),
        lambda t, x, s: t.nn.functional.prelu(x, s),
        (apart(2, 3, 5), uniform(0.1, 0.5, 3)),
    ),
    Case(
        "prelu of one slope",
        lambda r, x, s: r.op.nn.prelu(x, s, 1),
        lambda t, x, s: t.nn.functional.prelu(x, s),
        (apart(2, 3, 5), uniform(0.1, 0.5, 1)),
    ),
    *[
        Case(
            f"{name} {axis}",
            lambda r, x, name=name, axis=axis: getattr(r.op.nn, name)(x, axis=axis),
            lambda t, x, name=name, axis=axis: getattr(t, name)(x, dim=axis),
            ((2, 3, 5),),
        )
        for name in ("softmax", "log_softmax")
        for axis in (-1, 0, 1)
    ],
    Case(
        "elu composed",
        lambda r, x: r.op.where(
            r.op.greater(x, r.const(0.0)),
            x,
            r.op.exp(x) - r.const(1.0),
        ),
        lambda t, x: t.nn.functional.elu(x),
        (apart(9),),
    ),
]

BINARY = [
    *[
        _binary(name, apart(*a), uniform(0.5, 2.0, *b))
        for name in ("add", "subtract", "multiply", "divide")
        for a, b in [((2, 3), (2, 3)), ((2, 3, 4), (4,)), ((3, 1), (2, 1, 5)), ((1, 3), (2, 3))]
    ],
    _binary("add", apart(3), array(0.5).reshape(())),
    _binary("power", uniform(0.5, 2.0, 2, 3), apart(3), "pow"),
    _binary("atan2", apart(5), uniform(0.5, 2.0, 5)),
    _binary("log_add_exp", apart(2, 5), uniform(0.5, 2.0, 5), "logaddexp"),
    _binary("maximum", apart(3, 5), uniform(0.5, 0.6, 5)),
    _binary("minimum", apart(3, 5), uniform(0.5, 0.6, 3, 1)),
    _binary("mod", apart(6), uniform(0.7, 0.9, 6), "fmod"),
    _binary("floor_mod", apart(6), uniform(0.7, 0.9, 6), "remainder"),
    Case(
        "power of constants",
        lambda r, x: tuple(r.op.power(x, r.const(e)) for e in (0.5, 2.0, 3.0, -1.0, 1.0)),
        lambda t, x: tuple(x**e for e in (0.5, 2.0, 3.0, -1.0, 1.0)),
        (uniform(0.5, 2.0, 7),),
    ),
    Case(
        "power of constants at 0 and below",
        lambda r, x: tuple(r.op.power(x, r.const(e)) for e in (0.0, 1.0, 2.0, 3.0, 4.0)),
        lambda t, x: tuple(x**e for e in (0.0, 1.0, 2.0, 3.0, 4.0)),
        (array(0, -1.5, 2),),
    ),
    Case(
        "power at 0",
        lambda r, x, e: r.op.power(x, e),
        lambda t, x, e: x**e,
        (array(0, 0, 2, 0), array(0, 2, 0, 1)),
        differences=False,
    ),
    Case(
        "clamp composed",
        lambda r, x: r.op.minimum(r.op.maximum(x, r.const(0.0)), r.const(6.0)),
        lambda t, x: t.clamp(x, 0, 6),
        (array(-1, 0, 3, 6, 7),),
        differences=False,
    ),
    *[
        Case(
            f"{name} at ties",
            lambda r, a, b, name=name: getattr(r.op, name)(a, b),
            lambda t, a, b, name=name: getattr(t, name)(a, b),
            (array(1, 2, 3), array(1, 0, 5)),
            differences=False,
        )
        for name in ("maximum", "minimum")
    ],
    Case(
        "where",
        lambda r, c, a, b: r.op.where(r.op.astype(c, "bool"), a, b),
        lambda t, c, a, b: t.where(c.bool(), a, b),
        (np.array([[1], [0], [1]]), apart(3, 4), apart(4)),
    ),
    Case("x*x", lambda r, x: r.op.multiply(x, x), lambda t, x: x * x, ((3,),)),
]

FAMILIES = {"unary": UNARY, "activation": ACTIVATION, "binary": BINARY}
