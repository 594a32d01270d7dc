"""aotrain: an ahead-of-time training compiler. ONNX in, a standalone training program out.

    import aotrain

    model = aotrain.compile("model.onnx", output="model.aot", loss="cross-entropy")
    model.fit("train.npz", epochs=5)
    model.export("trained.onnx")

    session = aotrain.Session("model.aot")  # the same folder, later
    aotrain.export("model.aot", state="trained.safetensors", output="trained.onnx")

Each name is imported when it is first used: `import aotrain` itself loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from aotrain.errors import AotError, Diagnostic, ExitCode

if TYPE_CHECKING:
    from aotrain.checker import check
    from aotrain.compiled import Compiled
    from aotrain.compiler import compile
    from aotrain.exporter import export
    from aotrain.runtime import Session
    from aotrain.runtime.session import NotFiniteError
    from aotrain.verifier import verify

    __version__: str

__all__ = [
    "AotError",
    "Compiled",
    "Diagnostic",
    "ExitCode",
    "NotFiniteError",
    "Session",
    "check",
    "compile",
    "export",
    "verify",
]

_LAZY = {
    "Compiled": "aotrain.compiled",
    "NotFiniteError": "aotrain.runtime.session",
    "Session": "aotrain.runtime",
    "check": "aotrain.checker",
    "compile": "aotrain.compiler",
    "export": "aotrain.exporter",
    "verify": "aotrain.verifier",
}
"""Public name -> the module that holds it."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("aotrain")
    if name not in _LAZY:
        raise AttributeError(f"module 'aotrain' has no attribute '{name}'")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
