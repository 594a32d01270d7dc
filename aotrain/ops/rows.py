"""Values by position in, evaluation's masks and counts out.

first_rows(x, rows; repeat)                 x where row // repeat < rows, else 0
correct(logits, labels; axis, ignore_index) 1 where the label is the first largest logit, else 0
counted(labels; ignore_index)               1 where the label is not ignored, else 0
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from aotrain.ops.loss import Classes, call_te, dims
from aotrain.ops.registry import define


def _flag(condition: Any) -> Any:
    """1 or 0. A cast would do, but TVM's LLVM generator refuses to bind a vector of it."""
    return tirx.Select(condition, tirx.const(1, "int32"), tirx.const(0, "int32"))


def _legalize_first_rows(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    repeat = int(call.attrs["repeat"])

    def first_rows(x: te.Tensor, rows: te.Tensor) -> te.Tensor:
        def kept(*i: Any) -> Any:
            return tirx.Select(i[0] // repeat < rows[()], x[i], tirx.const(0, x.dtype))

        return te.compute(dims(x), kept, name="kept")

    return call_te(bb, call, first_rows)


first_rows = define(
    "aotrain.first_rows",
    inputs=2,
    infer=lambda call: call.args[0].ty,
    legalize=_legalize_first_rows,
)
"""x [R, ...], rows (int32 scalar); repeat = R / batch -> x with the padded rows zero, NaNs too."""


def _legalize_correct(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def correct(x: te.Tensor, labels: te.Tensor) -> te.Tensor:
        k = Classes(x, call.attrs)
        label = te.compute(k.rest, lambda *i: k.logit(i, k.clamp(labels[i])), name="label")

        def wins_against(i: tuple, c: Any) -> Any:
            """1 where the label's logit wins against class c; no comparison holds for a NaN."""
            y, mine, other = labels[i], label[i], k.logit(i, c)
            wins = tirx.any(tirx.all(c < y, mine > other), tirx.all(c >= y, mine >= other))
            return _flag(wins)

        wins = k.reduce(te.sum, "wins", wins_against)
        return te.compute(
            k.rest,
            lambda *i: _flag(tirx.all(wins[i] == k.count, labels[i] != k.ignore)),
            name="correct",
        )

    return call_te(bb, call, correct)


def _infer_flags(call: relax.Call) -> relax.Type:
    return relax.TensorType(call.args[-1].ty.shape, "int32")


correct = define("aotrain.correct", inputs=2, infer=_infer_flags, legalize=_legalize_correct)
"""logits, labels; axis, ignore_index -> int32 flags of the labels' shape."""


def _legalize_counted(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    ignore = int(call.attrs["ignore_index"])

    def counted(labels: te.Tensor) -> te.Tensor:
        return te.compute(dims(labels), lambda *i: _flag(labels[i] != ignore), name="counted")

    return call_te(bb, call, counted)


counted = define("aotrain.counted", inputs=1, infer=_infer_flags, legalize=_legalize_counted)
"""labels; ignore_index -> int32 flags of the labels' shape."""
