"""A fused PrimFunc in, whether one of its outputs may take an input's bytes out.

    for i: m'[i] = f(m[i], g[i])        m' may take m's bytes:
    for i: p'[i] = h(p[i], m'[i])       the one block that writes m' is the one that reads m,
                                        at the same element, before it stores anything

Not handled: an input read by two blocks, or at another element than is written (a stencil, a
transpose, a reduction). Such an output gets bytes of its own.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock


def may_share(func: tirx.PrimFunc, output: int, operand: int) -> bool:
    """Whether parameter `output` of the unscheduled `func` may be written over `operand`."""
    target, source = func.params[output], func.params[operand]
    if str(target.dtype) != str(source.dtype) or _dims(target) != _dims(source):
        return False
    blocks = _leaf_blocks(func)
    writers = [block for block in blocks if _regions(block.writes, target)]
    if len(writers) != 1 or any(_regions(block.writes, source) for block in blocks):
        return False
    if any(_regions(block.reads, source) for block in blocks if not block.same_as(writers[0])):
        return False
    return not _regions(writers[0].reads, source) or _same_element(writers[0], source, target)


def _same_element(block: SBlock, source: tirx.Buffer, target: tirx.Buffer) -> bool:
    """Whether `block` reads one element of `source`, writes it in `target`, and in that order."""
    reads, writes = _regions(block.reads, source), _regions(block.writes, target)
    if len(reads) != 1 or len(writes) != 1 or block.init is not None:
        return False
    pairs = list(zip(reads[0].region, writes[0].region, strict=True))
    return all(
        _is_one(r.extent) and _is_one(w.extent) and tvm_ffi.structural_equal(r.min, w.min)
        for r, w in pairs
    ) and _loads_before_stores(block, source)


def _loads_before_stores(block: SBlock, source: tirx.Buffer) -> bool:
    stored = False
    statements = block.body.seq if isinstance(block.body, tirx.SeqStmt) else [block.body]
    for statement in statements:
        if stored and _loads(statement, source):
            return False
        stored = stored or isinstance(statement, tirx.BufferStore)
    return True


def _loads(statement: tirx.Stmt, source: tirx.Buffer) -> bool:
    found: list[bool] = []

    def visit(load: TensorLoad) -> None:
        found.append(load.source.same_as(source))

    tvm_ffi.structural_walk(statement, (TensorLoad, visit))
    return any(found)


def _leaf_blocks(func: tirx.PrimFunc) -> list[SBlock]:
    """The blocks that compute: all but those that hold others."""
    found = _blocks(func.body)
    return [block for block in found if not _blocks(block.body)]


def _blocks(root: tirx.Stmt) -> list[SBlock]:
    found: list[SBlock] = []
    tvm_ffi.structural_walk(root, (SBlock, found.append))
    return found


def _regions(regions: list[tirx.BufferRegion], buffer: tirx.Buffer) -> list[tirx.BufferRegion]:
    return [region for region in regions if region.source.same_as(buffer)]


def _is_one(extent: object) -> bool:
    return isinstance(extent, tirx.IntImm) and extent.value == 1


def _dims(buffer: tirx.Buffer) -> list[int]:
    return [int(n) for n in buffer.shape]
