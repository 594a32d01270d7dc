"""A stage that pads with zeros in, where its output comes from out; reads of the padding trimmed.

p[.., i, j] = x[.., i - a, j - b] if inside else 0
    sum_k d[k] * p[.., 2 k + 1]      ->     sum over the k that read x, of d[k] * x[.., 2 k + 1 - b]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tvm import ir, sym, tirx

from aotrain.schedules.cpu.group import is_identity
from aotrain.schedules.cpu.loops import i64
from aotrain.schedules.cpu.nest import Axis, Stage, substitute, variables
from aotrain.schedules.cpu.pointwise import name_of


@dataclass(frozen=True)
class Source:
    """Where an image comes from: element (i, j) of a plane is `load` there, or zero.

    indices: the variables for outer indices, i and j. rows, columns: the ranges where it is `load`.
    """

    load: ir.TensorLoad
    indices: tuple[tirx.Var, ...]
    rows: range
    columns: range

    def at(self, place: Sequence[tirx.Expr]) -> tirx.Expr:
        """The element at a place inside the ranges."""
        return substitute(self.load, dict(zip(self.indices, place, strict=True)))


def whole(image: tirx.Buffer) -> Source:
    """An image read where it is."""
    shape = [int(n) for n in image.shape]
    indices = tuple(tirx.Var("i", "int64") for _ in shape)
    return Source(image[indices], indices, range(shape[-2]), range(shape[-1]))


def padded(stage: Stage) -> Source | None:
    """An image that `stage` pads with zeros on its last two axes; None: it does something else."""
    store, axes = stage.store, stage.spatial
    if store is None or not stage.pointwise or len(axes) < 3 or not is_identity(store, axes):
        return None
    value = store.value
    if not isinstance(value, ir.Call) or name_of(value) != "if_then_else":
        return None
    condition, load, zero = value.args
    if not isinstance(load, ir.TensorLoad) or not isinstance(zero, tirx.FloatImm) or zero.value:
        return None
    inside = [_inside(condition, axis.var, axis.extent) for axis in axes[-2:]]
    if inside[0] is None or inside[1] is None or not _only(condition, axes[-2].var, axes[-1].var):
        return None
    return Source(load, tuple(a.var for a in axes), inside[0], inside[1])


def _conjuncts(condition: tirx.Expr) -> list[tirx.Expr]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _only(condition: tirx.Expr, *axes: tirx.Var) -> bool:
    """Whether every part of `condition` is a bound of one of `axes`."""
    bounds = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)
    return all(
        isinstance(part, bounds) and len(variables(part)) == 1 and variables(part) <= set(axes)
        for part in _conjuncts(condition)
    )


def _inside(condition: tirx.Expr, axis: tirx.Var, extent: int) -> range | None:
    """Where the parts of `condition` on `axis` hold, if that is one range."""
    parts = [part for part in _conjuncts(condition) if variables(part) == {axis}]
    analyzer = sym.Analyzer()
    held = [
        i
        for i in range(extent)
        if all(bool(int(analyzer.simplify(substitute(p, {axis: i64(i)})))) for p in parts)
    ]
    if not held or held != list(range(held[0], held[-1] + 1)):
        return None
    return range(held[0], held[-1] + 1)


Paddings: TypeAlias = Mapping[tirx.Buffer, Source]
"""Padded buffers, and where they come from."""


def reads_padding(factors: Sequence[tirx.Expr], axis: Axis, paddings: Paddings) -> bool:
    """Whether `axis` walks one of the two padded dimensions of a padded buffer."""
    return any(
        isinstance(factor, ir.TensorLoad)
        and factor.source in paddings
        and axis.var in variables(list(factor.indices[-2:]))
        for factor in factors
    )


def trim(
    factors: tuple[tirx.Expr, tirx.Expr], axes: Sequence[Axis], paddings: Paddings
) -> tuple[tuple[tirx.Expr, tirx.Expr], tuple[Axis, ...]]:
    """A product's factors and axes, its reduced axes shortened to what reads no padding.

    A factor that then reads no padding at all reads the source.
    """
    for factor in factors:
        if isinstance(factor, ir.TensorLoad) and factor.source in paddings:
            axes = _shortened(factor, axes, paddings[factor.source])
    first, second = (_unpadded(factor, axes, paddings) for factor in factors)
    return (first, second), tuple(axes)


def _shortened(load: ir.TensorLoad, axes: Sequence[Axis], source: Source) -> Sequence[Axis]:
    for index, inside in zip(load.indices[-2:], (source.rows, source.columns), strict=True):
        walked = [a for a in axes if a.var in variables(index)]
        if any(not a.reduce for a in walked) or len(walked) > 1:
            continue
        extent = walked[0].extent if walked else 1
        held = [k for k in range(extent) if _value(index, walked, k) in inside]
        if not held:  # nothing but zeros: one of them is the sum
            return [replace(a, extent=1) if a.reduce else a for a in axes]
        if held == list(range(len(held))) and walked:
            axes = [replace(a, extent=len(held)) if a is walked[0] else a for a in axes]
    return axes


def _value(index: tirx.Expr, walked: Sequence[Axis], k: int) -> int | None:
    value = sym.Analyzer().simplify(substitute(index, {a.var: i64(k) for a in walked}))
    return int(value) if isinstance(value, tirx.IntImm) else None


def _unpadded(factor: tirx.Expr, axes: Sequence[Axis], paddings: Paddings) -> tirx.Expr:
    if not isinstance(factor, ir.TensorLoad) or factor.source not in paddings:
        return factor
    source = paddings[factor.source]
    analyzer = sym.Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, ir.Range(i64(0), i64(axis.extent)))
    for index, inside in zip(factor.indices[-2:], (source.rows, source.columns), strict=True):
        held = tirx.all(index >= i64(inside.start), index < i64(inside.stop))
        if not analyzer.can_prove(held):
            return factor
    load = source.at(factor.indices)
    assert isinstance(load, ir.TensorLoad)
    return load.source[tuple(analyzer.simplify(i) for i in load.indices)]
