"""A group that reads at quotients of its innermost axis in, rows read ahead and plain reads out.

    for w: y[h, w] = x[h // 2, w // 2]    ->    for q: row[2 q] = row[2 q + 1] = x[h // 2, q]
                                                for w: y[h, w] = row[w]

A vector of quotients is no vector in memory: its elements would be loaded one by one, each at an
address of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm_ffi
from tvm import ir, tirx

from aotrain.schedules.cpu.group import Group
from aotrain.schedules.cpu.loops import i64, loop
from aotrain.schedules.cpu.nest import Axis, Stage, named, substitute, variables

#: Elements of a row beyond which it would not stay in the first-level cache with its neighbours.
MOST = 2048


@dataclass(frozen=True)
class Row:
    """`load`, which reads at lane // times, for all of the lane axis; axes: those of its stage."""

    load: ir.TensorLoad
    axes: tuple[Axis, ...]
    position: int
    times: int
    buffer: tirx.Buffer

    def fill(self, at: Sequence[tirx.Expr]) -> list[tirx.Stmt]:
        """Read the row where the axes are `at`; the lane's own value does not count."""
        names = named(self.axes, at)

        def read(q: tirx.Expr) -> list[tirx.Stmt]:
            place = [substitute(i, names) for i in self.load.indices[:-1]]
            cell = (*place, q)
            value = self.load.source[cell]
            var = tirx.Var("r", str(value.ty.dtype))
            cells = [q * i64(self.times) + i64(r) for r in range(self.times)]
            return [
                tirx.Bind(var, value),
                *(tirx.BufferStore(self.buffer, var, [c]) for c in cells),
            ]

        extent = self.axes[self.position].extent // self.times
        return [tirx.AllocBuffer(self.buffer), loop(extent, read)]


def spread(group: Group, lane: Axis) -> tuple[Group, list[Row]]:
    """`group` with its reads at quotients of `lane`, an axis of its first stage, from rows."""
    position = group.axes.index(lane)
    rows: list[Row] = []

    def stage_of(stage: Stage) -> Stage:
        axis = stage.spatial[position]

        def read(load: ir.TensorLoad) -> ir.TensorLoad:
            times = _times(load, axis)
            if not times or load.source in group.written:
                return load
            known = (r for r in rows if tvm_ffi.structural_equal(r.load, load))
            row = next(known, None)
            if row is None:
                buffer = tirx.decl_buffer((axis.extent,), str(load.ty.dtype), "row", scope="local")
                row = Row(load, stage.spatial, position, times, buffer)
                rows.append(row)
            return row.buffer[axis.var]

        return replace(stage, body=tvm_ffi.structural_map(stage.body, (ir.TensorLoad, read)))

    return replace(group, stages=tuple(stage_of(s) for s in group.stages)), rows


def _times(load: ir.TensorLoad, axis: Axis) -> int:
    """n where the last index is axis // n, and no other one knows the axis; else 0."""
    *outer, last = load.indices or [None]
    if not isinstance(last, tirx.FloorDiv) or not isinstance(last.b, tirx.IntImm):
        return 0
    if not isinstance(last.a, tirx.Var) or not last.a.same_as(axis.var):
        return 0
    if axis.var in variables(outer) or axis.extent > MOST:
        return 0
    times = int(last.b)
    return times if 1 < times <= 4 and axis.extent % times == 0 else 0
