"""A stage that sums products in, what it is as matrix multiplications out.

    C[b, i, j] += A[b, i, k] * B[k, j]                       rows i, lanes j, batch b, depth k
    Y[n, k, p, q] += X[n, c, p+r, q+s] * W[k, c, r, s]     rows k, lanes (n, p, q), depth (c, r, s)

Every axis has one role. Spatial axes in one factor only are its free axes: those of one factor
become rows (scalars, broadcast), those of the other lanes (vectors); spatial axes in both are
batch; reduced axes are depth. Two forms are opened first, by splitting an axis a:

    a // q, a % q with q dividing the extent (groups)         a -> (g, i), a = g q + i
    (a + c) // s, (a + c) % s (a strided convolution's input gradient, sub-pixel form)
                                                              one contraction for each residue

Sums over what is known to be padding are left out.
Not handled: sums of other products than two factors' (they are left to the reduction rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import tvm_ffi
from tvm import ir, sym, tirx

from aotrain.schedules.cpu.loops import i64
from aotrain.schedules.cpu.nest import (
    Axis,
    Stage,
    loads,
    loads_place,
    shifted,
    stores,
    substitute,
    variables,
)
from aotrain.schedules.cpu.padding import Paddings, reads_padding, trim


@dataclass(frozen=True)
class Contraction:
    """target[place] = sum over depth of scalar x vector, for all batch, rows and lanes.

    scalar and vector are expressions of the axes; place: index of `target`, of batch, rows, lanes.
    """

    name: str
    target: tirx.Buffer
    scalar: tirx.Expr
    vector: tirx.Expr
    place: tuple[tirx.Expr, ...]
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    lanes: tuple[Axis, ...]
    depth: tuple[Axis, ...]

    @property
    def macs(self) -> int:
        """Multiplications."""
        axes = (*self.batch, *self.rows, *self.lanes, *self.depth)
        return prod(a.extent for a in axes)

    def swapped(self) -> Contraction:
        """The transposed problem: lanes become rows."""
        return replace(
            self, scalar=self.vector, vector=self.scalar, rows=self.lanes, lanes=self.rows
        )


@dataclass(frozen=True)
class Product:
    """A sum of two factors' products over the reduced ones of `axes`, which have no roles yet."""

    target: tirx.Buffer
    place: tuple[tirx.Expr, ...]
    factors: tuple[tirx.Expr, tirx.Expr]
    axes: tuple[Axis, ...]


def match(stage: Stage, paddings: Paddings | None = None) -> list[Contraction] | None:
    """The contractions that `stage` is, one for each residue of its strides; None: it is none."""
    found = products(stage, paddings=paddings)
    if found is None:
        return None
    parts = [_with_roles(stage.name, part) for part in found]
    return None if any(p is None for p in parts) else [p for p in parts if p is not None]


def products(
    stage: Stage, groups: bool = True, paddings: Paddings | None = None
) -> list[Product] | None:
    """The sums of products that `stage` is, without quotients of axes; None: it is none.

    groups: open a // q as groups where it can be, else as residues.
    """
    found = _product(stage)
    return None if found is None else _open(found, groups, paddings or {})


def _product(stage: Stage) -> Product | None:
    store = stage.store
    if store is None or not stage.reduced or str(store.buffer.dtype) not in ("float32", "float64"):
        return None
    if not _starts_at_zero(stage, store) or not isinstance(store.value, tirx.Add):
        return None
    old, term = store.value.a, store.value.b
    if not loads_place(old, store):
        old, term = term, old
    if not loads_place(old, store) or not isinstance(term, tirx.Mul):
        return None
    factors = (term.a, term.b)
    dtype = str(store.buffer.dtype)
    plain = all(str(f.ty.dtype) == dtype and _is_simple(f, store.buffer) for f in factors)
    axes = stage.axes or ()
    return Product(store.buffer, tuple(store.indices), factors, axes) if plain else None


def _is_simple(factor: tirx.Expr, target: tirx.Buffer) -> bool:
    found = loads(factor)
    return bool(found) and not any(load.source.same_as(target) for load in found)


def _starts_at_zero(stage: Stage, store: tirx.BufferStore) -> bool:
    starts = stores(stage.init) if stage.init is not None else []
    if len(starts) != 1 or not starts[0].buffer.same_as(store.buffer):
        return False
    value = starts[0].value
    return isinstance(value, tirx.FloatImm) and value.value == 0


