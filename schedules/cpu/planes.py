"""A stage that sums over a window of each plane in, which axes are what out.

    y[n, c, p, q]   = sum_{r, s} x[n, c, a p + b r + k, ...] * w[c, r, s]     Map: a window slides
    dw[c, r, s]     = sum_{n, p, q} dy[n, c, p, q] * x[n, c, a p + b r + k, ...]   Sum: one a tap

These are depthwise convolutions and their gradients: only window axes are in one factor alone,
so that no matrix product is in them. A strided input gradient is one Map for each residue of its
outputs (contraction.products opens it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import ir, sym, tirx

from aotrain.schedules.cpu.contraction import Product, products
from aotrain.schedules.cpu.nest import Axis, Stage, substitute, variables


@dataclass(frozen=True)
class Dim:
    """One of a plane's two dimensions: image index = scale * position + step * tap + start.

    place: target index = stride * position + residue, where the window slides (Map).
    """

    position: Axis | None
    tap: Axis | None
    scale: int
    step: int
    start: int

    @property
    def positions(self) -> int:
        """How many positions the window has."""
        return self.position.extent if self.position else 1

    @property
    def offsets(self) -> list[int]:
        """The image index of each tap at position 0."""
        taps = self.tap.extent if self.tap else 1
        return [self.start + self.step * r for r in range(taps)]


@dataclass(frozen=True)
class Window:
    """One sum over windows: `image` and `other` are the factors, `outer` axes choose the plane.

    slides: the window slides (Map), else one element a tap is kept (Sum) and `summed` are the
    axes beside the plane's that are summed over. stride, residue: of the target's last two
    indices along the positions, where the window slides.
    """

    target: tirx.Buffer
    place: tuple[tirx.Expr, ...]
    image: ir.TensorLoad
    other: ir.TensorLoad
    dims: tuple[Dim, Dim]
    outer: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    slides: bool
    stride: tuple[int, int] = (1, 1)
    residue: tuple[int, int] = (0, 0)


def match(stage: Stage) -> list[Window] | None:
    """The windows that `stage` is, one for each residue of its strides; None: it is none."""
    found = products(stage, groups=False)
    if found is None or str(found[0].target.dtype) != "float32":
        return None
    parts = [_window(part) for part in found]
    windows = [p for p in parts if p is not None]
    if len(windows) != len(parts):
        return None
    first = windows[0]
    alike = all(w.slides == first.slides and w.stride == first.stride for w in windows)
    complete = len(windows) == first.stride[0] * first.stride[1]
    return windows if alike and complete else None


def _window(part: Product) -> Window | None:
    live = tuple(a for a in part.axes if a.extent > 1)
    zero = {a.var: tirx.IntImm("int64", 0) for a in part.axes if a.extent == 1}
    place = _simplified(part.place, zero)
    for one, two in (part.factors, part.factors[::-1]):
        if isinstance(one, ir.TensorLoad) and isinstance(two, ir.TensorLoad):
            image, other = _load(one, zero), _load(two, zero)
            found = _roles(part.target, place, image, other, live)
            if found is not None:
                return found
    return None


def _simplified(
    indices: Sequence[tirx.Expr], values: Mapping[tirx.Var, tirx.Expr]
) -> tuple[tirx.Expr, ...]:
    analyzer = sym.Analyzer()
    return tuple(analyzer.simplify(substitute(i, values)) for i in indices)


def _load(load: ir.TensorLoad, values: Mapping[tirx.Var, tirx.Expr]) -> ir.TensorLoad:
    return load.source[_simplified(load.indices, values)] if load.indices else load


def _roles(
    target: tirx.Buffer,
    place: tuple[tirx.Expr, ...],
    image: ir.TensorLoad,
    other: ir.TensorLoad,
    live: tuple[Axis, ...],
) -> Window | None:
    if len(image.indices) < 3 or len(place) < 3:
        return None
    for slides in (True, False):
        dims = [_dim(i, live, slides) for i in image.indices[-2:]]
        if dims[0] is None or dims[1] is None:
            continue
        own = {a for d in dims if d is not None for a in (d.position, d.tap) if a is not None}
        rest = tuple(a for a in live if a not in own)
        window = Window(
            target=target,
            place=place,
            image=image,
            other=other,
            dims=(dims[0], dims[1]),
            outer=tuple(a for a in rest if not a.reduce),
            summed=tuple(a for a in rest if a.reduce),
            slides=slides,
        )
        found = _slid(window) if slides else _kept(window)
        if found is not None:
            return found
    return None


def _dim(index: tirx.Expr, live: Sequence[Axis], slides: bool) -> Dim | None:
    """The dimension that an index of the image walks, where it is one position and one tap."""
    axes = [a for a in live if a.var in variables(index)]
    linear = sym.detect_linear_equation(index, [a.var for a in axes])
    if not linear or not all(isinstance(c, tirx.IntImm) for c in linear):
        return None
    position, tap, scale, step = None, None, 1, 1
    for axis, coefficient in zip(axes, linear, strict=False):
        if axis.reduce != slides:
            if position is not None:
                return None
            position, scale = axis, int(coefficient)
        else:
            if tap is not None:
                return None
            tap, step = axis, int(coefficient)
    dim = Dim(position, tap, scale, step, int(linear[-1]))
    return dim if scale in (1, 2) and min(dim.offsets) >= 0 else None


def _vars(*axes: Axis | None) -> set[tirx.Var]:
    return {a.var for a in axes if a is not None}


def _chosen_by_outer(window: Window) -> bool:
    """Whether outer and summed axes choose the image's plane, and nothing else does."""
    axes = _vars(*window.outer, *window.summed)
    return bool(window.outer) and axes == variables(list(window.image.indices[:-2])) - {
        window.image.source
    }


