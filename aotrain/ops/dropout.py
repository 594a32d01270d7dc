"""Inverted dropout by a counter-based generator, as a Relax operator.

    dropout(x, rng; ratio, salt) -> y, of x's type

rng is uint32[2] = (seed, step). Element i survives exactly if word(seed, step, salt, i) is at least
ratio * 2^32, and is then multiplied by 1 / (1 - ratio). No mask is stored: the gradient is the same
operator on dy, with the same rng, ratio and salt.

The word is a block cipher of the element's index, two rounds of key addition and MurmurHash3's
fmix32 (a bijection of 32 bits in which every input bit reaches every output bit). Its two keys come
from (seed, step, salt) by pcg4d of Jarzynski and Olano, "Hash Functions for GPU Rendering" (JCGT
9(3), 2020), finished likewise. Elements are counted in 32 bits: a tensor may have up to 2^32.

All numbers are below 2^32, but held in 64 bits and cut after every sum and product: TVM declares
the wrapping of uint32 undefined (LLVM's nuw), and its results are then wrong indeed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from aotrain.ops.registry import define

MULTIPLIER, INCREMENT = 1664525, 1013904223  # of pcg4d's linear congruential step
FINISH = ((16, 0x85EBCA6B), (13, 0xC2B2AE35))  # of fmix32: shift, factor


def _type(call: relax.Call) -> Any:
    x, rng = call.args[0].ty, call.args[1].ty
    if [int(d) for d in rng.shape] != [2] or str(rng.dtype) != "uint32":
        raise ValueError(f"aotrain.dropout: rng must be uint32[2], not {rng}")
    if math.prod(int(d) for d in x.shape) > 2**32:
        raise ValueError("aotrain.dropout: more than 2^32 elements")
    return x


class Arithmetic:
    """Operations modulo 2^32 on uint64 of numpy; `InTir` has the same on expressions."""

    def const(self, value: int) -> Any:
        """A number of the field."""
        return np.uint64(value)

    def bind(self, value: Any) -> Any:
        """Name a value that is used more than once: an expression stays a line, not a tree."""
        return value

    def low(self, value: Any) -> Any:
        """The value modulo 2^32."""
        return self.bind(value & self.const(2**32 - 1))

    def xorshift(self, value: Any, shift: int) -> Any:
        """value ^ (value >> shift)."""
        return self.bind(value ^ (value >> self.const(shift)))

    def fmix32(self, value: Any) -> Any:
        """MurmurHash3's finish."""
        for shift, factor in FINISH:
            value = self.low(self.xorshift(value, shift) * self.const(factor))
        return self.xorshift(value, 16)

    def pcg4d(self, words: Sequence[Any]) -> list[Any]:
        """Four words to four."""
        a, c = self.const(MULTIPLIER), self.const(INCREMENT)
        x, y, z, w = (self.low(v * a + c) for v in words)
        for last in (False, True):
            x = self.low(x + y * w)
            y = self.low(y + z * x)
            z = self.low(z + x * y)
            w = self.low(w + y * z)
            if not last:
                x, y, z, w = (self.xorshift(v, 16) for v in (x, y, z, w))
        return [x, y, z, w]

    def word(self, seed: Any, step: Any, salt: int, index: Any) -> Any:
        """The word of element `index`."""
        mixed = self.pcg4d([seed, step, self.const(salt), self.const(0)])
        first, second = (self.fmix32(v) for v in mixed[2:])
        return self.fmix32(self.low(self.fmix32(self.low(index + first)) + second))


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
