"""A PrimFunc and arrays in, what a Vulkan device makes of them out; and what the CPU does.

A kernel runs through the whole way that a model's go: schedule, SPIR-V, an artifact of one launch,
the loader.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import tirx

from aotrain import AotError, Session, artifact
from aotrain.plan import Entry, Kind, Launch, Plan, Role, Tensor, align
from aotrain.targets import get
from aotrain.targets.shader_table import ShaderKernel


def run(
    func: tirx.PrimFunc, arrays: list[np.ndarray], folder: Path, written: tuple[int, ...] = ()
) -> list[np.ndarray]:
    """The parameters' values after a run; `written` are the positions that it writes (default:
    the last)."""
    target = get("vulkan")
    scheduled, _ = target.schedule(func)
    (kernel,) = target.lower([("k", scheduled, ())])
    validate(kernel, folder)
    target.build([kernel], folder / "kernels.so")
    plan = _plan(arrays, kernel, written or (len(arrays) - 1,))
    artifact.write(
        folder / "k.aot",
        plan=plan,
        state={t.name: a for t, a in zip(plan.tensors, arrays, strict=False)},
        constants={},
        kernels=folder / "kernels.so",
        info={"name": "k", "backend": target.backend},
        labels=None,
        force=True,
    )
    with Session(folder / "k.aot") as session:
        session.step()
        state = session.state_dict()
    return [state[f"p{i}"] for i in range(len(arrays))]


def validate(kernel: ShaderKernel, folder: Path) -> None:
    """spirv-val on every shader, where it is installed."""
    if not shutil.which("spirv-val"):
        return
    for shader, _ in kernel.dispatches:
        (folder / "k.spv").write_bytes(shader.words)
        command = ["spirv-val", "--target-env", "vulkan1.1", str(folder / "k.spv")]
        checked = subprocess.run(command, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr


def _plan(arrays: list[np.ndarray], kernel: ShaderKernel, written: tuple[int, ...]) -> Plan:
    """All parameters are state, so that any may be written; the kernel is the train entry."""
    tensors = [
        Tensor(f"p{i}", a.shape, a.dtype.name, Kind.STATE, Role.BUFFER)
        for i, a in enumerate(arrays)
    ]
    tensors += [
        Tensor(f"scratch{i}", (nbytes,), "uint8", Kind.TEMP)
        for i, nbytes in enumerate(kernel.scratch)
    ]
    end = 0
    for i, tensor in enumerate(tensors):
        tensors[i] = tensor.at(end)
        end += align(tensor.nbytes)
    scratch = tuple(range(len(arrays), len(tensors)))
    launch = Launch(0, tuple(range(len(tensors))), (*written, *scratch))
    return Plan(tuple(tensors), ("k",), (Entry("train", (launch,), (), ()),), block_bytes=end)


def reference(func: tirx.PrimFunc, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The same by TVM's own lowering of the function as it came."""
    copies = [tvm.runtime.tensor(a.copy()) for a in arrays]
    tvm.compile(func.with_attr("global_symbol", "main"), target="llvm")(*copies)
    return [c.numpy() for c in copies]


def skip_without_device(folder: Path) -> None:
    """Skip the test where no Vulkan device can be opened."""
    from tvm import te

    a = te.placeholder((1,), name="a")
    func = te.create_prim_func([a, te.compute((1,), lambda i: a[i] + 1.0, name="c")])
    one = np.ones(1, "float32")
    try:
        run(func, [one, one.copy()], folder)
    except AotError as error:
        if error.diagnostics[0].code != "AOT-T010":
            raise
        pytest.skip(error.diagnostics[0].message)
