"""Elementwise ONNX operators in, Relax calls out. Broadcasting is numpy's in both."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
from onnx import helper
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.node import Converter, Node
from aotrain.importer.problems import Unsupported
from aotrain.plan import ITEM_BYTES


def _unary(call: Callable[..., relax.Expr]) -> Converter:
    return lambda n: n.emit(call(n.x(0)))


def _binary(call: Callable[..., relax.Expr]) -> Converter:
    return lambda n: n.emit(call(n.x(0), n.x(1)))


def _variadic(call: Callable[..., relax.Expr]) -> Converter:
    def convert(n: Node) -> relax.Expr:
        return reduce(lambda a, b: n.emit(call(a, b)), [n.x(i) for i in range(len(n.inputs))])

    return convert


def _mean(n: Node) -> relax.Expr:
    total = _variadic(R.add)(n)
    return n.emit(R.divide(total, n.scalar(len(n.inputs))))


def _divide(n: Node) -> relax.Expr:
    """Integers round toward zero, as C does."""
    return n.emit(R.divide(n.x(0), n.x(1)))


def _power(n: Node) -> relax.Expr:
    """Small constant exponents without `pow`: exact for negative bases, and cheaper."""
    x, exponent = n.x(0), n.inputs[1]
    if isinstance(exponent, np.ndarray) and exponent.size == 1 and exponent.ndim <= n.rank():
        value = float(exponent.reshape(()))
        if value == 1:
            return x
        if value == 2:
            return n.emit(R.multiply(x, x))
        if value == 3:
            return n.emit(R.multiply(n.emit(R.multiply(x, x)), x))
        if value == 0.5 and n.is_float():
            return n.emit(R.sqrt(x))
        if value == -1 and n.is_float():
            return n.emit(R.divide(n.scalar(1), x))
    if n.dtype(1) == n.dtype() and n.is_float():
        return n.emit(R.power(x, n.x(1)))
    wide = n.dtype() if n.is_float() else "float64"
    base, power = (n.emit(R.astype(v, wide)) for v in (x, n.x(1)))
    y = n.emit(R.power(base, power))
    return y if n.is_float() else n.emit(R.astype(n.emit(R.round(y)), n.dtype()))


def _mod(n: Node) -> relax.Expr:
    if n.attr("fmod", 0):
        return n.emit(R.mod(n.x(0), n.x(1)))
    return n.emit(R.floor_mod(n.x(0), n.x(1)))


def _bit_shift(n: Node) -> relax.Expr:
    call = R.left_shift if n.attr("direction") == "LEFT" else R.right_shift
    return n.emit(call(n.x(0), n.x(1)))


def _is_inf(n: Node) -> relax.Expr:
    x, zero = n.x(0), n.scalar(0)
    infinite = n.emit(R.isinf(x))
    if not n.attr("detect_negative", 1):
        infinite = n.emit(R.logical_and(infinite, n.emit(R.greater(x, zero))))
    if not n.attr("detect_positive", 1):
        infinite = n.emit(R.logical_and(infinite, n.emit(R.less(x, zero))))
    return infinite


def _clip(n: Node) -> relax.Expr:
    """Bounds: attributes before opset 11, optional inputs since."""
    low, high = (
        n.x(i) if n.has(i) else (n.scalar(n.attr(name)) if n.attr(name) is not None else None)
        for i, name in ((1, "min"), (2, "max"))
    )
    y = n.x(0)
    if low is not None:
        y = n.emit(R.maximum(y, low))
    if high is not None:
        y = n.emit(R.minimum(y, high))
    return y


def _cast(n: Node) -> relax.Expr:
    kind = n.attr("to")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind)).name
    if dtype not in ITEM_BYTES:
        raise Unsupported(f"Cast to {dtype} is not supported")
    x = n.x(0)
    if dtype == n.dtype():
        return x
    if dtype == "bool":
        return n.emit(R.not_equal(x, n.scalar(0)))
    return n.emit(R.astype(x, dtype))


def _cast_like(n: Node) -> relax.Expr:
    return n.x(0) if n.dtype() == n.dtype(1) else n.emit(R.astype(n.x(0), n.dtype(1)))


def _quantize(n: Node) -> relax.Expr:
    """round(x / scale) + zero point, saturated; per tensor or along `axis`."""
    n.reject("block_size", 0)
    dtype = n.dtype(2) if n.has(2) else "uint8"
    info = np.iinfo(dtype)
    scaled = n.emit(R.round(n.emit(R.divide(n.x(0), _along_axis(n, n.x(1))))))
    if n.has(2):
        zero = n.emit(R.astype(_along_axis(n, n.x(2)), n.dtype()))
        scaled = n.emit(R.add(scaled, zero))
    low = n.emit(R.maximum(scaled, n.scalar(info.min)))
    return n.emit(R.astype(n.emit(R.minimum(low, n.scalar(info.max))), dtype))


def _dequantize(n: Node) -> relax.Expr:
    n.reject("block_size", 0)
    dtype = n.dtype(1)
    x = n.emit(R.astype(n.x(0), dtype))
    if n.has(2):
        x = n.emit(R.subtract(x, n.emit(R.astype(_along_axis(n, n.x(2)), dtype))))
    return n.emit(R.multiply(x, _along_axis(n, n.x(1))))


def _along_axis(n: Node, scale: relax.Expr) -> relax.Expr:
    """A scale of shape [C] to [C, 1, ...] so that it broadcasts along `axis`."""
    if len(scale.ty.shape) != 1 or int(scale.ty.shape[0]) == 1:
        return scale if not scale.ty.shape else n.emit(R.reshape(scale, ()))
    shape = [1] * n.rank()
    shape[n.axis(1)] = int(scale.ty.shape[0])
    return n.emit(R.reshape(scale, shape))


TABLE: dict[str, Converter] = {
    "Identity": lambda n: n.inputs[0],
    "Abs": _unary(R.abs),
    "Neg": _unary(R.negative),
    "Exp": _unary(R.exp),
    "Log": _unary(R.log),
    "Sqrt": _unary(R.sqrt),
    "Reciprocal": lambda n: n.emit(R.divide(n.scalar(1), n.x(0))),
    "Floor": _unary(R.floor),
    "Ceil": _unary(R.ceil),
    "Round": _unary(R.round),
    "Sign": _unary(R.sign),
    "Sin": _unary(R.sin),
    "Cos": _unary(R.cos),
    "Tan": _unary(R.tan),
    "Asin": _unary(R.asin),
    "Acos": _unary(R.acos),
    "Atan": _unary(R.atan),
    "Sinh": _unary(R.sinh),
    "Cosh": _unary(R.cosh),
    "Asinh": _unary(R.asinh),
    "Acosh": _unary(R.acosh),
    "Atanh": _unary(R.atanh),
    "Erf": _unary(R.erf),
    "IsNaN": _unary(R.isnan),
    "IsInf": _is_inf,
    "Not": _unary(R.logical_not),
    "BitwiseNot": _unary(R.bitwise_not),
    "Add": _binary(R.add),
    "Sub": _binary(R.subtract),
    "Mul": _binary(R.multiply),
    "Div": _divide,
    "Pow": _power,
    "Mod": _mod,
    "And": _binary(R.logical_and),
    "Or": _binary(R.logical_or),
    "Xor": _binary(R.logical_xor),
    "Equal": _binary(R.equal),
    "Greater": _binary(R.greater),
    "GreaterOrEqual": _binary(R.greater_equal),
    "Less": _binary(R.less),
    "LessOrEqual": _binary(R.less_equal),
    "BitwiseAnd": _binary(R.bitwise_and),
    "BitwiseOr": _binary(R.bitwise_or),
    "BitwiseXor": _binary(R.bitwise_xor),
    "BitShift": _bit_shift,
    "Max": _variadic(R.maximum),
    "Min": _variadic(R.minimum),
    "Sum": _variadic(R.add),
    "Mean": _mean,
    "Where": lambda n: n.emit(R.where(n.x(0), n.x(1), n.x(2))),
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": _cast_like,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
}
