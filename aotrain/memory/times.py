"""A report of measured kernels in, nanoseconds by kernel name out, for the solver.

Two programs write such reports as JSON: `aotrun --bench N --profile --json` and `aotrain bench
--json`. Kernels keep their names when a model is compiled again with another budget.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from aotrain.errors import Diagnostic, InputError
from aotrain.plan import Plan


def read_times(path: Path) -> dict[str, int]:
    """Of each kernel the least time of its launches, in ns. InputError: AOT-M012."""
    try:
        report = json.loads(path.read_bytes())
        rows = report["launches"] if "launches" in report else report["kernels"]
        times: dict[str, int] = {}
        for row in rows:
            name, ns = str(row["kernel"]), int(row["ns"])
            times[name] = min(ns, times.get(name, ns))
    except OSError as error:
        message = f"cannot read '{path}': {error.strerror}"
        raise InputError(Diagnostic("AOT-M012", message)) from error
    except (ValueError, KeyError, TypeError) as error:
        message = f"'{path}' holds no times of kernels"
        hint = "aotrun model.aot --bench 20 --profile --json writes them"
        raise InputError(Diagnostic("AOT-M012", message, hint=hint)) from error
    return times


def measured_times(
    plan: Plan, modelled: Mapping[int, int], measured: Mapping[str, int]
) -> dict[int, int]:
    """`modelled` by kernel index, but what was `measured` under the kernel's name where it was.

    Raises InputError (AOT-M012) if no kernel of `plan` was.
    """
    if not any(name in measured for name in plan.kernels):
        message = "the measured times are those of another program: no kernel has a name of this"
        hint = "measure an artifact of the same model, compiled with the same options"
        raise InputError(Diagnostic("AOT-M012", message, hint=hint))
    return {index: measured.get(plan.kernels[index], ns) for index, ns in modelled.items()}
