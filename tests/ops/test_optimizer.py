"""Optimizer kernels: one block that loads before it stores, shared by equal shapes; scalars.

Their trajectories are compared with PyTorch's in tests/step/test_optimizer.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import TensorLoad

from aotrain.ops import optimizer
from tests.ops.kernel import evaluate, prim_func

SCALARS = {"sgd": 2, "momentum": 4, "nesterov": 3, "adam": 7, "adamw": 7}
SLOTS = {"sgd": 0, "momentum": 1, "nesterov": 1, "adam": 2, "adamw": 2}


def arguments(name: str, shape: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    tensors = [rng.uniform(0.1, 1, shape).astype(dtype) for _ in range(2 + SLOTS[name])]
    return tensors + [np.float32(s) for s in rng.uniform(0.1, 0.9, SCALARS[name])]


@pytest.mark.parametrize("name", SCALARS)
def test_every_element_is_loaded_before_any_is_stored(name: str) -> None:
    """In the order of the text, so that results may share the bytes of arguments."""
    func = prim_func(getattr(optimizer, name), *arguments(name, (3, 4)))
    order: list[str] = []
    loads = (TensorLoad, lambda _: order.append("load"))
    stores = (tirx.BufferStore, lambda _: order.append("store"))
    tvm_ffi.structural_walk(func.body, (loads, stores))
    assert order.count("store") == 1 + SLOTS[name]
    assert order.count("load") == len(arguments(name, ()))
    assert "load" not in order[order.index("store") :]


@pytest.mark.parametrize("name", SCALARS)
def test_in_place_gives_the_same(name: str) -> None:
    """The same kernel with every result in the bytes of its argument."""
    args = arguments(name, (5, 3))
    func = prim_func(getattr(optimizer, name), *args)
    built = tvm.compile(func.with_attr("global_symbol", name), target="llvm")
    kept = [0, *range(2, 2 + SLOTS[name])]
    apart = [tvm.runtime.tensor(np.zeros_like(args[i])) for i in kept]
    inputs = [tvm.runtime.tensor(np.asarray(a)) for a in args]
    built[name](*inputs, *apart)
    built[name](*inputs, *(inputs[i] for i in kept))
    for i, result in zip(kept, apart, strict=True):
        np.testing.assert_array_equal(inputs[i].numpy(), result.numpy())
        assert not np.array_equal(result.numpy(), args[i])


def test_parameters_of_one_shape_share_a_kernel() -> None:
    params = [relax.Var(f"p{i}", relax.TensorType((4, 2), "float32")) for i in range(4)]
    scalars = [relax.Var(n, relax.TensorType((), "float32")) for n in ("lr", "decay")]
    builder = relax.BlockBuilder()
    with builder.function("main", params + scalars):
        with builder.dataflow():
            first = builder.emit(optimizer.sgd(params[0], params[1], *scalars))
            second = builder.emit(optimizer.sgd(params[2], params[3], *scalars))
            result = builder.emit_output(relax.Tuple([first, second]))
        builder.emit_func_output(result)
    module = relax.transform.LegalizeOps()(builder.get())
    kernels = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert len(kernels) == 1


@pytest.mark.parametrize("shape", [(), (1,), (2, 3, 2, 2, 1)])
def test_any_rank(shape: tuple[int, ...]) -> None:
    p, g, lr, decay = arguments("sgd", shape)
    (new,) = evaluate(optimizer.sgd, p, g, lr, decay)
    np.testing.assert_allclose(new, p - lr * (g + decay * p), rtol=1e-6)


def test_16_bit_parameters_with_float32_slots() -> None:
    """v of a gradient of 1e-4 would vanish in float16."""
    p, g = np.ones(3, np.float16), np.full(3, 1e-4, np.float16)
    slots = [np.zeros(3, np.float32)] * 2
    scalars = [np.float32(s) for s in (0.1, 0.9, 0.999, 1e-8, 0, 0.1, 0.001)]
    new, m, v = evaluate(optimizer.adamw, p, g, *slots, *scalars)
    assert (new.dtype, m.dtype, v.dtype) == (np.float16, np.float32, np.float32)
    np.testing.assert_allclose(new, np.float16(0.9), rtol=1e-3)  # one step of lr


def test_bias_correction_follows_a_beta_that_changes() -> None:
    c, product = np.float32(0), 1.0
    for beta in (0.9, 0.9, 0.5, 0.99):
        (c,) = evaluate(optimizer.bias_correction, c, np.float32(beta))
        product *= beta
    assert c == pytest.approx(1 - product, rel=1e-6)


def test_momentum_gain_is_1_at_the_first_step() -> None:
    gains = [evaluate(optimizer.momentum_gain, np.int64(s), np.float32(0.25))[0] for s in (0, 1)]
    assert gains == [1.0, 0.75]
