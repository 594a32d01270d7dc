"""Evaluation of a padded batch equals that of the rows alone."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from aotrain.step import LossOptions, StepOptions, TrainStep, build
from tests.step.program import Runner, model

RNG = np.random.default_rng(11)
BATCH = 6


def shifted(shape: tuple[int, ...], loss: LossOptions, *, merged: bool = False) -> TrainStep:
    """Output = x + w; `merged`: with the first two dimensions as one."""

    def body(bb, x, w):
        total = bb.emit(relax.op.add(x, w))
        if merged:
            total = bb.emit(relax.op.reshape(total, (shape[0] * shape[1], *shape[2:])))
        return [total]

    made = model({"x": (shape, "float32")}, {"w": np.zeros((), np.float32)}, body)
    return build(made, StepOptions(loss))


def data(shape: tuple[int, ...], step: TrainStep) -> dict[str, np.ndarray]:
    x = RNG.standard_normal(shape).astype(np.float32)
    spec = step.inputs[-1]
    if spec.dtype == "int64":
        return {"x": x, "y": RNG.integers(0, step.labels, spec.shape)}
    return {"x": x, "y": RNG.standard_normal(spec.shape).astype(np.float32)}


def padded(batch: dict[str, np.ndarray], rows: int, repeat: int) -> dict[str, np.ndarray]:
    """Rows from `rows` on become NaN, and labels no class."""
    batch = {k: v.copy() for k, v in batch.items()}
    batch["x"][rows:] = np.nan
    y = batch["y"]
    y[rows * repeat :] = 1000 if y.dtype == np.int64 else np.nan
    return batch


def cut(batch: dict[str, np.ndarray], rows: int, repeat: int) -> dict[str, np.ndarray]:
    return {"x": batch["x"][:rows], "y": batch["y"][: rows * repeat]}


WEIGHTS = RNG.uniform(0.3, 2, 4).astype(np.float32)

CASES = {
    "classes": ((BATCH, 4), LossOptions("cross-entropy"), False),
    "pixels": (
        (BATCH, 4, 3),
        LossOptions("cross-entropy", class_weights=WEIGHTS, label_smoothing=0.1, ignore_index=2),
        False,
    ),
    "tokens": ((BATCH, 3, 4), LossOptions("cross-entropy", axis=-1), False),
    "merged": ((BATCH, 3, 4), LossOptions("cross-entropy"), True),
    "sum": ((BATCH, 4), LossOptions("cross-entropy", reduction="sum"), False),
    "mse": ((BATCH, 4), LossOptions("mse"), False),
    "huber-sum": ((BATCH, 4), LossOptions("huber", reduction="sum"), False),
    "bce": ((BATCH, 4), LossOptions("bce-with-logits", pos_weight=WEIGHTS), False),
}


@pytest.mark.parametrize("name", CASES)
def test_padding_changes_nothing(name: str) -> None:
    shape, loss, merged = CASES[name]
    rows, repeat = 4, shape[1] if merged else 1
    whole = shifted(shape, loss, merged=merged)
    batch = data(shape, whole)
    short = Runner(shifted((rows, *shape[1:]), loss, merged=merged))
    run = Runner(whole)
    got = run("eval", **padded(batch, rows, repeat), rows=np.int32(rows))
    want = short("eval", **cut(batch, rows, repeat), rows=np.int32(rows))
    assert got.keys() == want.keys()
    np.testing.assert_allclose(got["loss"], want["loss"], rtol=1e-6)
    for name in ("correct", "count"):
        np.testing.assert_array_equal(got.get(name), want.get(name))
    trained = run("train", **batch)["loss"]
    run.state["w"] = np.zeros((), np.float32)
    full = run("eval", **batch, rows=np.int32(BATCH))
    np.testing.assert_allclose(full["loss"], trained, rtol=1e-6)


def test_correct_and_count_of_pixels() -> None:
    step = shifted((BATCH, 4, 3), LossOptions("cross-entropy", ignore_index=2))
    batch = data((BATCH, 4, 3), step)
    got = Runner(step)("eval", **batch, rows=np.int32(5))
    x, y = batch["x"][:5], batch["y"][:5]
    assert got["count"] == (y != 2).sum()
    assert got["correct"] == ((x.argmax(1) == y) & (y != 2)).sum()
    assert 0 < got["correct"] < got["count"] < y.size


def test_a_scalar_loss_cannot_be_padded_and_says_so() -> None:
    def body(bb, x, w):
        return [bb.emit(relax.op.sum(bb.emit(relax.op.multiply(x, w))), "cost")]

    made = model({"x": ((2, 3), "float32")}, {"w": np.ones(3, np.float32)}, body)
    step = build(made)
    assert any("counts every row" in note for note in step.notes)
    got = Runner(step)("eval", x=np.ones((2, 3), np.float32), rows=np.int32(1))
    assert got == {"loss": 6.0}
