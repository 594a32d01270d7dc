"""Sizes in, a LeNet-like network out: image [N, 1, 28, 28] -> logits [N, 10]."""

from __future__ import annotations

import onnx

from .graph import Graph
from .layers import conv, gemm


def build(
    size: int = 28, widths: tuple[int, int, int] = (16, 32, 128), seed: int = 2
) -> onnx.ModelProto:
    """Twice (5x5 Conv with bias, Relu, 2x2 MaxPool), then Flatten, Gemm, Relu, Gemm.

    LeCun et al. 1998, with ReLU and maximum for their squashing and average.
    """
    g = Graph("cnn", seed=seed)
    x = g.input("x", 1, size, size)
    first, second, hidden = widths
    for i, channels in enumerate([(1, first), (first, second)]):
        x = conv(g, x, f"conv{i}", channels, 5, bias=True)
        x = g.op("Relu", x, name=f"conv{i}")
        x = g.op("MaxPool", x, name=f"pool{i}", kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Flatten", x, name="flatten", axis=1)
    x = gemm(g, x, "fc0", second * (size // 4) ** 2, hidden)
    x = g.op("Relu", x, name="fc0")
    return g.model(gemm(g, x, "fc1", hidden, 10, gain=1.0), "logits", 10)


def tiny() -> onnx.ModelProto:
    """8x8 images, 2 and 4 channels."""
    return build(8, (2, 4, 8))
