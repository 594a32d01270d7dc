"""Logits and class indices in, cross-entropy per position out (`reduction="none"`), its gradient.

With `logits [N, C, d...]` (the class axis may be any), `labels [N, d...]`, `weight [C]`:

    term = (1 - s) w[y] (lse - x[y]) + s/C sum_c w[c] (lse - x[c]),    lse = log sum_c exp x[c]
    d term / d x[j] = p[j] ((1 - s) w[y] + s/C sum_c w[c]) - (1 - s) w[y] [j = y] - s/C w[j]

with s the label smoothing, as in `torch.nn.functional.cross_entropy`. A label equal to
`ignore_index` gives 0; any other outside [0, C) gives NaN, so that it cannot pass unnoticed. The
gradient reads the logits again instead of keeping probabilities. 16-bit logits are computed in, and
their terms are, float32. Reductions are Relax, written by `aotrain.step.loss`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from aotrain.autodiff import Vjp, rule
from aotrain.ops.registry import define


def wide(dtype: str) -> str:
    """What a loss over tensors of `dtype` is computed in."""
    return "float64" if dtype == "float64" else "float32"


def call_te(bb: relax.BlockBuilder, call: relax.Call, function: Callable[..., Any]) -> relax.Expr:
    """The kernel of `call` from its TE `function`, named after its operator."""
    name = call.op.name.rpartition(".")[2]
    return bb.call_te(function, *call.args, primfunc_name_hint=name)


def dims(tensor: Any) -> list[int]:
    """Shape as integers."""
    return [int(d) for d in tensor.shape]


class Classes:
    """What the kernels share: one logits tensor `x [N, C, d...]` and its class axis."""

    def __init__(self, x: te.Tensor, attrs: Any) -> None:
        self.x, self.dtype = x, wide(str(x.dtype))
        self.axis, self.ignore = int(attrs["axis"]), int(attrs["ignore_index"])
        self.shape = dims(x)
        self.count = self.shape[self.axis]
        self.rest = self.shape[: self.axis] + self.shape[self.axis + 1 :]  # [N, d...]

    def logit(self, position: tuple, c: Any) -> Any:
        """x of class `c` at a position [N, d...]."""
        index = (*position[: self.axis], c, *position[self.axis :])
        return self.x[index].astype(self.dtype)

    def clamp(self, y: Any) -> Any:
        """A label as an index that is safe to read."""
        return _clamp(y, self.count)

    def split(self, index: tuple) -> tuple[tuple, Any]:
        """Index of x -> position [N, d...] and class."""
        return (*index[: self.axis], *index[self.axis + 1 :]), index[self.axis]

    def reduce(self, combine: Callable, name: str, body: Callable[[tuple, Any], Any]) -> te.Tensor:
        """[N, d...]: `combine` over the classes of body(position, class)."""
        c = te.reduce_axis((0, self.count), "c")
        return te.compute(self.rest, lambda *i: combine(body(i, c), axis=c), name=name)

    def softmax_parts(self) -> tuple[te.Tensor, te.Tensor]:
        """max_c x and sum_c exp(x - max), each [N, d...]."""
        top = self.reduce(te.max, "top", self.logit)
        total = self.reduce(te.sum, "total", lambda i, c: te.exp(self.logit(i, c) - top[i]))
        return top, total


def _label_weight(y: Any, weight: te.Tensor, ignore_index: int) -> Any:
    """w[y] of one label; 0 where it is ignored, NaN where it is no class.

    The load is guarded by `if_then_else`: `Select` evaluates both sides, and TVM simplifies each
    under its condition, so that a clamp of the index would be dropped there.
    """
    (count,), dtype = dims(weight), str(weight.dtype)
    inside = tirx.all(y >= 0, y < count)
    known = tirx.if_then_else(inside, weight[_clamp(y, count)], tirx.const(math.nan, dtype))
    return tirx.Select(y == ignore_index, tirx.const(0, dtype), known)


def _clamp(y: Any, count: int) -> Any:
    """A label as an index that is safe to read."""
    return te.max(te.min(y, count - 1), 0)


def _legalize_cross_entropy(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    smoothing = float(call.attrs["label_smoothing"])

    def cross_entropy(x: te.Tensor, labels: te.Tensor, weight: te.Tensor) -> te.Tensor:
        k = Classes(x, call.attrs)
        top, total = k.softmax_parts()

        log_total = te.compute(k.rest, lambda *i: te.log(total[i]), name="log_total")

        def nll(i: tuple) -> Any:
            distance = top[i] - k.logit(i, k.clamp(labels[i])) + log_total[i]
            return _label_weight(labels[i], weight, k.ignore) * distance

        def counted(i: tuple, value: Any) -> Any:
            """0 where the label is ignored, even if the logits are not finite there."""
            return tirx.if_then_else(labels[i] == k.ignore, tirx.const(0, k.dtype), value)

        if not smoothing:
            return te.compute(k.rest, lambda *i: counted(i, nll(i)), name="terms")
        each = k.reduce(te.sum, "spread", lambda i, c: weight[c] * (top[i] - k.logit(i, c)))
        all_weights = _total(weight)

        def smooth(*i: Any) -> Any:
            spread = each[i] + all_weights[()] * log_total[i]
            return counted(i, (1 - smoothing) * nll(i) + smoothing / k.count * spread)

        return te.compute(k.rest, smooth, name="terms")

    return call_te(bb, call, cross_entropy)


def _total(weight: te.Tensor) -> te.Tensor:
    c = te.reduce_axis((0, dims(weight)[0]), "c")
    return te.compute((), lambda: te.sum(weight[c], axis=c), name="all_weights")


def _legalize_gradient(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    smoothing = float(call.attrs["label_smoothing"])

    def cross_entropy_grad(
        x: te.Tensor, labels: te.Tensor, weight: te.Tensor, cotangent: te.Tensor
    ) -> te.Tensor:
        k = Classes(x, call.attrs)
        top, total = k.softmax_parts()
        zero = tirx.const(0, k.dtype)

        def counted(i: tuple, value: Any) -> Any:
            """0 where the label is ignored, even if the cotangent is not finite there."""
            return tirx.Select(labels[i] == k.ignore, zero, cotangent[i] * value)

        def hit_at(*i: Any) -> Any:
            return counted(i, (1 - smoothing) * _label_weight(labels[i], weight, k.ignore))

        hit = te.compute(k.rest, hit_at, name="hit")
        if not smoothing:
            scale = te.compute(k.rest, lambda *i: hit[i] / total[i], name="scale")
        else:
            each = smoothing / k.count
            mass = _total(weight)
            scale = te.compute(
                k.rest, lambda *i: (hit[i] + counted(i, each * mass[()])) / total[i], name="scale"
            )

        def gradient(*index: Any) -> Any:
            i, c = k.split(index)
            value = te.exp(k.logit(i, c) - top[i]) * scale[i]
            value -= tirx.Select(labels[i] == c.astype(labels.dtype), hit[i], zero)
            if smoothing:
                value -= counted(i, each * weight[c])
            return value.astype(x.dtype)

        return te.compute(k.shape, gradient, name="gradient")

    return call_te(bb, call, cross_entropy_grad)


def _infer_terms(call: relax.Call) -> relax.Type:
    logits, labels = call.args[0].ty, call.args[1].ty
    return relax.TensorType(labels.shape, wide(str(logits.dtype)))


cross_entropy = define(
    "aotrain.cross_entropy", inputs=3, infer=_infer_terms, legalize=_legalize_cross_entropy
)
"""logits, labels, weight; axis, ignore_index, label_smoothing -> terms of the labels' shape.

