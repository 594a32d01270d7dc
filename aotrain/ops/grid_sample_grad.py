"""Gradients of bilinear sampling of images [N, C, H, W] at the points of a grid [N, 2, P, Q].

    grid_sample_input_grad(dy, grid; input_shape, border, corners) -> dx
    grid_sample_grid_grad(dy, x, grid; border, corners)            -> dgrid

A point (x, y) in [-1, 1] is a position in pixels, `corners` saying whether -1 and 1 are centres or
outer edges of the first and the last; its value mixes the four pixels around it (Jaderberg et al.
2015, equations 6 and 7). Outside there are zeros or, with `border`, the nearest pixel, and then a
point has no gradient. dx sums in the order of the points, one task a plane: the same bits each run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  its usual name

from aotrain.ops.registry import define


@dataclass(frozen=True)
class _Tap:
    """One of the two pixels around a position, along one axis."""

    index: Any  # in range, whatever the position
    weight: Any
    slope: Any  # of the weight, by the grid's coordinate
    inside: Any


def _taps(value: Any, dtype: str, size: int, border: bool, corners: bool) -> list[_Tap]:
    def number(of: float) -> Any:
        return tirx.const(of, dtype)

    slope = number((size - 1) / 2 if corners else size / 2)
    at = (value + number(1)) * slope - number(0 if corners else 0.5)
    if border:
        moves = tirx.all(at >= number(0), at <= number(size - 1))
        slope = tirx.Select(moves, slope, number(0))
        at = tirx.max(tirx.min(at, number(size - 1)), number(0))
    low = tirx.floor(at)
    taps = []
    for place, weight, way in (
        (low, number(1) - (at - low), -slope),
        (low + number(1), at - low, slope),
    ):
        index = tirx.max(tirx.min(tirx.Cast("int32", place), size - 1), 0)
        inside = tirx.all(place >= number(0), place <= number(size - 1))
        taps.append(_Tap(index, weight, way, inside))
    return taps


def _input_body(
    dy: te.Tensor, grid: te.Tensor, shape: tuple[int, ...], border: bool, corners: bool
) -> te.Tensor:
    batch, channels, height, width = shape
    _, _, rows, columns = (int(d) for d in dy.shape)

    def write(source: Any, points: Any, dx: Any) -> Any:
        zero = tirx.const(0, dy.dtype)
        with IRBuilder() as builder, T.seq_scope(), T.parallel(batch * channels) as task:
            n, c = task // channels, task % channels
            with T.serial(height) as h, T.serial(width) as w:
                T.buffer_store(dx, zero, [n, c, h, w])
            with T.serial(rows) as p, T.serial(columns) as q:
                for down in _taps(points[n, 1, p, q], grid.dtype, height, border, corners):
                    for right in _taps(points[n, 0, p, q], grid.dtype, width, border, corners):
                        with T.If(tirx.all(down.inside, right.inside)), T.Then():
                            place = [n, c, down.index, right.index]
                            part = source[n, c, p, q] * (down.weight * right.weight)
                            T.buffer_store(dx, dx[tuple(place)] + part, place)
        return builder.get()

    return te.extern(
        [shape],
        [dy, grid],
        lambda ins, outs: write(ins[0], ins[1], outs[0]),
        dtype=[dy.dtype],
        name="grid_sample_input_grad",
        tag="grid_sample_input_grad",
    )


def _grid_body(
    dy: te.Tensor, x: te.Tensor, grid: te.Tensor, border: bool, corners: bool
) -> te.Tensor:
    _, channels, height, width = (int(d) for d in x.shape)
    c = te.reduce_axis((0, channels), "c")

    def body(n: Any, axis: Any, p: Any, q: Any) -> Any:
        total = tirx.const(0, x.dtype)
        for down in _taps(grid[n, 1, p, q], grid.dtype, height, border, corners):
            for right in _taps(grid[n, 0, p, q], grid.dtype, width, border, corners):
                inside = tirx.all(down.inside, right.inside)
                pixel = x[n, c, down.index, right.index]
                slope = tirx.Select(axis == 0, down.weight * right.slope, down.slope * right.weight)
                total += tirx.Select(inside, pixel * slope, tirx.const(0, x.dtype))
        return te.sum(dy[n, c, p, q] * total, axis=c)

    return te.compute(grid.shape, body, name="grid_sample_grid_grad")


def _choices(call: relax.Call) -> tuple[bool, bool]:
    return bool(call.attrs["border"]), bool(call.attrs["corners"])


def _legalize_input(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape = tuple(int(d) for d in call.attrs["input_shape"])
    name = "grid_sample_input_grad"
    return bb.call_te(_input_body, *call.args, shape, *_choices(call), primfunc_name_hint=name)


def _legalize_grid(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    name = "grid_sample_grid_grad"
    return bb.call_te(_grid_body, *call.args, *_choices(call), primfunc_name_hint=name)


def _infer_input(call: relax.Call) -> relax.TensorType:
    shape = [int(d) for d in call.attrs["input_shape"]]
    return relax.TensorType(shape, str(call.args[0].ty.dtype))


grid_sample_input_grad = define(
    "aotrain.grid_sample_input_grad", inputs=2, infer=_infer_input, legalize=_legalize_input
)
grid_sample_grid_grad = define(
    "aotrain.grid_sample_grid_grad",
    inputs=3,
    infer=lambda call: call.args[2].ty,
    legalize=_legalize_grid,
)
