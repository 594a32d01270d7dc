"""What no vector schedule fits is named where it costs much."""

from __future__ import annotations

from pathlib import Path

import onnx

import aotrain
from aotrain import scalar
from aotrain.memory.cost import LAUNCH
from aotrain.plan import Entry, Launch, Plan
from tests.models import TINY
from tests.models.graph import Graph
from tests.models.layers import conv, gemm


def plan(*kernels: str) -> Plan:
    launches = tuple(
        Launch(kernel=i, args=(), writes=(), origin=f"{name} node")
        for i, name in enumerate(kernels)
    )
    entry = Entry("train", launches=launches, inputs=(), outputs=())
    return Plan(tensors=(), kernels=kernels, entries=(entry,))


def test_a_share_above_one_percent_is_told() -> None:
    times = {0: LAUNCH + 20_000, 1: LAUNCH + 2000, 2: 0}
    (note,) = scalar.warnings(plan("a", "b", "c"), {"a": "pointwise", "b": "fallback"}, times)
    assert "fits b node:" in note
    assert "61%" in note  # 32,500 of 53,000


def test_a_small_share_is_not() -> None:
    assert scalar.warnings(plan("a", "b"), {"b": "serial"}, {0: 0, 1: LAUNCH + 100}) == ()
    assert scalar.warnings(plan("a", "b"), {"b": "serial"}, {0: 10**7, 1: LAUNCH + 2000}) == ()


def compiled(model: onnx.ModelProto, folder: Path) -> list[str]:
    phases = []
    aotrain.compile(model, output=folder / f"{model.graph.name}.aot", batch=4, report=phases.append)
    notes = [note for phase in phases for note in phase.notes]
    return [note for note in notes if "scalar loops" in note]


def test_a_compile_says_so(tmp_path: Path) -> None:
    g = Graph("pool", seed=0)
    x = conv(g, g.input("x", 1, 16, 16), "conv", (1, 8), 3, bias=True)
    x = g.op("MaxPool", x, name="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = g.op("Flatten", x, name="flatten", axis=1)
    (note,) = compiled(g.model(gemm(g, x, "fc", 512, 10, gain=1.0), "logits", 10), tmp_path)
    assert "MaxPool node 'pool'" in note or "/pool" in note
    assert compiled(TINY["mlp"].build(), tmp_path) == []
