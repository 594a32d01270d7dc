"""Sizes in, an LSTM classifier out: sequence [N, T, I] -> logits [N, C]."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Graph
from .layers import gemm


def build(
    steps: int = 28, features: int = 28, hidden: int = 128, classes: int = 10, seed: int = 7
) -> onnx.ModelProto:
    """One forward LSTM (gates in ONNX's order i, o, f, c), its last hidden state into a Gemm."""
    g = Graph("lstm", seed=seed)
    x = g.op("Transpose", g.input("x", steps, features), name="time_major", perm=[1, 0, 2])
    w = g.he("lstm.W", (1, 4 * hidden, features), features, gain=1.0)
    r = g.he("lstm.R", (1, 4 * hidden, hidden), hidden, gain=1.0)
    b = g.full("lstm.B", (1, 8 * hidden), 0.0)
    # the outputs: every hidden state [T, 1, N, H], the last one [1, N, H]
    _, last = g.ops("LSTM", x, w, r, b, name="lstm", outputs=2, hidden_size=hidden)
    axes = g.array("axes", np.array([0], np.int64))
    last = g.op("Squeeze", last, axes, name="last")  # [N, H]
    return g.model(gemm(g, last, "fc", hidden, classes, gain=1.0), "logits", classes)


def tiny() -> onnx.ModelProto:
    """Four steps of three features, five hidden units."""
    return build(4, 3, 5, 4)
