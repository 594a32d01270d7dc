"""What a target says of its vectors."""

from __future__ import annotations

import pytest
import tvm
from tvm.relax import op as R  # noqa: N812

from aotrain.schedules.cpu import isa, schedule
from tests.schedules.kernels import TARGET, arguments, lower, matmul, op, run


@pytest.mark.parametrize(
    ("target", "facts"),
    [
        ({"kind": "llvm", "mcpu": "znver4"}, isa.AVX512),
        ({"kind": "llvm", "mcpu": "sapphirerapids"}, isa.AVX512),
        ({"kind": "llvm", "mcpu": "znver3"}, isa.AVX2),
        ({"kind": "llvm", "mcpu": "haswell"}, isa.AVX2),
        ({"kind": "llvm", "mcpu": "x86-64"}, isa.SSE),
        ({"kind": "llvm", "mattr": ["+avx2", "+fma"]}, isa.AVX2),
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu"}, isa.NEON),
        ({"kind": "c"}, isa.SCALAR),
    ],
    ids=str,
)
def test_instruction_set(target: dict, facts: isa.Isa) -> None:
    assert isa.of(tvm.target.Target(target)) == facts


def test_a_c_target_gets_no_vectors_and_the_same_results() -> None:
    functions = [
        matmul(20, 37, 16),
        matmul(20, 37, 16, 0, (False, True)),
        *lower(op(lambda x: R.nn.softmax(x, -1)), (7, 40)),
        *lower(op(lambda x: R.nn.pad(x, [1, 1, 2, 2])), (7, 40)),
    ]
    for func in functions:
        scheduled, _ = schedule(func, tvm.target.Target("c"))
        assert "vectorized" not in scheduled.script()
        arrays = arguments(func)
        before, after = run(func, arrays)[-1], run(scheduled, arrays, TARGET)[-1]
        assert abs(before - after).max() <= 4e-6 * abs(before).max()
