"""Stages in, groups of pointwise stages over one index space out, to be emitted as one loop body.

    for i: t[i] = x[i] * 2                      for i:
    for i: y[i] = erf(t[i]) + t[i]      ->          t = x[i] * 2; y = erf(t) + t
                                                    y[i] = y        (t[i] only if read elsewhere)

Every value of a point is computed before the first is stored, so that an output may share the bytes
of an input of the same element. Copies (transposes, reshapes, broadcasts) go into their readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm_ffi
from tvm import ir, tirx

from aotrain.schedules.cpu.nest import (
    Axis,
    Kernel,
    Stage,
    loads,
    named,
    replace_loads,
    statements,
    stores,
    substitute,
    variables,
)


@dataclass(frozen=True)
class Group:
    """Pointwise stages over one index space, in order; `unread` buffers need not be stored."""

    stages: tuple[Stage, ...]
    unread: frozenset[tirx.Buffer] = field(default_factory=frozenset)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the first stage; those of the others correspond."""
        return self.stages[0].spatial

    @property
    def extents(self) -> tuple[int, ...]:
        """The index space."""
        return tuple(a.extent for a in self.axes)

    @property
    def written(self) -> set[tirx.Buffer]:
        """The buffers that the stages write, stored or not."""
        return {store.buffer for stage in self.stages for store in stores(stage.body)}

    def at(
        self, index: Sequence[tirx.Expr], known: Mapping[tirx.Buffer, tirx.Expr] | None = None
    ) -> list[tirx.Stmt]:
        """Compute and store everything of one point; `known` gives elements already at hand."""
        values = dict(known or {})
        pending: list[tuple[tirx.Var, tirx.Expr]] = []
        computed: list[tirx.Stmt] = []
        stored: list[tirx.Stmt] = []

        def name(value: tirx.Expr) -> tirx.Expr:
            if isinstance(value, _ATOMS) or str(value.ty.dtype) == "bool":
                return value
            pending.append((tirx.Var("t", str(value.ty.dtype)), value))
            return pending[-1][0]

        for stage in self.stages:
            names = named(stage.spatial, index)
            for statement in statements(stage.body):
                value = substitute(replace_loads(statement.value, values), names)
                if isinstance(statement, tirx.Bind):
                    names[statement.var] = name(value)
                    continue
                if statement.buffer in self.unread:
                    values[statement.buffer] = name(value)
                    continue
                values[statement.buffer] = value = _settle(_with_lets(value, pending), computed)
                place = [substitute(i, names) for i in statement.indices]
                stored.append(tirx.BufferStore(statement.buffer, value, place))
        # TVM cannot bind a vector of bool: those are computed where they are stored, first.
        stored.sort(key=lambda store: str(store.buffer.dtype) != "bool")
        return computed + stored

    def unified(self) -> list[tirx.Stmt]:
        """The body over `axes`, for analysis."""
        return self.at([a.var for a in self.axes])


_ATOMS = (tirx.Var, tirx.IntImm, tirx.FloatImm)


def _with_lets(value: tirx.Expr, pending: Sequence[tuple[tirx.Var, tirx.Expr]]) -> tirx.Expr:
    """`value` with the names in it defined, by variables of its own.

    Expressions, not `Bind` statements: TVM's simplifier copies a bound value that loads nothing
    into every use, which doubles the code at each step of a chain.
    """
    needed = variables(value)
    chosen: list[tuple[tirx.Var, tirx.Expr]] = []
    for var, definition in reversed(pending):
        if var in needed:
            chosen.append((var, definition))
            needed |= variables(definition)
    own = {var: tirx.Var(var.name, str(definition.ty.dtype)) for var, definition in chosen}
    result = substitute(value, own)
    for var, definition in chosen:
        result = tirx.Let(own[var], substitute(definition, own), result)
    return result


def _settle(value: tirx.Expr, computed: list[tirx.Stmt]) -> tirx.Expr:
    """Bind a value that is to be stored, so that it is computed before anything is stored."""
    if isinstance(value, _ATOMS) or not loads(value) or str(value.ty.dtype) == "bool":
        return value
    var = tirx.Var("t", str(value.ty.dtype))
    computed.append(tirx.Bind(var, value))
    return var


