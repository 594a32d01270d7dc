"""Rules of Relax's losses. Losses of our own register theirs beside their operator."""

from __future__ import annotations

import numpy as np
from tvm import relax

from aotrain.autodiff.vjp import Gradients, Vjp, const, dtype, rule, shape, times

op = relax.op


@rule("relax.nn.cross_entropy_with_logits")
def _cross_entropy_with_logits(v: Vjp) -> Gradients:
    """-Σ x·t, divided by the batch where there is one."""
    x, target = v.args
    dims = shape(x)
    scale = times(v.dy, -1.0 / dims[0] if len(dims) > 1 else -1.0, x)
    return [target * scale, x * scale]


@rule("relax.nn.nll_loss")
def _nll_loss(v: Vjp) -> Gradients:
    """x [N, C, ..] (or [C]) log-probabilities, targets [N, ..]: -w[t]·x[t], t ≠ ignore_index."""
    x, targets = v.args[:2]
    dims = shape(x)
    axis = 1 if len(dims) > 1 else 0
    along = [d if i == axis else 1 for i, d in enumerate(dims)]
    classes = np.arange(dims[axis]).reshape(along)
    spread = op.expand_dims(targets, axis)  # [N, 1, ..]
    hit = op.equal(spread, relax.const(classes, dtype(targets)))
    hit = op.logical_and(hit, op.not_equal(spread, const(int(v.attrs.ignore_index), targets)))
    weights = op.reshape(v.args[2], along) if len(v.args) > 2 else const(1.0, x)
    weight = op.where(hit, weights, const(0.0, x))  # [N, C, ..]: w[t] at the target, else 0
    if v.attrs.reduction == "none":
        scale = op.expand_dims(v.dy, axis)
    elif v.attrs.reduction == "mean":
        scale = v.dy / op.sum(weight)
    else:
        scale = v.dy
    return [op.negative(weight * scale)] + [None] * (len(v.args) - 1)
