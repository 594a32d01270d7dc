"""Rules of image resizing and sampling: x [N, C, H, W] → y [N, C, P, Q].

Every method of resizing is separable and linear, y = A·x·Bᵀ with interpolation matrices A [P, H]
and B [Q, W] known at compile time, so dx = Aᵀ·dy·B. Repetition by a whole factor is a sum over
blocks instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from aotrain.autodiff.vjp import Gradients, NoGradientError, Vjp, dtype, rule, shape
from aotrain.ops.grid_sample_grad import grid_sample_grid_grad, grid_sample_input_grad

op = relax.op

# index in the output, input size, output size → position in the input (ONNX Resize)
POSITIONS: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "half_pixel": lambda i, n, m: (i + 0.5) * (n / m) - 0.5,
    "pytorch_half_pixel": lambda i, n, m: (i + 0.5) * (n / m) - 0.5 if m > 1 else i * 0.0,
    "align_corners": lambda i, n, m: i * ((n - 1) / (m - 1)) if m > 1 else i * 0.0,
    "asymmetric": lambda i, n, m: i * (n / m),
    "tf_half_pixel_for_nn": lambda i, n, m: (i + 0.5) * (n / m),
}
ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round": np.rint,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x + 1e-5),  # TVM's guard against rounding
    "ceil": lambda x: np.ceil(x - 1e-5),
}


def interpolation_matrix(attrs: Any, source: int, target: int) -> np.ndarray:
    """[target, source]: row i holds the weights of the inputs that output i mixes."""
    mode = attrs.coordinate_transformation_mode
    if mode not in POSITIONS:
        raise NoGradientError(f"has no gradient for coordinates '{mode}'")
    at = POSITIONS[mode](np.arange(target, dtype="float64"), source, target)
    matrix = np.zeros((target, source))
    for index, weight in _taps(attrs, at, source):
        np.add.at(matrix, (np.arange(target), np.clip(index, 0, source - 1)), weight)
    return matrix


def _taps(attrs: Any, at: np.ndarray, source: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(input index, weight) pairs of every output; an index outside means the border's element."""
    if attrs.method == "nearest_neighbor":
        rounding = attrs.rounding_method or (
            "round" if attrs.coordinate_transformation_mode == "align_corners" else "floor"
        )
        return [(ROUNDINGS[rounding](at).astype(int), np.ones_like(at))]
    low = np.floor(at).astype(int)
    t = at - low
    if attrs.method == "linear":
        return [(low, 1 - t), (low + 1, t)]
    if attrs.method != "cubic":
        raise NoGradientError(f"has no gradient for method '{attrs.method}'")
    a = float(attrs.cubic_alpha)  # Keys 1981, "Cubic convolution interpolation"
    weights = [
        a * (t**3 - 2 * t**2 + t),
        (a + 2) * t**3 - (a + 3) * t**2 + 1,
        -(a + 2) * t**3 + (2 * a + 3) * t**2 - a * t,
        -a * t**3 + a * t**2,
    ]
    taps = [(low + j - 1, w) for j, w in enumerate(weights)]
    if int(attrs.cubic_exclude) == 0:
        return taps
    inside = [(i, np.where((i >= 0) & (i < source), w, 0.0)) for i, w in taps]
    total = sum(w for _, w in inside)
    return [(i, w / total) for i, w in inside]


@rule("relax.image.resize2d")
def _resize2d(v: Vjp) -> Gradients:
    if v.attrs.layout != "NCHW":
        raise NoGradientError(f"has a gradient for layout NCHW only, not {v.attrs.layout}")
    (h, w), (p, q) = shape(v.x)[2:], shape(v.y)[2:]
    rows = interpolation_matrix(v.attrs, h, p)  # [P, H]
    columns = interpolation_matrix(v.attrs, w, q)  # [Q, W]
    dx = _transpose_apply(v, v.dy, rows, 2)
    return [_transpose_apply(v, dx, columns, 3), None]


def _transpose_apply(v: Vjp, dy: relax.Expr, matrix: np.ndarray, axis: int) -> relax.Expr:
    """Σ_i matrix[i, :]·dy[.., i, ..] along `axis`; axis 2 goes first, so axis 3 is still [Q]."""
    target, source = matrix.shape
    n, c, h, _ = shape(v.x)
    q = shape(v.y)[3]
    if target == source and np.array_equal(matrix, np.eye(source)):
        return dy
    factor = target // source
    if target % source == 0 and np.array_equal(matrix, np.repeat(np.eye(source), factor, axis=0)):
        blocks = (n, c, source, factor, q) if axis == 2 else (n, c, h, source, factor)
        return op.sum(op.reshape(dy, blocks), axis=axis + 1)
    if axis == 3:
        return op.matmul(dy, relax.const(matrix, dtype(v.y)))  # [N, C, H, Q] · [Q, W]
    return op.matmul(relax.const(matrix.T.copy(), dtype(v.y)), dy)  # [H, P] · [N, C, P, Q]


@rule("relax.image.grid_sample")
def _grid_sample(v: Vjp) -> Gradients:
    """Bilinear, of images: x [N, C, H, W], grid [N, 2, P, Q]."""
    attrs = v.attrs
    if attrs.method != "bilinear" or attrs.layout != "NCHW":
        raise NoGradientError(f"has no gradient for method '{attrs.method}' in {attrs.layout}")
    if attrs.padding_mode not in ("zeros", "border"):
        raise NoGradientError(f"has no gradient for padding '{attrs.padding_mode}'")
    x, grid = v.args
    how = {"border": attrs.padding_mode == "border", "corners": bool(attrs.align_corners)}
    return [
        grid_sample_input_grad(v.dy, grid, input_shape=shape(x), **how),
        grid_sample_grid_grad(v.dy, x, grid, **how),
    ]
