"""Every gradient rule of the compiler: importing this package fills `vjp.RULES`."""

from aotrain.autodiff.rules import (
    activation,
    attention,
    binary,
    conv,
    elementwise,
    image,
    index,
    linear,
    loss,
    manipulate,
    norm,
    pool,
    random,
    reduce,
)

__all__ = [
    "activation",
    "attention",
    "binary",
    "conv",
    "elementwise",
    "image",
    "index",
    "linear",
    "loss",
    "manipulate",
    "norm",
    "pool",
    "random",
    "reduce",
]
