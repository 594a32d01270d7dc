"""Rows of cotangents and their indices in, cotangent of the table out: the transpose of `take`.

    take_grad(dy, indices; shape, axis) -> dx

dy [A.., K, B..], indices [K] integers, dx [A.., V, B..] = `shape`; dx[a, indices[k], b] +=
dy[a, k, b] in the order of k, so that equal indices always sum to the same bits. Negative indices
count from the end; indices out of range are skipped, never written.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  its usual name
from tvm.tirx.script.builder.utils import buffer_proxy

from aotrain.ops.registry import define


def _body(dy: te.Tensor, indices: te.Tensor, shape: list[int], axis: int) -> te.Tensor:
    outer, rows = math.prod(shape[:axis]), shape[axis]
    inner, count = math.prod(shape[axis + 1 :]), int(indices.shape[0])
    width = 64 if inner % 64 == 0 else inner  # columns of a parallel task

    def write(dy_buffer: Any, index_buffer: Any, dx_buffer: Any) -> Any:
        source, index, dx = map(buffer_proxy, (dy_buffer, index_buffer, dx_buffer))
        tasks = inner // width
        with IRBuilder() as builder, T.seq_scope(), T.parallel(outer * tasks) as task:
            a, column = task // tasks, task % tasks * width
            with T.serial(rows) as r, T.serial(width) as b:
                dx[(a * rows + r) * inner + column + b] = tirx.const(0, dy.dtype)
            with T.serial(count) as k:
                found = tirx.Cast("int64", index[k])
                row = tirx.Select(found < 0, found + rows, found)
                inside = tirx.all(row >= 0, row < rows)
                with T.If(inside), T.Then(), T.serial(width) as b:
                    at = (a * rows + row) * inner + column + b
                    dx[at] += source[(a * count + k) * inner + column + b]
        return builder.get()

    return te.extern(
        [tuple(shape)],
        [dy, indices],
        lambda ins, outs: write(ins[0], ins[1], outs[0]),
        dtype=[dy.dtype],
        name="take_grad",
        tag="take_grad",
    )


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape = [int(d) for d in call.attrs["shape"]]
    axis = int(call.attrs["axis"])
    return bb.call_te(
        lambda dy, indices: _body(dy, indices, shape, axis),
        *call.args,
        primfunc_name_hint="take_grad",
    )


def _infer(call: relax.Call) -> relax.TensorType:
    return relax.TensorType(list(call.attrs["shape"]), call.args[0].ty.dtype.dtype)


take_grad = define("aotrain.take_grad", inputs=2, infer=_infer, legalize=_legalize)
