"""Kernels before their schedules in, the choices that the database has for them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tvm_ffi

from aotrain.schedules.cpu import Choice
from aotrain.tuning import database

if TYPE_CHECKING:
    from tvm import tirx

    from aotrain.passes.graph import Kernel


@dataclass(frozen=True)
class Choices:
    """`of` maps names of kernels to what to hand to their schedule; `note` is of the database."""

    of: Mapping[str, tuple[Choice, ...]] = field(default_factory=dict)
    note: str = ""


def key(func: tirx.PrimFunc) -> str:
    """A kernel as the database names it: the same for equal functions, whatever they are called."""
    plain = func.without_attr("global_symbol")
    return f"{tvm_ffi.structural_hash(plain, map_free_vars=True) % 2**64:016x}"


def choices(target: str, kernels: Iterable[Kernel]) -> Choices:
    """What holds for `kernels` on the target of that full name."""
    found = database.read(target)
    best = found.best()
    if not best:
        return Choices(note=found.note())
    keys = {kernel.name: key(kernel.func) for kernel in kernels}
    return Choices(
        {
            name: tuple(Choice(**choice) for choice in best[key_])
            for name, key_ in keys.items()
            if key_ in best
        },
        found.note(),
    )
