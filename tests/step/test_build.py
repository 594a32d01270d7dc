"""What the step consists of: names, order, one forward pass, unique variables with origins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tvm import relax

from aotrain.errors import InputError, UnsupportedModelError
from aotrain.ops.registry import define
from aotrain.plan import Role
from aotrain.step import LossOptions, OptimizerOptions, StepOptions, TrainStep, build
from tests.step.program import Runner, mlp, model

BATCH, SIZES = 4, {"w1": (6, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {n: (0.4 * rng.standard_normal(s)).astype(np.float32) for n, s in SIZES.items()}


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((BATCH, 6)).astype(np.float32)
    return {"x": x, "y": rng.integers(0, 3, BATCH)}


def bindings(step: TrainStep, entry: str) -> list[relax.Binding]:
    return [b for block in step.module[entry].body.blocks for b in block.bindings]


def calls(step: TrainStep, entry: str) -> Counter[str]:
    values = [b.value for b in bindings(step, entry)]
    return Counter(v.op.name for v in values if isinstance(v, relax.Call))


def test_state_and_signature_of_adamw() -> None:
    step = build(mlp(weights(), batch=BATCH))
    names = [s.name for s in step.state]
    assert names == [
        *SIZES,
        *(f"optim.m.{n}" for n in SIZES),
        *(f"optim.v.{n}" for n in SIZES),
        "optim.bias_correction1",
        "optim.bias_correction2",
        "step",
        "rng",
    ]
    roles = [s.role for s in step.state]
    assert roles == [Role.TRAINABLE] * 4 + [Role.SLOT] * 10 + [Role.COUNTER] * 2
    train, evaluate, predict = step.entries
    assert train.params == (*names, *step.hyper, "x", "y")
    assert train.results == ("loss", *names)
    assert evaluate.params == (*SIZES, "x", "y", "rows")
    assert evaluate.results == ("loss", "correct", "count")
    assert (predict.params, predict.results) == ((*SIZES, "x"), ("output",))
    assert (step.labels, step.ignore_index) == (3, -100)
    assert [(s.name, s.shape, s.dtype) for s in step.inputs] == [
        ("x", (BATCH, 6), "float32"),
        ("y", (BATCH,), "int64"),
    ]


@pytest.mark.parametrize("kind, ignored", [("cross-entropy", 255), ("mse", None)])
def test_the_loader_learns_which_label_is_ignored(kind: str, ignored: int | None) -> None:
    loss = LossOptions(kind) if ignored is None else LossOptions(kind, ignore_index=ignored)
    assert build(mlp(weights(), batch=BATCH), StepOptions(loss)).ignore_index == ignored


@pytest.mark.parametrize("kind", ["sgd", "momentum", "nesterov", "adam", "adamw"])
def test_functions_take_what_the_entries_name(kind: str) -> None:
    step = build(mlp(weights(), batch=BATCH), StepOptions(optimizer=OptimizerOptions(kind)))
    specs = {s.name: (s.value.shape, s.value.dtype.name) for s in step.state}
    specs |= dict.fromkeys(step.hyper, ((), "float32")) | {"rows": ((), "int32")}
    specs |= {s.name: (s.shape, s.dtype) for s in step.inputs}
    specs |= {"loss": ((), "float32"), "correct": ((), "int32"), "count": ((), "int32")}
    specs |= {"output": ((BATCH, 3), "float32")}
    for entry in step.entries:
        function = step.module[entry.name]
        relax.analysis.well_formed(step.module)  # raises where it is not
        types = [p.ty for p in function.params]
        shown = [(tuple(int(d) for d in t.shape), str(t.dtype)) for t in types]
        assert shown == [specs[p] for p in entry.params]
        results = [(tuple(int(d) for d in t.shape), str(t.dtype)) for t in function.ret_ty.fields]
        assert results == [specs[r] for r in entry.results]


def test_forward_is_computed_once_and_softmax_is_left_out_of_training() -> None:
    step = build(mlp(weights(), batch=BATCH, ends="softmax"))
    train = calls(step, "train")
    assert train["relax.matmul"] == 2 + 3  # forward, then the gradients of w1, w2 and the hidden
    assert train["aotrain.cross_entropy"] == train["aotrain.cross_entropy_grad"] == 1
    assert train["aotrain.adamw"] == 4
    assert train["aotrain.bias_correction"] == 2
    assert "relax.nn.softmax" not in train + calls(step, "eval")
    assert calls(step, "predict")["relax.nn.softmax"] == 1
    assert any("softmax" in note for note in step.notes)


@pytest.mark.parametrize("ends", ["softmax", "log_softmax"])
def test_loss_of_softmax_is_that_of_its_logits(ends: str) -> None:
    bare, ended = (Runner(build(mlp(weights(), batch=BATCH, ends=e))) for e in ("", ends))
    for _ in range(3):
        assert bare("train", **batch())["loss"] == ended("train", **batch())["loss"]
    np.testing.assert_array_equal(bare.state["w1"], ended.state["w1"])


def test_variables_are_unique_and_have_an_origin() -> None:
    step = build(mlp(weights(), batch=BATCH))
    for entry in ("train", "eval", "predict"):
        names = [b.var.name for b in bindings(step, entry)]
        assert len(set(names)) == len(names)
        assert [n for n in names[:-1] if n not in step.origins] == []
    assert step.origins["fc1"].op_type == "relax.matmul"
    assert step.origins["d_w1"].node == "fc1"
    assert str(step.origins["update.w1"]) == "Optimizer adamw node 'w1'"


def test_building_leaves_the_model_alone_and_is_deterministic() -> None:
    made = mlp(weights(), batch=BATCH)
    before = made.module.script()
    first, second = build(made), build(made)
    assert first.module.script() == second.module.script()
    assert made.module.script() == before


def test_frozen_parameters_have_no_slot_and_do_not_move() -> None:
    made = mlp(weights(), batch=BATCH, frozen=("w1", "b1"))
    run = Runner(build(made))
    run("train", **batch())
    assert "optim.m.w1" not in run.state
    assert "optim.m.w2" in run.state
    np.testing.assert_array_equal(run.state["w1"], weights()["w1"])
    assert calls(build(made), "train")["relax.matmul"] == 2 + 1  # only w2 needs a gradient


def test_counters() -> None:
    run = Runner(build(mlp(weights(), batch=BATCH), StepOptions(seed=2**32 - 1)))
    for _ in range(3):
        run("train", **batch())
    assert run.state["step"] == 3
    np.testing.assert_array_equal(run.state["rng"], np.array([2**32 - 1, 3], np.uint32))
    run("eval", **batch(), rows=np.int32(BATCH))
    assert run.state["step"] == 3


def test_buffers_take_their_new_values() -> None:
    """A running mean of the input, as BatchNorm has one."""

    def train(bb, x, w, mean):
        new = bb.emit(relax.op.multiply(mean, relax.const(0.5)))
        new = bb.emit(relax.op.add(new, bb.emit(relax.op.mean(x, axis=0))))
        return [bb.emit(relax.op.multiply(x, w)), new]

    def infer(bb, x, w, mean):
        return [bb.emit(relax.op.add(bb.emit(relax.op.multiply(x, w)), mean))]

    made = model(
        {"x": ((2, 3), "float32")},
        {"w": np.ones(3, np.float32)},
        train,
        infer=infer,
        buffers={"mean": np.full(3, 2, np.float32)},
    )
    run = Runner(build(made, StepOptions(LossOptions("mse"))))
    x = np.array([[1, 2, 3], [3, 4, 5]], np.float32)
    run("train", x=x, y=np.zeros_like(x))
    np.testing.assert_array_equal(run.state["mean"], [3, 4, 5])
    got = run("predict", x=x)["output"]
    np.testing.assert_allclose(got, x * run.state["w"] + [3, 4, 5], rtol=1e-6)


def test_target_gives_way_to_an_input_of_its_name() -> None:
    def body(bb, y, w):
        return [bb.emit(relax.op.multiply(y, w))]

    made = model({"y": ((2, 3), "float32")}, {"w": np.ones(3, np.float32)}, body)
    step = build(made, StepOptions(LossOptions("mse")))
    assert [s.name for s in step.inputs] == ["y", "target"]


def unused(names: tuple[str, ...]) -> TrainStep:
    """x * w, beside weights that nothing reads."""

    def body(bb, x, *p):
        return [bb.emit(relax.op.multiply(x, p[0] if "w" in names else relax.const(1.0)))]

    made = model({"x": ((2, 3), "float32")}, {n: np.ones(3, np.float32) for n in names}, body)
    return build(made, StepOptions(LossOptions("mse")))


def test_a_parameter_that_the_loss_does_not_depend_on_stays_without_decay() -> None:
    step = unused(("w", "lost"))
    assert "not trained, for the loss does not depend on it: lost" in step.notes
    assert "optim.m.lost" not in [s.name for s in step.state]
    assert "lost" in step.entries[0].params
    assert "lost" not in step.entries[0].results


def test_an_input_without_elements_is_refused() -> None:
    with pytest.raises(InputError, match=r"AOT-S012.*dimension 0 of input 'x' is 0"):
        build(mlp(weights(), batch=0))


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="AOT-S011"):
        unused(("lost",))
    with pytest.raises(UnsupportedModelError, match="AOT-S001"):
        build(mlp(weights(), batch=BATCH, frozen=tuple(SIZES)))


def test_names_that_the_step_uses_itself_are_refused_together() -> None:
    def body(bb, rows, lr):
        return [bb.emit(relax.op.multiply(rows, lr))]

    made = model({"rows": ((2, 3), "float32")}, {"lr": np.ones(3, np.float32)}, body)
    with pytest.raises(UnsupportedModelError) as raised:
        build(made)
    assert [d.code for d in raised.value.diagnostics] == ["AOT-S010"] * 2


def test_a_weight_may_have_the_name_of_another_optimizer_s_scalar() -> None:
    def body(bb, x, beta1):
        return [bb.emit(relax.op.multiply(x, beta1))]

    made = model({"x": ((2, 3), "float32")}, {"beta1": np.ones(3, np.float32)}, body)
    assert build(made, StepOptions(optimizer=OptimizerOptions("sgd"))).state[0].name == "beta1"
    with pytest.raises(UnsupportedModelError, match="AOT-S010"):
        build(made, StepOptions(optimizer=OptimizerOptions("adam")))


def test_a_missing_gradient_names_the_node() -> None:
    opaque = define(
        "test.opaque", inputs=1, infer=lambda call: call.args[0].ty, legalize=lambda bb, call: call
    )

    def body(bb, x, w):
        return [bb.emit(opaque(bb.emit(relax.op.add(x, w))), "up")]

    made = model({"x": ((2, 3), "float32")}, {"w": np.ones(3, np.float32)}, body)
    with pytest.raises(UnsupportedModelError, match="node 'up'"):
        build(made, StepOptions(LossOptions("mse")))


def test_loss_is_the_model_s_own_output() -> None:
    def body(bb, x, w):
        product = bb.emit(relax.op.multiply(x, w), "product")
        return [product, bb.emit(relax.op.sum(product), "cost")]

    made = model(
        {"x": ((2, 3), "float32")},
        {"w": np.ones(3, np.float32)},
        body,
        outputs=("product", "cost"),
    )
    optimizer = OptimizerOptions("sgd", {"lr": 1.0})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for output, factor in (("cost", 1), ("product", 1 / 6)):  # a scalar; the mean over it
        run = Runner(build(made, StepOptions(LossOptions("output", output), optimizer)))
        assert run("train", x=x)["loss"] == pytest.approx(15 * factor)
        np.testing.assert_allclose(1 - run.state["w"], x.sum(0) * factor, rtol=1e-6)


def test_a_float16_output_as_the_loss() -> None:
    def body(bb, x, w):
        return [bb.emit(relax.op.multiply(x, w))]

    made = model({"x": ((2, 3), "float16")}, {"w": np.ones(3, np.float16)}, body)
    optimizer = OptimizerOptions("sgd", {"lr": 1.0})
    run = Runner(build(made, StepOptions(LossOptions("output"), optimizer)))
    x = np.arange(6, dtype=np.float16).reshape(2, 3)
    loss = run("train", x=x)["loss"]
    assert (loss.dtype, float(loss)) == (np.float32, 2.5)
    np.testing.assert_allclose(1 - run.state["w"], x.sum(0) / 6, rtol=2e-3)


def test_a_float16_model_has_float32_loss_and_slots() -> None:
    def body(bb, x, w):
        return [bb.emit(relax.op.matmul(x, w))]

    made = model({"x": ((4, 3), "float16")}, {"w": np.ones((3, 2), np.float16)}, body)
    run = Runner(build(made))
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float16)
    loss = run("train", x=x, y=np.array([0, 1, 1, 0]))["loss"]
    assert loss.dtype == np.float32
    assert run.state["w"].dtype == np.float16
    assert run.state["optim.v.w"].dtype == np.float32
    assert loss == pytest.approx(np.log(2), rel=1e-3)
