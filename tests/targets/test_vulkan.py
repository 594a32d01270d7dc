"""Kernels and models on a Vulkan device (Mesa's lavapipe is one): values, state, refusals."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tvm import relax, te, tirx

import aotrain
from aotrain.errors import UnsupportedModelError, UsageError
from aotrain.schedules import gpu
from aotrain.schedules.gpu.dispatch import MAX_GROUPS, dispatch
from aotrain.targets import get
from tests.models import CASES
from tests.schedules import kernels
from tests.targets import on_device

LAYER = "VK_LAYER_KHRONOS_validation"


@pytest.fixture(autouse=True, scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> None:
    on_device.skip_without_device(tmp_path_factory.mktemp("probe"))


def check(
    func: tirx.PrimFunc, folder: Path, tolerance: float = 2e-6, positive: bool = False
) -> str:
    """The device against TVM's lowering of the unscheduled function; the rule's name."""
    arrays = kernels.arguments(func)
    if positive:
        arrays = [np.abs(a) + a.dtype.type(0.5) if a.dtype.kind == "f" else a for a in arrays]
    found, expected = on_device.run(func, arrays, folder), on_device.reference(func, arrays)
    for a, b in zip(found, expected, strict=True):
        if b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        scale = np.abs(b).max(initial=1e-30)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)
    return gpu.schedule(func)[1]


@pytest.mark.parametrize("shape", [(), (1,), (127,), (129,), (3, 5, 7), (70_000,)], ids=str)
def test_pointwise(shape: tuple[int, ...], tmp_path: Path) -> None:
    a, b = te.placeholder(shape, name="a"), te.placeholder(shape, name="b")
    func = te.create_prim_func([a, b, te.compute(shape, lambda *i: a(*i) * 2.0 - b(*i), name="c")])
    assert check(func, tmp_path) == "pointwise"


FUNCTIONS = (
    "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "floor", "ceil", "trunc",
    "abs", "log1p", "tan", "atan", "exp2", "log2", "log10", "sinh", "cosh", "round",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, tmp_path: Path) -> None:
    a = te.placeholder((300,), name="a")
    function = getattr(tirx, name)
    func = te.create_prim_func([a, te.compute((300,), lambda i: function(a[i]), name="c")])
    assert check(func, tmp_path, tolerance=2e-6, positive=True) == "pointwise"


@pytest.mark.parametrize(
    "source, target",
    [
        ("float32", "int32"), ("float32", "int64"), ("int64", "float32"), ("int32", "int64"),
        ("uint32", "float32"), ("uint32", "uint64"), ("bool", "float32"), ("float32", "bool"),
        ("int64", "bool"), ("bool", "int64"), ("float32", "float64"), ("int64", "int32"),
    ],
)  # fmt: skip
def test_casts(source: str, target: str, tmp_path: Path) -> None:
    a = te.placeholder((37,), name="a", dtype=source)
    func = te.create_prim_func([a, te.compute((37,), lambda i: a[i].astype(target), name="c")])
    check(func, tmp_path)


def test_comparison_of_a_widened_integer_with_a_constant(tmp_path: Path) -> None:
    a = te.placeholder((6,), name="a", dtype="int32")

    def body(i: tirx.Var) -> tirx.Expr:
        few = a[i].astype("int64") < tirx.const(2, "int64")
        return tirx.Select(few, tirx.const(1.0, "float32"), tirx.const(0.0, "float32"))

    check(te.create_prim_func([a, te.compute((6,), body, name="c")]), tmp_path)


@pytest.mark.parametrize("divisor", [3, 64])
def test_floor_division_of_negative_integers(divisor: int, tmp_path: Path) -> None:
    a = te.placeholder((20,), name="a", dtype="int64")

    def body(i: tirx.Var) -> tirx.Expr:
        shifted = a[i] * 7 - 9
        return tirx.floordiv(shifted, divisor) * 100 + tirx.floormod(shifted, divisor)

    check(te.create_prim_func([a, te.compute((20,), body, name="c")]), tmp_path)


@pytest.mark.parametrize(
    "m, n, k, batch", [(1, 1, 1, 0), (7, 9, 5, 0), (33, 65, 129, 0), (5, 3, 17, 3)]
)
@pytest.mark.parametrize("transpose", [(False, False), (True, False), (False, True)])
def test_products(
    m: int, n: int, k: int, batch: int, transpose: tuple[bool, bool], tmp_path: Path
) -> None:
    rule = check(kernels.matmul(m, n, k, batch, transpose), tmp_path)
    assert rule == ("contraction" if m > 8 else "threads")


@pytest.mark.parametrize("stride, padding, groups", [(1, 1, 1), (2, 0, 1), (3, 1, 1), (1, 1, 2)])
def test_convolutions_and_gradients(stride: int, padding: int, groups: int, tmp_path: Path) -> None:
    x, w = (2, 8, 13, 11), (16, 8 // groups, 3, 3)

    def build(x: relax.Var, w: relax.Var) -> relax.Expr:
        return relax.op.nn.conv2d(x, w, strides=stride, padding=padding, groups=groups)

    for func in kernels.lower(kernels.op(build), x, w):
        check(func, tmp_path, tolerance=1e-5)
    out = [(n + 2 * padding - 3) // stride + 1 for n in x[2:]]

    def transposed(y: relax.Var, w: relax.Var) -> relax.Expr:
        return relax.op.nn.conv2d_transpose(
            y, w, strides=stride, padding=padding, groups=groups, output_padding=stride - 1
        )

    for func in kernels.lower(kernels.op(transposed), (2, 16, *out), w):
        check(func, tmp_path, tolerance=1e-5)


def test_a_maximum_keeps_a_nan(tmp_path: Path) -> None:
    a = te.placeholder((4,), name="a")
    zero = tirx.const(0.0, "float32")
    func = te.create_prim_func([a, te.compute((4,), lambda i: tirx.max(a[i], zero), name="c")])
    values = np.array([np.nan, -1, 2, np.nan], "float32")
    _, found = on_device.run(func, [values, np.zeros(4, "float32")], tmp_path)
    np.testing.assert_array_equal(found, [np.nan, 0, 2, np.nan])


@pytest.mark.parametrize("shape, axis", [((3, 1000), 1), ((1000, 3), 0), ((5, 129, 7), None)])
@pytest.mark.parametrize("reduce", [te.sum, te.max, te.min])
def test_reductions(
    shape: tuple[int, ...], axis: int | None, reduce: object, tmp_path: Path
) -> None:
    a = te.placeholder(shape, name="a")
    axes = [te.reduce_axis((0, n)) for i, n in enumerate(shape) if axis in (i, None)]
    kept = [n for i, n in enumerate(shape) if axis not in (i, None)]

    def body(*index: tirx.Var) -> tirx.Expr:
        spatial, reduced = iter(index), iter(axes)
        at = [next(reduced) if axis in (i, None) else next(spatial) for i in range(len(shape))]
        return reduce(a(*at), axis=axes)

    func = te.create_prim_func([a, te.compute(kept, body, name="c")])
    assert check(func, tmp_path, tolerance=1e-5) == "reduction"


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda x: relax.op.nn.softmax(x, axis=-1), id="softmax"),
        pytest.param(lambda x: relax.op.argmax(x, axis=1), id="argmax"),
        pytest.param(lambda x: relax.op.cumsum(x, axis=1), id="cumsum"),
        pytest.param(lambda x: relax.op.permute_dims(x), id="transpose"),
        pytest.param(lambda x: relax.op.greater(x, relax.const(0.0)), id="greater"),
        pytest.param(lambda x: relax.op.nn.gelu(x), id="gelu"),
        pytest.param(lambda x: relax.op.nn.pad(x, (1, 2, 0, 3)), id="pad"),
    ],
)
@pytest.mark.parametrize("shape", [(5, 7), (33, 130)], ids=str)
def test_operators(build: object, shape: tuple[int, int], tmp_path: Path) -> None:
    for func in kernels.lower(kernels.op(build), shape):
        check(func, tmp_path, tolerance=1e-5)


def test_a_grid_beyond_what_a_device_must_take_is_folded() -> None:
    wide = dispatch("wide", MAX_GROUPS + 1, 1, lambda group, thread: [tirx.Evaluate(0)])
    across, down = wide.grid
    assert max(across, down) <= MAX_GROUPS < across * down


def test_what_has_no_translation_is_refused() -> None:
    a = te.placeholder((4,), name="a", dtype="float16")
    func = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + a[i], name="c")])
    target = get("vulkan")
    with pytest.raises(UnsupportedModelError, match="float16") as caught:
        target.lower([("k", target.schedule(func)[0], ())])
    assert caught.value.diagnostics[0].code == "AOT-K002"


def test_names() -> None:
    assert get("vulkan") == get("vulkan:1.1")
    with pytest.raises(UsageError, match=r"2\.0"):
        get("vulkan:2.0")


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same model for both targets."""
    folder = tmp_path_factory.mktemp("mlp")
    for target in ("cpu", "vulkan"):
        aotrain.compile(
            CASES["mlp"].build(), output=folder / f"{target}.aot", target=target, batch=8
        )
    return {target: folder / f"{target}.aot" for target in ("cpu", "vulkan")}