def _with_roles(name: str, part: Product) -> Contraction | None:
    first, second = (variables(f) for f in part.factors)
    if shifted(list(part.factors)):
        return None
    roles: dict[str, list[Axis]] = {"batch": [], "rows": [], "lanes": [], "depth": []}
    for axis in part.axes:
        in_first, in_second = axis.var in first, axis.var in second
        if axis.reduce:
            roles["depth"].append(axis)
        elif in_first and not in_second and axis.extent > 1:
            roles["rows"].append(axis)
        elif in_second and not in_first and axis.extent > 1:
            roles["lanes"].append(axis)
        else:
            roles["batch"].append(axis)
    if not roles["rows"] and not roles["lanes"]:
        return None
    groups = {key: tuple(axes) for key, axes in roles.items()}
    return Contraction(name, part.target, *part.factors, part.place, **groups)


def _open(found: Product, groups: bool, paddings: Paddings) -> list[Product]:
    """Split the axes whose quotients and remainders hide a product's structure."""
    for axis in found.axes:
        if axis.reduce:
            continue
        divisions = _divisions(found, axis)
        moduli = {q for q, _ in divisions}
        if len(moduli) != 1:
            continue
        (q,) = moduli
        aligned = axis.extent % q == 0 and all(shift == 0 for _, shift in divisions)
        if groups and q > 1 and aligned and not reads_padding(found.factors, axis, paddings):
            if q < axis.extent:
                return _open(_split_groups(found, axis, q), groups, paddings)
        elif 1 < q <= 4:
            parts = _split_residues(found, axis, q)
            return [p for part in parts for p in _open(part, groups, paddings)]
    factors, axes = trim(found.factors, found.axes, paddings)
    return [replace(found, factors=factors, axes=axes)]


def _divisions(found: Product, axis: Axis) -> set[tuple[int, int]]:
    """(q, c) for every (axis + c) // q and (axis + c) % q in the factors."""
    result: set[tuple[int, int]] = set()

    def visit(node: tirx.FloorDiv | tirx.FloorMod) -> None:
        if variables(node.a) != {axis.var} or not isinstance(node.b, tirx.IntImm):
            return
        linear = sym.detect_linear_equation(node.a, [axis.var])
        if linear and all(isinstance(c, tirx.IntImm) for c in linear) and int(linear[0]) == 1:
            result.add((int(node.b), int(linear[1])))

    tvm_ffi.structural_walk(list(found.factors), ((tirx.FloorDiv, tirx.FloorMod), visit))
    return result


def _rewritten(found: Product, axis: Axis, value: tirx.Expr, new: Sequence[Axis]) -> Product:
    """`found` with `axis` computed from the axes `new`."""
    analyzer = sym.Analyzer()
    for a in new:
        analyzer.bind(a.var, _range(a.extent))
    for a in found.axes:
        if a is not axis:
            analyzer.bind(a.var, _range(a.extent))

    def at(expr: tirx.Expr) -> tirx.Expr:
        return _simplify_indices(substitute(expr, {axis.var: value}), analyzer)

    position = found.axes.index(axis)
    axes = (*found.axes[:position], *new, *found.axes[position + 1 :])
    place = tuple(analyzer.simplify(substitute(i, {axis.var: value})) for i in found.place)
    return Product(found.target, place, (at(found.factors[0]), at(found.factors[1])), axes)


def _simplify_indices(expr: tirx.Expr, analyzer: sym.Analyzer) -> tirx.Expr:
    def simplified(load: ir.TensorLoad) -> ir.TensorLoad:
        return load.source[tuple(analyzer.simplify(i) for i in load.indices)]

    return tvm_ffi.structural_map(expr, (ir.TensorLoad, simplified))


def _range(extent: int) -> ir.Range:
    return ir.Range(tirx.IntImm("int64", 0), tirx.IntImm("int64", extent))


def _split_groups(found: Product, axis: Axis, q: int) -> Product:
    outer = Axis(tirx.Var("g", "int64"), axis.extent // q)
    inner = Axis(tirx.Var("i", "int64"), q)
    return _rewritten(found, axis, outer.var * q + inner.var, (outer, inner))


def _split_residues(found: Product, axis: Axis, q: int) -> list[Product]:
    parts = []
    for residue in range(min(q, axis.extent)):
        inner = Axis(tirx.Var("u", "int64"), -(-(axis.extent - residue) // q))
        parts.append(_rewritten(found, axis, inner.var * q + residue, (inner,)))
    return parts


def blocked(c: Contraction, count: int, block: tirx.Var) -> Contraction:
    """One of `count` equal parts of the depth: `block` is its number, the outermost axis cut."""
    outer = c.depth[0]
    inner = Axis(tirx.Var(outer.var.name, "int64"), outer.extent // count, outer.reduce)
    place = {outer.var: block * i64(inner.extent) + inner.var}
    scalar, vector = substitute(c.scalar, place), substitute(c.vector, place)
    return replace(c, scalar=scalar, vector=vector, depth=(inner, *c.depth[1:]))
