"""Rules of activation functions; those of y alone let x's memory go after the forward pass."""

from __future__ import annotations

from tvm import relax

from aotrain.autodiff.vjp import Gradients, Vjp, const, rule, shape
from aotrain.ops import activation_grad as kernels
from aotrain.ops.softmax_grad import log_softmax_grad, softmax_grad

op = relax.op


@rule("relax.nn.relu")
def _relu(v: Vjp) -> Gradients:
    zero = const(0.0, v.y)
    return [op.where(op.greater(v.y, zero), v.dy, zero)]  # 0 at 0, as PyTorch


@rule("relax.nn.leakyrelu")
def _leakyrelu(v: Vjp) -> Gradients:
    slope = float(v.attrs.alpha)
    kept = v.y if slope >= 0 else v.x  # of one sign
    return [op.where(op.greater(kept, const(0.0, v.y)), v.dy, v.dy * const(slope, v.y))]


@rule("relax.nn.prelu")
def _prelu(v: Vjp) -> Gradients:
    x, slope = v.args  # x [.., C, ..], slope [C] along `axis`
    dims, axis = shape(x), int(v.attrs.axis) % max(len(shape(x)), 1)
    along = [d if i == axis else 1 for i, d in enumerate(dims)]
    if shape(slope) == (1,):
        along = [1] * len(dims)
    positive, zero = op.greater(x, const(0.0, x)), const(0.0, x)
    spread = op.reshape(slope, along)
    dslope = op.where(positive, zero, v.dy * x)
    reduced = [i for i, d in enumerate(along) if d == 1]
    summed = op.sum(dslope, axis=reduced) if reduced else dslope
    return [op.where(positive, v.dy, v.dy * spread), op.reshape(summed, shape(slope))]


@rule("relax.nn.selu")
def _selu(v: Vjp) -> Gradients:
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    # y = scale·alpha·(exp(x) - 1) below 0, so that its slope is y + scale·alpha
    negative = v.y + const(scale * alpha, v.y)
    positive = op.greater(v.y, const(0.0, v.y))
    return [v.dy * op.where(positive, const(scale, v.y), negative)]


@rule("relax.nn.silu")
def _silu(v: Vjp) -> Gradients:
    gate = op.sigmoid(v.x)
    return [v.dy * gate * (const(1.0, v.y) + v.x * (const(1.0, v.y) - gate))]


@rule("relax.nn.softplus")
def _softplus(v: Vjp) -> Gradients:
    beta, threshold = (const(float(a), v.y) for a in (v.attrs.beta, v.attrs.threshold))
    scaled = v.x * beta
    return [op.where(op.greater(scaled, threshold), v.dy, v.dy * op.sigmoid(scaled))]


@rule("relax.nn.gelu")
def _gelu(v: Vjp) -> Gradients:
    return [kernels.gelu_grad(v.dy, v.x)]


@rule("relax.nn.gelu_tanh")
def _gelu_tanh(v: Vjp) -> Gradients:
    return [kernels.gelu_tanh_grad(v.dy, v.x)]


@rule("aotrain.gelu_grad")
def _gelu_grad(v: Vjp) -> Gradients:
    # second derivative of x·Φ(x): φ(x)·(2 - x²)
    dy, x = v.args
    density = const(0.3989422804014327, x) * op.exp(const(-0.5, x) * x * x)
    return [kernels.gelu_grad(v.dy, x), v.dy * dy * density * (const(2.0, x) - x * x)]


@rule("relax.nn.softmax")
def _softmax(v: Vjp) -> Gradients:
    return [softmax_grad(v.dy, v.y, axis=int(v.attrs.axis))]


@rule("aotrain.softmax_grad")
def _softmax_grad(v: Vjp) -> Gradients:
    # dx = y·(dy - Σ dy·y); z is the cotangent of dx, sums run along the axis
    (dy, y), axis, z = v.args, int(v.attrs["axis"]), v.dy
    dot_dy = op.sum(dy * y, axis=axis, keepdims=True)
    dot_z = op.sum(z * y, axis=axis, keepdims=True)
    return [softmax_grad(z, y, axis=axis), z * dy - z * dot_dy - dy * dot_z]


@rule("relax.nn.log_softmax")
def _log_softmax(v: Vjp) -> Gradients:
    return [log_softmax_grad(v.dy, v.y, axis=int(v.attrs.axis))]


@rule("aotrain.log_softmax_grad")
def _log_softmax_grad(v: Vjp) -> Gradients:
    # dx = dy - exp(y)·Σ dy; z is the cotangent of dx
    (dy, y), axis, z = v.args, int(v.attrs["axis"]), v.dy
    p = op.exp(y)
    back = op.broadcast_to(op.sum(z * p, axis=axis, keepdims=True), shape(y))
    total = op.sum(dy, axis=axis, keepdims=True)
    return [z - back, op.negative(z * p * total)]
