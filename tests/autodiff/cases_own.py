"""Gradient cases: operators of our own, which makes gradients of gradients."""

from __future__ import annotations

import importlib

import numpy as np

from tests.autodiff.case import Case, apart, uniform


def _own(module: str, name: str, inputs: tuple, **attrs: object) -> Case:
    """Not in PyTorch under this name: central differences only."""

    def relax(_, *args):
        return getattr(importlib.import_module(f"aotrain.ops.{module}"), name)(*args, **attrs)

    return Case(f"{name} {attrs}", relax, None, inputs)


def _convolution(rank: int, x, w, out, strides, padding, dilation, groups) -> list[Case]:
    geometry = {
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }
    name = f"conv{rank}d"
    return [
        _own("conv_grad", f"{name}_input_grad", (out, w), **geometry, input_shape=x),
        _own("conv_grad", f"{name}_weight_grad", (out, x), **geometry, weight_shape=w),
    ]


OWN = [
    _own("activation_grad", "gelu_grad", (apart(5), apart(5))),
    _own("softmax_grad", "softmax_grad", ((2, 3), (2, 3)), axis=-1),
    _own("softmax_grad", "softmax_grad", ((2, 3, 2), (2, 3, 2)), axis=1),
    _own("softmax_grad", "log_softmax_grad", ((2, 3, 2), (2, 3, 2)), axis=1),
    _own("take_grad", "take_grad", ((2, 3, 2), np.array([4, 0, 4])), rows=5),
    *[
        Case(
            f"top_k {largest}",
            lambda r, x, largest=largest: r.TupleGetItem(
                importlib.import_module("aotrain.ops.top_k").top_k(x, k=2, largest=largest), 0
            ),
            None,
            (apart(2, 5, 3),),
        )
        for largest in (True, False)
    ],
    *_convolution(2, (1, 2, 5, 6), (4, 1, 3, 2), (1, 4, 3, 3), (2, 2), (1, 1, 1, 0), (1, 1), 2),
    *_convolution(1, (2, 2, 7), (3, 2, 3), (2, 3, 5), (1,), (1, 1), (2,), 1),
    *_convolution(
        3, (1, 1, 3, 3, 2), (1, 1, 2, 2, 1), (1, 1, 2, 2, 2), (1,) * 3, (0,) * 6, (1,) * 3, 1
    ),
    *[
        Case(
            f"layer_norm {shape} {axis}",
            lambda _, x, g, b, axis=axis: importlib.import_module("aotrain.ops.norm").layer_norm(
                x, g, b, axis=axis, epsilon=1e-3
            ),
            lambda t, x, g, b, axis=axis: t.nn.functional.layer_norm(x, x.shape[axis:], g, b, 1e-3),
            (shape, uniform(0.5, 1.5, *shape[axis:]), shape[axis:]),
        )
        for shape, axis in [((2, 3, 7), 2), ((2, 3, 4), 1), ((1, 1), 1)]
    ],
    _own(
        "batch_norm",
        "batch_norm_train",
        ((3, 2, 2, 2), uniform(0.5, 1.5, 2), (2,)),
        epsilon=1e-3,
    ),
    _own("dropout", "dropout", ((4, 5), np.array([7, 3], dtype="uint32")), ratio=0.4, salt=5),
]

FAMILIES = {"own": OWN}
