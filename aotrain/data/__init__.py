"""Data files in; arrays under the names of a model's inputs out, or one `.npz` that `aotrun` reads.

The C loader reads stored `.npz`, `.npy` and IDX by itself. This package reads what it leaves out
(compressed `.npz`, `.csv`, `.gz`), binds columns to inputs by `--map`, and says all that does not
fit at once.
"""

from .bind import Target, bind
from .prepare import Prepared, prepare
from .read import read, stored
from .write import write_npz

__all__ = ["Prepared", "Target", "bind", "prepare", "read", "stored", "write_npz"]
