"""Scheduled PrimFuncs in, functions with a plain C signature out: `int32_t k(float *a, float *b)`.

TVM 0.27 has no pass for this. A PrimFunc whose parameters are raw pointers and that carries no
global symbol is left alone by MakePackedAPI, so we rewrite parameters first, run TVM's own
pipeline, and give the symbol back at the end.

Buffers that a kernel allocates go three ways:

    at the root, large        -> one more pointer parameter, planned in the arena by the caller
    inside a task, large      -> pushed on the calling thread's scratch stack, popped at scope's end
    small, anywhere           -> the machine's stack, where LLVM turns them into registers

The third is why `LowerTVMBuiltin`, which puts every buffer on the heap, is not run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.s_tir.pipeline import default_s_tir_pipeline

from aotrain.plan import ITEM_BYTES, align

ROOT_STACK_BYTES = 1024
TASK_STACK_BYTES = 16 * 1024

PASS_CONFIG = {"tirx.disable_cse_tir": True}
"""TVM 0.27's own elimination puts a definition after its use where a statement holds a Let; LLVM
eliminates common subexpressions anyway."""

Aliases = tuple[tuple[int, int], ...]
"""Pairs (output position, input position) of PrimFunc parameters that share their bytes."""


@dataclass(frozen=True)
class CKernel:
    """One lowered kernel. `scratch` are the bytes of the pointer parameters that were added."""

    symbol: str
    func: tirx.PrimFunc
    pointers: int  # parameters in all, scratch included
    scratch: tuple[int, ...]
    thread_scratch: int  # bytes that one task may push on its thread's scratch stack


def lower(
    kernels: Iterable[tuple[str, tirx.PrimFunc, Aliases]], target: tvm.target.Target
) -> list[CKernel]:
    """Lower scheduled PrimFuncs; the order is kept. `target` is an LLVM or C target."""
    named = list(kernels)
    module = tvm.IRModule({name: _pointer_params(f, aliases) for name, f, aliases in named})
    module = tirx.transform.BindTarget(target.with_host(target))(module)
    pipeline, _, _ = default_s_tir_pipeline()
    with target, tvm.transform.PassContext(config=PASS_CONFIG):
        module = pipeline(module)
        lowered = {name: _place_buffers(module[name]) for name, _, _ in named}
        module = tvm.IRModule({name: func for name, (func, _, _) in lowered.items()})
        module = tirx.transform.LowerIntrin()(module)
    result = []
    for name, _, _ in named:
        _, scratch, thread_scratch = lowered[name]
        func = module[name].without_attr("tirx.is_entry_func")
        func = func.with_attr("global_symbol", name).with_attr("calling_conv", 0)
        result.append(CKernel(name, func, len(func.params), scratch, thread_scratch))
    return result


def _pointer_params(func: tirx.PrimFunc, aliases: Aliases) -> tirx.PrimFunc:
    """`f(a: Buffer, b: Buffer)` -> `f(a: T*, b: T*)`; an aliased output shares a pointer."""
    shared = dict(aliases)
    pointers: dict[int, tirx.Var] = {}
    for i, buffer in enumerate(func.params):
        if i not in shared:
            pointers[i] = _pointer(buffer)
    declared = [
        tirx.DeclBuffer(buffer, data=pointers[shared.get(i, i)])
        for i, buffer in enumerate(func.params)
    ]
    offsets = [
        tirx.Bind(buffer.elem_offset, tirx.const(0, str(buffer.elem_offset.ty.dtype)))
        for buffer in func.params
        if isinstance(buffer.elem_offset, tirx.Var)  # te.extern leaves it to the caller
    ]
    scheduled = tvm_ffi.structural_map(func.body, (tirx.Cast, _select_of_bool))
    body = tirx.SeqStmt([*offsets, *declared, scheduled])
    result = tirx.PrimFunc(list(pointers.values()), body, ret_type=PrimType("int32"), attrs=None)
    for key, value in func.attrs.items():
        if key != "global_symbol":
            result = result.with_attr(key, value)
    return result.with_attr("tirx.noalias", True)


def _select_of_bool(cast: tirx.Cast) -> tirx.Expr:
    """`float(flag)` -> `flag ? 1.0 : 0.0`, since TVM's analyzer fails on vectors of the first."""
    dtype = str(cast.ty.dtype)
    if str(cast.value.ty.dtype) != "bool" or dtype == "bool":
        return cast
    return tirx.Select(cast.value, tirx.const(1, dtype), tirx.const(0, dtype))


