"""Session over the toy artifact: numbers against numpy, views, state, refusals."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aotrain import artifact
from aotrain.errors import AotError, InputError, InternalError, UsageError
from aotrain.runtime import Session
from aotrain.runtime.session import NotFiniteError
from tests.runtime import toy


def reference(steps: int, lr: float = 0.1) -> tuple[list[float], dict[str, np.ndarray]]:
    """The toy's training in numpy, float64."""
    state = {k: v.astype("float64") for k, v in toy.state().items()}
    w, b, momentum = state["w"], state['b "ä"\n'], state["optim.momentum.w"]
    losses = []
    for step in range(steps):
        batch = toy.batch(seed=step)
        x, y = batch["x"].astype("float64") - 0.5, np.eye(5)[batch["y"]]
        z = x @ w + b
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(float(-np.log((p * y).sum(1)).mean()))
        grad = (p - y) / len(x)
        momentum *= 0.9
        momentum += x.T @ grad
        w -= lr * momentum
        b -= lr * grad.sum(0)
    return losses, state


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_training_follows_the_reference(toy_artifact: Path, threads: int) -> None:
    losses, state = reference(50)
    with Session(toy_artifact, threads=threads) as session:
        assert session.info["threads"] == threads
        ours = [session.step(**toy.batch(seed=step)) for step in range(50)]
        np.testing.assert_allclose(ours, losses, rtol=1e-5)
        for name in ("w", 'b "ä"\n', "optim.momentum.w"):
            np.testing.assert_allclose(session.view(name), state[name], rtol=1e-4, atol=1e-6)
        assert session.info["step"] == session.view("step") == 50
        assert session.view("rng").tolist() == [7, 50]


def test_thread_counts_agree_bit_for_bit(toy_artifact: Path) -> None:
    states = []
    for threads in (1, 2, 3, 8):
        with Session(toy_artifact, threads) as session:
            for step in range(200):
                session.step(**toy.batch(seed=step))
            states.append({k: v.tobytes() for k, v in session.state_dict().items()})
    assert all(state == states[0] for state in states)


