"""Widths in, VGG-16 out: image [N, 3, 64, 64] -> logits [N, 10]."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from .graph import Graph
from .layers import conv, gemm


def build(
    widths: Sequence[int] = (64, 128, 256, 512, 512),
    depths: Sequence[int] = (2, 2, 3, 3, 3),
    hidden: int = 512,
    size: int = 64,
    seed: int = 8,
) -> onnx.ModelProto:
    """Configuration D of Simonyan and Zisserman 2015: stages of 3x3 convolutions, max pooling.

    Without dropout, so that steps can be compared; `hidden` is the width of the classifier.
    """
    g = Graph("vgg16", seed=seed)
    x = g.input("x", 3, size, size)
    channels = 3
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for i in range(depth):
            name = f"stage{stage}.{i}"
            x = conv(g, x, name, (channels, width), 3, bias=True)
            x = g.op("Relu", x, name=name)
            channels = width
        x = g.op("MaxPool", x, name=f"stage{stage}", kernel_shape=[2, 2], strides=[2, 2])
        size //= 2
    x = g.op("Flatten", x, name="flatten", axis=1)
    x = g.op("Relu", gemm(g, x, "fc1", channels * size * size, hidden), name="fc1")
    x = g.op("Relu", gemm(g, x, "fc2", hidden, hidden), name="fc2")
    return g.model(gemm(g, x, "fc3", hidden, 10, gain=1.0), "logits", 10)


def tiny() -> onnx.ModelProto:
    """Two stages of two and one convolutions on 8x8 images."""
    return build((4, 8), (2, 1), hidden=8, size=8)