def steps(session: aotrain.Session, first: int, last: int) -> list[float]:
    batches = list(CASES["mlp"].batches(last, 8))[first:]
    names = list(session.inputs())
    return [session.step(**dict(zip(names, batch, strict=True))) for batch in batches]


def test_same_files(mlp: dict[str, Path]) -> None:
    names = [{path.name for path in folder.iterdir()} for folder in mlp.values()]
    assert names[0] == names[1]


def test_a_resumed_run_is_the_same_bit_for_bit(mlp: dict[str, Path], tmp_path: Path) -> None:
    with aotrain.Session(mlp["vulkan"]) as session:
        steps(session, 0, 3)
        session.save(tmp_path / "three.safetensors")
        losses = steps(session, 3, 5)
        expected = session.state_dict()
    with aotrain.Session(mlp["vulkan"]) as session:
        session.load(tmp_path / "three.safetensors")
        assert steps(session, 3, 5) == losses
        for name, value in session.state_dict().items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
        assert session.info["step"] == 5


def test_a_checkpoint_goes_from_one_target_to_the_other(
    mlp: dict[str, Path], tmp_path: Path
) -> None:
    with aotrain.Session(mlp["vulkan"]) as session:
        steps(session, 0, 3)
        session.save(tmp_path / "three.safetensors")
        expected = steps(session, 3, 5)
    with aotrain.Session(mlp["cpu"]) as session:
        session.load(tmp_path / "three.safetensors")
        np.testing.assert_allclose(steps(session, 3, 5), expected, rtol=1e-5)


