"""Which loss `auto` takes, where the classes are, and how a loss that does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tvm import relax

from aotrain.errors import UnsupportedModelError, UsageError
from aotrain.importer.model import Model
from aotrain.step import LossOptions, StepOptions, build
from aotrain.step.resolve import resolve
from tests.step.program import mlp, model

op = relax.op


def made(ends: Callable, shape: tuple[int, ...], dtype: str = "float32") -> Model:
    """`ends(bb, x + w)`; integer inputs are looked up in a table `w` [10, 4] instead."""

    def body(bb, x, w):
        if dtype == "float32":
            return [ends(bb, bb.emit(op.add(x, w)))]
        rows = bb.emit(op.take(w, bb.emit(op.reshape(x, (-1,))), axis=0))
        return [ends(bb, bb.emit(op.reshape(rows, (*shape, 4))))]

    w = np.zeros(() if dtype == "float32" else (10, 4), np.float32)
    return model({"x": (shape, dtype)}, {"w": w}, body)


def dense(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
    """x [..., k] -> [..., 5], with a bias."""
    weight = relax.const(np.ones((int(x.ty.shape[-1]), 5), np.float32))
    return bb.emit(op.add(bb.emit(op.matmul(x, weight)), relax.const(np.ones(5, np.float32))))


def conv(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
    weight = relax.const(np.ones((5, int(x.ty.shape[1]), 1, 1), np.float32))
    return bb.emit(op.nn.conv2d(x, weight))


def pooled(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
    mean = bb.emit(op.nn.adaptive_avg_pool2d(conv(bb, x), (1, 1)))
    return bb.emit(op.reshape(mean, (int(x.ty.shape[0]), 5)))


def softmax(axis: int) -> Callable:
    return lambda bb, x: bb.emit(op.nn.softmax(x, axis=axis))


def flat_softmax(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
    """Softmax of opset 12 over [N, C, 1, 1]."""
    dims = [int(d) for d in x.ty.shape]
    flat = bb.emit(op.reshape(x, (dims[0], -1)))
    return bb.emit(op.reshape(bb.emit(op.nn.softmax(flat, axis=1)), dims))


AUTO = {
    "softmax": (made(softmax(-1), (2, 3, 4)), "cross-entropy", 2, True),
    "softmax-channels": (made(softmax(1), (2, 4, 3, 3)), "cross-entropy", 1, True),
    "softmax-opset12": (made(flat_softmax, (2, 4, 1, 1)), "cross-entropy", 1, True),
    "dense": (made(dense, (2, 4)), "cross-entropy", 1, False),
    "pooled": (made(pooled, (2, 4, 3, 3)), "cross-entropy", 1, False),
    "pooled-4d": (made(conv, (2, 4, 1, 1)), "cross-entropy", 1, False),
    "tokens": (made(dense, (2, 3), "int64"), "cross-entropy", 2, False),
    "image": (made(conv, (2, 4, 3, 3)), "mse", -1, False),
    "sequence": (made(dense, (2, 3, 4)), "mse", -1, False),
    "activation": (made(lambda bb, x: bb.emit(op.tanh(dense(bb, x))), (2, 4)), "mse", -1, False),
    "single": (
        made(lambda bb, x: bb.emit(op.matmul(x, relax.const(np.ones((4, 1), "float32")))), (2, 4)),
        "mse", -1, False,
    ),
    "scalar": (made(lambda bb, x: bb.emit(op.sum(x)), (2, 4)), "output", -1, False),
}  # fmt: skip


@pytest.mark.parametrize("name", AUTO)
def test_auto(name: str) -> None:
    made_model, kind, axis, look_through = AUTO[name]
    loss, problems = resolve(made_model, LossOptions())
    assert problems == []
    assert (loss.kind, loss.axis, loss.look_through) == (kind, axis, look_through)
    assert kind in loss.notes[0]
    assert "auto" in loss.notes[0]


def test_class_axis_defaults() -> None:
    """That of the last layer where it is known, else 1 as in PyTorch."""
    options = LossOptions("cross-entropy")
    for ends, shape, axis in (
        (dense, (2, 3, 4), 2),
        (conv, (2, 4, 3, 3), 1),
        (lambda bb, x: bb.emit(op.tanh(x)), (2, 3, 4), 1),
        (lambda bb, x: bb.emit(op.tanh(x)), (4,), 0),
    ):
        loss, problems = resolve(made(ends, shape), options)
        assert problems == []
        assert loss.axis == axis
        assert loss.target.shape == tuple(d for i, d in enumerate(loss.fed.shape) if i != axis)


def test_softmax_over_another_axis_stays() -> None:
    loss, _ = resolve(made(softmax(2), (2, 3, 4)), LossOptions("cross-entropy", axis=1))
    assert (loss.axis, loss.look_through) == (1, False)


def test_softmax_between_reshapes_that_mix_axes_stays() -> None:
    loss, _ = resolve(made(flat_softmax, (2, 4, 3, 1)), LossOptions("cross-entropy"))
    assert not loss.look_through


def test_bce_takes_the_logits_before_a_sigmoid() -> None:
    weights = {"w1": (3, 4), "b1": (4,), "w2": (4, 2), "b2": (2,)}
    arrays = {n: np.ones(s, np.float32) for n, s in weights.items()}
    step = build(mlp(arrays, batch=2, ends="sigmoid"), StepOptions(LossOptions("bce-with-logits")))
    assert any("sigmoid" in note for note in step.notes)
    assert "relax.sigmoid" not in [
        b.value.op.name
        for b in step.module["eval"].body.blocks[0].bindings
        if isinstance(b.value, relax.Call)
    ]


REFUSED = {
    "no output of that name": (LossOptions("mse", output="outptu"), "AOT-S005", "output"),
    "not float": (LossOptions("mse", output="index"), "AOT-S005", "not float"),
    "axis": (LossOptions("cross-entropy", axis=2), "AOT-S006", "no axis 2"),
    "single class": (LossOptions("cross-entropy", "column"), "AOT-S006", "bce-with-logits"),
    "scalar": (LossOptions("cross-entropy", "cost"), "AOT-S006", "class axis"),
    "weights": (LossOptions("cross-entropy", class_weights=np.ones(3)), "AOT-S007", r"\[4\]"),
    "pos_weight": (LossOptions("bce-with-logits", pos_weight=np.ones(3)), "AOT-S007", "pos_weight"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    options, code, words = REFUSED[name]

    def body(bb, x, w):
        output = bb.emit(op.add(x, w))
        cost = bb.emit(op.sum(output))
        column = bb.emit(op.sum(output, axis=1, keepdims=True))
        return [bb.emit(op.argmax(output, axis=1)), output, column, cost]

    outputs = ("index", "output", "column", "cost")
    many = model({"x": ((2, 4), "float32")}, {"w": np.ones(4, np.float32)}, body, outputs=outputs)
    with pytest.raises(UsageError, match=words) as raised:
        build(many, StepOptions(options))
    assert [d.code for d in raised.value.diagnostics] == [code]
    assert resolve(many, LossOptions())[0].output == 1  # the first float one


SIZES = {"w1": (4, 6), "b1": (6,), "w2": (6, 3), "b2": (3,)}
SMALL = mlp({name: np.ones(s, np.float32) for name, s in SIZES.items()}, batch=2)


@pytest.mark.parametrize(
    "outputs, target", [(["z"], "y"), (["y"], "target"), (["y", "target", "labels"], "target_0")]
)
def test_the_target_takes_no_name_of_an_output(outputs: list[str], target: str) -> None:
    found = replace(SMALL, outputs=tuple(replace(SMALL.outputs[0], name=name) for name in outputs))
    loss, problems = resolve(found, LossOptions(kind="mse"))
    assert loss is not None and loss.target is not None and not problems
    assert loss.target.name == target


@pytest.mark.parametrize(
    "options, flag, owner",
    [
        (LossOptions("mse", label_smoothing=0.1), "--label-smoothing", "cross-entropy"),
        (LossOptions("mse", axis=1), "--class-axis", "cross-entropy"),
        (LossOptions("l1", ignore_index=3), "--ignore-index", "cross-entropy"),
        (LossOptions("huber", class_weights=np.ones(3)), "--class-weights", "cross-entropy"),
        (LossOptions("cross-entropy", delta=2.0), "--delta", "huber"),
        (LossOptions("mse", pos_weight=np.ones(3)), "--pos-weight", "bce-with-logits"),
    ],
)
def test_options_of_another_loss_are_refused(options: LossOptions, flag: str, owner: str) -> None:
    loss, problems = resolve(SMALL, options)
    assert loss is None
    assert [p.code for p in problems] == ["AOT-S008"]
    assert flag in problems[0].message and owner in problems[0].hint


@pytest.mark.parametrize("name", ["step", "rng", "lr", "optim.m.w"])
def test_an_output_called_as_the_state_is_refused(name: str) -> None:
    found = replace(SMALL, outputs=(replace(SMALL.outputs[0], name=name),))
    with pytest.raises(UnsupportedModelError, match=f"output '{name}'"):
        build(found)


def test_a_model_without_weights_says_so() -> None:
    found = replace(SMALL, parameters=())
    with pytest.raises(UnsupportedModelError) as caught:
        build(found)
    assert "holds no float weight" in caught.value.render()
    assert "--trainable" not in caught.value.render()


@pytest.mark.parametrize("index", [2**63, -(2**63) - 1])
def test_an_ignored_label_beyond_int64_is_refused(index: int) -> None:
    with pytest.raises(UsageError, match="ignored label"):
        build(SMALL, StepOptions(LossOptions("cross-entropy", ignore_index=index)))
