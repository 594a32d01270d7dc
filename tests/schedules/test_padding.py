"""What is padding is not multiplied, and shifted quotients keep loops of their own."""

from __future__ import annotations

import pytest
import tvm
from tvm import te, topi

from aotrain.ops import conv_grad
from aotrain.schedules.cpu import contraction, driver, nest, padding, schedule
from tests.schedules.kernels import TARGET, check, lower, op
from tests.schedules.test_contraction import convolution, input_gradient, roles, weight_gradient

AVX512 = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v4"})


def paddings(kernel: nest.Kernel) -> padding.Paddings:
    found = {s.store.buffer: padding.padded(s) for s in kernel.stages if s.store is not None}
    return {b: source for b, source in found.items() if source is not None}


@pytest.mark.parametrize(
    ("taps", "depth"),
    [
        (3, [[8, 1, 1], [8, 1, 2], [8, 2, 1], [8, 2, 2]]),
        (2, [[8, 1, 1]] * 4),
        (1, [[8, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]]),  # nothing reaches three of the residues
    ],
)
def test_each_residue_sums_its_own_taps(taps: int, depth: list[list[int]]) -> None:
    (func,) = input_gradient(2, 4, 16, 8, taps, 2, taps // 2)
    kernel = nest.parse(func)
    assert kernel is not None
    found = contraction.match(kernel.stages[-1], paddings(kernel))
    assert found is not None
    assert sorted(roles(c)[3] for c in found) == sorted(depth)


@pytest.mark.parametrize("target", [TARGET, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("make", [convolution, input_gradient, weight_gradient])
@pytest.mark.parametrize(
    "shape",
    [  # batch, channels in, size, channels out, taps, stride, padding
        (2, 16, 16, 32, 3, 2, 1),
        (2, 16, 16, 32, 1, 2, 0),
        (2, 16, 15, 32, 2, 2, 0),
        (4, 24, 14, 40, 5, 1, 2),  # a tile's rows are one row of the image; offsets from a table
        (1, 8, 64, 16, 3, 2, 1),  # planes of 4 KiB, whose lines share a set
        (3, 4, 8, 8, 3, 2, 1),
        (3, 4, 9, 3, 4, 3, 1),
    ],
)
def test_strides(make, shape: tuple[int, ...], target: tvm.target.Target) -> None:
    for func in make(*shape):
        check(func, target)


def test_weights_are_read_where_they_are() -> None:
    (func,) = input_gradient(2, 16, 16, 32, 3, 2, 1)
    scheduled, rule = schedule(func, TARGET)
    assert rule == "contraction"
    assert "w_pad[" not in scheduled.script()


@pytest.mark.parametrize(
    "rule",
    [driver._reduce, driver._scalar],  # of those, the reduction is what a thin product is left to
)
def test_a_strided_gradient_that_is_no_product(rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM 0.27 takes (t % 8 + 1) % 2 beside (t // 8 % 8 + 1) % 2 for (t + 8) % 2."""
    fitting = [r for r in driver.RULES if r[1] in (rule, driver._map, driver._scalar)]
    monkeypatch.setattr(driver, "RULES", fitting)
    for shape in [(3, 4, 8, 8, 3, 2, 1), (20, 6, 8, 8, 3, 2, 1)]:
        for func in input_gradient(*shape):
            check(func)


@pytest.mark.parametrize("shape", [(3, 4, 8, 8), (40, 40, 8, 8)])
def test_shifted_quotients_in_a_pointwise_stage(shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, name="x")

    def element(n, c, h, w):
        return x[n, c, (h + 1) // 2, (w + 1) // 2] * x[n, c, (h + 1) % 2, (w + 1) % 2]

    func = te.create_prim_func([x, te.compute(shape, element)])
    check(func)


def test_strides_larger_than_are_opened() -> None:
    attributes = {"strides": [5, 5], "padding": [1] * 4, "dilation": [1, 1], "groups": 1}
    gradient = conv_grad.conv2d_input_grad
    shape = [2, 8, 16, 16]
    make = op(lambda dy, w: gradient(dy, w, **attributes, input_shape=shape))
    for func in lower(make, (2, 16, 3, 3), (16, 8, 7, 7)):
        check(func)


def test_a_padded_copy_stays_where_an_earlier_product_reads_it() -> None:
    """Two convolutions in one function: the second reads nothing of the first one's padding."""
    x, w = te.placeholder((2, 8, 9, 9), name="x"), te.placeholder((16, 8, 3, 3), name="w")
    z = te.placeholder((2, 8, 9, 9), name="z")

    def convolved(data: te.Tensor, name: str) -> te.Tensor:
        padded = topi.nn.pad(data, [0, 0, 1, 1], [0, 0, 1, 1], name=f"{name}_pad")
        c, r, s = (te.reduce_axis((0, n), name=f"{name}_{n}{i}") for i, n in enumerate((8, 3, 3)))
        return te.compute(
            (2, 16, 9, 9),
            lambda n, k, p, q: te.sum(padded[n, c, p + r, q + s] * w[k, c, r, s], axis=[c, r, s]),
            name=name,
        )

    func = te.create_prim_func([x, z, w, convolved(x, "first"), convolved(z, "second")])
    assert check(func) == "contraction"


def test_padding_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = padding.padded
    monkeypatch.setattr(padding, "padded", lambda stage: seen.append(stage.name) or real(stage))
    (func,) = input_gradient(2, 16, 16, 32, 3, 2, 1)
    schedule(func, TARGET)
    assert sorted(seen) == ["dy_pad", "w_pad"]
