"""Rules of pooling: x [N, C, H, W] → y [N, C, P, Q]; 1-D and 3-D alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotrain.autodiff.vjp import Gradients, NoGradientError, Vjp, rule, shape
from aotrain.ops import pool_grad as kernels


def _geometry(v: Vjp, rank: int) -> dict[str, Any]:
    layout = "NC" + "DHW"[3 - rank :]
    if v.attrs.layout != layout or v.attrs.out_layout not in ("", layout):
        raise NoGradientError(f"has a gradient for layout {layout} only, not {v.attrs.layout}")

    def numbers(name: str) -> tuple[int, ...]:
        return tuple(int(i) for i in v.attrs[name])

    padding = numbers("padding")
    return {
        "pool_size": numbers("pool_size"),
        "strides": numbers("strides"),
        "padding": padding if len(padding) == 2 * rank else padding * 2,
        "dilation": numbers("dilation"),
    }


def _max_pool(rank: int) -> Callable[[Vjp], Gradients]:
    def gradient(v: Vjp) -> Gradients:
        return [kernels.max_pool_grad(v.dy, v.x, v.y, **_geometry(v, rank))]

    return gradient


def _avg_pool(rank: int) -> Callable[[Vjp], Gradients]:
    def gradient(v: Vjp) -> Gradients:
        include = bool(v.attrs.count_include_pad)
        return [
            kernels.avg_pool_grad(
                v.dy,
                **_geometry(v, rank),
                count_include_pad=include,
                input_shape=shape(v.x),
            )
        ]

    return gradient


def _adaptive_avg_pool(v: Vjp) -> Gradients:
    if not v.attrs.layout.startswith("NC"):
        raise NoGradientError(f"has no gradient for layout {v.attrs.layout}")
    return [kernels.adaptive_avg_pool_grad(v.dy, input_shape=shape(v.x))]


for _rank in (1, 2, 3):
    rule(f"relax.nn.max_pool{_rank}d")(_max_pool(_rank))
    rule(f"relax.nn.avg_pool{_rank}d")(_avg_pool(_rank))
    rule(f"relax.nn.adaptive_avg_pool{_rank}d")(_adaptive_avg_pool)
