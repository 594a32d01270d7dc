"""Loss and optimizer cases, shared by the tests and by the script that makes their golden file.

Imports neither TVM nor PyTorch.
"""

from __future__ import annotations

from pathlib import Path

GOLDEN = Path(__file__).parent / "golden.npz"

STEPS = 200  # of an optimizer's trajectory
WIDTH = 12  # of the parameter that it moves

LOSSES: dict[str, tuple[str, tuple[int, ...], dict]] = {
    "plain": ("cross-entropy", (6, 5), {}),
    "sum": ("cross-entropy", (6, 5), {"reduction": "sum"}),
    "pixels": ("cross-entropy", (2, 5, 3, 4), {}),
    "last-axis": ("cross-entropy", (2, 4, 7), {"axis": -1}),
    "first-axis": ("cross-entropy", (5, 3), {"axis": 0}),
    "large": ("cross-entropy", (4, 3), {"scale": 300.0}),
    "ignore": ("cross-entropy", (3, 4, 5), {"ignored": -100}),
    "ignore-class": ("cross-entropy", (6, 5), {"ignored": 2, "ignore_index": 2}),
    "weights": ("cross-entropy", (6, 5), {"weights": True}),
    "weights-sum": ("cross-entropy", (6, 5), {"weights": True, "reduction": "sum"}),
    "smooth": ("cross-entropy", (6, 5), {"label_smoothing": 0.1}),
    "all": (
        "cross-entropy",
        (2, 5, 6),
        {"weights": True, "label_smoothing": 0.3, "ignored": -100},
    ),
    "all-sum": (
        "cross-entropy",
        (2, 5, 6),
        {"weights": True, "label_smoothing": 0.3, "ignored": -100, "reduction": "sum"},
    ),
    "mse": ("mse", (4, 3), {}),
    "mse-sum": ("mse", (4, 3), {"reduction": "sum"}),
    "l1": ("l1", (4, 3), {"tie": True}),
    "huber": ("huber", (4, 3), {"tie": True}),
    "huber-small": ("huber", (4, 3), {"delta": 0.3}),
    "bce": ("bce-with-logits", (4, 3), {}),
    "bce-large": ("bce-with-logits", (4, 3), {"scale": 200.0}),
    "bce-weights": ("bce-with-logits", (2, 4, 3), {"weights": True}),
}
"""Name -> kind, shape of the output, options of `LossOptions` and of the data:

`scale` of the output; `weights`: class weights, or pos_weight; `ignored`: a label that occurs;
`tie`: an element whose output equals its target.
"""

OPTIMIZERS: dict[str, tuple[str, dict[str, float]]] = {
    "sgd": ("sgd", {"lr": 0.1}),
    "sgd-decay": ("sgd", {"lr": 0.1, "weight_decay": 0.05}),
    "momentum": ("momentum", {"lr": 0.05, "momentum": 0.9}),
    "momentum-all": (
        "momentum",
        {"lr": 0.05, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.01},
    ),
    "nesterov": ("nesterov", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    "adam": ("adam", {"lr": 0.01}),
    "adam-all": (
        "adam",
        {"lr": 0.02, "beta1": 0.8, "beta2": 0.99, "eps": 1e-4, "weight_decay": 0.05},
    ),
    "adamw": ("adamw", {"lr": 0.01, "weight_decay": 0.1}),
}
"""Name -> kind, hyperparameters."""


def case_options(options: dict) -> dict:
    """The part of a case's options that `LossOptions` takes as it is."""
    return {k: v for k, v in options.items() if k not in ("scale", "weights", "ignored", "tie")}
