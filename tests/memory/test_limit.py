"""A process that may not map more than the budget trains what needs three times as much."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import numpy as np
import pytest

import aotrain
from tests.models import gpt

BATCH, LAYERS = 64, 12
BESIDE = 16 << 20
"""Bytes of address space for code, stacks, the C library and the data file."""


@pytest.mark.slow
def test_what_needs_three_times_the_limit_trains_within_it(tmp_path: Path) -> None:
    model = gpt.build(layers=LAYERS)
    free = aotrain.compile(model, output=tmp_path / "free.aot", batch=BATCH)
    budget = free.plan.block_bytes // 3
    aotrain.compile(model, output=tmp_path / "tight.aot", batch=BATCH, memory_budget=budget)
    draw = np.random.default_rng(0)
    tokens = draw.integers(0, 96, (2 * BATCH, 33))
    np.savez(tmp_path / "data.npz", tokens=tokens[:, :-1], y=tokens[:, 1:])

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (budget + BESIDE, budget + BESIDE))

    def train(artifact: str, **options: object) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / artifact
        command = [folder / "aotrun", folder, "--data", tmp_path / "data.npz", "--threads", "1"]
        command += ["--save", tmp_path / f"{artifact}.safetensors"]
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    assert train("free.aot").returncode == 0
    tight = train("tight.aot", preexec_fn=limit)
    assert tight.returncode == 0, tight.stderr
    refused = train("free.aot", preexec_fn=limit)
    assert refused.returncode == 1 and "AOT-M030" in refused.stderr, refused
    states = [tmp_path / f"{name}.aot.safetensors" for name in ("free", "tight")]
    assert states[0].read_bytes() == states[1].read_bytes()
