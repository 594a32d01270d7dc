"""A scalar operand in, its reads by a table of offsets out: one loop over a deep, narrow depth.

    for c: for r: for s: x[n, c, p+r, q+s]     ->   for k: x[n, 0, p, q + offset[k]]

Loops of three or five iterations cost more than their bodies' worth: LLVM unrolls them and keeps
what neighbouring iterations share in registers that the tile's sums need. (M. Dukhan, "The Indirect
Convolution Algorithm", 2019, with offsets in place of pointers, so that all tiles share them.)

Not handled: an operand that is computed, or whose address is not linear in the axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import ir, tirx

from aotrain.schedules.cpu import affine
from aotrain.schedules.cpu.contraction import Contraction
from aotrain.schedules.cpu.loops import i64, nest
from aotrain.schedules.cpu.nest import Axis, extents, named, substitute

#: A loop of this many iterations is not unrolled away, and costs little itself.
LONG = 64


@dataclass(frozen=True)
class Offsets:
    """The innermost depth axes as one: table[k] are elements from the operand at inner = 0.

    operand: a load; outer, inner: the axes of depth.
    """

    operand: ir.TensorLoad
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    table: tirx.Buffer

    @property
    def count(self) -> int:
        """Entries of the table."""
        return prod(extents(self.inner))

    def fill(self) -> tirx.Stmt:
        """The statement that writes the table."""
        steps = affine.strides(self.operand, self.inner)
        assert steps is not None

        def entry(index: list[tirx.Expr]) -> list[tirx.Stmt]:
            sizes = extents(self.inner)
            place = sum((i * i64(prod(sizes[a + 1 :])) for a, i in enumerate(index)), i64(0))
            value = sum((i * i64(n) for i, n in zip(index, steps, strict=True)), i64(0))
            return [tirx.BufferStore(self.table, value.astype("int32"), [place])]

        return nest(extents(self.inner), entry)

    def read(self, at: dict[tirx.Var, tirx.Expr], position: tirx.Expr) -> tirx.Expr:
        """The operand where the other axes are `at`, at entry `position` of the table."""
        start = named(self.inner, [i64(0)] * len(self.inner))
        *leading, last = (substitute(i, {**at, **start}) for i in self.operand.indices)
        place = (*leading, last + self.table[position].astype("int64"))
        return self.operand.source[place]


def offsets(c: Contraction) -> Offsets | None:
    """A table for the scalar operand of `c`; None where plain loops over depth do."""
    live = [a for a in c.depth if a.extent > 1]
    axes = [*c.batch, *c.rows, *c.depth]
    if len(live) < 2 or live[-1].extent >= LONG or not isinstance(c.scalar, ir.TensorLoad):
        return None
    if affine.strides(c.scalar, axes) is None or len(affine.merge(c.depth, [c.scalar])) == 1:
        return None
    first = len(c.depth) - 1
    while first and prod(extents(c.depth[first:])) < LONG:
        first -= 1
    inner = c.depth[first:]
    table = tirx.decl_buffer((prod(extents(inner)),), "int32", f"{c.name}_offsets")
    return Offsets(c.scalar, c.depth[:first], inner, table)
