"""Session over the toy artifact: numbers against numpy, views, state, refusals."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aotrain import artifact
from aotrain.errors import AotError, InputError, InternalError, UsageError
from aotrain.plan import Kind, Tensor
from aotrain.runtime import Session
from aotrain.runtime.session import NotFiniteError
from aotrain.step.options import HYPER_RANGE
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


def test_nothing_of_a_closed_session_touches_its_memory(toy_artifact: Path) -> None:
    session = Session(toy_artifact)
    view = session.view("x")
    session.close()
    view[:] = 1  # the memory goes with the last view
    batch = toy.batch()
    for call in (
        lambda: session.step(**batch),
        lambda: session.eval(**batch),
        lambda: session.predict(x=batch["x"]),
        lambda: session.view("x"),
        lambda: session.inputs(),
        lambda: session.outputs("predict"),
        lambda: session.state_dict(),
        lambda: session.load_state_dict({}),
        lambda: session.set(lr=0.1),
        lambda: session.load("x"),
        lambda: session.save("x"),
        lambda: session.info,
    ):
        with pytest.raises(UsageError, match="closed"):
            call()


@pytest.mark.parametrize("label", [-1, 5, 2**40])
def test_a_label_out_of_range_runs_nothing(toy_artifact: Path, label: int) -> None:
    batch = toy.batch()
    with Session(toy_artifact) as session:
        before = session.state_dict()
        batch["y"][2] = label
        for call in (session.step, session.eval):
            with pytest.raises(
                InputError, match=rf"label {label} in row 2 of 'y' is outside 0 .. 4"
            ):
                call(**batch)
        after = session.state_dict()
        assert all(np.array_equal(before[name], after[name]) for name in before)
        session.eval(rows=2, **batch)  # the row does not count
        batch["y"][2] = -100  # the ignored label passes
        session.eval(**batch)


def test_threads_of_python_take_turns(toy_artifact: Path) -> None:
    batch = toy.batch()
    with Session(toy_artifact, threads=2) as session, ThreadPoolExecutor(4) as pool:
        losses = list(pool.map(lambda _: session.step(**batch), range(200)))
        assert session.info["step"] == 200
    with Session(toy_artifact, threads=2) as session:
        assert sorted(losses) == sorted(session.step(**batch) for _ in range(200))


class _Foreign:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: object) -> object:
        raise BufferError("on another device")


@pytest.mark.parametrize(
    "value, why",
    [
        (_Foreign(), "on another device"),
        ([[1.0, 2.0], [3.0]], "makes no array"),
        (np.zeros((4, 3)), "np.asarray"),
        (None, "object"),
    ],
)
def test_values_that_make_no_array(toy_artifact: Path, value: object, why: str) -> None:
    with Session(toy_artifact) as session, pytest.raises(InputError, match=why) as caught:
        session.step(x=value)
    assert "'x' is" in str(caught.value)


def test_numbers_and_paths_that_c_would_cut_short(toy_artifact: Path, tmp_path: Path) -> None:
    with Session(toy_artifact) as session:
        for call in (
            lambda: session.eval(rows=2**32 + 3),
            lambda: session.eval(rows="2"),
            lambda: session.eval(rows=1.5),
            lambda: session.set(lr="fast"),
            lambda: session.set(lr=float("nan")),
            lambda: session.set(lr=1e300),
            lambda: session.set(lr=-1),
            lambda: session.save(f"{tmp_path}/a\0b"),
            lambda: session.save(None),
            lambda: session.save(tmp_path / "a", {"key": 3}),
        ):
            with pytest.raises(UsageError):
                call()
        for threads in (0, -1, "2"):
            with pytest.raises(UsageError, match="threads"):
                Session(toy_artifact, threads=threads)
    assert not list(tmp_path.iterdir())


def test_hyperparameters_have_the_ranges_of_compile(tmp_path: Path) -> None:
    """The loader's table against HYPER_RANGE, over every name and its two ends."""
    names = tuple(HYPER_RANGE)
    plan = toy.plan()
    extra = [
        Tensor(name, (), "float32", Kind.HYPER, default=0.5).at(plan.block_bytes + 64 * i)
        for i, name in enumerate(names)
        if name != "lr"
    ]
    wider = replace(
        plan,
        tensors=(*plan.tensors, *extra),
        block_bytes=plan.block_bytes + 64 * len(names),
    )
    folder = toy.build(tmp_path / "toy.aot")
    artifact.write(
        tmp_path / "wide.aot",
        plan=wider,
        state=toy.state(),
        constants={9: np.full(3, 0.5, "float32")},
        kernels=folder / "kernels.so",
        info={"name": "wide", "target": "cpu", "ignore_index": -100},
        labels=5,
    )
    with Session(tmp_path / "wide.aot") as session:
        for name, (least, bound) in HYPER_RANGE.items():
            session.set(**{name: max(least, -1.0)})
            for outside in (np.nextafter(least, -np.inf) if np.isfinite(least) else -np.inf, bound):
                with pytest.raises(UsageError, match=name):
                    session.set(**{name: float(outside)})


def test_a_library_that_is_cut_off_is_not_loaded(toy_artifact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cut.aot"
    shutil.copytree(toy_artifact, folder)
    library = folder / "libaotrun.so"
    library.write_bytes(library.read_bytes()[:20000])
    with pytest.raises(InputError, match="truncated, corrupted") as caught:
        Session(folder)
    assert caught.value.diagnostics[0].code == "AOT-A010"


def test_an_output_called_as_an_input_is_its_own_tensor(tmp_path: Path) -> None:
    plan = toy.plan()
    renamed = tuple(replace(t, name="y") if t.name == "logits" else t for t in plan.tensors)
    folder = toy.build(tmp_path / "toy.aot")
    artifact.write(
        tmp_path / "named.aot",
        plan=replace(plan, tensors=renamed),
        state=toy.state(),
        constants={9: np.full(3, 0.5, "float32")},
        kernels=folder / "kernels.so",
        info={"name": "named", "target": "cpu", "ignore_index": -100},
        labels=5,
    )
    batch = toy.batch()
    with Session(folder) as one, Session(tmp_path / "named.aot") as other:
        assert one.step(**batch) == other.step(**batch)
        expected, found = one.predict(x=batch["x"])["logits"], other.predict(x=batch["x"])["y"]
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(other.view("y"), batch["y"])
