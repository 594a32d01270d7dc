"""A gradient case: one expression in Relax and the same in PyTorch, over seeded inputs.

Neither framework is imported here: the compiler's environment evaluates `relax`, the one that makes
the golden files evaluates `torch`. The value to differentiate is Σ y·weights with seeded weights.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

Build = Callable[..., Any]
Input = tuple[int, ...] | np.ndarray


@dataclasses.dataclass(frozen=True)
class Case:
    """`relax(R, *inputs)` and `torch(T, *inputs)` build y (a tensor or a tuple of them).

    `inputs` are shapes (normal numbers) or arrays; float inputs are differentiated.
    `differences=False`: not checked by central differences (a tie, where a subgradient is chosen,
    or float32). `torch=None`: not checked against PyTorch, which lacks the operator.
    """

    name: str
    relax: Build
    torch: Build | None
    inputs: tuple[Input, ...]
    differences: bool = True
    dtype: str = "float64"  # float32 where TVM has nothing else

    def in_float32(self) -> Case:
        return dataclasses.replace(self, dtype="float32", differences=False)

    def rng(self, salt: str = "") -> np.random.Generator:
        return np.random.default_rng(zlib.crc32((self.name + salt).encode()))

    def arrays(self) -> list[np.ndarray]:
        """The inputs; floats have the case's dtype."""
        rng = self.rng()
        found = [i if isinstance(i, np.ndarray) else rng.standard_normal(i) for i in self.inputs]
        return [a.astype(self.dtype) if a.dtype.kind == "f" else a for a in found]

    def weights(self, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
        """What y's tensors are multiplied with before the sum."""
        rng = self.rng("weights")
        return [rng.uniform(0.5, 1.5, s) for s in shapes]


def uniform(low: float, high: float, *shape: int) -> np.ndarray:
    """Distinct numbers in a range, shuffled by a seed from the range and shape."""
    rng = np.random.default_rng(zlib.crc32(repr((low, high, shape)).encode()))
    return rng.uniform(low, high, shape)


def apart(*shape: int) -> np.ndarray:
    """Numbers at least 0.1 apart and from 0, in random order: no ties and no kinks nearby."""
    rng = np.random.default_rng(zlib.crc32(repr(shape).encode()))
    size = int(np.prod(shape))
    values = (np.arange(size) - size // 2 + 0.5) * 0.2 + rng.uniform(-0.04, 0.04, size)
    return rng.permutation(values).reshape(shape)


def integers(high: int, *shape: int, low: int = 0) -> np.ndarray:
    """int64 numbers in [low, high)."""
    rng = np.random.default_rng(zlib.crc32(repr((low, high, shape)).encode()))
    return rng.integers(low, high, shape)


def array(*values: float) -> np.ndarray:
    """float64 numbers as given."""
    return np.array(values, dtype="float64")
