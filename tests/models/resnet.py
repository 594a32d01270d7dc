"""Widths in, ResNet-18 in its CIFAR form or ResNet-50 out: image [N, 3, S, S] -> logits [N, 10]."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from .graph import Graph
from .layers import batch_norm, conv, gemm


def build(
    widths: Sequence[int] = (64, 128, 256, 512), blocks: int = 2, size: int = 32, seed: int = 3
) -> onnx.ModelProto:
    """A 3x3 stem without pooling, four stages of basic blocks, global average (He et al. 2016).

    BatchNormalization is in inference form, as exporters write it, momentum 0.9. Residual branches
    start small (Goyal et al. 2017, who start at zero), so that rounding does not grow with depth.
    """
    g = Graph("resnet18", seed=seed)
    x = g.input("x", 3, size, size)
    x = _conv_norm(g, x, "stem", (3, widths[0]), 3)
    x = g.op("Relu", x, name="stem")
    channels = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _basic_block(g, x, f"layer{stage + 1}.{block}", (channels, width), stride)
            channels = width
    x = g.op("GlobalAveragePool", x, name="pool")
    x = g.op("Flatten", x, name="flatten", axis=1)
    return g.model(gemm(g, x, "fc", channels, 10, gain=1.0), "logits", 10)


def tiny() -> onnx.ModelProto:
    """Two stages of one block, 4 and 8 channels, 8x8 images."""
    return build((4, 8), blocks=1, size=8)


def build50(
    widths: Sequence[int] = (64, 128, 256, 512),
    blocks: Sequence[int] = (3, 4, 6, 3),
    size: int = 96,
    seed: int = 10,
) -> onnx.ModelProto:
    """Bottleneck blocks behind a 7x7 stem of stride 2 and max pooling (He et al. 2016, table 1)."""
    g = Graph("resnet50", seed=seed)
    x = _conv_norm(g, g.input("x", 3, size, size), "stem", (3, widths[0]), 7, 2)
    x = g.op("Relu", x, name="stem")
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    x = g.op("MaxPool", x, name="stem", **window)
    channels = widths[0]
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _bottleneck(g, x, f"layer{stage + 1}.{block}", (channels, width), stride)
            channels = 4 * width
    x = g.op("GlobalAveragePool", x, name="pool")
    x = g.op("Flatten", x, name="flatten", axis=1)
    return g.model(gemm(g, x, "fc", channels, 10, gain=1.0), "logits", 10)


def tiny50() -> onnx.ModelProto:
    """Two stages of two and one blocks on 16x16 images."""
    return build50((2, 4), (2, 1), size=16)


def _conv_norm(
    g: Graph,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: int,
    stride: int = 1,
    gain: float = 1.0,
) -> str:
    x = conv(g, x, f"{name}.conv", channels, kernel, stride=stride)
    return batch_norm(g, x, f"{name}.bn", channels[1], gain)


def _basic_block(g: Graph, x: str, name: str, channels: tuple[int, int], stride: int) -> str:
    _, width = channels
    y = _conv_norm(g, x, f"{name}.a", channels, 3, stride)
    y = g.op("Relu", y, name=f"{name}.a")
    y = _conv_norm(g, y, f"{name}.b", (width, width), 3, gain=0.2)
    if stride != 1 or channels[0] != width:
        x = _conv_norm(g, x, f"{name}.shortcut", channels, 1, stride)
    return g.op("Relu", g.op("Add", y, x, name=name), name=name)


def _bottleneck(g: Graph, x: str, name: str, channels: tuple[int, int], stride: int) -> str:
    """1x1, 3x3 (which has the stride), 1x1 to four times the width."""
    _, width = channels
    y = x
    for part, fan_in, kernel, step in (("a", channels[0], 1, 1), ("b", width, 3, stride)):
        y = _conv_norm(g, y, f"{name}.{part}", (fan_in, width), kernel, step)
        y = g.op("Relu", y, name=f"{name}.{part}")
    y = _conv_norm(g, y, f"{name}.c", (width, 4 * width), 1, gain=0.2)
    if stride != 1 or channels[0] != 4 * width:
        x = _conv_norm(g, x, f"{name}.shortcut", (channels[0], 4 * width), 1, stride)
    return g.op("Relu", g.op("Add", y, x, name=name), name=name)