def _slid(window: Window) -> Window | None:
    rows, columns = window.dims
    if window.summed or not _chosen_by_outer(window):
        return None
    if (rows.tap or columns.tap) is None or (columns.position or rows.position) is None:
        return None
    taps = _vars(*window.outer, rows.tap, columns.tap)
    if not variables(list(window.other.indices)) <= taps:
        return None
    found = [
        _affine(index, dim.position)
        for index, dim in zip(window.place[-2:], window.dims, strict=True)
    ]
    if found[0] is None or found[1] is None or variables(list(window.place[:-2])) - taps:
        return None
    strides, residues = zip(*(f for f in found if f is not None), strict=True)
    if max(strides) > 2 or (max(strides) > 1 and max(rows.scale, columns.scale) > 1):
        return None
    return Window(**{**vars(window), "stride": strides, "residue": residues})


def _affine(index: tirx.Expr, position: Axis | None) -> tuple[int, int] | None:
    """(stride, residue) of an index along the positions of a window."""
    linear = sym.detect_linear_equation(index, [position.var] if position else [])
    if not linear or not all(isinstance(c, tirx.IntImm) for c in linear):
        return None
    if position is None:
        return (1, 0) if int(linear[-1]) == 0 else None
    stride, residue = int(linear[0]), int(linear[-1])
    return (stride, residue) if 0 <= residue < stride else None


def _kept(window: Window) -> Window | None:
    rows, columns = window.dims
    if not _chosen_by_outer(window) or len(window.other.indices) < 3:
        return None
    at = [(rows.position, window.other.indices[-2]), (columns.position, window.other.indices[-1])]
    if not all(_is(index, axis) for axis, index in at):
        return None
    around = _vars(*window.outer, *window.summed)
    if variables(list(window.other.indices[:-2])) - around:
        return None
    taps = [(rows.tap, window.place[-2]), (columns.tap, window.place[-1])]
    return window if all(_is(index, axis) for axis, index in taps) else None


def _is(index: tirx.Expr, axis: Axis | None) -> bool:
    if axis is None:
        return isinstance(index, tirx.IntImm) and int(index) == 0
    return isinstance(index, tirx.Var) and index.same_as(axis.var)
