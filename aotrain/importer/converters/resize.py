"""Resize, Upsample and GridSample in; gathers, matmuls with constant matrices, grid_sample out.

Resizing is done an axis at a time. Interpolation is linear in the data and separable: along one
axis of size I it is a matrix [O, I] with a few entries a row. Nearest is a gather. Both have the
gradients of the operators that they are made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.builder import shape_of
from aotrain.importer.node import Converter, Node, normal_axis, np_dtype
from aotrain.importer.problems import Unsupported


def _resize(n: Node) -> relax.Expr:
    """Inputs X, roi, scales, sizes since opset 11; X, scales in 10."""
    if n.opset < 11:
        return _apply(n, _scales(n, 1), None, "asymmetric", "floor")
    mode = n.attr("coordinate_transformation_mode", "half_pixel")
    scales = _scales(n, 2) if n.has(2) and n.shape(2) != (0,) else None
    sizes = [int(s) for s in n.known(3, "sizes")] if n.has(3) and n.shape(3) != (0,) else None
    return _apply(n, scales, sizes, mode, n.attr("nearest_mode", "round_prefer_floor"))


def _upsample(n: Node) -> relax.Expr:
    scales = _scales(n, 1) if n.has(1) else [float(s) for s in n.attr("scales")]
    return _apply(n, scales, None, "asymmetric", "floor")


def _scales(n: Node, index: int) -> list[float]:
    return [float(s) for s in n.known(index, "scales").reshape(-1)]


def _apply(
    n: Node, scales: list[float] | None, sizes: list[int] | None, coordinates: str, rounding: str
) -> relax.Expr:
    shape = n.shape()
    axes = [normal_axis(a, len(shape)) for a in n.ints("axes") or range(len(shape))]
    if scales is None:
        assert sizes is not None
        sizes, scales = _aspect(n, sizes, [shape[a] for a in axes])
    else:
        sizes = [math.floor(shape[a] * s) for a, s in zip(axes, scales, strict=True)]
    x = n.x(0)
    for axis, scale, size in zip(axes, scales, sizes, strict=True):
        if scale != 1.0 or size != shape[axis]:
            x = _along(n, x, axis, scale, size, coordinates, rounding)
    return x


def _aspect(n: Node, sizes: list[int], old: list[int]) -> tuple[list[int], list[float]]:
    """Sizes and scales under keep_aspect_ratio_policy."""
    policy = n.attr("keep_aspect_ratio_policy", "stretch")
    scales = [s / o for s, o in zip(sizes, old, strict=True)]
    if policy == "stretch":
        return sizes, scales
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [math.floor(scale * o + 0.5) for o in old], [scale] * len(old)


def _along(
    n: Node, x: relax.Expr, axis: int, scale: float, size: int, coordinates: str, rounding: str
) -> relax.Expr:
    shape, mode = shape_of(x), n.attr("mode", "nearest")
    at = positions(coordinates, scale, shape[axis], size)
    if mode == "nearest":
        indices = nearest(at, rounding, shape[axis])
        return n.emit(R.take(x, n.builder.constant(indices), axis, "clip"))
    if mode not in ("linear", "bilinear", "cubic"):
        raise Unsupported(f"{n.op_type} with mode={mode} is not supported")
    matrix = interpolation(
        at,
        shape[axis],
        cubic=mode == "cubic",
        a=float(n.attr("cubic_coeff_a", -0.75)),
        shrink=min(scale, 1.0) if n.attr("antialias", 0) else 1.0,
        inside_only=bool(n.attr("exclude_outside", 0)),
    ).astype(np_dtype(n.dtype()))
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    flat = n.emit(R.reshape(x, (before, shape[axis], after)))
    if after == 1:  # [before, I] x [I, O]
        rows = n.emit(R.reshape(x, (before, shape[axis])))
        y = n.emit(R.matmul(rows, n.builder.constant(matrix.T)))
    else:
        y = n.emit(R.matmul(n.builder.constant(matrix), flat))
    return n.emit(R.reshape(y, (*shape[:axis], size, *shape[axis + 1 :])))


def positions(coordinates: str, scale: float, old: int, new: int) -> np.ndarray:
    """Where each output element lies on the input's axis [new] (ONNX, Resize)."""
    at = np.arange(new, dtype=np.float64)
    if coordinates == "align_corners":
        return at * (old - 1) / (scale * old - 1) if scale * old != 1 else at * 0
    if coordinates == "asymmetric":
        return at / scale
    if coordinates == "pytorch_half_pixel" and new == 1:
        return at * 0 - 0.5
    if coordinates in ("half_pixel", "pytorch_half_pixel"):
        return (at + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        offset = old / 2 * (1 - new / (scale * old))
        return offset + (at + 0.5) / scale - 0.5
    raise Unsupported(f"Resize with coordinate_transformation_mode={coordinates} is not supported")


def nearest(at: np.ndarray, rounding: str, old: int) -> np.ndarray:
    """Indices of the elements taken, int64."""
    rules: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    return np.clip(rules[rounding](at), 0, old - 1).astype(np.int64)


def interpolation(
    at: np.ndarray, old: int, *, cubic: bool, a: float, shrink: float, inside_only: bool
) -> np.ndarray:
    """The matrix [O, I]. Edges repeat, or with `inside_only` lose their weight to the rest.

    `shrink` < 1 widens the kernel (antialias when downsampling).
    """
    radius = (2 if cubic else 1) / shrink
    kernel = _cubic(a) if cubic else _triangle
    matrix = np.zeros((len(at), old))
    for row, position in enumerate(at):
        taps = np.arange(math.floor(position - radius), math.ceil(position + radius) + 1)
        weights = kernel(np.abs(taps - position) * shrink)
        if inside_only:
            weights = np.where((taps >= 0) & (taps < old), weights, 0)
        if shrink < 1 or inside_only:
            weights = weights / weights.sum()
        np.add.at(matrix[row], np.clip(taps, 0, old - 1), weights)
    return matrix


def _triangle(d: np.ndarray) -> np.ndarray:
    return np.clip(1 - d, 0, None)


def _cubic(a: float) -> Callable[[np.ndarray], np.ndarray]:
    """Keys' convolution kernel (1981) of the distance d >= 0."""

    def kernel(d: np.ndarray) -> np.ndarray:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))

    return kernel


def _grid_sample(n: Node) -> relax.Expr:
    """ONNX's grid is [N, H, W, 2], Relax's [N, 2, H, W]; one dimension more for volumes."""
    mode = n.attr("mode", "linear")
    method = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    if n.rank() not in (4, 5) or (n.rank() == 5 and method == "bicubic"):
        raise Unsupported(f"GridSample of rank {n.rank()} with mode={mode} is not supported")
    last = n.rank() - 1
    grid = n.emit(R.permute_dims(n.x(1), [0, last, *range(1, last)]))
    layout = "NCHW" if n.rank() == 4 else "NCDHW"
    padding, corners = n.attr("padding_mode", "zeros"), bool(n.attr("align_corners", 0))
    return n.emit(R.image.grid_sample(n.x(0), grid, method, layout, padding, corners))


TABLE: dict[str, Converter] = {
    "Resize": _resize,
    "Upsample": _upsample,
    "GridSample": _grid_sample,
}
