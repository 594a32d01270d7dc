"""PyTorch's trajectories: `make.py` writes `<model>.npz`, `tests/test_trajectories.py` reads them.

A file holds, for each optimizer of `RUNS`, keys `<optimizer>/...`:

    losses     float64[steps]  of a float64 run: the exact trajectory
    losses32   float64[steps]  of a float32 run
    l2, sum, moved  float64[P]  of every final parameter and buffer, sorted by name: its norm, its
                               sum, and the norm of its change since the start (float64 run)
    samples    float32[P, 64]  its elements at `positions(index, size)` (float64 run)
    noise      float64[4]      the largest error of the float32 run under the measures of `errors`

and `names`, str[P]. Running variances are converted to ONNX's definition (see `make.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SAMPLES = 64
STEPS = 20
HYPER = {
    "momentum": {"momentum": 0.9, "weight_decay": 0.0},
    "adamw": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
}
"""Hyperparameters besides lr, under aotrain's names, for each optimizer under aotrain's name."""

LOSS_TOLERANCE = 1e-4
TOLERANCES = {"l2": 1e-3, "sum": 1e-3, "samples": 1e-3, "moved": 2e-2}
"""Relative, under the measures of `errors`. `moved` sees a wrong learning rate or decay in tensors
that barely move; no float32 run meets 1e-3 there, see `layers.batch_norm`."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Run:
    """A case of `tests.models.CASES` with a batch size and a learning rate for each optimizer.

    The rates are low enough that rounding does not grow along the trajectory: `make.py` refuses
    a run whose float32 and float64 trajectories differ by a quarter of a tolerance.
    """

    batch: int
    lr: dict[str, float]


RUNS = {
    "mlp": Run(32, {"momentum": 0.01, "adamw": 1e-3}),
    "cnn": Run(32, {"momentum": 1e-3, "adamw": 1e-3}),
    "resnet18": Run(8, {"momentum": 1e-3, "adamw": 1e-5}),
    "gpt": Run(8, {"momentum": 0.02, "adamw": 1e-3}),
}


def positions(index: int, size: int) -> np.ndarray:
    """Where to sample tensor `index` of `size` elements: int64[64], all of them if they are few."""
    if size <= SAMPLES:
        return np.arange(SAMPLES) % size
    return np.random.default_rng([7, index]).integers(0, size, SAMPLES)


def summarize(start: Arrays, final: Arrays) -> Arrays:
    """The tensors of a run in the form of a golden file, without the prefix."""
    names = sorted(final)
    flat = [final[name].ravel().astype(np.float64) for name in names]
    moved = [final[name].astype(np.float64) - start[name] for name in names]
    return {
        "names": np.array(names),
        "l2": np.array([np.linalg.norm(v) for v in flat]),
        "sum": np.array([v.sum() for v in flat]),
        "moved": np.array([np.linalg.norm(v.ravel()) for v in moved]),
        "samples": np.array([v[positions(i, v.size)] for i, v in enumerate(flat)], np.float32),
    }


def errors(got: Arrays, want: Arrays) -> Arrays:
    """Relative errors of each tensor, float64[P] under "l2", "sum", "moved" and "samples".

    A norm is relative to itself; a sum to the norm, since its terms cancel; a sample to the
    larger of itself and the samples' root mean square, since an element may be near zero.
    """
    scale = np.maximum(want["l2"], 1e-12)
    samples = want["samples"].astype(np.float64)
    rms = np.sqrt((samples**2).mean(axis=1, keepdims=True))
    floor = np.maximum(np.maximum(np.abs(samples), rms), 1e-12)
    return {
        "l2": np.abs(got["l2"] - want["l2"]) / scale,
        "sum": np.abs(got["sum"] - want["sum"]) / scale,
        "moved": np.abs(got["moved"] - want["moved"]) / np.maximum(want["moved"], 1e-12),
        "samples": (np.abs(got["samples"] - samples) / floor).max(axis=1),
    }
