"""Every kind of kernel that a training step legalizes to: same results, and the rule expected."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from tests.schedules.kernels import chain, check, lower, op

F32, I64 = "float32", "int64"
POINTWISE, REDUCTION, CONTRACTION, WINDOW = "pointwise", "reduction", "contraction", "window"
FALLBACK = SERIAL_LOOPS = "fallback"

#: name: (builder, shapes, dtypes, the rule of each kernel)
ZOO = {
    "relu": (op(R.nn.relu), [(7, 13)], [F32], [POINTWISE]),
    "scalar": (op(R.exp), [()], [F32], [POINTWISE]),
    "float64": (op(R.exp), [(40,)], ["float64"], [POINTWISE]),
    "gelu": (op(R.nn.gelu), [(3, 5, 17)], [F32], [POINTWISE]),
    "gelu parallel": (op(R.nn.gelu), [(64, 129)], [F32], [POINTWISE]),
    "gelu tanh": (op(R.nn.gelu_tanh), [(3, 5, 17)], [F32], [POINTWISE]),
    "log": (chain(R.abs, R.log), [(37,)], [F32], [POINTWISE]),
    "rsqrt": (chain(R.abs, R.rsqrt), [(37,)], [F32], [POINTWISE]),
    "power": (op(lambda x: R.power(x, relax.const(2.0))), [(37,)], [F32], [POINTWISE]),
    "channel bias": (op(R.add), [(4, 8, 6, 6), (1, 8, 1, 1)], [F32] * 2, [POINTWISE]),
    "row bias": (op(R.add), [(33, 17), (17,)], [F32] * 2, [POINTWISE]),
    "compare": (op(R.greater), [(5, 40), (5, 40)], [F32] * 2, [POINTWISE]),
    "mask": (
        op(lambda m, x, y: R.where(m, x, y)),
        [(5, 40), (5, 40), (5, 40)],
        ["bool", F32, F32],
        [POINTWISE],
    ),
    "where": (
        op(lambda x, y: R.where(R.greater(x, y), x, y)),
        [(5, 40), (5, 40)],
        [F32] * 2,
        [POINTWISE],
    ),
    "cast": (op(lambda x: R.astype(x, I64)), [(4, 9)], [F32], [POINTWISE]),
    "transpose": (op(lambda x: R.permute_dims(x, [0, 2, 1])), [(3, 7, 19)], [F32], [POINTWISE]),
    "reshape": (
        chain(lambda x: R.reshape(x, (7, 6)), R.nn.relu),
        [(2, 3, 7)],
        [F32],
        [POINTWISE],
    ),
    "broadcast": (op(lambda x: R.broadcast_to(x, (4, 5, 6))), [(4, 1, 6)], [F32], [POINTWISE]),
    "pad": (
        op(lambda x: R.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 2])),
        [(2, 3, 9, 33)],
        [F32],
        [POINTWISE],
    ),
    "concat rows": (
        op(lambda x, y: R.concat([x, y], 0)),
        [(5, 20), (3, 20)],
        [F32] * 2,
        [POINTWISE],
    ),
    "concat lanes": (
        op(lambda x, y: R.concat([x, y], 1)),
        [(5, 20), (5, 13)],
        [F32] * 2,
        [POINTWISE],
    ),
    "strided slice": (
        op(lambda x: R.strided_slice(x, [1], [1], [9], [2])),
        [(5, 20)],
        [F32],
        [POINTWISE],
    ),
    "flip": (op(lambda x: R.flip(x, 1)), [(5, 21)], [F32], [POINTWISE]),
    "tile": (op(lambda x: R.tile(x, (2, 3))), [(5, 6)], [F32], [POINTWISE]),
    "take": (op(lambda x, i: R.take(x, i, 0)), [(11, 6), (4,)], [F32, I64], [POINTWISE]),
    "gather": (
        op(lambda x, i: R.gather_elements(x, i, 0)),
        [(4, 9), (2, 9)],
        [F32, I64],
        [POINTWISE],
    ),
    "sum all": (op(R.sum), [(7, 13)], [F32], [REDUCTION]),
    "sum int64": (op(lambda x: R.sum(x, 1)), [(7, 33)], [I64], [REDUCTION]),
    "sum rows": (op(lambda x: R.sum(x, 0)), [(37, 70)], [F32], [REDUCTION]),
    "sum rows parallel": (op(lambda x: R.sum(x, 0)), [(2048, 70)], [F32], [REDUCTION]),
    "sum columns": (op(lambda x: R.sum(x, 1)), [(37, 70)], [F32], [REDUCTION]),
    "sum middle": (op(lambda x: R.sum(x, 1)), [(5, 37, 7)], [F32], [REDUCTION]),
    "channel sums": (op(lambda x: R.sum(x, [0, 2, 3])), [(4, 5, 6, 7)], [F32], [REDUCTION]),
    "max": (op(lambda x: R.max(x, -1)), [(5, 37)], [F32], [REDUCTION]),
    "product": (op(lambda x: R.prod(x, -1)), [(5, 17)], [F32], [REDUCTION]),
    "variance": (op(lambda x: R.variance(x, -1)), [(5, 37)], [F32], None),
    "argmax": (op(lambda x: R.argmax(x, -1)), [(5, 37)], [F32], [FALLBACK]),
    "softmax": (op(lambda x: R.nn.softmax(x, -1)), [(11, 37)], [F32], None),
    "softmax middle": (op(lambda x: R.nn.softmax(x, 1)), [(3, 11, 37)], [F32], None),
    "log softmax": (op(lambda x: R.nn.log_softmax(x, -1)), [(11, 37)], [F32], None),
    "layer norm": (
        op(lambda x, g, b: R.nn.layer_norm(x, g, b, [-1])),
        [(11, 37), (37,), (37,)],
        [F32] * 3,
        None,
    ),
    "max pool": (
        op(lambda x: R.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1))),
        [(2, 3, 13, 13)],
        [F32],
        None,
    ),
    "average pool": (
        op(lambda x: R.nn.avg_pool2d(x, (2, 2), (2, 2))),
        [(2, 3, 12, 12)],
        [F32],
        None,
    ),
    "global pool": (op(lambda x: R.nn.adaptive_avg_pool2d(x, 1)), [(2, 3, 7, 7)], [F32], None),
    "scatter": (
        op(lambda x, i, u: R.scatter_elements(x, i, u, 0)),
        [(5, 9), (2, 9), (2, 9)],
        [F32, I64, F32],
        [SERIAL_LOOPS],
    ),
    "dot": (op(R.matmul), [(17,), (17,)], [F32] * 2, [REDUCTION]),
    "matmul": (op(R.matmul), [(33, 17), (17, 29)], [F32] * 2, [CONTRACTION]),
    "matmul of one": (op(R.matmul), [(1, 17), (17, 1)], [F32] * 2, [REDUCTION]),
    "matmul broadcast": (
        op(R.matmul),
        [(3, 1, 33, 17), (1, 2, 17, 29)],
        [F32] * 2,
        [CONTRACTION],
    ),
    "matmul bias gelu": (
        lambda bb, x, w, b: bb.emit(R.nn.gelu(bb.emit(R.add(bb.emit(R.matmul(x, w)), b)))),
        [(35, 17), (17, 40), (40,)],
        [F32] * 3,
        [CONTRACTION],
    ),
    "conv bias relu": (
        lambda bb, x, w, b: bb.emit(
            R.nn.relu(bb.emit(R.add(bb.emit(R.nn.conv2d(x, w, padding=1)), b)))
        ),
        [(2, 6, 9, 9), (20, 6, 3, 3), (1, 20, 1, 1)],
        [F32] * 3,
        [CONTRACTION],
    ),
    "conv dilated": (
        op(lambda x, w: R.nn.conv2d(x, w, padding=2, dilation=2)),
        [(2, 3, 9, 9), (5, 3, 3, 3)],
        [F32] * 2,
        [CONTRACTION],
    ),
    "conv depthwise": (
        op(lambda x, w: R.nn.conv2d(x, w, padding=1, groups=4)),
        [(2, 4, 9, 9), (4, 1, 3, 3)],
        [F32] * 2,
        [WINDOW],
    ),
}


@pytest.mark.parametrize("name", ZOO)
def test_results_are_kept(name: str) -> None:
    build, shapes, dtypes, rules = ZOO[name]
    found = [check(f) for f in lower(build, *shapes, dtypes=dtypes)]
    assert found
    if rules is not None:
        assert found == rules
