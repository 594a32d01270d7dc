"""An artifact's folder in; its `libaotrun.so` out, opened once, with the types of aotrun.h."""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path
from typing import Any

from aotrain.errors import Diagnostic, InputError
from aotrain.files import check_listed
from aotrain.plan import ITEM_BYTES, Kind, Role

DTYPES = tuple(ITEM_BYTES)
KINDS = tuple(Kind)
ROLES = (None, *Role)

NOT_FINITE, BAD_ARGUMENT, KERNEL, DEVICE = 1, 5, 8, 10  # aot_status in aotrun.h


class Launch(ctypes.Structure):
    """`aot_launch`."""

    _fields_ = (
        ("entry", ctypes.c_char_p),
        ("kernel", ctypes.c_char_p),
        ("origin", ctypes.c_char_p),
        ("index", ctypes.c_uint32),
        ("ns", ctypes.c_uint64),
    )


Trace = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Launch))
"""What `Options.trace` takes; whoever makes one must keep it until the handle is closed."""


class Options(ctypes.Structure):
    """`aot_options`."""

    _fields_ = (("threads", ctypes.c_int), ("trace", Trace), ("user", ctypes.c_void_p))


class Info(ctypes.Structure):
    """`aot_info`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("tensors", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("block_bytes", ctypes.c_uint64),
        ("scratch_bytes", ctypes.c_uint64),
        ("table_bytes", ctypes.c_uint64),
        ("step", ctypes.c_int64),
        ("classes", ctypes.c_int64),
        ("ignored_label", ctypes.c_int64),
    )


class Tensor(ctypes.Structure):
    """`aot_tensor`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_uint32),
        ("index", ctypes.c_uint32),
        ("dtype", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("role", ctypes.c_int),
        ("bytes", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
    )


class Signature(ctypes.Structure):
    """`aot_signature`."""

    _fields_ = (
        ("inputs", ctypes.POINTER(ctypes.c_uint32)),
        ("outputs", ctypes.POINTER(ctypes.c_uint32)),
        ("input_count", ctypes.c_uint32),
        ("output_count", ctypes.c_uint32),
    )


class Result(ctypes.Structure):
    """`aot_result`."""

    _fields_ = (
        ("loss", ctypes.c_float),
        ("correct", ctypes.c_int64),
        ("count", ctypes.c_int64),
    )


class Note(ctypes.Structure):
    """`aot_note`."""

    _fields_ = (("key", ctypes.c_char * 32), ("value", ctypes.c_char * 96))


_loaded: dict[bytes, ctypes.CDLL] = {}
"""Libraries by the SHA-256 of their files. A process can load only so many that have thread-locals
(glibc's static TLS), and those of artifacts from one compiler are the same."""


def load(folder: Path) -> ctypes.CDLL:
    """The library of an artifact; InputError AOT-A010 where it cannot be loaded."""
    path = (folder / "libaotrun.so").resolve()
    try:
        digest = hashlib.sha256(path.read_bytes())
        if digest.digest() not in _loaded:
            check_listed(folder, path.name)  # to load a truncated one ends the process
            _loaded[digest.digest()] = _declare(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as error:
        raise InputError(Diagnostic("AOT-A010", f"cannot load {path}: {error}")) from error
    return _loaded[digest.digest()]


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """The functions' types: ctypes takes an int for everything otherwise."""
    handle, text = ctypes.c_void_p, ctypes.c_char_p
    pointer = ctypes.POINTER
    signatures: dict[str, tuple[Any, ...]] = {
        "aot_open": (text, pointer(Options), pointer(handle)),
        "aot_describe": (handle, pointer(Info)),
        "aot_get_tensor": (handle, ctypes.c_uint32, pointer(Tensor)),
        "aot_entry": (handle, text, pointer(Signature)),
        "aot_set_hyper": (handle, text, ctypes.c_double),
        "aot_step": (handle, pointer(ctypes.c_float)),
        "aot_eval": (handle, ctypes.c_int32, pointer(Result)),
        "aot_predict": (handle,),
        "aot_save": (handle, text, pointer(Note), ctypes.c_size_t),
        "aot_load": (handle, text, pointer(Note), ctypes.c_size_t),
    }
    for name, arguments in signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    library.aot_close.argtypes, library.aot_close.restype = (handle,), None
    library.aot_error.argtypes, library.aot_error.restype = (handle,), text
    return library


class Handle:
    """The library's handle. Session and views hold it; with the last of them it is closed."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library, self.pointer = library, ctypes.c_void_p()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Free it; a second call does nothing."""
        pointer, self.pointer = self.pointer, ctypes.c_void_p()
        if pointer:
            self.library.aot_close(pointer)
