"""Data files in; arrays under the names of a model's inputs out, or one `.npz` that `aotrun` reads.

The C loader reads stored `.npz`, `.npy` and IDX by itself. This package reads what it leaves out
(compressed `.npz`, `.csv`, `.gz`, folders of images), binds columns to inputs by `--map`, and says
all that does not fit at once.
"""

from .bind import Target, bind
from .prepare import Prepared, load, needs_signature, prepare
from .read import read, stored
from .write import write_npz

__all__ = [
    "Prepared",
    "Target",
    "bind",
    "load",
    "needs_signature",
    "prepare",
    "read",
    "stored",
    "write_npz",
]
