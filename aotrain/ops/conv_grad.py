"""Gradients of convolutions in N, C, spatial… layout, for one to three spatial dimensions.

    conv2d_input_grad(dy, w; strides, padding, dilation, groups, input_shape)  -> dx
    conv2d_weight_grad(dy, x; strides, padding, dilation, groups, weight_shape) -> dw

with dy [N, O, P, Q], x [N, C, H, W], w [O, C/groups, R, S] and conv1d, conv3d alike; `padding` is
(before…, after…) as in Relax. Each is one direct reduction; what lies outside a tensor comes from
pad stages before it, so that the reduction's indices have no bounds to check.

The input gradient of a strided convolution multiplies no zeros: with h' = h + pad, only the taps
r = h' mod s + s·k reach input row h, from output row p = ⌊h'/s⌋ - k (sub-pixel form: Shi et al.
2016, "Is the deconvolution layer the same as a convolutional layer?"); w is padded to a multiple
of s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.ir import Expr

from aotrain.ops.registry import define


@dataclass(frozen=True)
class _Window:
    """One spatial dimension of a convolution: `size` inputs, `taps` weights, `out` outputs."""

    size: int
    taps: int
    out: int
    stride: int
    before: int
    dilation: int

    @property
    def sub_pixel(self) -> bool:
        """Whether the taps of a row are an arithmetic sequence; else each is tested."""
        return self.stride == 1 or self.dilation == 1

    @property
    def steps(self) -> int:
        """Taps to sum for one input element."""
        return -(-self.taps // self.stride) if self.sub_pixel else self.taps

    def tap(self, h: Any, k: Any) -> Any:
        """The weight that the k-th step of input element `h` reads."""
        return (h + self.before) % self.stride + self.stride * k if self.sub_pixel else k

    def output(self, h: Any, k: Any) -> Any:
        """The output element that the k-th step of input element `h` reads, perhaps outside."""
        if self.sub_pixel:
            return (h + self.before) // self.stride - k * self.dilation
        return (h + self.before - k * self.dilation) // self.stride

    @property
    def margins(self) -> tuple[int, int]:
        """Zeros needed before and after the outputs for every `output` to be inside."""
        first = self.output(0, self.steps - 1)
        last = self.output(self.size - 1, 0)
        return max(0, -first), max(0, last - (self.out - 1))


def _spatial(x: relax.Expr) -> list[Any]:
    return list(x.ty.shape)[2:]


def _windows(call: relax.Call, sizes: Any, taps: Any, outs: Any) -> list[_Window]:
    strides, dilation = call.attrs["strides"], call.attrs["dilation"]
    padding = call.attrs["padding"]
    parts = zip(sizes, taps, outs, strides, padding, dilation, strict=False)
    return [_Window(*(int(p) for p in part)) for part in parts]


def _pad(x: te.Tensor, before: Sequence[int], after: Sequence[int], name: str) -> te.Tensor:
    if not any(before) and not any(after):
        return x
    zero = tirx.const(0, x.dtype)
    return topi.nn.pad(x, [0, 0, *before], [0, 0, *after], zero, name=name)


def _input_grad(
    dy: te.Tensor, w: te.Tensor, windows: Sequence[_Window], groups: int, channels: int
) -> te.Tensor:
    """dx[n, c, h..] = Σ_{o, k..} dy[n, o, p..] · w[o, c, r..]."""
    per_group, out_group = channels // groups, int(dy.shape[1]) // groups
    margins = [win.margins for win in windows]
    dyp = _pad(dy, [m[0] for m in margins], [m[1] for m in margins], "dy_pad")
    extra = [win.steps * win.stride - win.taps if win.sub_pixel else 0 for win in windows]
    wp = _pad(w, [0] * len(windows), extra, "w_pad")
    o = te.reduce_axis((0, out_group), name="o")
    ks = [te.reduce_axis((0, win.steps), name=f"k{i}") for i, win in enumerate(windows)]

    def dx(n: Any, c: Any, *hs: Any) -> Expr:
        at = list(zip(windows, hs, ks, margins, strict=True))
        rows = [win.output(h, k) + m[0] for win, h, k, m in at]
        taps = [win.tap(h, k) for win, h, k, _ in at]
        out_channel = c // per_group * out_group + o if groups > 1 else o
        in_channel = c % per_group if groups > 1 else c
        product = dyp(n, out_channel, *rows) * wp(out_channel, in_channel, *taps)
        holes = [
            (h + win.before - k * win.dilation) % win.stride == 0
            for win, h, k, _ in at
            if not win.sub_pixel
        ]
        if holes:
            product = tirx.if_then_else(tirx.all(*holes), product, tirx.const(0, dy.dtype))
        return te.sum(product, axis=[o, *ks])

    shape = (dy.shape[0], channels, *(win.size for win in windows))
    return te.compute(shape, dx, name="conv_input_grad")


def _weight_grad(dy: te.Tensor, x: te.Tensor, windows: Sequence[_Window], groups: int) -> te.Tensor:
    """dw[o, c, r..] = Σ_{n, p..} dy[n, o, p..] · x[n, c, p·s + r·d - pad..]."""
    per_group, out_group = int(x.shape[1]) // groups, int(dy.shape[1]) // groups
    after = [
        max(0, (w.out - 1) * w.stride + (w.taps - 1) * w.dilation - w.before - (w.size - 1))
        for w in windows
    ]
    xp = _pad(x, [w.before for w in windows], after, "x_pad")
    n = te.reduce_axis((0, dy.shape[0]), name="n")
    ps = [te.reduce_axis((0, win.out), name=f"p{i}") for i, win in enumerate(windows)]

    def dw(o: Any, c: Any, *rs: Any) -> Expr:
        at = zip(windows, ps, rs, strict=True)
        cells = [p * win.stride + r * win.dilation for win, p, r in at]
        channel = o // out_group * per_group + c if groups > 1 else c
        return te.sum(dy(n, o, *ps) * xp(n, channel, *cells), axis=[n, *ps])

    shape = (dy.shape[1], per_group, *(win.taps for win in windows))
    return te.compute(shape, dw, name="conv_weight_grad")


def _define_input_grad(rank: int) -> Callable[..., relax.Call]:
    name = f"conv{rank}d_input_grad"

    def infer(call: relax.Call) -> relax.TensorType:
        return relax.TensorType(list(call.attrs["input_shape"]), call.args[0].ty.dtype.dtype)

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        dy, w = call.args
        shape, groups = call.attrs["input_shape"], int(call.attrs["groups"])
        windows = _windows(call, shape[2:], _spatial(w), _spatial(dy))
        return bb.call_te(
            lambda dy, w: _input_grad(dy, w, windows, groups, int(shape[1])),
            *call.args,
            primfunc_name_hint=name,
        )

    return define(f"aotrain.{name}", inputs=2, infer=infer, legalize=legalize)


def _define_weight_grad(rank: int) -> Callable[..., relax.Call]:
    name = f"conv{rank}d_weight_grad"

    def infer(call: relax.Call) -> relax.TensorType:
        return relax.TensorType(list(call.attrs["weight_shape"]), call.args[0].ty.dtype.dtype)

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        dy, x = call.args
        shape, groups = call.attrs["weight_shape"], int(call.attrs["groups"])
        windows = _windows(call, _spatial(x), shape[2:], _spatial(dy))
        return bb.call_te(
            lambda dy, x: _weight_grad(dy, x, windows, groups),
            *call.args,
            primfunc_name_hint=name,
        )

    return define(f"aotrain.{name}", inputs=2, infer=infer, legalize=legalize)


conv1d_input_grad, conv2d_input_grad, conv3d_input_grad = map(_define_input_grad, (1, 2, 3))
conv1d_weight_grad, conv2d_weight_grad, conv3d_weight_grad = map(_define_weight_grad, (1, 2, 3))
