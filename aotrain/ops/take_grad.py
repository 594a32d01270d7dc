"""Rows of cotangents and their indices in, cotangent of the table out: the transpose of `take`.

    take_grad(dy, indices; rows) -> dx

dy [A, K, B], indices [K] integers, dx [A, rows, B]; dx[a, indices[k], b] += dy[a, k, b] in the
order of k, so that equal indices always sum to the same bits. Negative indices count from the end;
indices out of range are skipped, never written. Tasks run over A and over runs of columns, which
share no element.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  its usual name

from aotrain.ops.registry import define

WIDTH = 64  # columns of a task, where they divide evenly


def _body(dy: te.Tensor, indices: te.Tensor, rows: int) -> te.Tensor:
    outer, count, inner = (int(d) for d in dy.shape)
    width = WIDTH if inner % WIDTH == 0 else inner
    tasks = inner // width

    def write(source: Any, index: Any, dx: Any) -> Any:
        zero = tirx.const(0, dy.dtype)
        with IRBuilder() as builder, T.seq_scope(), T.parallel(outer * tasks) as task:
            a = task // tasks if tasks > 1 else task
            first = task % tasks * width if tasks > 1 else 0
            with T.serial(rows) as r, T.serial(width) as b:
                T.buffer_store(dx, zero, [a, r, first + b])
            with T.serial(count) as k:
                found = tirx.Cast("int64", index[k])
                row = tirx.Select(found < 0, found + rows, found)
                inside = tirx.all(row >= 0, row < rows)
                with T.If(inside), T.Then(), T.serial(width) as b:
                    total = dx[a, row, first + b] + source[a, k, first + b]
                    T.buffer_store(dx, total, [a, row, first + b])
        return builder.get()

    return te.extern(
        [(outer, rows, inner)],
        [dy, indices],
        lambda ins, outs: write(ins[0], ins[1], outs[0]),
        dtype=[dy.dtype],
        name="take_grad",
        tag="take_grad",
    )


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return bb.call_te(_body, *call.args, int(call.attrs["rows"]), primfunc_name_hint="take_grad")


def _infer(call: relax.Call) -> relax.TensorType:
    outer, _, inner = call.args[0].ty.shape
    return relax.TensorType([outer, int(call.attrs["rows"]), inner], str(call.args[0].ty.dtype))


take_grad = define("aotrain.take_grad", inputs=2, infer=_infer, legalize=_legalize)
