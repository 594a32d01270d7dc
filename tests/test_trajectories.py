"""Twenty steps of real models against PyTorch's, from the golden files of `tests.golden`.

The same ONNX file, the same batches. Tolerances: losses 1e-4, tensors 1e-3, both relative; the
files hold how far PyTorch's own float32 is from its float64 (a quarter of that at most).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import aotrain
from aotrain.plan import Plan, Role
from tests.golden import HYPER, LOSS_TOLERANCE, RUNS, STEPS, TOLERANCES, Arrays, errors, summarize
from tests.models import CASES
from tests.targets import on_device


@dataclass(frozen=True)
class Trajectory:
    """What one run left: our losses float64[STEPS], tensors summarized, and PyTorch's."""

    plan: Plan
    block_bytes: int
    parameters: set[str]
    losses: np.ndarray
    tensors: Arrays
    golden: Arrays


def _golden(name: str, optimizer: str) -> Arrays:
    with np.load(Path(__file__).with_name("golden") / f"{name}.npz") as file:
        prefix = f"{optimizer}/"
        found = {k.removeprefix(prefix): file[k] for k in file.files if k.startswith(prefix)}
        return {"names": file["names"], **found}


ON_CPU = [(name, optimizer, "cpu") for name in RUNS for optimizer in HYPER]
ON_VULKAN = [
    ("mlp", "momentum", "vulkan"),
    ("mlp", "adamw", "vulkan"),
    pytest.param(("gpt", "adamw", "vulkan"), marks=pytest.mark.slow),
    pytest.param(("cnn", "adamw", "vulkan"), marks=pytest.mark.slow),
]  # ResNet-18 needs more than the 128 MiB that lavapipe shows a kernel


@pytest.fixture(scope="module", params=[*ON_CPU, *ON_VULKAN], ids="-".join)
def trajectory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trajectory]:
    name, optimizer, target = request.param
    if target == "vulkan":
        on_device.skip_without_device(tmp_path_factory.mktemp("probe"))
    case, run, golden = CASES[name], RUNS[name], _golden(name, optimizer)
    compiled = aotrain.compile(
        case.build(),
        output=tmp_path_factory.mktemp(name) / "model.aot",
        optimizer=optimizer,
        lr=run.lr[optimizer],
        hyper=HYPER[optimizer],
        batch=run.batch,
        target=target,
    )
    names = golden["names"].tolist()
    with aotrain.Session(compiled.path, threads=2) as session:
        start = session.state_dict()
        losses = [
            session.step(**dict(zip(session.inputs(), batch, strict=True)))
            for batch in case.batches(STEPS, run.batch)
        ]
        final = session.state_dict()
        block_bytes = session.block_bytes
    roles = (Role.TRAINABLE, Role.BUFFER)
    yield Trajectory(
        compiled.plan,
        block_bytes,
        {tensor.name for tensor in compiled.plan.tensors if tensor.role in roles},
        np.array(losses),
        summarize({n: start[n] for n in names}, {n: final[n] for n in names}),
        golden,
    )


def test_losses(trajectory: Trajectory) -> None:
    for reference in ("losses", "losses32"):  # PyTorch in float64, and in float32
        np.testing.assert_allclose(
            trajectory.losses, trajectory.golden[reference], rtol=LOSS_TOLERANCE
        )


def test_the_same_tensors_train(trajectory: Trajectory) -> None:
    assert trajectory.parameters == set(trajectory.golden["names"].tolist())


@pytest.mark.parametrize("measure", TOLERANCES)
def test_parameters_and_statistics(trajectory: Trajectory, measure: str) -> None:
    found = errors(trajectory.tensors, trajectory.golden)[measure]
    worst = found.argmax()
    name = trajectory.golden["names"][worst]
    assert found[worst] <= TOLERANCES[measure], f"{measure} of '{name}': {found[worst]:.2e}"


def test_planned_peak_is_what_the_loader_allocates(trajectory: Trajectory) -> None:
    assert trajectory.block_bytes == trajectory.plan.block_bytes > 0
