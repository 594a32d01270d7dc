"""Values along an axis in; the k largest or smallest, in order, and where they stand, out.

    top_k(x; k, largest) -> (values, indices)

x [A, N, B] -> values [A, k, B] of its dtype, indices [A, k, B] int64; of equal values the one with
the lower index comes first, as in ONNX. Of each row the best element is taken, then the best after
it in the order (value, index), and so on: O(k N) without a buffer. NaNs have no place in it:
where there are any, indices are in range and otherwise unspecified.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  its usual name

from aotrain.ops.registry import define


def _body(x: te.Tensor, k: int, largest: bool) -> list[te.Tensor]:
    outer, count, inner = (int(d) for d in x.shape)

    def write(source: Any, values: Any, indices: Any) -> Any:
        def better(a: Any, b: Any) -> Any:
            return a > b if largest else a < b

        with IRBuilder() as builder, T.seq_scope(), T.parallel(outer * inner) as task:
            a, b = task // inner, task % inner
            with T.serial(k) as p:
                T.buffer_store(indices, tirx.const(-1, "int64"), [a, p, b])
                with T.serial(count) as n:
                    value, place = source[a, n, b], tirx.Cast("int64", n)
                    last = indices[a, tirx.max(p - 1, 0), b]
                    least = source[a, tirx.max(last, tirx.const(0, "int64")), b]
                    after = tirx.any(
                        p == 0, better(least, value), tirx.all(value == least, place > last)
                    )
                    best = indices[a, p, b]
                    rival = source[a, tirx.max(best, tirx.const(0, "int64")), b]
                    with T.If(tirx.all(after, tirx.any(best < 0, better(value, rival)))), T.Then():
                        T.buffer_store(indices, place, [a, p, b])
                with T.If(indices[a, p, b] < 0), T.Then():
                    T.buffer_store(indices, tirx.Cast("int64", p), [a, p, b])
                T.buffer_store(values, source[a, indices[a, p, b], b], [a, p, b])
        return builder.get()

    return te.extern(
        [(outer, k, inner)] * 2,
        [x],
        lambda ins, outs: write(ins[0], *outs),
        dtype=[x.dtype, "int64"],
        name="top_k",
        tag="top_k",
    )


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    k, largest = int(call.attrs["k"]), bool(call.attrs["largest"])
    return bb.call_te(_body, *call.args, k, largest, primfunc_name_hint="top_k")


def _infer(call: relax.Call) -> relax.TupleType:
    outer, _, inner = call.args[0].ty.shape
    shape = [outer, int(call.attrs["k"]), inner]
    dtypes = (str(call.args[0].ty.dtype), "int64")
    return relax.TupleType([relax.TensorType(shape, dtype) for dtype in dtypes])


top_k = define("aotrain.top_k", inputs=1, infer=_infer, legalize=_legalize)
