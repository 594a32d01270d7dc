"""Stored tensors in; the names of those that are tables of sines and cosines out.

A rotary embedding multiplies by a cos and a sin table that the exporter folded, a sinusoidal
position encoding is added; a framework keeps both in buffers and trains neither, but ONNX stores
them as it stores weights. What tells them apart is that sin^2 + cos^2 = 1 for every element: of two
tensors of the same shape, of even and odd entries of the last axis, or of its halves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

TOLERANCE = 4e-3  # float16 rounds 1 to 5e-4, bfloat16 to 4e-3
LEAST = 8  # elements: fewer satisfy it by chance


def sinusoids(stored: Mapping[str, np.ndarray]) -> set[str]:
    """Names of the tables among `stored` float tensors."""
    found = set()
    by_shape: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name, value in stored.items():
        if not _is_candidate(value):
            continue
        if _is_paired(value):
            found.add(name)
        else:
            by_shape[value.shape].append(name)
    for names in by_shape.values():
        for i, first in enumerate(names):
            for second in names[:i]:
                if _on_circle(stored[first], stored[second]):
                    found |= {first, second}
    return found


def _is_candidate(value: np.ndarray) -> bool:
    if value.size < LEAST or not np.issubdtype(value.dtype, np.number):
        return False
    return bool(np.all(np.abs(value) <= 1 + TOLERANCE) and np.any(value != value.flat[0]))


def _is_paired(value: np.ndarray) -> bool:
    width = value.shape[-1] if value.ndim else 0
    if width % 2 or width < 2:
        return False
    half = width // 2
    return _on_circle(value[..., ::2], value[..., 1::2]) or _on_circle(
        value[..., :half], value[..., half:]
    )


def _on_circle(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether every (cos, sin) has length 1; not so for a table of ones beside one of zeros."""
    a, b = first.astype(np.float32), second.astype(np.float32)
    varied = bool(np.any(a != a.flat[0]) and np.any(b != b.flat[0]))
    return varied and bool(np.all(np.abs(a * a + b * b - 1) <= TOLERANCE))
