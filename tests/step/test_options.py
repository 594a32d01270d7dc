"""Options that make no sense: all of them at once, with the nearest that does."""

from __future__ import annotations

import pytest

from aotrain.step.options import (
    DEFAULT_HYPER,
    HYPER_RANGE,
    LossOptions,
    OptimizerOptions,
    StepOptions,
    check,
)


def test_defaults_are_right() -> None:
    for kind in DEFAULT_HYPER:
        options = OptimizerOptions(kind)
        assert check(StepOptions(optimizer=options)) == []
        assert options.resolved() == DEFAULT_HYPER[kind]
        assert set(options.resolved()) <= set(HYPER_RANGE)


def test_hyper_overrides_defaults() -> None:
    resolved = OptimizerOptions("adamw", {"lr": 1, "beta2": 0.95}).resolved()
    assert resolved == {**DEFAULT_HYPER["adamw"], "lr": 1.0, "beta2": 0.95}


def test_all_problems_at_once() -> None:
    loss = LossOptions("cross_entropy", reduction="avg", label_smoothing=1.5, delta=0)
    found = check(StepOptions(loss, OptimizerOptions("adamW"), seed=-1))
    codes = [d.code for d in found]
    assert codes == ["AOT-S004", *["AOT-S008"] * 3, "AOT-S002", "AOT-S008"]
    assert "did you mean 'cross-entropy'" in found[0].hint
    assert "did you mean 'adamw'" in found[4].hint


@pytest.mark.parametrize(
    ("kind", "hyper", "words"),
    [
        ("sgd", {"momentum": 0.9}, "sgd has no hyperparameter 'momentum'"),
        ("adam", {"beta_1": 0.9}, "no hyperparameter 'beta_1'"),
        ("adam", {"beta1": 1.0}, "beta1 = 1.0"),
        ("adamw", {"lr": -1.0}, "lr = -1.0"),
        ("adamw", {"lr": float("nan")}, "lr = nan"),
        ("momentum", {"momentum": float("inf")}, "momentum = inf"),
    ],
)
def test_hyperparameters(kind: str, hyper: dict[str, float], words: str) -> None:
    (found,) = check(StepOptions(optimizer=OptimizerOptions(kind, hyper)))
    assert found.code == "AOT-S003"
    assert words in found.message


def test_close_hyperparameter_is_suggested() -> None:
    (found,) = check(StepOptions(optimizer=OptimizerOptions("adam", {"beta_1": 0.9})))
    assert "did you mean 'beta1'" in found.hint


def test_optimizers_that_have_a_hyperparameter_are_named() -> None:
    (found,) = check(StepOptions(optimizer=OptimizerOptions("sgd", {"momentum": 0.9})))
    assert "optimizers with 'momentum': momentum, nesterov" in found.hint
