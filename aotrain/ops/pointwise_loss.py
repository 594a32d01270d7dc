"""Output and target of one shape in, a loss per element out (`reduction="none"`), its gradient.

With d = output - target, each as the function of that name in `torch.nn.functional`:

    mse                 d^2                                        2 d
    l1                  |d|                                        sign d, 0 at a tie
    huber (delta)       d^2 / 2 or delta (|d| - delta / 2)         d within +-delta
    bce_with_logits     (1 - t) x + (1 + (q - 1) t) log(1 + e^-x)  (q t + 1 - t) sigmoid(x) - q t

where t is the target, x the output and q `pos_weight`; log(1 + e^-x) = log1p(e^-|x|) + max(-x, 0),
whose second term is merged with (1 - t) x, so that nothing cancels. 16-bit outputs are computed in,
and their terms are, float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from aotrain.autodiff import Vjp, rule
from aotrain.ops.loss import call_te, dims, wide
from aotrain.ops.registry import define

Scalar = Callable[..., Any]  # (output, target, *extra tensors' elements, attrs) -> value


def _define(
    name: str, value: Scalar, slope: Scalar, *, extra: int = 0, attributes: tuple[str, ...] = ()
) -> Callable[..., relax.Call]:
    """`aotrain.<name>(output, target, *extra)` and `aotrain.<name>_grad(..., cotangent)`.

    The extra tensors broadcast to the output; target and extra are of the terms' dtype.
    """

    def at(tensor: te.Tensor, index: tuple) -> Any:
        shape = dims(tensor)
        tail = index[len(index) - len(shape) :]
        return tensor[tuple(0 if d == 1 else i for i, d in zip(tail, shape, strict=True))]

    def elements(tensors: tuple[te.Tensor, ...], index: tuple) -> list[Any]:
        output, *others = tensors
        return [output[index].astype(wide(output.dtype)), *(at(t, index) for t in others)]

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        def terms(*tensors: te.Tensor) -> te.Tensor:
            return te.compute(
                dims(tensors[0]), lambda *i: value(*elements(tensors, i), call.attrs), name="terms"
            )

        return call_te(bb, call, terms)

    def legalize_grad(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        def gradient(*tensors: te.Tensor) -> te.Tensor:
            *primal, cotangent = tensors

            def element(*i: Any) -> Any:
                product = cotangent[i] * slope(*elements(tuple(primal), i), call.attrs)
                return product.astype(tensors[0].dtype)

            return te.compute(dims(tensors[0]), element, name="gradient")

        return call_te(bb, call, gradient)

    def infer(call: relax.Call) -> relax.Type:
        output = call.args[0].ty
        return relax.TensorType(output.shape, wide(str(output.dtype)))

    make = define(f"aotrain.{name}", inputs=2 + extra, infer=infer, legalize=legalize)
    make_grad = define(
        f"aotrain.{name}_grad",
        inputs=3 + extra,
        infer=lambda call: call.args[0].ty,
        legalize=legalize_grad,
    )

    @rule(f"aotrain.{name}")
    def _rule(v: Vjp) -> list[relax.Expr | None]:
        attrs = {a: v.attrs[a] for a in attributes}
        return [make_grad(*v.args, v.dy, **attrs)] + [None] * (1 + extra)

    return make


def _zero(like: Any) -> Any:
    return tirx.const(0, like.ty.dtype)


def _mse(x: Any, t: Any, attrs: Any) -> Any:
    return (x - t) * (x - t)


def _mse_slope(x: Any, t: Any, attrs: Any) -> Any:
    return 2 * (x - t)


def _l1(x: Any, t: Any, attrs: Any) -> Any:
    return te.abs(x - t)


def _l1_slope(x: Any, t: Any, attrs: Any) -> Any:
    d = x - t
    one, zero = tirx.const(1, d.ty.dtype), _zero(d)
    return tirx.Select(d > zero, one, tirx.Select(d < zero, -one, zero))


def _huber(x: Any, t: Any, attrs: Any) -> Any:
    d, delta = te.abs(x - t), float(attrs["delta"])
    return tirx.Select(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta))


def _huber_slope(x: Any, t: Any, attrs: Any) -> Any:
    delta = float(attrs["delta"])
    return te.max(te.min(x - t, delta), -delta)


def _log1p(e: Any) -> Any:
    """log(1 + e) for 0 <= e <= 1 to the last digits, by arithmetic alone, which vectorises.

    It is 2 artanh s = 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = e / (2 + e) <= 1/3; what n terms
    leave out is below 9^-n / (2 n + 1) of it: 1.4e-9 in float32, 1.7e-18 in float64.
    """
    s = e / (2 + e)
    square, series = s * s, _zero(e)
    for k in reversed(range(17 if str(e.ty.dtype) == "float64" else 8)):
        series = series * square + tirx.const(2 / (2 * k + 1), e.ty.dtype)
    return s * series


def _bce(x: Any, t: Any, q: Any, attrs: Any) -> Any:
    linear = tirx.Select(x < _zero(x), -q * t * x, (1 - t) * x)
    return linear + (1 + (q - 1) * t) * _log1p(te.exp(-te.abs(x)))


def _bce_slope(x: Any, t: Any, q: Any, attrs: Any) -> Any:
    return (q * t + 1 - t) / (1 + te.exp(-x)) - q * t


mse = _define("mse", _mse, _mse_slope)
l1 = _define("l1", _l1, _l1_slope)
huber = _define("huber", _huber, _huber_slope, attributes=("delta",))
bce_with_logits = _define("bce_with_logits", _bce, _bce_slope, extra=1)
"""output, target, pos_weight (broadcasts to the output)."""
