"""Measured kernels: read from a profile, believed by the solver, refused from another program."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import aotrain
from aotrain.describe_memory import read_report
from aotrain.errors import InputError
from aotrain.memory.times import read_times
from tests.models import TINY


def test_a_profile_decides_what_runs_again(tmp_path: Path) -> None:
    case = TINY["mlp"]
    free = tmp_path / "free.aot"
    aotrain.compile(case.build(), output=free, batch=case.batch)
    command = [free / "aotrun", free, "--bench", "3", "--profile", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path = tmp_path / "profile.json"
    path.write_text(done.stdout)
    measured = read_times(path)
    again = aotrain.compile(
        case.build(), output=tmp_path / "again.aot", batch=case.batch, times=path
    )
    train = again.plan.entry("train")
    want = sum(measured[again.plan.kernels[launch.kernel]] for launch in train.launches)
    assert read_report(again.path)[1].entry("train").nanoseconds == want > 0
    with pytest.raises(InputError, match="AOT-M012"):
        aotrain.compile(
            case.build(), output=tmp_path / "m.aot", batch=case.batch, times={"other": 1}
        )
    assert not (tmp_path / "m.aot").exists()


def test_the_least_of_a_kernels_launches_counts(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    rows = [{"kernel": "a", "ns": 5}, {"kernel": "b", "ns": 7}, {"kernel": "a", "ns": 3}]
    for key in ("launches", "kernels"):
        path.write_text(json.dumps({key: rows}))
        assert read_times(path) == {"a": 3, "b": 7}


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"launches": [{"ns": 1}]}'])
def test_what_is_no_profile_is_refused(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match="AOT-M012"):
        read_times(path)
