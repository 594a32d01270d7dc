"""Run as a process of its own: an ONNX file in, an artifact and its figures as JSON out."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import aotrain


def main(model: str, output: str, batch: str, recompute: str) -> None:
    """AdamW at its defaults; the time is that of `aotrain.compile`, imports included.

    recompute: the share of a step's time that may go into computing again; "" for none.
    """
    started = time.perf_counter()
    compiled = aotrain.compile(
        model,
        output=output,
        optimizer="adamw",
        lr=1e-3,
        loss="cross-entropy",
        batch=int(batch),
        recompute_budget=float(recompute) if recompute else None,
        tuning=False,
    )
    seconds = time.perf_counter() - started
    program = ("kernels.so", "aotrun", "libaotrun.so")
    sizes = {file.name: file.stat().st_size for file in Path(output).iterdir()}
    figures = {
        "compile_s": seconds,
        "program_bytes": sum(sizes.get(name, 0) for name in program),
        "artifact_bytes": sum(sizes.values()),
        "block_bytes": compiled.plan.block_bytes,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
