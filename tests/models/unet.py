"""Widths in, a U-Net out: image [N, 3, 64, 64] -> logits [N, C, 64, 64], a class for each pixel."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from .graph import Graph
from .layers import batch_norm, conv


def build(
    widths: Sequence[int] = (32, 64, 128, 256), classes: int = 4, size: int = 64, seed: int = 9
) -> onnx.ModelProto:
    """Ronneberger et al. 2015 with padded convolutions and BatchNormalization.

    Down: two convolutions, then max pooling. Up: a transposed convolution of stride 2, beside it
    what the level held on the way down (Concat), then two convolutions.
    """
    g = Graph("unet", seed=seed)
    x = g.input("x", 3, size, size)
    channels = 3
    skips = []
    for level, width in enumerate(widths):
        if level:
            x = g.op("MaxPool", x, name=f"down{level}", kernel_shape=[2, 2], strides=[2, 2])
        x = _double(g, x, f"down{level}", (channels, width))
        skips.append(x)
        channels = width
    for level, width in reversed(list(enumerate(widths[:-1]))):
        x = _up(g, x, f"up{level}", (channels, width))
        x = g.op("Concat", skips[level], x, name=f"up{level}", axis=1)
        x = _double(g, x, f"up{level}", (2 * width, width))
        channels = width
    return g.model(
        conv(g, x, "head", (channels, classes), 1, bias=True), "logits", classes, size, size
    )


def tiny() -> onnx.ModelProto:
    """Two levels on 8x8 images."""
    return build((4, 8), size=8)


def _double(g: Graph, x: str, name: str, channels: tuple[int, int]) -> str:
    for part, c in (("a", channels[0]), ("b", channels[1])):
        x = conv(g, x, f"{name}.{part}.conv", (c, channels[1]), 3)
        x = batch_norm(g, x, f"{name}.{part}.bn", channels[1])
        x = g.op("Relu", x, name=f"{name}.{part}")
    return x


def _up(g: Graph, x: str, name: str, channels: tuple[int, int]) -> str:
    c, k = channels
    weight = g.he(f"{name}.weight", (c, k, 2, 2), c, gain=1.0)
    bias = g.full(f"{name}.bias", (k,), 0.0)
    return g.op("ConvTranspose", x, weight, bias, name=name, kernel_shape=[2, 2], strides=[2, 2])
