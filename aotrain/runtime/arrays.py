"""Whatever holds an array in; NumPy's, in a tensor's own shape and dtype, out."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotrain.data.bind import ONE_HOT
from aotrain.errors import Diagnostic, InputError


def as_array(name: str, value: Any) -> np.ndarray:
    """`value` by DLPack or numpy's array protocol, without a copy where that goes."""
    only_dlpack = hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)
    try:
        return np.from_dlpack(value) if only_dlpack else np.asarray(value)
    except Exception as error:  # whatever a foreign __dlpack__ or __array__ raises
        hint = "give it as a numpy array, or as a tensor in the CPU's memory"
        message = f"'{name}' is a {type(value).__name__} that makes no array: {error}"
        raise InputError(Diagnostic("AOT-D002", message, hint=hint)) from error


def fitting(name: str, value: Any, target: np.ndarray) -> np.ndarray:
    """`value` as an array of exactly the target's shape and dtype; integers may widen."""
    array = as_array(name, value)
    exact = array.dtype == target.dtype or _lossless(array, target.dtype)
    if array.shape == target.shape and exact:
        return array
    message = f"'{name}' is {array.dtype}{list(array.shape)}, "
    message += f"expected {target.dtype}{list(target.shape)}"
    hint = ""
    if array.shape == target.shape and array.dtype.kind in "biuf":
        hint = f"convert it with np.asarray(value, np.{target.dtype})"
    elif array.ndim == target.ndim + 1 and target.dtype.kind == "i":
        hint = ONE_HOT
    raise InputError(Diagnostic("AOT-D002", message, hint=hint))


def _lossless(array: np.ndarray, dtype: np.dtype) -> bool:
    if array.dtype.kind not in "iu" or dtype.kind not in "iu":
        return array.ndim == 0 and array.dtype.kind in "iuf" and dtype.kind == "f"
    limits = np.iinfo(dtype)
    return array.size == 0 or bool(limits.min <= array.min() and array.max() <= limits.max)
