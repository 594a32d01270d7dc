"""Products of every form: the roles of their axes, and the results of their loops."""

from __future__ import annotations

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.relax import op as R  # noqa: N812

from aotrain.ops import conv_grad
from aotrain.schedules.cpu import contraction, isa, nest, tile
from aotrain.schedules.cpu.group import inline_copies
from tests.schedules.kernels import check, lower, matmul, op

#: 1, primes, one less and more than a vector or a tile, multiples of both.
EXTENTS = st.sampled_from([1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 32, 33, 48, 61, 64])
TARGETS = {
    "avx2": {"kind": "llvm", "mcpu": "x86-64-v3"},
    "sse": {"kind": "llvm", "mcpu": "x86-64"},
}
few = settings(max_examples=12, deadline=None, derandomize=True)


def contractions(func) -> list[contraction.Contraction]:
    kernel = nest.parse(func)
    assert kernel is not None
    found = [contraction.match(stage) for stage in inline_copies(kernel).stages]
    return [c for matched in found for c in matched or []]


def roles(c: contraction.Contraction) -> list[list[int]]:
    return [nest.extents(axes) for axes in (c.batch, c.rows, c.lanes, c.depth)]


def convolution(n, c, size, k, taps, stride, pad, groups=1):
    return lower(
        op(lambda x, w: R.nn.conv2d(x, w, strides=stride, padding=pad, groups=groups)),
        (n, c, size, size),
        (k, c // groups, taps, taps),
    )


def _attributes(stride, pad, groups):
    return {
        "strides": [stride] * 2,
        "padding": [pad] * 4,
        "dilation": [1, 1],
        "groups": groups,
    }


def input_gradient(n, c, size, k, taps, stride, pad, groups=1):
    out = (size + 2 * pad - taps) // stride + 1
    attributes = _attributes(stride, pad, groups)
    gradient = conv_grad.conv2d_input_grad
    return lower(
        op(lambda dy, w: gradient(dy, w, **attributes, input_shape=[n, c, size, size])),
        (n, k, out, out),
        (k, c // groups, taps, taps),
    )


def weight_gradient(n, c, size, k, taps, stride, pad, groups=1):
    out = (size + 2 * pad - taps) // stride + 1
    attributes = _attributes(stride, pad, groups)
    shape = [k, c // groups, taps, taps]
    gradient = conv_grad.conv2d_weight_grad
    return lower(
        op(lambda dy, x: gradient(dy, x, **attributes, weight_shape=shape)),
        (n, k, out, out),
        (n, c, size, size),
    )


def test_roles_of_a_matmul() -> None:
    (c,) = contractions(matmul(5, 7, 3, batch=2, transpose=(False, True)))
    assert roles(c) == [[2], [5], [7], [3]]


def test_roles_of_a_convolution() -> None:
    (func,) = convolution(2, 3, 9, 5, 3, 1, 1)
    (c,) = contractions(func)
    assert roles(c) == [[], [2, 9, 9], [5], [3, 3, 3]]


def test_groups_become_a_batch() -> None:
    (func,) = convolution(2, 4, 9, 6, 3, 1, 1, groups=2)
    (c,) = contractions(func)
    assert roles(c) == [[2], [2, 9, 9], [3], [2, 3, 3]]


def test_a_strided_input_gradient_becomes_one_product_for_each_residue() -> None:
    (func,) = input_gradient(2, 4, 9, 6, 3, 2, 1)
    found = contractions(func)
    assert [roles(c)[1] for c in found] == [[2, 5, 5], [2, 5, 4], [2, 4, 5], [2, 4, 4]]


@pytest.mark.parametrize("facts", [isa.AVX512, isa.AVX2, isa.NEON, isa.SSE], ids=lambda f: f.name)
def test_the_tile_fits_the_registers(facts: isa.Isa) -> None:
    for shape in [(1024, 1024, 256), (64, 10, 512), (7, 4096, 64), (512, 17, 33)]:
        (c,) = contractions(matmul(*shape))
        _, plan = tile.choose(c, facts)
        vectors = plan.width // facts.lanes
        assert plan.height * vectors + vectors + 1 <= facts.registers
        assert plan.height * vectors >= facts.registers // 3


@few
@given(EXTENTS, EXTENTS, EXTENTS, st.sampled_from([0, 1, 3]), st.booleans(), st.booleans())
def test_matmul(m: int, n: int, k: int, batch: int, left: bool, right: bool) -> None:
    check(matmul(m, n, k, batch, (left, right)))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("transpose", [(False, False), (False, True), (True, False)])
def test_parallel_matmul(name: str, transpose: tuple[bool, bool]) -> None:
    target = tvm.target.Target(TARGETS[name])
    assert check(matmul(150, 131, 64, 0, transpose), target) == "contraction"
    assert check(matmul(64, 600, 48, 0, transpose), target) == "contraction"


CONVOLUTIONS = st.tuples(
    st.sampled_from([1, 2, 5]),  # batch
    st.sampled_from([1, 2, 3, 8, 17]),  # input channels, of a group
    st.sampled_from([4, 5, 8, 13, 16]),  # size
    st.sampled_from([1, 3, 8, 16, 33]),  # output channels, of a group
    st.sampled_from([1, 3, 4]),  # taps
    st.sampled_from([1, 2, 3]),  # stride
    st.sampled_from([0, 1]),  # padding
    st.sampled_from([1, 1, 2, 3]),  # groups
)


@pytest.mark.parametrize("make", [convolution, input_gradient, weight_gradient])
def test_convolutions(make) -> None:
    @few
    @given(CONVOLUTIONS)
    def kept(shape) -> None:
        n, c, size, k, taps, stride, pad, groups = shape
        for func in make(n, c * groups, size, k * groups, taps, stride, pad, groups):
            check(func)

    kept()


def test_an_epilogue_joins_and_the_product_is_kept_for_a_later_reader() -> None:
    def build(builder, x, w, b):
        product = builder.emit(R.matmul(x, w))
        shifted = builder.emit(R.add(product, b))
        return builder.emit(R.multiply(shifted, product))

    rules = [check(f) for f in lower(build, (20, 17), (17, 40), (40,))]
    assert rules == ["contraction"]


def test_a_deep_product_runs_in_blocks() -> None:
    (c,) = contractions(matmul(64, 400, 8192))
    _, plan = tile.choose(c, isa.AVX512)
    assert plan.blocks > 1
    assert 4 * plan.width * 8192 <= plan.blocks * tile.PANEL_BYTES
    (prime,) = contractions(matmul(64, 400, 8191))
    assert tile.choose(prime, isa.AVX512)[1].blocks == 1  # there are no equal parts


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("transpose", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("shape", [(70, 50, 8192), (300, 33, 4608), (40, 700, 6144), (9, 5, 9000)])
def test_deep_matmul(name: str, transpose: tuple[bool, bool], shape: tuple[int, ...]) -> None:
    target = tvm.target.Target(TARGETS[name])
    assert check(matmul(*shape, 0, transpose), target) == "contraction"


def test_deep_batched_matmul_with_an_epilogue() -> None:
    def build(builder, x, w, b):
        return builder.emit(R.nn.relu(builder.emit(R.add(builder.emit(R.matmul(x, w)), b))))

    rules = [check(f) for f in lower(build, (3, 40, 8192), (3, 8192, 37), (37,))]
    assert rules == ["contraction"]


def test_a_deep_weight_gradient() -> None:
    for func in weight_gradient(32, 8, 32, 16, 3, 1, 1):
        assert check(func) == "contraction"
