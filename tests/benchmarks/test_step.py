"""The benchmark's table from known figures, and the harness itself on a tiny model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import _machine, _table
from benchmarks._table import Figures, Result

ROOT = Path(__file__).parents[2]


@pytest.fixture
def results() -> list[Result]:
    return [
        Result(
            "mlp",
            64,
            {
                "aotrain": Figures(ms=[1.0, 2.0, 3.0, 2.0], peak_bytes=3 << 20),
                "other": Figures(ms=[5.0] * 4, peak_bytes=9 << 20),
                "third": Figures(reason="no such operator"),
            },
            compile_s=12.34,
            program_bytes=2048,
            artifact_bytes=5 << 20,
            block_bytes=1 << 20,
        )
    ]


def test_times_and_ratios(results: list[Result]) -> None:
    head, row = _table.times(results, ["aotrain", "other", "third"])
    cells = dict(zip(head, row, strict=True))
    assert cells["aotrain, ms"] == "2.00 ±38%"  # quartiles 1.25 and 2.75
    assert cells["other / aotrain"] == "2.50"
    assert cells["third, ms"] == cells["third / aotrain"] == "-"


def test_sizes(results: list[Result]) -> None:
    head, row = _table.sizes(results, ["aotrain", "other"])
    assert dict(zip(head, row, strict=True)) == {
        "model": "mlp",
        "aotrain, MiB": "3.0",
        "other, MiB": "9.0",
        "planned, MiB": "1.0",
        "program, KiB": "2",
        "artifact, MiB": "5.0",
        "compile, s": "12.3",
    }


def test_an_empty_cell_has_its_reason(results: list[Result]) -> None:
    assert _table.notes(results) == ["third on mlp: no such operator"]


def test_markdown_has_a_ruler_and_every_row(results: list[Result]) -> None:
    lines = _table.markdown(_table.times(results, ["aotrain", "other"])).splitlines()
    assert len(lines) == 3
    assert len({line.count("|") for line in lines}) == 1


def test_machine_is_described() -> None:
    assert re.search(r"\d+ cores, \d+ GiB", _machine.describe())
    assert _machine.peak_resident() > 1 << 20


@pytest.mark.slow
def test_harness_trains_a_tiny_model(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = ["benchmarks/step.py", "--models", "mlp", "--tiny", "--quick", "--no-torch-compile"]
    done = subprocess.run(
        [sys.executable, *command, "--markdown", page], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^mlp +8 +\d+\.\d\d ±\d+%", done.stdout, re.MULTILINE)
    assert "| mlp | 8 |" in page.read_text()
