"""Gradients of pooling in N, C, spatial… layout, for any number of spatial dimensions.

    max_pool_grad(dy, x, y; pool_size, strides, padding, dilation)                          -> dx
    avg_pool_grad(dy; pool_size, strides, padding, dilation, count_include_pad, input_shape) -> dx
    adaptive_avg_pool_grad(dy; input_shape)                                                 -> dx

with x [N, C, H, W] and y, dy [N, C, P, Q]. Every dx gathers from the windows that cover it, in a
fixed order: no atomics, the same bits on each run. The first maximum of a window takes its whole
dy, as in PyTorch and ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import Expr

from aotrain.ops.registry import define


@dataclass(frozen=True)
class _Window:
    """One spatial dimension: `size` inputs, windows of `taps`, `out` outputs."""

    size: int
    out: int
    taps: int
    stride: int
    before: int
    after: int
    dilation: int

    @property
    def steps(self) -> int:
        """At most so many windows cover an input element."""
        return -(-self.taps // self.stride) if self.dilation == 1 else self.taps

    def cover(self, h: Any, k: Any) -> tuple[Any, Any, list[Any]]:
        """Output and tap of the k-th window over input element `h`; conditions for it to exist."""
        shifted = h + self.before
        if self.dilation == 1:
            p, tap = shifted // self.stride - k, shifted % self.stride + k * self.stride
            conditions = [tap < self.taps] if self.taps % self.stride else []
        else:
            p, tap = (shifted - k * self.dilation) // self.stride, k
            conditions = [(shifted - k * self.dilation) % self.stride == 0]
        return p, tap, [*conditions, p >= 0, p < self.out]

    def count(self, p: Any, include_pad: bool) -> Any:
        """Elements that window p averages; with ceil_mode it may reach beyond the padding."""
        start = p * self.stride - self.before
        if include_pad:
            end = self.size + self.after
            last = (self.out - 1) * self.stride - self.before + (self.taps - 1) * self.dilation
            if last < end:
                return self.taps
            return tirx.min(self.taps, (end - start + self.dilation - 1) // self.dilation)
        reach = (self.size - start + self.dilation - 1) // self.dilation
        skipped = tirx.max(0, (-start + self.dilation - 1) // self.dilation)
        return tirx.max(tirx.min(self.taps, reach) - skipped, 1)


def _spatial(x: relax.Expr) -> list[Any]:
    return list(x.ty.shape)[2:]


def _windows(call: relax.Call, size: Any, out: Any) -> list[_Window]:
    sizes, strides, padding, dilation = (
        list(call.attrs[n]) for n in ("pool_size", "strides", "padding", "dilation")
    )
    before, after = padding[: len(size)], padding[len(size) :]
    parts = zip(size, out, sizes, strides, before, after, dilation, strict=True)
    return [_Window(*(int(p) for p in part)) for part in parts]


def _first_maximum(x: te.Tensor, y: te.Tensor, windows: Sequence[_Window]) -> te.Tensor:
    """[N, C, P, Q] float32: number, in row-major order, of the first tap that holds the maximum.

    A float, because vectors of floats are compared, selected and reduced without conversions.
    """
    taps = [te.reduce_axis((0, w.taps), name=f"r{i}") for i, w in enumerate(windows)]
    none = 1
    for w in windows:
        none *= w.taps

    def number(n: Any, c: Any, *ps: Any) -> Expr:
        cells = [
            p * w.stride + r * w.dilation - w.before
            for w, p, r in zip(windows, ps, taps, strict=True)
        ]
        inside = [tirx.all(h >= 0, h < w.size) for w, h in zip(windows, cells, strict=True)]
        index: Any = 0
        for w, r in zip(windows, taps, strict=True):
            index = index * w.taps + r
        nothing = tirx.const(none, "float32")
        hit = x(n, c, *cells) == y(n, c, *ps)
        found = tirx.Select(hit, tirx.Cast("float32", index), nothing)
        return te.min(tirx.if_then_else(tirx.all(*inside), found, nothing), axis=taps)

    return te.compute(y.shape, number, name="first_maximum")


def _gather(
    shape: Any,
    windows: Sequence[_Window],
    term: Callable[[tuple[Any, ...], Any], Expr],
    name: str,
) -> te.Tensor:
    """dx = Σ over the windows that cover an element of term((n, c, p..), tap number).

    Windows that do not overlap leave no sum: dx is then pointwise, and fuses with its neighbours.
    """
    apart = all(w.steps == 1 for w in windows)
    axes = [te.reduce_axis((0, w.steps), name=f"k{i}") for i, w in enumerate(windows)]
    steps: list[Any] = [0] * len(axes) if apart else axes

    def dx(n: Any, c: Any, *hs: Any) -> Expr:
        covers = [w.cover(h, k) for w, h, k in zip(windows, hs, steps, strict=True)]
        index: Any = 0
        for w, (_, tap, _) in zip(windows, covers, strict=True):
            index = index * w.taps + tap
        exists = [condition for _, _, conditions in covers for condition in conditions]
        value = term((n, c, *(p for p, _, _ in covers)), index)
        zero = tirx.const(0, value.ty.dtype)
        found = tirx.if_then_else(tirx.all(*exists), value, zero)
        return found if apart else te.sum(found, axis=axes)

    return te.compute(shape, dx, name=name)


def _max_body(windows: Sequence[_Window], dy: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    first = _first_maximum(x, y, windows)

    def term(at: tuple[Any, ...], tap: Any) -> Expr:
        hit = first(*at) == tirx.Cast("float32", tap)
        return tirx.Select(hit, dy(*at), tirx.const(0, dy.dtype))

    return _gather(x.shape, windows, term, "max_pool_grad")


def _max_legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    windows = _windows(call, _spatial(call.args[1]), _spatial(call.args[2]))
    return bb.call_te(
        lambda dy, x, y: _max_body(windows, dy, x, y),
        *call.args,
        primfunc_name_hint="max_pool_grad",
    )


def _avg_body(
    windows: Sequence[_Window], shape: Sequence[int], include_pad: bool, dy: te.Tensor
) -> te.Tensor:
    def term(at: tuple[Any, ...], _: Any) -> Expr:
        count: Any = 1
        for w, p in zip(windows, at[2:], strict=True):
            count = count * w.count(p, include_pad)
        divisor = tirx.Cast(dy.dtype, count) if not isinstance(count, int) else count
        return dy(*at) / (tirx.const(count, dy.dtype) if isinstance(divisor, int) else divisor)

    return _gather(shape, windows, term, "avg_pool_grad")


def _avg_legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape = [int(d) for d in call.attrs["input_shape"]]
    windows = _windows(call, shape[2:], _spatial(call.args[0]))
    include = bool(call.attrs["count_include_pad"])
    return bb.call_te(
        lambda dy: _avg_body(windows, shape, include, dy),
        *call.args,
        primfunc_name_hint="avg_pool_grad",
    )


def _adaptive_body(shape: Sequence[int], dy: te.Tensor) -> te.Tensor:
    """Window i of `out` covers ⌊i·size/out⌋ ≤ h < ⌈(i+1)·size/out⌉."""
    sizes, outs = [int(d) for d in shape[2:]], [int(d) for d in dy.shape[2:]]
    counts = [1 if s % o == 0 else -(-o // s) + 1 for s, o in zip(sizes, outs, strict=True)]
    axes = [te.reduce_axis((0, k), name=f"k{i}") for i, k in enumerate(counts)]
    apart = all(k == 1 for k in counts)
    steps: list[Any] = [0] * len(axes) if apart else axes

    def dx(n: Any, c: Any, *hs: Any) -> Expr:
        parts = list(zip(sizes, outs, hs, steps, strict=True))
        cells = [h * o // s + k for s, o, h, k in parts]
        exists, count = [], tirx.const(1, "int64")
        for (s, o, h, _), i in zip(parts, cells, strict=True):
            count = count * (((i + 1) * s + o - 1) // o - i * s // o)
            exists += [] if s % o == 0 else [i < o, i * s // o <= h]
        value = dy(n, c, *cells) / tirx.Cast(dy.dtype, count)
        zero = tirx.const(0, dy.dtype)
        inside = tirx.if_then_else(tirx.all(*exists), value, zero) if exists else value
        return inside if apart else te.sum(inside, axis=axes)

    return te.compute(shape, dx, name="adaptive_avg_pool_grad")


def _adaptive_legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape = [int(d) for d in call.attrs["input_shape"]]
    return bb.call_te(
        lambda dy: _adaptive_body(shape, dy),
        *call.args,
        primfunc_name_hint="adaptive_avg_pool_grad",
    )


def _input_type(call: relax.Call) -> relax.TensorType:
    return relax.TensorType(list(call.attrs["input_shape"]), call.args[0].ty.dtype.dtype)


max_pool_grad = define(
    "aotrain.max_pool_grad", inputs=3, infer=lambda call: call.args[1].ty, legalize=_max_legalize
)
avg_pool_grad = define("aotrain.avg_pool_grad", inputs=1, infer=_input_type, legalize=_avg_legalize)
adaptive_avg_pool_grad = define(
    "aotrain.adaptive_avg_pool_grad", inputs=1, infer=_input_type, legalize=_adaptive_legalize
)
