"""ONNX file in, forward program in Relax out: `load`, and `check` for a report on every node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotrain.importer.driver import load
    from aotrain.importer.options import ImportOptions
    from aotrain.importer.report import NodeReport, check

_WHERE = {"load": "driver", "ImportOptions": "options", "NodeReport": "report", "check": "report"}

__all__ = ["ImportOptions", "NodeReport", "check", "load"]


def __getattr__(name: str) -> Any:
    """Import on first use: the command line's help must not wait for TVM."""
    if name not in _WHERE:
        raise AttributeError(f"module 'aotrain.importer' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"aotrain.importer.{_WHERE[name]}"), name)
