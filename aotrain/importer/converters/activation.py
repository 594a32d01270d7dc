"""ONNX activations in, Relax calls out; the large Relax operators where it has them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.node import Converter, Node


def _leaky(n: Node) -> relax.Expr:
    return n.emit(R.nn.leakyrelu(n.x(0), float(n.attr("alpha", 0.01))))


def _relu(n: Node) -> relax.Expr:
    return n.emit(R.nn.relu(n.x(0)))


def _elu_like(n: Node, x: relax.Expr, alpha: float, scale: float = 1.0) -> relax.Expr:
    """scale * (x > 0 ? x : alpha * (e^x - 1)); e^min(x, 0), so that no branch overflows."""
    zero, one = n.scalar(0), n.scalar(1)
    grown = n.emit(R.subtract(n.emit(R.exp(n.emit(R.minimum(x, zero)))), one))
    below = n.emit(R.multiply(grown, n.scalar(alpha)))
    y = n.emit(R.where(n.emit(R.greater(x, zero)), x, below))
    return y if scale == 1.0 else n.emit(R.multiply(y, n.scalar(scale)))


def _celu(n: Node) -> relax.Expr:
    alpha = float(n.attr("alpha", 1.0))
    x, zero = n.x(0), n.scalar(0)
    inner = n.emit(R.divide(n.emit(R.minimum(x, zero)), n.scalar(alpha)))
    grown = n.emit(R.subtract(n.emit(R.exp(inner)), n.scalar(1)))
    below = n.emit(R.multiply(grown, n.scalar(alpha)))
    return n.emit(R.where(n.emit(R.greater(x, zero)), x, below))


def _selu(n: Node) -> relax.Expr:
    alpha = float(n.attr("alpha", 1.67326319217681884765625))
    return _elu_like(n, n.x(0), alpha, float(n.attr("gamma", 1.05070102214813232421875)))


def _hard_sigmoid(n: Node, alpha: float, beta: float) -> relax.Expr:
    y = n.emit(R.add(n.emit(R.multiply(n.x(0), n.scalar(alpha))), n.scalar(beta)))
    return n.emit(R.minimum(n.emit(R.maximum(y, n.scalar(0))), n.scalar(1)))


def _softplus(n: Node, x: relax.Expr) -> relax.Expr:
    """max(x, 0) + log(1 + e^-|x|): no overflow, and exact where x is large."""
    tail = n.emit(R.exp(n.emit(R.negative(n.emit(R.abs(x))))))
    tail = n.emit(R.log(n.emit(R.add(tail, n.scalar(1)))))
    return n.emit(R.add(n.emit(R.maximum(x, n.scalar(0))), tail))


def _softsign(n: Node) -> relax.Expr:
    return n.emit(R.divide(n.x(0), n.emit(R.add(n.emit(R.abs(n.x(0))), n.scalar(1)))))


def _thresholded(n: Node) -> relax.Expr:
    above = n.emit(R.greater(n.x(0), n.scalar(float(n.attr("alpha", 1.0)))))
    return n.emit(R.where(above, n.x(0), n.scalar(0)))


def _gelu(n: Node) -> relax.Expr:
    call = R.nn.gelu_tanh if n.attr("approximate", "none") == "tanh" else R.nn.gelu
    return n.emit(call(n.x(0)))


def _mish(n: Node) -> relax.Expr:
    return n.emit(R.multiply(n.x(0), n.emit(R.tanh(_softplus(n, n.x(0))))))


def _swish(n: Node) -> relax.Expr:
    alpha = float(n.attr("alpha", 1.0))
    if alpha == 1.0:
        return n.emit(R.nn.silu(n.x(0)))
    gate = n.emit(R.sigmoid(n.emit(R.multiply(n.x(0), n.scalar(alpha)))))
    return n.emit(R.multiply(n.x(0), gate))


def _shrink(n: Node) -> relax.Expr:
    bias, limit = float(n.attr("bias", 0.0)), float(n.attr("lambd", 0.5))
    x, zero = n.x(0), n.scalar(0)
    low = n.emit(
        R.where(n.emit(R.less(x, n.scalar(-limit))), n.emit(R.add(x, n.scalar(bias))), zero)
    )
    high = n.emit(R.greater(x, n.scalar(limit)))
    return n.emit(R.where(high, n.emit(R.subtract(x, n.scalar(bias))), low))


def _prelu(n: Node) -> relax.Expr:
    """slope broadcasts to x, numpy's way."""
    x, zero = n.x(0), n.scalar(0)
    above = n.emit(R.greater(x, zero))
    return n.emit(R.where(above, x, n.emit(R.multiply(x, n.x(1)))))


def _softmax(n: Node) -> relax.Expr:
    """Before opset 13 the dimensions from `axis` on were one: softmax over all of them."""
    call = {"Softmax": R.nn.softmax, "LogSoftmax": R.nn.log_softmax}[n.op_type]
    return _over_axis(n, lambda x, axis: n.emit(call(x, axis)))


def _hardmax(n: Node) -> relax.Expr:
    def one_hot(x: relax.Expr, axis: int) -> relax.Expr:
        best = n.emit(R.argmax(x, axis, True))
        shape = [1] * len(x.ty.shape)
        shape[axis] = int(x.ty.shape[axis])
        classes = n.builder.constant(np.arange(shape[axis]).reshape(shape))
        return n.emit(R.astype(n.emit(R.equal(best, classes)), n.dtype()))

    return _over_axis(n, one_hot)


def _over_axis(n: Node, apply: Callable[[relax.Expr, int], relax.Expr]) -> relax.Expr:
    if n.opset >= 13:
        return apply(n.x(0), n.axis(-1))
    axis, shape = n.axis(1), n.shape()
    if axis == len(shape) - 1:
        return apply(n.x(0), axis)
    flat = n.emit(R.reshape(n.x(0), (math.prod(shape[:axis]), math.prod(shape[axis:]))))
    return n.emit(R.reshape(apply(flat, 1), shape))


TABLE: dict[str, Converter] = {
    "Relu": _relu,
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "Elu": lambda n: _elu_like(n, n.x(0), float(n.attr("alpha", 1.0))),
    "Celu": _celu,
    "Selu": _selu,
    "Sigmoid": lambda n: n.emit(R.sigmoid(n.x(0))),
    "HardSigmoid": lambda n: _hard_sigmoid(n, n.attr("alpha", 0.2), n.attr("beta", 0.5)),
    "HardSwish": lambda n: n.emit(R.multiply(n.x(0), _hard_sigmoid(n, 1 / 6, 0.5))),
    "Softplus": lambda n: _softplus(n, n.x(0)),
    "Softsign": _softsign,
    "Tanh": lambda n: n.emit(R.tanh(n.x(0))),
    "ThresholdedRelu": _thresholded,
    "Gelu": _gelu,
    "Mish": _mish,
    "Swish": _swish,
    "Shrink": _shrink,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Hardmax": _hardmax,
}
