"""Sizes in, a vision transformer out: image [N, 3, 32, 32] -> logits [N, 10]."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Graph
from .layers import attention, conv, dense, layer_norm


def build(
    layers: int = 12,
    width: int = 192,
    heads: int = 3,
    size: int = 32,
    patch: int = 4,
    seed: int = 6,
) -> onnx.ModelProto:
    """ViT-Ti (Touvron et al. 2021) with mean pooling, GELU as one opset-20 node."""
    g = Graph("vit", opset=20, seed=seed)
    tokens = (size // patch) ** 2
    x = g.input("x", 3, size, size)
    x = conv(g, x, "patches", (3, width), patch, stride=patch, pad=0, bias=True)
    x = g.op("Reshape", x, g.array("flat", np.array([0, width, -1], np.int64)), name="flat")
    x = g.op("Transpose", x, name="flat", perm=[0, 2, 1])  # [N, T, D]
    x = g.op("Add", x, g.normal("positions", (1, tokens, width), 0.02), name="positions")
    for i in range(layers):
        name = f"h.{i}"
        y = layer_norm(g, x, f"{name}.ln1", width)
        y = attention(g, y, f"{name}.attn", tokens, width, heads, mask="")
        x = g.op("Add", x, y, name=f"{name}.attn/residual")
        y = layer_norm(g, x, f"{name}.ln2", width)
        y = g.op("Gelu", dense(g, y, f"{name}.up", width, 4 * width), name=name)
        y = dense(g, y, f"{name}.down", 4 * width, width)
        x = g.op("Add", x, y, name=f"{name}.mlp/residual")
    x = layer_norm(g, x, "norm", width)
    axes = g.array("axes", np.array([1], np.int64))
    x = g.op("ReduceMean", x, axes, name="pool", keepdims=0)
    return g.model(dense(g, x, "head", width, 10), "logits", 10)


def tiny() -> onnx.ModelProto:
    """One layer of width 8 over four patches."""
    return build(1, 8, 2, 8, 4)
