"""A fused PrimFunc in, its loops scheduled for a CPU and the name of the leading rule out.

    func -> stages (nest) -> copies inlined, pointwise runs joined (group) -> RULES -> vector_math

Each stage, or group of pointwise stages, is written by the first rule that matches it. A rule takes
what is left to write and returns the statements, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from tvm import tirx
from tvm.target import Target

from aotrain.schedules.cpu import (
    contraction,
    fallback,
    gemm,
    isa,
    nans,
    nest,
    padding,
    planes,
    pointwise,
    reduction,
    tile,
    transposition,
    vector_math,
    windows,
)
from aotrain.schedules.cpu.group import Group, group, inline_copies, is_identity

Part: TypeAlias = nest.Stage | Group
#: Below these a product is cheaper as a plain reduction.
MIN_ROWS, MIN_MACS = 3, 2048
#: A point of a scalar loop in points of a vector loop.
SCALAR_COST = 16


@dataclass
class Writer:
    """The loops written so far; `ahead` are the parts still to come, the next one first."""

    kernel: nest.Kernel
    isa: isa.Isa
    ahead: list[Part]
    statements: list[tirx.Stmt] = field(default_factory=list)
    #: The statements of each single pointwise stage written so far, by what it writes.
    written: dict[tirx.Buffer, tuple[nest.Stage, tirx.Stmt]] = field(default_factory=dict)
    #: Of those, where the padded copies come from; None: it is none.
    sources: dict[tirx.Buffer, padding.Source | None] = field(default_factory=dict)
    scratch: list[tirx.Buffer] = field(default_factory=list)
    #: For the contractions to come, in order; the model's own beyond the end.
    choices: list[tile.Choice] = field(default_factory=list)
    #: Those written, as they were found: what the choices are for.
    contractions: list[contraction.Contraction] = field(default_factory=list)

    def plan(self, c: contraction.Contraction) -> tuple[contraction.Contraction, tile.Plan]:
        """The next choice, or what the model takes."""
        at = len(self.contractions)
        self.contractions.append(c)
        found = tile.chosen(c, self.isa, self.choices[at]) if at < len(self.choices) else None
        return tile.choose(c, self.isa) if found is None else found

    def read_later(self, buffer: tirx.Buffer, after: Sequence[Part]) -> bool:
        """Whether `buffer` is a parameter or read by one of the parts `after`."""
        if buffer in set(self.kernel.func.params):
            return True
        return any(buffer in nest.variables([s.loops for s in _stages(p)]) for p in after)

    def paddings(self) -> dict[tirx.Buffer, padding.Source]:
        """The buffers written so far that are padded copies, and what of."""
        for buffer, (stage, _) in self.written.items():
            if buffer not in self.sources:
                self.sources[buffer] = padding.padded(stage)
        return {b: s for b, s in self.sources.items() if s is not None and b in self.written}

    def take_back(self, buffer: tirx.Buffer) -> bool:
        """Remove the statement that wrote `buffer`, unless one before or after reads it."""
        _, statement = self.written[buffer]
        others = [s for s in self.statements if not s.same_as(statement)]
        if self.read_later(buffer, self.ahead) or buffer in nest.variables(others):
            return False
        del self.written[buffer]
        self.statements = others
        return True


def _stages(part: Part) -> tuple[nest.Stage, ...]:
    return part.stages if isinstance(part, Group) else (part,)


def _contract(part: Part, writer: Writer) -> bool:
    """Sums of products as packed, register-tiled loops, with the next group as epilogue."""
    if not isinstance(part, nest.Stage):
        return False
    paddings = writer.paddings()
    found = contraction.match(part, paddings)
    if found is None:
        return False
    if any(_is_thin(c) for c in found) or sum(c.macs for c in found) < MIN_MACS:
        return False
    planned = [writer.plan(c) for c in found]
    target = found[0].target
    epilogue = _epilogue(target, writer)
    if epilogue is not None:
        writer.ahead.pop(0)
    keep = epilogue is None or writer.read_later(target, writer.ahead)
    read = nest.variables([e for c in found for e in (c.scalar, c.vector)])
    for buffer in paddings.keys() - read:
        writer.take_back(buffer)
    for c, plan in planned:
        kernel = gemm.Gemm(c, plan, epilogue, keep, set(writer.kernel.func.params))
        writer.statements += kernel.emit()
        writer.scratch += kernel.scratch
    return True


def _window(part: Part, writer: Writer) -> bool:
    """Depthwise convolutions and their gradients, planes padded in place of a whole tensor."""
    found = planes.match(part) if isinstance(part, nest.Stage) and writer.isa.lanes > 1 else None
    if found is None:
        return False
    epilogue = _epilogue(found[0].target, writer) if found[0].slides else None
    if epilogue is not None:
        writer.ahead.pop(0)
    keep = epilogue is None or writer.read_later(found[0].target, writer.ahead)
    source = _padded(found[0].image.source, writer) or padding.whole(found[0].image.source)
    writer.statements.append(windows.Windows(found, source, writer.isa, epilogue, keep).emit())
    return True


def _padded(image: tirx.Buffer, writer: Writer) -> padding.Source | None:
    """Where `image` comes from, if it was padded for the present part alone: no need then."""
    source = writer.paddings().get(image)
    return source if source is not None and writer.take_back(image) else None


def _is_thin(c: contraction.Contraction) -> bool:
    rows, lanes = (prod(nest.extents(a)) for a in (c.rows, c.lanes))
    return min(rows, lanes) < MIN_ROWS


def _epilogue(target: tirx.Buffer, writer: Writer) -> Group | None:
    """The next part, where it is a group that reads each element of `target` at that element."""
    following = writer.ahead[0] if writer.ahead else None
    if not isinstance(following, Group):
        return None
    if following.extents != tuple(int(n) for n in target.shape):
        return None
    reads = [
        (load, stage)
        for stage in following.stages
        for load in nest.loads(stage.body)
        if load.source.same_as(target)
    ]
    fits = all(is_identity(load, stage.spatial) for load, stage in reads)
    axes = {a.var for a in following.axes}
    if not reads or not fits or not pointwise.vectorises(following.unified(), axes):
        return None
    return following


def _reduce(part: Part, writer: Writer) -> bool:
    """Sums, products, minima, maxima as vectors."""
    found = reduction.match(part) if isinstance(part, nest.Stage) else None
    written = reduction.emit(found, writer.isa) if found is not None else None
    if written is None:
        return False
    writer.statements += written[0]
    writer.scratch += written[1]
    return True


def _transpose(part: Part, writer: Writer) -> bool:
    """Copies across the innermost axis, through registers."""
    found = transposition.match(part, writer.isa) if isinstance(part, Group) else None
    if found is None:
        return False
    writer.statements.append(transposition.emit(found, writer.isa))
    return True


def _map(part: Part, writer: Writer) -> bool:
    """Pointwise groups as one vector loop."""
    if not isinstance(part, Group):
        return False
    writer.statements.append(pointwise.emit(part, writer.isa, set(writer.kernel.func.params)))
    if len(part.stages) == 1 and part.stages[0].store is not None:
        stage = part.stages[0]
        writer.written[stage.store.buffer] = stage, writer.statements[-1]
    return True


def _scalar(part: Part, writer: Writer) -> bool:
    """Anything, as scalar loops."""
    assert isinstance(part, nest.Stage)
    writer.statements.append(fallback.emit(part))
    return True


#: In order of trial; the first that returns True has written the part.
RULES: list[tuple[str, Callable[[Part, Writer], bool]]] = [
    ("window", _window),
    ("contraction", _contract),
    ("reduction", _reduce),
    ("transposition", _transpose),
    ("pointwise", _map),
    ("fallback", _scalar),
]


def legalize_map(target: Target) -> dict[str, Callable]:
    """Legalizations for `relax.transform.LegalizeOps` that `schedule` asks for.

    None: the rules read the plain TE bodies of Relax and of `aotrain.ops`.
    """
    return {}


def schedule(
    func: tirx.PrimFunc, target: Target, choices: Sequence[tile.Choice] = ()
) -> tuple[tirx.PrimFunc, str]:
    """Schedule a PrimFunc out of LegalizeOps, FuseOps and FuseTIR for the CPU `target`.

    `choices` are for its contractions, in order; one that does not fit is passed over.

    Returns the S-TIR PrimFunc and the name of the rule that wrote its costliest part: one of RULES,
    or "serial" where the function's form is not understood and it is returned as it came. Signature
    and attributes stay. Root-level buffers hold what crosses loop nests; buffers inside a parallel
    loop belong to one task. Results are those of the unscheduled function, but for the order of
    float sums and the rounding of `vector_math`. Lower it with `tirx.disable_cse_tir`: TVM 0.27's
    elimination of common subexpressions is wrong beside Let.
    """
    written = _write(func, target, choices)
    if written is None:
        return func, "serial"
    writer, rule = written
    body = [vector_math.rewrite(nans.keep(s)) for s in writer.statements]
    return nest.rebuild(writer.kernel, body, writer.scratch), rule


def candidates(func: tirx.PrimFunc, target: Target) -> list[list[tile.Choice]]:
    """For each contraction of `func`, the choices there are; the likely best first."""
    written = _write(func, target, ())
    if written is None:
        return []
    writer, _ = written
    return [tile.candidates(c, writer.isa) for c in writer.contractions]


def _write(
    func: tirx.PrimFunc, target: Target, choices: Sequence[tile.Choice]
) -> tuple[Writer, str] | None:
    """All parts written, and the rule of the costliest; None: the form is not understood."""
    kernel = nest.parse(func)
    if kernel is None:
        return None
    kernel = inline_copies(kernel)
    writer = Writer(kernel, isa.of(target), group(kernel), choices=list(choices))
    costs: list[tuple[int, str]] = []
    while writer.ahead:
        part = writer.ahead.pop(0)
        name = next(name for name, rule in RULES if rule(part, writer))
        costs.append((_cost(part) * (SCALAR_COST if name == "fallback" else 1), name))
    return writer, max(costs)[1]


def _cost(part: Part) -> int:
    """Points of the part's loops."""
    return sum(prod(a.extent for a in s.axes or ()) for s in _stages(part))
