"""Rules of convolutions: x [N, C, H, W], w [O, C/g, R, S], y [N, O, P, Q]; 1-D and 3-D alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from aotrain.autodiff.vjp import Gradients, NoGradientError, Vjp, rule, shape
from aotrain.ops import conv_grad as kernels

op = relax.op

FORWARD = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
INPUT = {
    1: kernels.conv1d_input_grad,
    2: kernels.conv2d_input_grad,
    3: kernels.conv3d_input_grad,
}
WEIGHT = {
    1: kernels.conv1d_weight_grad,
    2: kernels.conv2d_weight_grad,
    3: kernels.conv3d_weight_grad,
}


def _geometry(attrs: Any, rank: int) -> dict[str, Any]:
    """What the kernels and `relax.nn.conv*` need to know, from either's attributes."""

    def numbers(name: str) -> tuple[int, ...]:
        return tuple(int(i) for i in attrs[name])

    padding = numbers("padding")
    return {
        "strides": numbers("strides"),
        "padding": padding if len(padding) == 2 * rank else padding * 2,
        "dilation": numbers("dilation"),
        "groups": int(attrs["groups"]),
    }


def _check_layouts(v: Vjp, data: str, kernel: str) -> None:
    if (v.attrs.data_layout, v.attrs.kernel_layout) != (data, kernel):
        layouts = f"{v.attrs.data_layout}, {v.attrs.kernel_layout}"
        raise NoGradientError(f"has a gradient for layouts {data}, {kernel} only, not {layouts}")


def _conv(rank: int) -> Callable[[Vjp], Gradients]:
    spatial = "DHW"[3 - rank :]

    def gradient(v: Vjp) -> Gradients:
        _check_layouts(v, "NC" + spatial, "OI" + spatial)
        (x, w), geometry = v.args, _geometry(v.attrs, rank)
        return [
            INPUT[rank](v.dy, w, **geometry, input_shape=shape(x)),
            WEIGHT[rank](v.dy, x, **geometry, weight_shape=shape(w)),
        ]

    return gradient


def _conv_transpose(rank: int) -> Callable[[Vjp], Gradients]:
    """y = convᵀ(x, w), w [C, O/g, ..], is the input gradient of a convolution, so dx is one."""
    spatial = "DHW"[3 - rank :]

    def gradient(v: Vjp) -> Gradients:
        _check_layouts(v, "NC" + spatial, "IO" + spatial)
        (x, w), geometry = v.args, _geometry(v.attrs, rank)
        return [
            _cropped(FORWARD[rank](v.dy, w, **geometry), v, geometry),
            WEIGHT[rank](x, v.dy, **geometry, weight_shape=shape(w)),
        ]

    return gradient


def _cropped(dx: relax.Expr, v: Vjp, geometry: dict[str, Any]) -> relax.Expr:
    """An output_padding of a stride or more lets the convolution slide beyond x: cut that off."""
    x, y, w = shape(v.x)[2:], shape(v.y)[2:], shape(v.args[1])[2:]
    rank = len(x)
    pads = geometry["padding"]
    slid = [
        (y[i] + pads[i] + pads[rank + i] - (w[i] - 1) * geometry["dilation"][i] - 1)
        // geometry["strides"][i]
        + 1
        for i in range(rank)
    ]
    if tuple(slid) == x:
        return dx
    axes = list(range(2, 2 + rank))
    return op.strided_slice(dx, axes, [0] * rank, list(x))


def _input_grad(rank: int) -> Callable[[Vjp], Gradients]:
    def gradient(v: Vjp) -> Gradients:
        # linear in dy and in w: Σ z·input_grad(dy, w) = Σ dy·conv(z, w)
        (dy, w), geometry = v.args, _geometry(v.attrs, rank)
        back = FORWARD[rank](v.dy, w, **geometry)
        return [back, WEIGHT[rank](dy, v.dy, **geometry, weight_shape=shape(w))]

    return gradient


def _weight_grad(rank: int) -> Callable[[Vjp], Gradients]:
    def gradient(v: Vjp) -> Gradients:
        # linear in dy and in x: Σ z·weight_grad(dy, x) = Σ dy·conv(x, z)
        (dy, x), geometry = v.args, _geometry(v.attrs, rank)
        back = FORWARD[rank](x, v.dy, **geometry)
        return [back, INPUT[rank](dy, v.dy, **geometry, input_shape=shape(x))]

    return gradient


for _rank in (1, 2, 3):
    rule(f"relax.nn.conv{_rank}d")(_conv(_rank))
    rule(f"relax.nn.conv{_rank}d_transpose")(_conv_transpose(_rank))
    rule(f"aotrain.conv{_rank}d_input_grad")(_input_grad(_rank))
    rule(f"aotrain.conv{_rank}d_weight_grad")(_weight_grad(_rank))
