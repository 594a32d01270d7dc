"""Compiled with a budget, a model trains bit for bit as without, in fewer bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import aotrain
from aotrain.errors import BudgetError, UsageError
from aotrain.plan import Plan
from tests.models import TINY, Case

STEPS = 5


def trained(case: Case, folder: Path, **budget: float) -> tuple[Plan, list[float], dict, int]:
    """The plan, the losses of STEPS steps, the state after them, bytes allocated."""
    compiled = aotrain.compile(
        case.build(), output=folder, batch=case.batch, optimizer="adamw", **budget
    )
    with aotrain.Session(folder, threads=1) as session:
        losses = [
            session.step(**dict(zip(session.inputs(), batch, strict=True)))
            for batch in case.batches(STEPS)
        ]
        state = {name: array.tobytes() for name, array in session.state_dict().items()}
        return compiled.plan, losses, state, session.block_bytes


# of the arena without a budget; resnet18 cannot be much lower, the solver proves: the
# scratch of one gradient is most of it
@pytest.mark.parametrize(
    "name, share",
    [("gpt", 0.6), ("vit", 0.6), pytest.param("resnet18", 0.9, marks=pytest.mark.slow)],
)
def test_training_is_the_same_bit_for_bit(name: str, share: float, tmp_path: Path) -> None:
    case = TINY[name]
    free, losses, state, free_bytes = trained(case, tmp_path / "free")
    budget = free.persistent_bytes + int(share * free.arena_bytes)
    plan, tight_losses, tight_state, nbytes = trained(
        case, tmp_path / "tight", memory_budget=budget
    )
    assert nbytes == plan.block_bytes <= budget < free_bytes == free.block_bytes
    assert len(plan.entry("train").launches) > len(free.entry("train").launches)
    assert tight_losses == losses
    assert state == tight_state


def test_a_budget_that_cannot_be_kept_leaves_nothing_behind(tmp_path: Path) -> None:
    case = TINY["mlp"]
    with pytest.raises(BudgetError, match="AOT-M010") as caught:
        aotrain.compile(
            case.build(), output=tmp_path / "m.aot", batch=case.batch, memory_budget=1000
        )
    assert "the smallest plan found needs" in caught.value.render()
    assert not (tmp_path / "m.aot").exists()


@pytest.mark.parametrize("budget", [{"memory_budget": 0}, {"recompute_budget": -0.1}])
def test_a_budget_that_makes_no_sense(budget: dict, tmp_path: Path) -> None:
    case = TINY["mlp"]
    with pytest.raises(UsageError, match="AOT-M011"):
        aotrain.compile(case.build(), output=tmp_path / "m.aot", batch=case.batch, **budget)
