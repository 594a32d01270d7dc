"""Inverted dropout by a counter-based generator, as a Relax operator.

    dropout(x, rng; ratio, salt) -> y, of x's type

rng is uint32[2] = (seed, step). Element i survives exactly if word(seed, step, salt, i) is at least
ratio * 2^32, and is then multiplied by 1 / (1 - ratio). No mask is stored: the gradient is the same
operator on dy, with the same rng, ratio and salt.

The generator is pcg4d of Jarzynski and Olano, "Hash Functions for GPU Rendering" (JCGT 9(3), 2020):
32-bit multiplications only, so that every target has it, and no failures in TestU01's BigCrush there.
Elements are counted in 32 bits: a tensor may have up to 2^32 of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from aotrain.ops.registry import define

MULTIPLIER, INCREMENT = 1664525, 1013904223  # of the paper's linear congruential step


def _type(call: relax.Call) -> Any:
    x, rng = call.args[0].ty, call.args[1].ty
    if [int(d) for d in rng.shape] != [2] or str(rng.dtype) != "uint32":
        raise ValueError(f"aotrain.dropout: rng must be uint32[2], not {rng}")
    if math.prod(int(d) for d in x.shape) > 2**32:
        raise ValueError("aotrain.dropout: more than 2^32 elements")
    return x


def word(seed: Any, step: Any, salt: Any, index: Any) -> Any:
    """The first word of pcg4d; uint32 scalars of TIR or uint32 arrays of numpy."""
    constant = np.uint32 if isinstance(index, np.ndarray) else (lambda v: tirx.const(v, "uint32"))
    a, c, sixteen = constant(MULTIPLIER), constant(INCREMENT), constant(16)
    x, y, z, w = (v * a + c for v in (seed, step, salt, index))
    for last in (False, True):
        x = x + y * w
        y = y + z * x
        z = z + x * y
        w = w + y * z
        if not last:
            x, y, z, w = (v ^ (v >> sixteen) for v in (x, y, z, w))
    return x


def threshold(ratio: float) -> int:
    """Words below it are dropped."""
    return min(round(ratio * 2**32), 2**32 - 1)


def body(x: te.Tensor, rng: te.Tensor, ratio: float, salt: int) -> te.Tensor:
    """The computation, as TE."""

    def element(*index: Any) -> Any:
        flat: Any = tirx.const(0, "uint32")
        for i, extent in zip(index, x.shape, strict=True):
            flat = flat * tirx.const(int(extent), "uint32") + tirx.Cast("uint32", i)
        drawn = word(rng[0], rng[1], tirx.const(salt, "uint32"), flat)
        kept = drawn >= tirx.const(threshold(ratio), "uint32")
        scale = tirx.const(1 / (1 - ratio), x.dtype)
        return tirx.Select(kept, x(*index) * scale, tirx.const(0, x.dtype))

    return te.compute(x.shape, element, name="dropout")


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    ratio, salt = float(call.attrs["ratio"]), int(call.attrs["salt"])
    return bb.call_te(body, *call.args, ratio, salt, primfunc_name_hint="dropout")


dropout = define("aotrain.dropout", inputs=2, infer=_type, legalize=_legalize)
