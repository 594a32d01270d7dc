"""A `TrainStep` in, its kernels and launches out: all of lowering as one flat list of phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from aotrain.passes.extract import extract
from aotrain.passes.fold_transposes import FoldTransposes
from aotrain.passes.graph import KernelGraph
from aotrain.passes.names import group_origins
from aotrain.passes.views import RESHAPE, legalize_views
from aotrain.step.program import TrainStep

Dump = Callable[[str, tvm.IRModule], None]


def lower(
    step: TrainStep,
    target: Target,
    *,
    legalize: dict[str, Any] | None = None,
    dump: Dump | None = None,
) -> KernelGraph:
    """Lower every entry of `step`.

    `legalize` maps operators to legalizations that the target prefers; `dump(phase, module)` is
    called after each phase. Raises UnsupportedModelError with every operator that has no kernel.
    """
    legal = {**legalize_views(), **(legalize or {})}
    phases: list[tuple[str, tvm.transform.Pass]] = [
        ("canonicalize", relax.transform.CanonicalizeBindings()),
        ("fold-transposes", FoldTransposes()),
        ("dead-code", relax.transform.DeadCodeElimination([e.name for e in step.entries])),
        ("scans", relax.backend.DispatchSortScan()),
        ("legalize", relax.transform.LegalizeOps(legal, skip_ops=[RESHAPE])),
        ("pattern", relax.transform.AnnotateTIROpPattern()),
        ("fuse-ops", relax.transform.FuseOps()),
        ("fuse-tir", relax.transform.FuseTIR()),
    ]
    module = step.module
    origins: dict[str, dict[str, str]] = {}
    with target:
        for name, transform in phases:
            before, module = module, transform(module)
            if dump:
                dump(name, module)
            if name == "fuse-ops":
                origins = {
                    e.name: group_origins(before, module, e.name, step.origins)
                    for e in step.entries
                }
    return extract(module, step, origins)
