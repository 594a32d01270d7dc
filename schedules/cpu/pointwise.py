"""A group of pointwise stages in, one vector loop nest that streams memory once out.

    for n, c, h, w: y[n,c,h,w] = max(x[n,c,h,w] + b[c], 0)
    ->  for task in parallel(N): for c: for v in H*W/16: y[.., v*16 : +16] = ...

Axes that every access walks together are merged; the innermost is vectorised with a remainder, the
leading ones run in parallel. A condition on the innermost axis (padding, concatenation) splits that
axis into segments in which it is constant, so that no lane branches.

Not vectorised: bodies with a condition on lanes that is no comparison with a constant.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import pairwise
from math import prod

import tvm_ffi
from tvm import ir, sym, tirx

from aotrain.schedules.cpu import affine
from aotrain.schedules.cpu.group import Group
from aotrain.schedules.cpu.isa import Isa
from aotrain.schedules.cpu.loops import (
    PARALLEL_WORK,
    TASKS,
    NestBody,
    decode,
    decode_cancelling,
    i64,
    nest,
    parallel,
    parallel_nest,
    vectors,
)
from aotrain.schedules.cpu.nest import (
    Axis,
    Stage,
    loads,
    sequence,
    shifted,
    stores,
    substitute,
    variables,
)
from aotrain.schedules.cpu.spread import spread

Comparison = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
#: Segments of the innermost axis beyond which a scalar loop is better.
MAX_SEGMENTS = 6
#: Calls that TVM and LLVM vectorise, or that vector_math replaces by what they do.
VECTOR_CALLS = {
    *("exp", "log", "tanh", "erf", "sigmoid", "sqrt", "rsqrt", "fabs", "pow", "log2", "log10"),
    *("log1p", "exp2", "sin", "cos", "fma", "floor", "ceil", "round", "nearbyint", "trunc"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right"),
    *("reinterpret", "isnan", "likely", "if_then_else"),
}


def name_of(call: ir.Call) -> str:
    """The called intrinsic's name without its dialect: `tirx.exp`, `prim.if_then_else`."""
    return str(getattr(call.op, "name", "")).rpartition(".")[2]


