"""Every loss and its gradient in a whole training step, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from aotrain.step import LossOptions, OptimizerOptions, StepOptions, build
from tests.step.cases import GOLDEN, LOSSES, case_options
from tests.step.program import Runner, model


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as file:
        return dict(file)


def shifted(shape: tuple[int, ...], dtype: str = "float32"):
    """A model whose output is its input plus a parameter `w` of the same shape, at first 0."""

    def body(bb: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> list[relax.Expr]:
        return [bb.emit(relax.op.add(x, w), "output")]

    return model({"x": (shape, dtype)}, {"w": np.zeros(shape, dtype)}, body)


def loss_and_gradient(shape, x, target, options: LossOptions) -> tuple[float, np.ndarray]:
    """One SGD step of rate 1 from w = 0 leaves minus the gradient in w."""
    made = shifted(shape, x.dtype.name)
    hyper = {"lr": 1.0}
    step = build(made, StepOptions(loss=options, optimizer=OptimizerOptions("sgd", hyper)))
    run = Runner(step)
    loss = run("train", x=x, y=target)["loss"]
    return float(loss), -run.state["w"]


def options_of(name: str, weights: np.ndarray | None) -> LossOptions:
    kind, _, options = LOSSES[name]
    which = "class_weights" if kind == "cross-entropy" else "pos_weight"
    return LossOptions(kind, **{which: weights}, **case_options(options))


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_equal_pytorch(name: str, golden: dict[str, np.ndarray]) -> None:
    case = {k.rpartition("/")[2]: v for k, v in golden.items() if k.startswith(f"loss/{name}/")}
    options = options_of(name, case.get("weights"))
    loss, gradient = loss_and_gradient(LOSSES[name][1], case["output"], case["target"], options)
    np.testing.assert_allclose(loss, case["loss"], rtol=1e-6)
    np.testing.assert_allclose(gradient, case["gradient"], rtol=2e-6, atol=1e-7)
