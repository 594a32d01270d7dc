"""A module after FuseOps in, the ONNX origin of each launch out.

FuseOps groups bindings into functions marked "Primitive" and names the group's result anew, but
keeps the names of the bindings inside; FuseTIR then drops them. So the origins are read in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import tvm
from tvm import relax


def group_origins(module: tvm.IRModule, origins: Mapping[str, object]) -> dict[str, str]:
    """Name of each fused function -> the origins of its bindings, with plus signs between."""
    result = {}
    for global_var, function in module.functions.items():
        if isinstance(function, relax.Function) and "Primitive" in (function.attrs or {}):
            found = dict.fromkeys(
                origin
                for binding in bindings(function)
                if (origin := origin_of(binding.var.name, origins))
            )
            result[global_var.name_hint] = " + ".join(found)
    return result


def origin_of(name: str, origins: Mapping[str, object]) -> str:
    """The origin of a binding's variable, "" when it has none."""
    return str(origins.get(name, ""))


def bindings(function: relax.Function) -> Iterator[relax.Binding]:
    """All bindings of a function in order."""
    for block in function.body.blocks:
        yield from block.bindings
