"""A PrimFunc out of FuseTIR in, its root-level loop nests as `Stage`s out, and back.

    for i, j: Y[i, j] = f(X[i, j])           ->  Stage(axes=(i, j), body=..., store=Y[i, j])

A stage is one block whose iterators are its loops. What has another form (loops over opaque
statements, as sort or scatter write them) is a stage without axes: it is kept as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock, SBlockRealize

from aotrain.schedules.cpu.widen import widen

REDUCE = 2  # IterVar::kCommReduce


@dataclass(frozen=True)
class Axis:
    """One iterator of a block: 0 <= var < extent; `reduce`: it is summed over."""

    var: tirx.Var
    extent: int
    reduce: bool = False


def extents(axes: Sequence[Axis]) -> list[int]:
    """The extents of `axes`."""
    return [a.extent for a in axes]


def named(axes: Sequence[Axis], index: Sequence[tirx.Expr]) -> dict[tirx.Var, tirx.Expr]:
    """The axes' variables, at the values of `index`."""
    return dict(zip([a.var for a in axes], index, strict=True))


@dataclass(frozen=True)
class Stage:
    """A loop nest: `body` (and `init`, before the first reduction step) at each point of `axes`.

    loops: the statement as found. axes: None where the nest is opaque.
    """

    name: str
    loops: tirx.Stmt
    body: tirx.Stmt
    init: tirx.Stmt | None = None
    axes: tuple[Axis, ...] | None = None

    @property
    def spatial(self) -> tuple[Axis, ...]:
        """The axes that are not reduced."""
        return tuple(a for a in self.axes or () if not a.reduce)

    @property
    def reduced(self) -> tuple[Axis, ...]:
        """The axes that are reduced."""
        return tuple(a for a in self.axes or () if a.reduce)

    @property
    def store(self) -> tirx.BufferStore | None:
        """The only statement of the body, where it is a store."""
        return self.body if isinstance(self.body, tirx.BufferStore) else None

    @property
    def pointwise(self) -> bool:
        """Whether the body is a straight line of bindings and stores, run once a point."""
        if self.axes is None or self.reduced or self.init is not None:
            return False
        return all(isinstance(s, (tirx.Bind, tirx.BufferStore)) for s in statements(self.body))


@dataclass(frozen=True)
class Kernel:
    """A PrimFunc as its signature and its stages in order; `temps` are root-level buffers."""

    func: tirx.PrimFunc
    stages: tuple[Stage, ...]
    temps: tuple[tirx.Buffer, ...]

    def with_stages(self, stages: Iterable[Stage]) -> Kernel:
        """The same signature over other stages."""
        return replace(self, stages=tuple(stages))


def statements(body: tirx.Stmt) -> list[tirx.Stmt]:
    """The statements of a body, a sequence or a single one."""
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def sequence(parts: Sequence[tirx.Stmt]) -> tirx.Stmt:
    """One statement out of one or more."""
    flat = [statement for part in parts for statement in statements(part)]
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def parse(func: tirx.PrimFunc) -> Kernel | None:
    """Split `func` into stages; None where its body is no root block."""
    root = func.body
    if not isinstance(root, SBlockRealize) or root.block.iter_vars:
        return None
    if root.block.match_buffers or root.block.init is not None:
        return None
    found = [_stage(s) for s in statements(root.block.body)]
    return Kernel(func, tuple(found), tuple(root.block.alloc_buffers))


def rebuild(
    kernel: Kernel, parts: Sequence[tirx.Stmt], scratch: Sequence[tirx.Buffer] = ()
) -> tirx.PrimFunc:
    """The kernel's PrimFunc with body `parts`; temporaries that no part touches are dropped."""
    body = sequence(parts)
    used = variables(body)
    temps = [t for t in [*kernel.temps, *scratch] if t in used]
    block = SBlock([], [], [], "root", body, None, temps)
    return kernel.func.with_body(SBlockRealize([], tirx.const(True, "bool"), block))


def _stage(statement: tirx.Stmt) -> Stage:
    loops: list[tirx.For] = []
    inner = statement
    while isinstance(inner, tirx.For) and inner.kind == tirx.ForKind.SERIAL:
        loops.append(inner)
        inner = inner.body
    opaque = Stage("opaque", statement, statement)
    if not isinstance(inner, SBlockRealize) or _nested(inner.block):
        return opaque
    axes = _axes(loops, inner)
    if axes is None:
        return replace(opaque, name=inner.block.name_hint)
    block = inner.block
    wide = {a.var: tirx.Var(a.var.name, "int64") for a in axes if str(a.var.ty.dtype) != "int64"}
    body, init = block.body, block.init
    if wide:
        axes = tuple(replace(a, var=wide.get(a.var, a.var)) for a in axes)
        body, init = widen(body, wide), None if init is None else widen(init, wide)
    return Stage(block.name_hint, statement, body, init, axes)


