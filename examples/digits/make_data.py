"""scikit-learn's `digits.csv.gz` in; `train.npz` and `test.npz`, x and y, out.

Run as `python make_data.py PATH/sklearn/datasets/data/digits.csv.gz`; needs numpy alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HELD_OUT = 360  # of 1,797
SEED = 0


def main(source: str) -> None:
    """Split once, at random; pixels 0 .. 16 become float32 [N, 1, 8, 8] in [0, 1]."""
    table = np.loadtxt(source, delimiter=",")
    x = (table[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = table[:, 64].astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(x))
    here = Path(__file__).parent
    for name, rows in (("test", order[:HELD_OUT]), ("train", order[HELD_OUT:])):
        np.savez(here / f"{name}.npz", x=x[rows], y=y[rows])  # stored: the C loader maps it


if __name__ == "__main__":
    main(sys.argv[1])
