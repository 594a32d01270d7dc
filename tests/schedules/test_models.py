"""Every kernel of the tiny models' training steps: scheduled as unscheduled."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from aotrain import importer
from aotrain.importer.options import ImportOptions
from aotrain.passes import pipeline
from aotrain.step.build import build
from tests.models import TINY
from tests.schedules.kernels import TARGET, check


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_every_kernel_keeps_its_results(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(TINY[name].build(), path)
    model = importer.load(path, ImportOptions(batch=3))
    graph = pipeline.lower(build(model), TARGET)
    # Positive data: an optimizer's update by a random second moment is not a number.
    rules = {check(kernel.func, positive=True) for kernel in graph.kernels}
    assert "reduction" in rules
    assert "serial" not in rules
