"""Every optimizer over 200 steps with given gradients, against PyTorch in float64."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from aotrain.step import LossOptions, OptimizerOptions, StepOptions, build
from tests.step.cases import GOLDEN, OPTIMIZERS, STEPS, WIDTH
from tests.step.program import Runner, model


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as file:
        return dict(file)


def runner(kind: str, hyper: dict[str, float], start: np.ndarray) -> Runner:
    """A step whose loss is sum(x w): the gradient of `w` is the input."""

    def body(bb: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> list[relax.Expr]:
        return [bb.emit(relax.op.multiply(x, w), "output")]

    made = model({"x": ((WIDTH,), "float32")}, {"w": start}, body)
    loss = LossOptions("output", reduction="sum")
    return Runner(build(made, StepOptions(loss, OptimizerOptions(kind, hyper))))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trajectory_equals_pytorch(name: str, golden: dict[str, np.ndarray]) -> None:
    run = runner(*OPTIMIZERS[name], golden["start"])
    trajectory = []
    for step, gradient in enumerate(golden["gradients"], 1):
        run("train", x=gradient)
        if step % 20 == 0 or step == 1:
            trajectory.append(run.state["w"])
    want = golden[f"optimizer/{name}/trajectory"]
    np.testing.assert_allclose(trajectory, want, rtol=1e-5, atol=1e-5 * np.abs(want).max(0).min())
    assert run.state["step"] == STEPS
    for slot in ("momentum", "m"):
        if f"optimizer/{name}/{slot}" in golden:
            np.testing.assert_allclose(
                run.state[f"optim.{slot}.w"], golden[f"optimizer/{name}/{slot}"], rtol=1e-5
            )


def test_hyperparameters_are_read_at_run_time(golden: dict[str, np.ndarray]) -> None:
    """The same program with other scalars follows the other trajectory."""
    run = runner("adam", {}, golden["start"])
    run.hyper |= {k: np.float32(v) for k, v in OPTIMIZERS["adam-all"][1].items()}
    for gradient in golden["gradients"][:20]:
        run("train", x=gradient)
    want = golden["optimizer/adam-all/trajectory"][1]
    np.testing.assert_allclose(run.state["w"], want, rtol=1e-5)


def test_bias_correction_is_one_minus_beta_to_the_steps(golden: dict[str, np.ndarray]) -> None:
    run = runner("adamw", {}, golden["start"])
    for gradient in golden["gradients"][:50]:
        run("train", x=gradient)
    for number, beta in ((1, np.float32(0.9)), (2, np.float32(0.999))):
        got = run.state[f"optim.bias_correction{number}"]
        assert got == pytest.approx(1 - float(beta) ** 50, rel=1e-6)
