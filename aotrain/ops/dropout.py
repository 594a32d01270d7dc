"""Inverted dropout by a counter-based generator, as a Relax operator.

    dropout(x, rng; ratio, salt) -> y, of x's type

rng is uint32[2] = (seed, step). Element i survives exactly if word(seed, step, salt, i) is at least
ratio * 2^32, and is then multiplied by 1 / (1 - ratio). No mask is stored: the gradient is the same
operator on dy, with the same rng, ratio and salt.

The word is made of the step that wyhash is made of (Wang Yi, public domain): multiply two numbers
of 32 bits to one of 64 and xor its halves. Three of them mix (seed, step, salt) to a first key, one
more gives a second, and three mix the keys with i; tests/ops/test_dropout.py has the statistics.
Elements are counted in 32 bits: a tensor may have up to 2^32. The products are in uint64, where
they do not wrap: TVM's LLVM code declares unsigned wrapping undefined (nuw).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from aotrain.ops.registry import define

PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
"""xxHash32's (Collet, BSD): odd, with bits that are set irregularly."""


def _type(call: relax.Call) -> Any:
    x, rng = call.args[0].ty, call.args[1].ty
    if [int(d) for d in rng.shape] != [2] or str(rng.dtype) != "uint32":
        raise ValueError(f"aotrain.dropout: rng must be uint32[2], not {rng}")
    if math.prod(int(d) for d in x.shape) > 2**32:
        raise ValueError("aotrain.dropout: more than 2^32 elements")
    return x


class Arithmetic:
    """The generator on uint64 of numpy, all numbers below 2^32; `InTir` has it on expressions."""

    def const(self, value: int) -> Any:
        """A number."""
        return np.uint64(value)

    def bind(self, value: Any) -> Any:
        """Name a value that is used more than once: an expression stays a line, not a tree."""
        return value

    def mix(self, value: Any, factor: int) -> Any:
        """The halves of value * factor, xored."""
        product = self.bind(value * self.const(factor))
        return (product ^ (product >> self.const(32))) & self.const(2**32 - 1)

    def word(self, seed: Any, step: Any, salt: int, index: Any) -> Any:
        """The word of element `index`."""
        a, b, c, d, e = PRIMES
        key = self.mix(seed ^ self.const(e), a)
        key = self.mix(key ^ step, b)
        key = self.bind(self.mix(key ^ self.const(salt), c))
        second = self.mix(key ^ self.const(d), b)
        drawn = self.mix(index ^ key, a)
        drawn = self.mix(drawn ^ second, b)
        return self.mix(drawn ^ key, c)


class InTir(Arithmetic):
    """The same, as TIR expressions with `Let`s that `close` puts around the result."""

    def __init__(self) -> None:
        self._bound: list[tuple[tirx.Var, Any]] = []

    def const(self, value: int) -> Any:
        """A uint64 immediate."""
        return tirx.const(value, "uint64")

    def bind(self, value: Any) -> Any:
        """A fresh variable for the value."""
        self._bound.append((tirx.Var(f"h{len(self._bound)}", "uint64"), value))
        return self._bound[-1][0]

    def close(self, result: Any) -> Any:
        """The result under everything that was bound."""
        for name, value in reversed(self._bound):
            result = tirx.Let(name, value, result)
        return result


def threshold(ratio: float) -> int:
    """Words below it are dropped."""
    return min(round(ratio * 2**32), 2**32 - 1)


def body(x: te.Tensor, rng: te.Tensor, ratio: float, salt: int) -> te.Tensor:
    """The computation, as TE."""

    def element(*index: Any) -> Any:
        tir = InTir()
        flat: Any = tir.const(0)
        for i, extent in zip(index, x.shape, strict=True):
            flat = flat * tir.const(int(extent)) + tirx.Cast("uint64", i)
        seed, step = (tirx.Cast("uint64", rng[i]) for i in (0, 1))
        kept = tir.word(seed, step, salt, flat) >= tir.const(threshold(ratio))
        scale = tirx.const(1 / (1 - ratio), x.dtype)
        return tir.close(tirx.Select(kept, x(*index) * scale, tirx.const(0, x.dtype)))

    return te.compute(x.shape, element, name="dropout")


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    ratio, salt = float(call.attrs["ratio"]), int(call.attrs["salt"])
    return bb.call_te(body, *call.args, ratio, salt, primfunc_name_hint="dropout")


dropout = define("aotrain.dropout", inputs=2, infer=_type, legalize=_legalize)