def _pointer(buffer: tirx.Buffer) -> tirx.Var:
    return tirx.Var(f"{buffer.name}_ptr", PointerType(PrimType(str(buffer.dtype)), "global"))


def _place_buffers(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, tuple[int, ...], int]:
    """Apply the table of the module's docstring -> (function, root scratch, thread scratch)."""
    params = list(func.params)
    scratch: list[int] = []
    root: list[tirx.Stmt] = []
    body = tvm_ffi.structural_map(func.body, (tirx.AttrStmt, _drop_scope))
    statements = body.seq if isinstance(body, tirx.SeqStmt) else [body]
    for statement in statements:
        if isinstance(statement, tirx.AllocBuffer):
            nbytes = _nbytes(statement.buffer)
            if nbytes > ROOT_STACK_BYTES:
                params.append(_pointer(statement.buffer))
                scratch.append(nbytes)
                statement = tirx.DeclBuffer(statement.buffer, data=params[-1])
        root.append(statement)
    body, thread_scratch = _push_task_buffers(root)
    body = tirx.SeqStmt([body, tirx.stmt.Return(tirx.IntImm("int32", 0))])
    placed = tirx.PrimFunc(params, body, ret_type=func.ret_type, attrs=func.attrs)
    return placed, tuple(scratch), thread_scratch


def _drop_scope(statement: tirx.AttrStmt) -> tirx.Stmt:
    """Without the marks that IR builders leave, which LLVM's generator warns about."""
    return statement.body if statement.attr_key == "pragma_scope" else statement


def _push_task_buffers(root: list[tirx.Stmt]) -> tuple[tirx.Stmt, int]:
    """Move large buffers of inner scopes to the scratch stack -> (statement, bytes at most)."""
    total = 0

    def scope(seq: tirx.SeqStmt) -> tirx.Stmt:
        nonlocal total
        pushed = []
        statements = []
        for statement in seq.seq:
            large = isinstance(statement, tirx.AllocBuffer) and (
                _nbytes(statement.buffer) > TASK_STACK_BYTES
            )
            if large:
                buffer = statement.buffer
                total += align(_nbytes(buffer))
                pushed.append(buffer)
                statement = tirx.DeclBuffer(buffer, data=_push(buffer))
            statements.append(statement)
        if not pushed:
            return seq
        pops = [tirx.Evaluate(_pop(buffer)) for buffer in reversed(pushed)]
        return tirx.SeqStmt([*statements, *pops])

    inner = tirx.SeqStmt(root) if len(root) > 1 else root[0]
    return tvm_ffi.structural_map(inner, (tirx.SeqStmt, scope)), total


def _push(buffer: tirx.Buffer) -> tirx.Expr:
    device_type, device, float_code, bits = 1, 0, 2, 32  # hints that our scratch stack ignores
    nbytes = tirx.IntImm("uint64", _nbytes(buffer))
    return tirx.TVMBackendAllocWorkspace(device_type, device, nbytes, float_code, bits)


def _pop(buffer: tirx.Buffer) -> tirx.Expr:
    return tirx.TVMBackendFreeWorkspace(1, 0, buffer.data)


def _nbytes(buffer: tirx.Buffer) -> int:
    lanes = 1
    dtype = str(buffer.dtype)
    if "x" in dtype:  # "float32x16"
        dtype, _, count = dtype.partition("x")
        lanes = int(count)
    return math.prod(int(n) for n in buffer.shape) * lanes * ITEM_BYTES[dtype]