def test_thread_count_by_environment(toy_artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTRUN_NUM_THREADS", "3")
    with Session(toy_artifact) as session:
        assert session.info["threads"] == 3
        assert session.info["scratch_bytes"] == 3 * toy.plan().thread_scratch


def test_planned_peak_is_what_is_allocated(toy_artifact: Path) -> None:
    with Session(toy_artifact) as session:
        assert session.block_bytes == toy.plan().block_bytes


def test_tensors_lie_where_the_plan_says(toy_artifact: Path) -> None:
    plan = toy.plan()
    with Session(toy_artifact) as session:
        base = session.view("x").ctypes.data - plan.tensors[0].offset
        assert base % 64 == 0
        for tensor in plan.tensors[:15]:
            view = session.view(tensor.name)
            assert view.ctypes.data == base + tensor.offset
            assert (view.shape, view.dtype.name) == (tensor.shape, tensor.dtype)


def test_eval_counts_only_the_first_rows(toy_artifact: Path) -> None:
    batch = toy.batch()
    other = {"x": batch["x"].copy(), "y": batch["y"].copy()}
    other["x"][2:], other["y"][2:] = 0.1, 0
    with Session(toy_artifact) as session:
        before = session.state_dict()
        found = session.eval(2, **batch)
        assert found == session.eval(2, **other) != session.eval(**other)
        assert found["count"] == 2
        assert all((before[k] == v).all() for k, v in session.state_dict().items())
        logits = session.predict(x=batch["x"])["logits"]
        shifted = logits - logits.max(1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        loss = -log_p[np.arange(2), batch["y"][:2]].mean()
        assert found["loss"] == pytest.approx(loss, rel=1e-5)


def test_ignored_label(toy_artifact: Path) -> None:
    batch = toy.batch()
    batch["y"][1] = -100
    with Session(toy_artifact) as session:
        assert session.eval(**batch)["count"] == 3
        assert session.info["ignored_label"] == -100


def test_views_are_the_inputs_themselves_and_speak_dlpack(toy_artifact: Path) -> None:
    batch = toy.batch()
    with Session(toy_artifact) as session:
        expected = session.eval(**batch)["loss"]
        session.view("x")[...] = 0
        np.from_dlpack(session.inputs()["x"])[...] = batch["x"]  # zero copy, both ways
        assert session.eval()["loss"] == expected


def test_dlpack_comes_in(toy_artifact: Path) -> None:
    class OnlyDlpack:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    batch = toy.batch()
    with Session(toy_artifact) as session:
        expected = session.eval(**batch)
        assert session.eval(**{k: OnlyDlpack(v) for k, v in batch.items()}) == expected


def test_integers_may_narrow_without_loss(toy_artifact: Path) -> None:
    batch = toy.batch()
    with Session(toy_artifact) as session:
        expected = session.eval(**batch)
        assert session.eval(x=batch["x"], y=batch["y"].astype("uint8")) == expected


def test_hyperparameters_stay_until_set_again(toy_artifact: Path) -> None:
    with Session(toy_artifact) as session:
        assert session.view("lr") == np.float32(0.1)
        session.set(lr=0.5)
        session.step(**toy.batch())
        assert session.view("lr") == np.float32(0.5)
        with pytest.raises(UsageError, match="no hyperparameter 'momentum'"):
            session.set(momentum=1.0)


def test_state_dict_round_trip(toy_artifact: Path) -> None:
    with Session(toy_artifact) as session, Session(toy_artifact) as other:
        for step in range(5):
            session.step(**toy.batch(seed=step))
        other.load_state_dict(session.state_dict())
        batch = toy.batch(seed=9)
        assert session.step(**batch) == other.step(**batch)
        state = session.state_dict()
        wrong = {**state, "w": np.zeros((2, 2), "float32")}
        missing = {k: v for k, v in state.items() if k != "step"}
        for bad in (wrong, missing, {**state, "more": np.zeros(1)}):
            with pytest.raises(InputError):
                session.load_state_dict(bad)
        assert all((state[k] == v).all() for k, v in session.state_dict().items())


def test_not_finite_loss_names_the_step(toy_artifact: Path) -> None:
    batch = toy.batch()
    with Session(toy_artifact) as session:
        session.step(**batch)
        batch["x"][0, 0] = np.nan
        with pytest.raises(NotFiniteError, match="the loss is NaN at step 2"):
            session.step(**batch)


def test_denormals_are_zero_inside_and_the_caller_keeps_its_own(toy_artifact: Path) -> None:
    tiny = np.float32(1e-40)
    assert tiny * np.float32(1) != 0
    batch = toy.batch()
    with Session(toy_artifact, threads=1) as session:
        session.view("w")[...] = tiny
        session.view('b "ä"\n')[...] = 0
        assert not session.predict(x=batch["x"])["logits"].any()  # DAZ: w counts as zero
        assert np.float32(1e-40) * np.float32(1) != 0


def test_a_failing_kernel_is_named_with_its_node(toy_artifact: Path, tmp_path: Path) -> None:
    """The logits kernel returns 8 from its tasks when it gets no scratch."""
    artifact.write(
        tmp_path / "m.aot",
        plan=replace(toy.plan(), thread_scratch=0),
        state=toy.state(),
        constants={9: np.zeros(3, "float32")},
        kernels=toy_artifact / "kernels.so",
        info={"name": "toy"},
        labels=None,
    )
    for threads in (1, 3):
        with (
            Session(tmp_path / "m.aot", threads) as session,
            pytest.raises(InternalError) as caught,
        ):
            session.step()
        assert "kernel 'logits' of Gemm node 'fc' failed with 8" in caught.value.render()


def test_views_outlive_the_session_object(toy_artifact: Path) -> None:
    view = Session(toy_artifact).view("w")
    gc.collect()
    others = [Session(toy_artifact) for _ in range(3)]  # would reuse the bytes
    others[0].view("w")[...] = 7
    assert (view == toy.state()["w"]).all()
    alive = weakref.ref(view.base.owner)
    del view
    gc.collect()
    assert alive() is None


def test_two_sessions_do_not_share_anything(toy_artifact: Path) -> None:
    with Session(toy_artifact, 2) as one, Session(toy_artifact, 3) as two:
        for step in range(20):
            one.step(**toy.batch(seed=step))
        assert two.info["step"] == 0
        assert (two.view("w") == toy.state()["w"]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.step(x=np.zeros((4, 2), "float32")), r"'x' is float32\[4, 2\], expected"),
        (lambda s: s.step(x=np.zeros((4, 3))), r"'x' is float64\[4, 3\], expected float32\[4, 3\]"),
        (lambda s: s.step(z=1), "train has no input 'z'"),
        (lambda s: s.predict(y=1), "predict has no input 'y'"),
        (lambda s: s.view("nope"), "no tensor 'nope'"),
        (lambda s: s.view("centred"), "no tensor 'centred'"),
        (lambda s: s.eval(5), "eval of 5 rows, the batch has 4"),
        (lambda s: s.inputs("fly"), "no entry point 'fly'"),
    ],
)
def test_wrong_uses(toy_artifact: Path, call: object, message: str) -> None:
    with Session(toy_artifact) as session, pytest.raises(AotError, match=message):
        call(session)  # type: ignore[operator]


def test_use_after_close_is_an_error(toy_artifact: Path) -> None:
    session = Session(toy_artifact)
    session.close()
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.step()


def test_many_copies_of_an_artifact_load_one_library(toy_artifact: Path, tmp_path: Path) -> None:
    first = Session(toy_artifact)
    copy = shutil.copytree(toy_artifact, tmp_path / "copy.aot")
    with Session(copy) as second:
        assert second._c is first._c
    (copy / "libaotrun.so").write_bytes(b"no library")
    with pytest.raises(InputError, match="AOT-A010"):
        Session(copy)


def test_long_notes_are_refused(toy_artifact: Path, tmp_path: Path) -> None:
    with Session(toy_artifact) as session, pytest.raises(UsageError, match="too long"):
        session.save(tmp_path / "s.safetensors", {"k": "v" * 200})
    assert not list(tmp_path.iterdir())


def test_missing_artifact(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="AOT-A010"):
        Session(tmp_path / "nothing.aot")


def test_safetensors_package_reads_a_checkpoint(toy_artifact: Path, tmp_path: Path) -> None:
    numpy_reader = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "s.safetensors"
    with Session(toy_artifact) as session:
        session.step(**toy.batch())
        session.save(path, {"purpose": 'a "test"'})
        state = session.state_dict()
    loaded = numpy_reader.load_file(path)
    assert set(loaded) == set(state) - {"step", "rng"}
    assert all((loaded[name] == state[name]).all() for name in loaded)
    checkpoint = artifact.read_checkpoint(path)
    assert checkpoint.step == 1
    assert checkpoint.metadata["rng"] == "7 1"
    assert checkpoint.metadata["purpose"] == 'a "test"'


def test_session_imports_no_tvm() -> None:
    code = "import sys, aotrain.runtime, aotrain.artifact; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
