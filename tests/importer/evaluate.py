"""Models in, the outputs of `infer` out: through TVM's own lowering and virtual machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax

from aotrain.importer.model import Model


def compile_infer(models: Sequence[Model], function: str = "infer") -> relax.VirtualMachine:
    """One virtual machine with functions f0, f1, ...: compiling is per module what costs."""
    functions = {
        f"f{i}": m.module[function].with_attr("global_symbol", f"f{i}")
        for i, m in enumerate(models)
    }
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    return relax.VirtualMachine(tvm.compile(tvm.IRModule(functions), target), tvm.cpu())


def call(
    machine: relax.VirtualMachine,
    index: int,
    model: Model,
    inputs: dict[str, np.ndarray],
    rng: tuple[int, int] | None = None,
) -> list[np.ndarray]:
    """Outputs of model `index` of the machine; with `rng`, of a machine made from `train`."""
    arrays = [inputs[s.name] for s in model.inputs]
    arrays += [p.value for p in (*model.parameters, *model.buffers)]
    if rng is not None:
        arrays.append(np.array(rng, np.uint32))
    tensors = [tvm.runtime.tensor(np.asarray(a, order="C")) for a in arrays]
    return [t.numpy() for t in machine[f"f{index}"](*tensors)]


def infer(model: Model, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs of one model."""
    return call(compile_infer([model]), 0, model, inputs)


def train(model: Model, inputs: dict[str, np.ndarray], rng: tuple[int, int]) -> list[np.ndarray]:
    """Outputs and new buffers of one model's `train`."""
    return call(compile_infer([model], "train"), 0, model, inputs, rng)
