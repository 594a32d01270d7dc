"""Files that nobody here exported, as they are: compiled, then three steps on one batch.

The `light_*` files of the onnx wheel are the graphs of ImageNet classifiers with every weight 0.02,
which no classifier can train from (its logits are all alike, up to 1e31): their weights are drawn
anew and put in by `load_state_dict`, the graph stays. The other files are in wheels that a test run
may lack, with trained weights; each is skipped where it is not there:

    pip install --no-deps rapidocr-onnxruntime swift-f0 magika
"""

from __future__ import annotations

import importlib.util
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotrain
from aotrain.plan import Role
from aotrain.step import LossOptions

pytestmark = pytest.mark.slow

STEPS = 3


@dataclass(frozen=True)
class File:
    """A model in a wheel, and how to train it; `draw` replaces its weights."""

    package: str
    path: str
    lr: float
    optimizer: str = "sgd"  # without slots: VGG has 144 million parameters
    options: Mapping[str, Any] = field(default_factory=dict)
    draw: bool = False
    vectors: float | None = None  # what `draw` fills vectors with; None keeps the file's values
    integers: int = 0  # integer inputs are below it
    still: frozenset[str] = frozenset()  # weights without a gradient
    given: Mapping[str, float] = field(default_factory=dict)  # inputs that are settings

    def find(self) -> Path:
        """The file; the test is skipped where the wheel is not installed."""
        spec = importlib.util.find_spec(self.package)
        if spec is None or spec.origin is None:
            pytest.skip(f"{self.package} is not installed")
        return Path(spec.origin).parent / self.path


def _light(name: str, lr: float = 1e-2, vectors: float | None = None) -> File:
    """Of the onnx wheel; those without normalisation need a smaller step."""
    path = f"backend/test/data/light/light_{name}.onnx"
    return File(
        "onnx", path, lr, options={"batch": 2, "loss": "cross-entropy"}, draw=True, vectors=vectors
    )


FILES = {
    "alexnet": _light("bvlc_alexnet", 1e-4),
    "densenet121": _light("densenet121", 1e-3, vectors=1.0),
    "inception_v1": _light("inception_v1", 1e-3),
    "inception_v2": _light("inception_v2", 1e-3, vectors=1.0),
    "resnet50": _light("resnet50"),
    "shufflenet": _light("shufflenet"),
    "squeezenet": _light("squeezenet", 1e-3),
    "vgg19": _light("vgg19", 1e-4),
    "zfnet512": _light("zfnet512", 1e-4),
    # Chinese and Latin text lines, upright or upside down
    "text-direction": File(
        "rapidocr_onnxruntime",
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        1e-2,
        options={"batch": 4, "loss": "cross-entropy", "dims": {"x:2": 48, "x:3": 192}},
    ),
    # first and last bytes of a file -> one of 214 types; 256 is padding. The probabilities, out of
    # a softmax in pieces, serve as logits: their gradients are small, AdamW scales them
    "magika": File(
        "magika",
        "models/standard_v3_3/model.onnx",
        1e-3,
        "adamw",
        {"batch": 4, "loss": "cross-entropy"},
        integers=257,
    ),
    # 16 kHz audio -> pitch and the confidence in it, a frame every 256 samples
    "swift-f0": File(
        "swift_f0",
        "model.onnx",
        1e-3,
        options={
            "batch": 1,
            "dims": {"samples": 4096},
            "loss": LossOptions(kind="mse", output="confidence"),
        },
        still=frozenset({"v425"}),  # reaches the confidence through an ArgMax alone
        given={"fmin": 60.0, "fmax": 2000.0},  # Hz
    ),
}


def _drawn(value: np.ndarray, vectors: float | None, rng: np.random.Generator) -> np.ndarray:
    """He-normal matrices and kernels.

    The file's 0.02 does for vectors (small scales, small biases), but where two scales a layer
    multiply over a hundred layers: there gradients would vanish.
    """
    if value.ndim < 2:
        return value if vectors is None else np.full_like(value, vectors)
    std = math.sqrt(2 / math.prod(value.shape[1:]))
    return (rng.standard_normal(value.shape) * std).astype(np.float32)


def _batch(
    inputs: Mapping[str, np.ndarray], labels: int, integers: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Noise for the data; for the target, the last input, class indices or values in [0, 1)."""
    batch = {}
    for name, array in inputs.items():
        is_target = name == list(inputs)[-1]
        if array.dtype.kind in "iu":
            high = labels if is_target else integers
            batch[name] = rng.integers(0, high, array.shape).astype(array.dtype)
        elif is_target:
            batch[name] = rng.random(array.shape).astype(array.dtype)
        else:
            batch[name] = rng.standard_normal(array.shape).astype(array.dtype)
    return batch


@pytest.mark.parametrize("name", FILES)
def test_trains(name: str, tmp_path: Path) -> None:
    file, rng = FILES[name], np.random.default_rng(0)
    compiled = aotrain.compile(
        file.find(),
        output=tmp_path / "model.aot",
        optimizer=file.optimizer,
        lr=file.lr,
        **file.options,
    )
    trainable = [t.name for t in compiled.plan.tensors if t.role is Role.TRAINABLE]
    assert len(trainable) >= 10
    try:
        with aotrain.Session(compiled.path, threads=2) as session:
            assert session.block_bytes == compiled.plan.block_bytes
            state = session.state_dict()
            if file.draw:
                drawn = {n: _drawn(state[n], file.vectors, rng) for n in trainable}
                session.load_state_dict(state | drawn)
                state = session.state_dict()
            classes = session.info["classes"]
            batch = _batch(session.inputs(), classes, file.integers, rng) | file.given
            losses = [session.step(**batch) for _ in range(STEPS)]
            moved = [n for n, value in session.state_dict().items() if (value != state[n]).any()]
    finally:
        shutil.rmtree(compiled.path)  # up to a gigabyte
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0], losses
    # but for vectors: a shift has no gradient through the BatchNormalization of the next layer
    still = sorted(set(trainable) - set(moved) - file.still)
    assert all(state[n].ndim < 2 for n in still), still
