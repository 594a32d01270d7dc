"""Two batches of matrices in, their product out, either read transposed where it stands.

    gemm(a, b; transpose_a, transpose_b) -> c

c[.., i, j] = sum over k of a'[.., i, k] b'[.., k, j], where a' is a or a with its last two axes
swapped, and b' likewise; leading axes broadcast. Both operands have two axes or more.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from aotrain.ops.registry import define


def _dims(ty: relax.TensorType, transpose: bool) -> list[int]:
    *lead, rows, columns = (int(d) for d in ty.shape)
    return [*lead, columns, rows] if transpose else [*lead, rows, columns]


def _infer(call: relax.Call) -> relax.TensorType:
    a, b = call.args[0].ty, call.args[1].ty
    left = _dims(a, bool(call.attrs["transpose_a"]))
    right = _dims(b, bool(call.attrs["transpose_b"]))
    assert left[-1] == right[-2], f"gemm of {left} and {right}"
    rank = max(len(left), len(right)) - 2
    lead = [
        max(x, y) for x, y in zip(_padded(left[:-2], rank), _padded(right[:-2], rank), strict=True)
    ]
    return relax.TensorType([*lead, left[-2], right[-1]], str(a.dtype))


def _padded(lead: list[int], rank: int) -> list[int]:
    return [1] * (rank - len(lead)) + lead


def _body(a: te.Tensor, b: te.Tensor, shape: list[int], flip_a: bool, flip_b: bool) -> te.Tensor:
    depth = a.shape[-2] if flip_a else a.shape[-1]
    k = te.reduce_axis((0, depth), name="k")

    def read(x: te.Tensor, lead: list[Any], row: Any, column: Any, flip: bool) -> Any:
        own = lead[len(lead) - (len(x.shape) - 2) :]
        index = [0 if _is_one(d) else i for d, i in zip(x.shape, own, strict=False)]
        return x(*index, column, row) if flip else x(*index, row, column)

    def product(*axes: Any) -> Any:
        *lead, i, j = axes
        return te.sum(read(a, lead, i, k, flip_a) * read(b, lead, k, j, flip_b), axis=k)

    return te.compute([tirx.IntImm("int64", d) for d in shape], product, name="matmul")


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and extent.value == 1


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape = [int(d) for d in call.ty.shape]
    flips = bool(call.attrs["transpose_a"]), bool(call.attrs["transpose_b"])
    names = {(False, True): "matmul_nt", (True, False): "matmul_tn", (True, True): "matmul_tt"}
    return bb.call_te(
        lambda a, b: _body(a, b, shape, *flips),
        *call.args,
        primfunc_name_hint=names.get(flips, "matmul"),
    )


gemm = define("aotrain.gemm", inputs=2, infer=_infer, legalize=_legalize)
