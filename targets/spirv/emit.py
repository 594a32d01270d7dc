"""A `Dispatch` in, its `Shader` out.

Every tensor lies in the loader's block, which is binding 0 of set 0, bound once. A dispatch's push
constants say where its tensors start, in words of 4 bytes, so that launches of one kernel share a
module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, tirx

from aotrain.errors import Diagnostic, UnsupportedModelError
from aotrain.schedules.gpu.dispatch import MAX_GROUPS, Dispatch
from aotrain.targets.spirv.expressions import Place
from aotrain.targets.spirv.module import BITS, Module
from aotrain.targets.spirv.opcodes import BuiltIn, Capability, Op, Storage
from aotrain.targets.spirv.statements import Statements, storable

MAX_PUSH_CONSTANTS = 32  # words: the 128 bytes that every device has


@dataclass(frozen=True)
class Shader:
    """A module and how to start it. `buffers`: what each push constant points to."""

    words: bytes
    groups: tuple[int, int]
    threads: int
    buffers: tuple[tirx.Buffer, ...]
    capabilities: frozenset[Capability]


def emit(dispatch: Dispatch, candidates: Sequence[tirx.Buffer]) -> Shader:
    """`candidates` are the buffers in the block that `dispatch` may touch.

    Raises UnsupportedModelError AOT-K002 for what has no translation.
    """
    touched = _touched(dispatch.body)
    buffers = tuple(b for b in candidates if b in touched)
    _check(dispatch, buffers)
    module = Module()
    statements = Statements(module)
    expressions, math = statements.expressions, statements.math
    entry = module.id()
    group_id, thread_id = (
        module.builtin(which) for which in (BuiltIn.WORKGROUP_ID, BuiltIn.LOCAL_INVOCATION_ID)
    )
    module.emit(Op.BRANCH, entry)
    expressions.open(entry)
    group, thread = (
        module.result(Op.LOAD, module.vector(), variable) for variable in (group_id, thread_id)
    )

    def component(vector: int, axis: int) -> int:
        found = module.result(Op.COMPOSITE_EXTRACT, module.type("uint32"), vector, axis)
        return math.cast(found, "uint32", "int32")

    across, down = dispatch.grid
    position = component(group, 0)
    if down > 1:
        row = math.binary("Mul", "int32", component(group, 1), math.constant(across, "int32"))
        position = math.binary("Add", "int32", position, row)
    expressions.indices[dispatch.group] = position
    expressions.indices[dispatch.thread] = component(thread, 0)
    _place(module, statements, buffers)
    for buffer in dispatch.shared:
        statements.allocate(buffer)
    body = dispatch.body
    if across * down != dispatch.groups:
        body = tirx.IfThenElse(dispatch.group < dispatch.groups, body, None)
    statements.run(body)
    words = module.assemble(dispatch.threads)
    return Shader(words, dispatch.grid, dispatch.threads, buffers, frozenset(module.capabilities))


def _place(module: Module, statements: Statements, buffers: Sequence[tirx.Buffer]) -> None:
    """Tell where each buffer is: its push constant, in elements of its dtype."""
    if not buffers:
        return
    block = module.push_constants(len(buffers))
    uint32 = module.type("uint32")
    math = statements.math
    for number, buffer in enumerate(buffers):
        dtype = "uint8" if str(buffer.dtype) == "bool" else str(buffer.dtype)
        kind = module.pointer(Storage.PUSH_CONSTANT, uint32)
        member = math.constant(number, "uint32")
        base = module.result(Op.LOAD, uint32, module.result(Op.ACCESS_CHAIN, kind, block, member))
        if BITS[dtype] == 8:
            base = math.bitwise("shift_left", "uint32", base, math.constant(2, "uint32"))
        if BITS[dtype] == 64:
            base = math.bitwise("shift_right", "uint32", base, math.constant(1, "uint32"))
        place = Place(module.view(dtype), Storage.STORAGE_BUFFER, dtype, base)
        statements.expressions.places[buffer] = place


def _touched(body: tirx.Stmt) -> set[tirx.Buffer]:
    found: set[tirx.Buffer] = set()
    tvm_ffi.structural_walk(body, (ir.TensorLoad, lambda load: found.add(load.source)))
    tvm_ffi.structural_walk(body, (tirx.BufferStore, lambda store: found.add(store.buffer)))
    return found


def _check(dispatch: Dispatch, buffers: Sequence[tirx.Buffer]) -> None:
    problems = [
        f"tensors of {buffer.dtype} on this target"
        for buffer in buffers
        if not storable(str(buffer.dtype))
    ]
    if len(buffers) > MAX_PUSH_CONSTANTS:
        problems.append(f"{len(buffers)} tensors in one dispatch: {MAX_PUSH_CONSTANTS} fit")
    if max(dispatch.grid) > MAX_GROUPS:
        problems.append(f"{dispatch.groups} workgroups")
    if problems:
        where = f"kernel '{dispatch.name}'"
        raise UnsupportedModelError(
            *(Diagnostic("AOT-K002", f"no SPIR-V for {what}", where) for what in problems)
        )
