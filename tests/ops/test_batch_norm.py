"""BatchNorm's operators against numpy in float64, a large mean among the cases."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from aotrain.ops.batch_norm import batch_norm_grad, batch_norm_train

EPSILON = 1e-3


def run(make, arrays: list[np.ndarray], **attrs: float) -> list[np.ndarray]:
    """The operator's results on the CPU."""
    block = relax.BlockBuilder()
    params = [
        relax.Var(f"p{i}", relax.TensorType(a.shape, a.dtype.name)) for i, a in enumerate(arrays)
    ]
    with block.function("main", params):
        with block.dataflow():
            out = block.emit_output(block.emit(make(*params, **attrs)))
        block.emit_func_output(out)
    machine = relax.VirtualMachine(tvm.compile(block.finalize(), target="llvm"), tvm.cpu())
    return [t.numpy() for t in machine["main"](*(tvm.runtime.tensor(a) for a in arrays))]


def reference(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    axes = tuple(i for i in range(x.ndim) if i != 1)
    shape = [1, -1] + [1] * (x.ndim - 2)
    mean, var = x.mean(axes), x.var(axes)
    scaled = (x - mean.reshape(shape)) / np.sqrt(var + EPSILON).reshape(shape)
    return scaled * gamma.reshape(shape) + beta.reshape(shape), mean, var


def data(shape: tuple[int, ...], shift: float) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(shift, 2.0, shape).astype(np.float32)
    return [x, *(rng.normal(1, 0.5, shape[1]).astype(np.float32) for _ in range(2))]


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 2, 3, 2, 2)])
def test_forward(shape: tuple[int, ...]) -> None:
    arrays = data(shape, 0.5)
    got = run(batch_norm_train, arrays, epsilon=EPSILON)
    for have, want in zip(got, reference(*(a.astype(np.float64) for a in arrays)), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


def test_forward_with_a_mean_far_from_zero() -> None:
    # E[x^2] - E[x]^2 would have no correct digit here: float32 holds 1e4^2 to +-8.
    arrays = data((16, 3, 8, 8), 1e4)
    _, mean, var = run(batch_norm_train, arrays, epsilon=EPSILON)
    want = reference(*(a.astype(np.float64) for a in arrays))
    np.testing.assert_allclose(mean, want[1], rtol=1e-6)
    np.testing.assert_allclose(var, want[2], rtol=1e-3)


@pytest.mark.parametrize("shape", [(6, 3), (3, 2, 4), (2, 3, 4, 2)])
def test_gradient_is_the_central_difference(shape: tuple[int, ...]) -> None:
    x, gamma, beta = data(shape, 0.5)
    dy = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    wide = [a.astype(np.float64) for a in (x, gamma, beta)]
    _, mean, var = reference(*wide)
    stats = [mean.astype(np.float32), var.astype(np.float32)]
    got = run(batch_norm_grad, [dy, x, gamma, *stats], epsilon=EPSILON)

    def loss() -> float:
        return float((reference(*wide)[0] * dy).sum())

    for have, array in zip(got, wide, strict=True):
        want = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            kept = array[index]
            sides = []
            for step in (1e-5, -1e-5):
                array[index] = kept + step
                sides.append(loss())
            array[index] = kept
            want[index] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-4)


def test_a_vector_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(Exception, match="3 channels"):
        run(
            batch_norm_train,
            [np.zeros((2, 3), "float32"), *[np.zeros(4, "float32")] * 2],
            epsilon=1,
        )