def is_identity(access: ir.TensorLoad | tirx.BufferStore, axes: Sequence[Axis]) -> bool:
    """Whether an access is at the element of its point: one axis an index, in order."""
    if len(access.indices) != len(axes):
        return False
    return all(
        _is_zero(index)
        if axis.extent == 1 and not isinstance(index, tirx.Var)
        else isinstance(index, tirx.Var) and index.same_as(axis.var)
        for index, axis in zip(access.indices, axes, strict=True)
    )


def _is_zero(index: tirx.Expr) -> bool:
    return isinstance(index, tirx.IntImm) and index.value == 0


def inline_copies(kernel: Kernel) -> Kernel:
    """Replace reads of a temporary that only moves elements by reads of its source."""
    outputs = set(kernel.func.params)
    stages = list(kernel.stages)
    position = 0
    while position < len(stages):
        stage = stages[position]
        if _is_copy(stage, outputs) and _inline(stages, position):
            del stages[position]
        else:
            position += 1
    return kernel.with_stages(stages)


def _is_copy(stage: Stage, outputs: set[tirx.Var]) -> bool:
    store = stage.store
    if store is None or not stage.pointwise or store.buffer in outputs:
        return False
    if not is_identity(store, stage.spatial):
        return False
    return isinstance(store.value, (ir.TensorLoad, tirx.FloatImm, tirx.IntImm))


def _inline(stages: list[Stage], position: int) -> bool:
    """Inline stage `position` into all its readers, where all are understood."""
    copy = stages[position].store
    assert copy is not None
    axes = stages[position].spatial
    readers = [
        i for i, s in enumerate(stages) if i != position and copy.buffer in variables(s.loops)
    ]
    if any(stages[i].axes is None for i in readers):
        return False
    sources = {load.source for load in loads(copy.value)}
    after = stages[position + 1 :]
    if any(sources & {s.buffer for s in stores(stage.loops)} for stage in after):
        return False  # the source is overwritten before it is read

    def moved(load: ir.TensorLoad) -> tirx.Expr:
        if not load.source.same_as(copy.buffer):
            return load
        return substitute(copy.value, named(axes, load.indices))

    for i in readers:
        stage = stages[i]
        body, init = (
            None if part is None else tvm_ffi.structural_map(part, (ir.TensorLoad, moved))
            for part in (stage.body, stage.init)
        )
        stages[i] = Stage(stage.name, sequence_of(body, init), body, init, stage.axes)
    return True


def sequence_of(body: tirx.Stmt, init: tirx.Stmt | None) -> tirx.Stmt:
    """What stands for a rewritten stage's statement when its reads are asked for."""
    return body if init is None else tirx.SeqStmt([init, body])


def group(kernel: Kernel) -> list[Stage | Group]:
    """Join each run of pointwise stages over one index space, where points do not depend."""
    parts: list[Stage | Group] = []
    for stage in kernel.stages:
        last = parts[-1] if parts else None
        if not stage.pointwise:
            parts.append(stage)
        elif isinstance(last, Group) and _fits(last, stage):
            parts[-1] = Group((*last.stages, stage))
        else:
            parts.append(Group((stage,)))
    return [_without_unread(part, position, parts, kernel) for position, part in enumerate(parts)]


def _fits(last: Group, stage: Stage) -> bool:
    if last.extents != tuple(a.extent for a in stage.spatial):
        return False
    own = {s.buffer for s in stores(stage.body)}
    read_before = {load.source for s in last.stages for load in loads(s.body)}
    if own & (read_before | last.written):
        return False
    for s in last.stages:
        if not all(is_identity(store, s.spatial) for store in stores(s.body)):
            return False
    linked = [load for load in loads(stage.body) if load.source in last.written]
    return all(is_identity(load, stage.spatial) for load in linked)


def _without_unread(
    part: Stage | Group, position: int, parts: Sequence[Stage | Group], kernel: Kernel
) -> Stage | Group:
    if isinstance(part, Stage):
        return part
    needed = set(kernel.func.params)
    for other, reader in enumerate(parts):
        if other != position:
            stages = reader.stages if isinstance(reader, Group) else (reader,)
            needed.update(*(variables(s.loops) for s in stages))
    return Group(part.stages, frozenset(part.written - needed))
