"""A `Graph` and a value in, the value behind one layer out, in the nodes that exporters write."""

from __future__ import annotations

import math

import numpy as np

from .graph import Graph


def gemm(g: Graph, x: str, name: str, fan_in: int, out: int, gain: float = 2.0) -> str:
    """[N, fan_in] -> [N, out] as Gemm with the weight stored [out, fan_in]."""
    weight = g.he(f"{name}.weight", (out, fan_in), fan_in, gain)
    bias = g.full(f"{name}.bias", (out,), 0.0)
    return g.op("Gemm", x, weight, bias, name=name, transB=1)


def dense(g: Graph, x: str, name: str, fan_in: int, out: int, *, bias: bool = True) -> str:
    """[..., fan_in] -> [..., out] as MatMul with the weight stored [fan_in, out], then Add."""
    weight = g.he(f"{name}.weight", (fan_in, out), fan_in, gain=1.0)
    y = g.op("MatMul", x, weight, name=name)
    if not bias:
        return y
    return g.op("Add", y, g.full(f"{name}.bias", (out,), 0.0), name=name)


def conv(
    g: Graph,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: int,
    *,
    stride: int = 1,
    pad: int | None = None,
    groups: int = 1,
    bias: bool = False,
) -> str:
    """[N, C, H, W] -> [N, K, H', W'], `pad` on all sides (kernel // 2 unless given)."""
    c, k = channels
    pad = kernel // 2 if pad is None else pad
    fan_in = c // groups * kernel * kernel
    inputs = [x, g.he(f"{name}.weight", (k, c // groups, kernel, kernel), fan_in)]
    if bias:
        inputs.append(g.full(f"{name}.bias", (k,), 0.0))
    return g.op(
        "Conv",
        *inputs,
        name=name,
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[pad] * 4,
        dilations=[1, 1],
        group=groups,
    )


def batch_norm(g: Graph, x: str, name: str, channels: int, gain: float = 1.0) -> str:
    """BatchNormalization in inference form: one output, training_mode absent.

    The biases are spread, as in a trained file: from zero, their final values would be sums of
    gradients alone, and one ReLU whose input rounds across zero changes those by a percent.
    """
    shape = (channels,)
    statistics = [
        g.full(f"{name}.weight", shape, gain),
        g.normal(f"{name}.bias", shape, 0.2),
        g.full(f"{name}.running_mean", shape, 0.0),
        g.full(f"{name}.running_var", shape, 1.0),
    ]
    return g.op("BatchNormalization", x, *statistics, name=name, epsilon=1e-5, momentum=0.9)


def layer_norm(g: Graph, x: str, name: str, width: int) -> str:
    """LayerNormalization over the last axis."""
    weight = g.full(f"{name}.weight", (width,), 1.0)
    bias = g.full(f"{name}.bias", (width,), 0.0)
    return g.op("LayerNormalization", x, weight, bias, name=name, axis=-1, epsilon=1e-5)


def scalar(g: Graph, name: str, value: float) -> str:
    """A float32 constant of rank 0."""
    return g.array(name, np.array(value, np.float32))


def gelu_erf(g: Graph, x: str, name: str) -> str:
    """x · (1 + erf(x / √2)) · ½ in the five nodes that exporters wrote before opset 20."""
    scaled = g.op("Div", x, scalar(g, f"{name}.sqrt2", math.sqrt(2.0)), name=name)
    erf = g.op("Erf", scaled, name=name)
    shifted = g.op("Add", erf, scalar(g, f"{name}.one", 1.0), name=name)
    product = g.op("Mul", x, shifted, name=name)
    return g.op("Mul", product, scalar(g, f"{name}.half", 0.5), name=f"{name}/half")


def attention(g: Graph, x: str, name: str, tokens: int, width: int, heads: int, mask: str) -> str:
    """Self-attention on [N, T, D]; `mask` (bool [1, 1, T, T], or "") is True where it is hidden.

    The projections have no bias: the gradient of the key's is zero (softmax ignores a shift), so
    AdamW would walk it along its rounding noise.
    """
    depth = width // heads
    split = g.array(f"{name}.split", np.array([width] * 3, np.int64))
    by_head = g.array(f"{name}.by_head", np.array([0, tokens, heads, depth], np.int64))
    merged = g.array(f"{name}.merged", np.array([0, tokens, width], np.int64))
    qkv = dense(g, x, f"{name}.qkv", width, 3 * width, bias=False)
    parts = []
    for part, label in zip(
        g.ops("Split", qkv, split, name=name, outputs=3, axis=2), "qkv", strict=True
    ):
        heads_last = g.op("Reshape", part, by_head, name=f"{name}/{label}")
        perm = [0, 2, 3, 1] if label == "k" else [0, 2, 1, 3]
        parts.append(g.op("Transpose", heads_last, name=f"{name}/{label}", perm=perm))
    query, key, value = parts  # [N, H, T, d], [N, H, d, T], [N, H, T, d]
    scores = g.op("MatMul", query, key, name=f"{name}/scores")
    scale = scalar(g, f"{name}.scale", 1.0 / math.sqrt(depth))
    scores = g.op("Mul", scores, scale, name=f"{name}/scores")
    if mask:
        hidden = scalar(g, f"{name}.hidden", -math.inf)
        scores = g.op("Where", mask, hidden, scores, name=f"{name}/scores")
    weights = g.op("Softmax", scores, name=name, axis=-1)
    mixed = g.op("MatMul", weights, value, name=f"{name}/mixed")
    mixed = g.op("Transpose", mixed, name=f"{name}/mixed", perm=[0, 2, 1, 3])
    mixed = g.op("Reshape", mixed, merged, name=f"{name}/mixed")
    return dense(g, mixed, f"{name}.out", width, width, bias=False)