Dtypes: float, int64, and float32 (float64 for float64 logits) for `weight` and the result.
"""

cross_entropy_grad = define(
    "aotrain.cross_entropy_grad",
    inputs=4,
    infer=lambda call: call.args[0].ty,
    legalize=_legalize_gradient,
)
"""The arguments of `cross_entropy`, cotangent of the terms -> gradient of the logits."""


@rule("aotrain.cross_entropy")
def _cross_entropy_rule(v: Vjp) -> list[relax.Expr | None]:
    attrs = {name: v.attrs[name] for name in ("axis", "ignore_index", "label_smoothing")}
    return [cross_entropy_grad(*v.args, v.dy, **attrs), None, None]


def _legalize_label_weight(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    ignore = int(call.attrs["ignore_index"])

    def label_weight(labels: te.Tensor, weight: te.Tensor) -> te.Tensor:
        return te.compute(
            dims(labels), lambda *i: _label_weight(labels[i], weight, ignore), name="weights"
        )

    return call_te(bb, call, label_weight)


label_weight = define(
    "aotrain.label_weight",
    inputs=2,
    infer=lambda call: relax.TensorType(call.args[0].ty.shape, call.args[1].ty.dtype),
    legalize=_legalize_label_weight,
)
"""labels [N, d...], weight [C]; ignore_index -> weight of each label, what "mean" divides by."""

rule("aotrain.label_weight")(lambda v: [None, None])
