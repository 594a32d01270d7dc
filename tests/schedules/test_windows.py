"""Depthwise convolutions and their gradients: scheduled as unscheduled, over random shapes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.relax import op
from tvm.target import Target

from aotrain.ops import conv_grad
from aotrain.schedules.cpu import nest, planes, schedule
from tests.schedules.kernels import check, lower

TARGETS = [Target({"kind": "llvm", "mcpu": cpu}) for cpu in ("x86-64-v3", "znver4")]


def kernels(n: int, c: int, size: tuple[int, int], taps: tuple[int, int], stride: int) -> list:
    """Forward with ReLU, input gradient, weight gradient of one depthwise convolution."""
    padding = [taps[0] // 2, taps[1] // 2] * 2
    out = [(s + 2 * (t // 2) - t) // stride + 1 for s, t in zip(size, taps, strict=True)]
    x, w, dy = (n, c, *size), (c, 1, *taps), (n, c, *out)
    attributes = {"strides": [stride] * 2, "padding": padding, "dilation": [1, 1], "groups": c}

    def forward(builder: object, x: object, w: object) -> object:
        y = builder.emit(op.nn.conv2d(x, w, strides=stride, padding=padding, groups=c))
        return builder.emit(op.nn.relu(y))

    def one(function: Callable, **shape: list[int]) -> Callable:
        return lambda builder, a, b: builder.emit(function(a, b, **attributes, **shape))

    return [
        *lower(forward, x, w),
        *lower(one(conv_grad.conv2d_input_grad, input_shape=list(x)), dy, w),
        *lower(one(conv_grad.conv2d_weight_grad, weight_shape=list(w)), dy, x),
    ]


@pytest.mark.parametrize("target", TARGETS, ids=("avx2", "avx512"))
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [(3, 3), (5, 5), (2, 5), (7, 2)])
def test_each_is_written_as_windows(target: Target, stride: int, taps: tuple[int, int]) -> None:
    for func in kernels(2, 3, (9, 12), taps, stride):
        assert check(func, target) == "window"


@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(1, 3),
    c=st.integers(2, 5),
    size=st.tuples(st.integers(1, 37), st.integers(1, 37)),
    taps=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.integers(1, 3),
)
def test_any_shape_keeps_its_results(
    n: int, c: int, size: tuple[int, int], taps: tuple[int, int], stride: int
) -> None:
    for func in kernels(n, c, size, taps, stride):
        check(func, TARGETS[1])


def test_padding_costs_no_tensor() -> None:
    """The plane is padded where it is copied: no root-level buffer stays."""
    for func in kernels(2, 3, (9, 9), (3, 3), 1):
        scheduled, _ = schedule(func, TARGETS[0])
        names = {buffer.name for buffer in scheduled.body.block.alloc_buffers}
        assert not names & {"pad_temp", "dy_pad", "x_pad"}


def test_a_dense_convolution_has_no_windows() -> None:
    (func,) = lower(lambda b, x, w: b.emit(op.nn.conv2d(x, w)), (1, 4, 6, 6), (8, 4, 3, 3))
    kernel = nest.parse(func)
    assert kernel is not None
    assert all(planes.match(s) is None for s in kernel.stages if s.axes is not None)