def test_eval_and_predict_as_on_the_cpu(mlp: dict[str, Path]) -> None:
    images, labels = next(iter(CASES["mlp"].batches(1, 8)))
    results = []
    for folder in mlp.values():
        with aotrain.Session(folder) as session:
            x, y = session.inputs()
            results.append(
                (session.eval(rows=5, **{x: images, y: labels}), session.predict(**{x: images}))
            )
    (evaluated, predicted), (evaluated_too, predicted_too) = results
    for count in ("correct", "count"):
        assert evaluated[count] == evaluated_too[count]
    np.testing.assert_allclose(evaluated_too["loss"], evaluated["loss"], rtol=1e-5)
    for name, value in predicted.items():
        np.testing.assert_allclose(predicted_too[name], value, rtol=1e-4, atol=1e-5)


def aotrun(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "aotrun", folder, *options],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "variables, says",
    [
        ({"AOTRUN_DEVICE": "no such device"}, "AOTRUN_DEVICE='no such device'"),
        ({"AOTRUN_DEVICE": "77"}, "there are 0: "),
        ({"VK_DRIVER_FILES": "/none", "VK_ICD_FILENAMES": "/none"}, "no Vulkan driver"),
    ],
)
def test_without_a_device(mlp: dict[str, Path], variables: dict[str, str], says: str) -> None:
    run = aotrun(mlp["vulkan"], "--bench", "1", **variables)
    assert run.returncode == 4
    assert "error[AOT-T010]" in run.stderr and says in run.stderr and "hint:" in run.stderr


def test_the_profile_names_every_kernel(mlp: dict[str, Path]) -> None:
    run = aotrun(mlp["vulkan"], "--bench", "2", "--profile")
    assert run.returncode == 0, run.stderr
    assert "cross_entropy" in run.stdout or "loss" in run.stdout


def test_validation_layers_have_nothing_to_say(mlp: dict[str, Path]) -> None:
    if not Path("/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json").exists():
        pytest.skip("the validation layers are not installed")
    run = aotrun(mlp["vulkan"], "--bench", "1", VK_INSTANCE_LAYERS=LAYER, VK_LOADER_DEBUG="layer")
    assert run.returncode == 0
    assert LAYER in run.stderr  # the layer is there
    assert "VUID" not in run.stdout + run.stderr and "Validation" not in run.stdout
