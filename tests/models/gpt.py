"""Sizes in, a decoder-only transformer out: tokens int64 [N, T] -> logits [N, T, V]."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Graph
from .layers import attention, dense, gelu_erf, layer_norm


def build(
    layers: int = 4,
    width: int = 64,
    heads: int = 4,
    tokens: int = 32,
    vocabulary: int = 96,
    seed: int = 4,
) -> onnx.ModelProto:
    """Pre-norm blocks (Radford et al. 2019), GELU in Erf form, the head tied to the embedding.

    The causal mask is a constant bool [1, 1, T, T] that Where reads. The logits' class axis is the
    last, their exporters' usual order, so a loss over labels [N, T] must be told so.
    """
    g = Graph("gpt", seed=seed)
    x = g.input("tokens", tokens, dtype="int64")
    embedding = g.normal("wte.weight", (vocabulary, width), 0.1)
    positions = g.normal("wpe.weight", (1, tokens, width), 0.1)
    future = np.triu(np.ones((1, 1, tokens, tokens), bool), k=1)
    mask = g.array("causal_mask", future)
    x = g.op("Gather", embedding, x, name="wte", axis=0)  # [N, T, D]
    x = g.op("Add", x, positions, name="wpe")
    for i in range(layers):
        name = f"h.{i}"
        y = layer_norm(g, x, f"{name}.ln1", width)
        y = attention(g, y, f"{name}.attn", tokens, width, heads, mask)
        x = g.op("Add", x, y, name=f"{name}.attn/residual")
        y = layer_norm(g, x, f"{name}.ln2", width)
        y = gelu_erf(g, dense(g, y, f"{name}.up", width, 4 * width), f"{name}.gelu")
        y = dense(g, y, f"{name}.down", 4 * width, width)
        x = g.op("Add", x, y, name=f"{name}.mlp/residual")
    x = layer_norm(g, x, "ln_f", width)
    head = g.op("Transpose", embedding, name="head", perm=[1, 0])  # [D, V]
    return g.model(g.op("MatMul", x, head, name="head"), "logits", tokens, vocabulary)


def tiny() -> onnx.ModelProto:
    """One layer of width 8, two heads, 6 tokens of 11."""
    return build(1, 8, 2, 6, 11)
