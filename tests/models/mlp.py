"""Sizes in, a multilayer perceptron with ReLU out: pixels [N, 784] -> logits [N, 10]."""

from __future__ import annotations

import itertools

import onnx

from .graph import Graph
from .layers import gemm


def build(sizes: tuple[int, ...] = (784, 512, 512, 10), seed: int = 1) -> onnx.ModelProto:
    """Gemm and Relu, alternating; weights `fc<i>.weight` [out, in]."""
    g = Graph("mlp", seed=seed)
    x = g.input("x", sizes[0])
    last = len(sizes) - 2
    for i, (fan_in, out) in enumerate(itertools.pairwise(sizes)):
        x = gemm(g, x, f"fc{i}", fan_in, out, gain=1.0 if i == last else 2.0)
        if i < last:
            x = g.op("Relu", x, name=f"act{i}")
    return g.model(x, "logits", sizes[-1])


def tiny() -> onnx.ModelProto:
    """16-8-4."""
    return build((16, 8, 4))
