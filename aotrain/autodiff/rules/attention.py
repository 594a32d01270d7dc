"""Rules of attention: q [B, S, H, D], k [B, T, H, D], v [B, T, H, E] → y [B, S, H, E]."""

from __future__ import annotations

import math

from tvm import relax

from aotrain.autodiff.vjp import (
    Gradients,
    NoGradientError,
    Vjp,
    const,
    dtype,
    rule,
    shape,
    unbroadcast,
)
from aotrain.ops.softmax_grad import softmax_grad

op = relax.op
HEADS_FIRST = [0, 2, 1, 3]  # [B, S, H, D] ↔ [B, H, S, D]
TRANSPOSED = [0, 1, 3, 2]


@rule("relax.nn.attention", "relax.nn.attention_bias")
def _attention(v: Vjp) -> Gradients:
    """The weights P = softmax(scale·q·kᵀ + bias), [B, H, S, T], are computed again, not kept."""
    if v.attrs.window_size is not None:
        raise NoGradientError("has no gradient with a sliding window")
    q, k, value = (op.permute_dims(a, HEADS_FIRST) for a in v.args[:3])
    (_, s, _, d), t = shape(v.args[0]), shape(v.args[1])[1]
    given = v.attrs.scale
    scale = const(1 / math.sqrt(d) if given is None else float(given.value), v.y)
    scores = op.matmul(q * scale, op.permute_dims(k, TRANSPOSED))
    if len(v.args) > 3:
        scores = scores + v.args[3]
    if v.attrs.causal_mask is not None:
        shift = 0 if v.attrs.causal_mask == "TopLeft" else abs(s - t)
        visible = op.astype(op.tril(op.ones((s, t), dtype(v.y)), shift), "bool")
        scores = op.where(visible, scores, const(-1e30, v.y))  # exp gives 0 exactly
    p = op.nn.softmax(scores, axis=-1)
    dy = op.permute_dims(v.dy, HEADS_FIRST)
    dp = op.matmul(dy, op.permute_dims(value, TRANSPOSED))
    ds = softmax_grad(dp, p, axis=3)
    gradients = [
        op.permute_dims(op.matmul(ds, k) * scale, HEADS_FIRST),
        op.permute_dims(op.matmul(op.permute_dims(ds, TRANSPOSED), q * scale), HEADS_FIRST),
        op.permute_dims(op.matmul(op.permute_dims(p, TRANSPOSED), dy), HEADS_FIRST),
    ]
    if len(v.args) > 3:
        dims = (shape(v.y)[0], shape(v.y)[2], s, t)
        gradients.append(unbroadcast(ds, dims, v.args[3]))
    return gradients