def _nested(block: SBlock) -> bool:
    if block.alloc_buffers or block.match_buffers:
        return True
    return contains(block.body, (SBlock, tirx.For, tirx.While, tirx.AllocBuffer))


def _axes(loops: list[tirx.For], realize: SBlockRealize) -> tuple[Axis, ...] | None:
    """The block's iterators, where each is one of `loops` from 0 or a constant 0."""
    extents = {}
    for loop in loops:
        if not (_constant(loop.min) == 0 and _constant(loop.extent)):
            return None
        extents[loop.loop_var] = _constant(loop.extent)
    if _constant(realize.predicate) != 1:
        return None
    axes = []
    for var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if _constant(value) == 0:
            extent: int | None = 1
        else:
            extent = extents.pop(value, None) if isinstance(value, tirx.Var) else None
        if extent is None or extent != _constant(var.dom.extent):
            return None
        axes.append(Axis(var.var, extent, var.iter_type == REDUCE))
    return None if any(e != 1 for e in extents.values()) else tuple(axes)


def _constant(expr: tirx.Expr) -> int | None:
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def contains(node: object, kinds: type | tuple[type, ...]) -> bool:
    """Whether a node of one of `kinds` occurs in `node`."""
    found: list[bool] = []
    tvm_ffi.structural_walk(node, (kinds, lambda _: found.append(True)))
    return bool(found)


def loads(node: object) -> list[ir.TensorLoad]:
    """Every load in `node`, in order."""
    found: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(node, (ir.TensorLoad, found.append))
    return found


def stores(node: object) -> list[tirx.BufferStore]:
    """Every store in `node`, in order."""
    found: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(node, (tirx.BufferStore, found.append))
    return found


def loads_place(expr: tirx.Expr, store: tirx.BufferStore) -> bool:
    """Whether `expr` is the load of the very element that `store` writes."""
    if not isinstance(expr, ir.TensorLoad) or not expr.source.same_as(store.buffer):
        return False
    pairs = zip(expr.indices, store.indices, strict=True)
    return all(tvm_ffi.structural_equal(a, b) for a, b in pairs)


def variables(expr: object) -> set[tirx.Var]:
    """The variables in `expr`, buffers included."""
    found: set[tirx.Var] = set()
    tvm_ffi.structural_walk(expr, (tirx.Var, found.add))
    return found


def resolved(expr: tirx.Expr, axes: Iterable[Axis]) -> tirx.Expr:
    """`expr` without the conditions that always hold, as those of a window that fits exactly."""
    analyzer = sym.Analyzer()
    for axis in axes:
        bounds = (tirx.IntImm("int64", 0), tirx.IntImm("int64", axis.extent))
        analyzer.bind(axis.var, ir.Range(*bounds))

    def branch(call: ir.Call) -> tirx.Expr:
        if getattr(call.op, "name", "").rpartition(".")[2] != "if_then_else":
            return call
        condition, value, _ = call.args
        return value if analyzer.can_prove(condition) else call

    return tvm_ffi.structural_map(expr, (ir.Call, branch))


def shifted(node: object) -> set[tirx.Var]:
    """Variables under a quotient or remainder of a sum with a constant: h in (h + 1) // 2."""
    found: set[tirx.Var] = set()

    def visit(division: tirx.FloorDiv | tirx.FloorMod) -> None:
        if contains(division.a, (tirx.Add, tirx.Sub)) and contains(division.a, tirx.IntImm):
            found.update(variables(division.a))

    tvm_ffi.structural_walk(node, ((tirx.FloorDiv, tirx.FloorMod), visit))
    return found


def substitute(node: tirx.Stmt | tirx.Expr, values: Mapping[tirx.Var, tirx.Expr]) -> object:
    """`node` with variables replaced, each value cast to its variable's type.

    What `Let`s in `node` define gets names of its own: the result often stands beside `node` with
    other values, and TVM's analyzers know one value for a variable.
    """
    if not values:
        return node
    own = {let.var: tirx.Var(let.var.name, str(let.var.ty.dtype)) for let in lets(node)}

    def value_of(var: tirx.Var) -> tirx.Expr:
        value = own.get(var, values.get(var))
        return var if value is None else value.astype(str(var.ty.dtype))

    return tvm_ffi.structural_map(node, (tirx.Var, value_of))


def lets(node: tirx.Stmt | tirx.Expr) -> list[tirx.Let]:
    """The `Let` expressions in `node`."""
    found: list[tirx.Let] = []
    tvm_ffi.structural_walk(node, (tirx.Let, found.append))
    return found


def replace_loads(node: tirx.Stmt | tirx.Expr, values: Mapping[tirx.Buffer, tirx.Expr]) -> object:
    """`node` with every load of a buffer in `values` replaced by its value."""
    if not values:
        return node
    return tvm_ffi.structural_map(node, (ir.TensorLoad, lambda load: values.get(load.source, load)))