def emit(group: Group, isa: Isa, parameters: Set[tirx.Buffer] = frozenset()) -> tirx.Stmt:
    """The loop nest of `group`; `parameters` are those of the function."""
    axes = group.axes
    if not axes:
        return sequence(group.at([]))
    body = group.unified()
    accesses = [*loads(body), *stores(body)]
    conditions = _conditions(body)
    dims = affine.merge(axes, accesses, variables(conditions) & {a.var for a in axes})
    split = decode_cancelling if _may_cancel(accesses, dims, parameters) else decode
    lane = dims[-1]
    segments = _segments(conditions, lane)
    work = prod(group.extents) * _operations(body)
    extents = [prod(a.extent for a in dim) for dim in dims]

    def values(index: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        at: list[tirx.Expr] = []
        for flat, dim in zip(index, dims, strict=True):
            at += split(flat, [a.extent for a in dim])
        return at

    def point(index: Sequence[tirx.Expr], part: Group) -> list[tirx.Stmt]:
        return part.at(values(index))

    def row(index: list[tirx.Expr]) -> list[tirx.Stmt]:
        if segments is None:
            return vectors(extents[-1], 1, lambda i: point([*index, i], group))
        plain, ahead = spread(group, lane[0]) if len(lane) == 1 else (group, [])
        result = [s for r in ahead for s in r.fill(values([*index, i64(0)]))]
        for low, high in segments:
            part = _resolved(plain, lane, low)
            lanes = isa.lanes if _vectorises(part, lane) else 1
            result += vectors(
                high - low, lanes, lambda i, part=part: point([*index, i], part), i64(low)
            )
        return result

    alone = shifted(body)
    free = [not alone & {a.var for a in dim} for dim in dims]
    most = free.index(False) if False in free else len(dims)
    if (
        len(segments or ()) == 1
        and prod(extents[:-1]) < TASKS
        and work >= PARALLEL_WORK
        and free[-1]
    ):
        lanes = isa.lanes if _vectorises(group, lane) else 1
        if extents[-1] >= lanes:
            return _chunked(extents, lanes, lambda index: point(index, group))
    return parallel_nest(extents[:-1], work, row, most)


def _chunked(extents: Sequence[int], lanes: int, point: NestBody) -> tirx.Stmt:
    """Few long rows: share each row's vectors among threads too."""
    outer, length = list(extents[:-1]), extents[-1]
    count = max(1, min(TASKS * 2 // prod(outer), length // (lanes * 16)))
    size = length // count // lanes * lanes
    grid = [*outer, count]

    def task(flat: tirx.Expr) -> list[tirx.Stmt]:
        *index, chunk = decode(flat, grid)
        return vectors(size, lanes, lambda i: point([*index, i]), chunk * i64(size))

    parts = [parallel(prod(grid), task)]
    rest = length - size * count
    if rest:
        tail = lambda index: vectors(  # noqa: E731
            rest, lanes, lambda i: point([*index, i]), i64(size * count)
        )
        parts.append(nest(outer, tail))
    return sequence(parts)


def _may_cancel(
    accesses: Sequence[affine.Access], dims: Sequence[Sequence[Axis]], parameters: Set[tirx.Buffer]
) -> bool:
    """Whether no buffer of the function's own is indexed by a part of a merged dimension."""
    merged = {a.var for dim in dims if len(dim) > 1 for a in dim if a.extent > 1}
    own = [access for access in accesses if affine.buffer_of(access) not in parameters]
    return not any(variables(list(access.indices)) & merged for access in own)


def _operations(body: Sequence[tirx.Stmt]) -> int:
    """Scalar operations a point: a call counts as ten."""
    count = [len(body)]
    tvm_ffi.structural_walk(body, (ir.Call, lambda _: count.append(10)))
    return sum(count)


def _is_if(call: ir.Call) -> bool:
    return name_of(call) == "if_then_else"


def _conditions(body: object) -> list[tirx.Expr]:
    """The conditions of every `if_then_else` in `body`."""
    found: list[tirx.Expr] = []
    tvm_ffi.structural_walk(
        body, (ir.Call, lambda c: found.append(c.args[0]) if _is_if(c) else None)
    )
    return found


def _segments(conditions: list[tirx.Expr], lane: list[Axis]) -> list[tuple[int, int]] | None:
    """Ranges of the lane axis in which every condition on it alone is constant; None: too many."""
    extent = prod(a.extent for a in lane)
    cuts = {0, extent}
    if len(lane) == 1:
        for condition in conditions:
            cuts |= _breakpoints(condition, lane[0])
    points = sorted(c for c in cuts if 0 <= c <= extent)
    ranges = list(pairwise(points))
    return ranges if len(ranges) <= MAX_SEGMENTS else None


def _breakpoints(condition: tirx.Expr, axis: Axis) -> set[int]:
    """Where a comparison of `axis` alone changes, found by its value at every index."""
    cuts: set[int] = set()

    def visit(comparison: tirx.Expr) -> None:
        if variables(comparison) != {axis.var} or axis.extent > 4096:
            return
        sides = comparison.a - comparison.b
        if not sym.detect_linear_equation(sides, [axis.var]):
            cuts.update(range(MAX_SEGMENTS + 2))  # periodic: no segments
            return
        values = [_truth(comparison, axis, i) for i in range(axis.extent)]
        cuts.update(i for i in range(1, axis.extent) if values[i] != values[i - 1])

    tvm_ffi.structural_walk(condition, (Comparison, visit))
    return cuts


def _truth(comparison: tirx.Expr, axis: Axis, value: int) -> bool:
    fixed = sym.Analyzer().simplify(substitute(comparison, {axis.var: i64(value)}))
    return bool(int(fixed))


def _resolved(group: Group, lane: list[Axis], low: int) -> Group:
    """`group` with the comparisons of its lane axis replaced by their value in a segment."""
    if len(lane) != 1:
        return group
    position = group.axes.index(lane[0])

    def stage_at(stage: Stage) -> Stage:
        axis = stage.spatial[position]

        def resolve(comparison: tirx.Expr) -> tirx.Expr:
            if variables(comparison) != {axis.var}:
                return comparison
            return tirx.const(_truth(comparison, axis, low), "bool")

        def fold(call: ir.Call) -> ir.Call:
            if not _is_if(call):
                return call
            condition = tvm_ffi.structural_map(call.args[0], (Comparison, resolve))
            condition = sym.Analyzer().simplify(condition)
            if isinstance(condition, tirx.IntImm):
                return call.args[1] if condition.value else call.args[2]
            return tirx.if_then_else(condition, call.args[1], call.args[2])

        return replace(stage, body=tvm_ffi.structural_map(stage.body, (ir.Call, fold)))

    return replace(group, stages=tuple(stage_at(s) for s in group.stages))


def _vectorises(group: Group, lane: list[Axis]) -> bool:
    body = group.unified()
    return vectorises(body, {a.var for a in lane})


def vectorises(body: object, lane: set[tirx.Var]) -> bool:
    """Whether a loop over variables `lane` of straight-line `body` may run as vectors."""
    if any(lane & _behind(c, body) for c in _conditions(body)):
        return False
    names: list[str] = []
    tvm_ffi.structural_walk(body, (ir.Call, lambda c: names.append(name_of(c))))
    return set(names) <= VECTOR_CALLS


def _behind(expr: tirx.Expr, body: object) -> set[tirx.Var]:
    """The variables that `expr` depends on, through the bindings of `body` too."""
    bound: dict[tirx.Var, tirx.Expr] = {}
    definitions = (tirx.Bind, tirx.Let)
    tvm_ffi.structural_walk(body, (definitions, lambda d: bound.update({d.var: d.value})))
    seen: set[tirx.Var] = set()
    todo = list(variables(expr))
    while todo:
        var = todo.pop()
        if var in seen:
            continue
        seen.add(var)
        if var in bound:
            todo.extend(variables(bound[var]))
    return seen
