"""Width in, MobileNetV2 out: image [N, 3, 96, 96] -> logits [N, 10]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from .graph import Graph
from .layers import batch_norm, conv, gemm

# expansion, channels, repeats, first stride: table 2 of Sandler et al. 2018
BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def build(
    blocks: Sequence[tuple[int, int, int, int]] = BLOCKS,
    stem: int = 32,
    head: int = 1280,
    size: int = 96,
    seed: int = 5,
) -> onnx.ModelProto:
    """Inverted residuals with depthwise convolutions; ReLU6 is Clip with two constants."""
    g = Graph("mobilenetv2", seed=seed)
    g.array("zero", np.array(0.0, np.float32))
    g.array("six", np.array(6.0, np.float32))
    x = _conv_norm(g, g.input("x", 3, size, size), "stem", (3, stem), 3, stride=2)
    channels = stem
    for stage, (expansion, width, repeats, first_stride) in enumerate(blocks):
        for i in range(repeats):
            stride = first_stride if i == 0 else 1
            name = f"block{stage}.{i}"
            x = _inverted_residual(g, x, name, (channels, width), expansion, stride)
            channels = width
    x = _conv_norm(g, x, "head", (channels, head), 1)
    x = g.op("GlobalAveragePool", x, name="pool")
    x = g.op("Flatten", x, name="flatten", axis=1)
    return g.model(gemm(g, x, "fc", head, 10, gain=1.0), "logits", 10)


def tiny() -> onnx.ModelProto:
    """Two blocks on 16x16 images."""
    return build(((1, 4, 1, 1), (2, 8, 2, 2)), stem=4, head=16, size=16)


def _conv_norm(
    g: Graph,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    clip: bool = True,
) -> str:
    x = conv(g, x, f"{name}.conv", channels, kernel, stride=stride, groups=groups)
    x = batch_norm(g, x, f"{name}.bn", channels[1])
    return g.op("Clip", x, "zero", "six", name=name) if clip else x


def _inverted_residual(
    g: Graph, x: str, name: str, channels: tuple[int, int], expansion: int, stride: int
) -> str:
    fan_in, out = channels
    hidden = fan_in * expansion
    y = x
    if expansion != 1:
        y = _conv_norm(g, y, f"{name}.expand", (fan_in, hidden), 1)
    y = _conv_norm(g, y, f"{name}.depth", (hidden, hidden), 3, stride=stride, groups=hidden)
    y = _conv_norm(g, y, f"{name}.project", (hidden, out), 1, clip=False)
    return g.op("Add", x, y, name=name) if stride == 1 and fan_in == out else y
