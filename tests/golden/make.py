"""Run as `python -m tests.golden.make [model ...]`: PyTorch in, `tests/golden/<model>.npz` out.

Needs torch, onnx and numpy. The module is made from the ONNX file, so both sides have the same
weights; the data are `Case.batches`.

Running variance: ONNX defines it over the population, PyTorch over the sample (n - 1). Both decay
alike, v ← m·v + (1 - m)·s, so what T steps added to m^T·v₀ differs by the factor n / (n - 1), with
n = N·H·W elements a channel, constant over the run; ONNX's momentum is one minus PyTorch's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import torch

from tests.golden import (
    HYPER,
    LOSS_TOLERANCE,
    RUNS,
    STEPS,
    TOLERANCES,
    Arrays,
    Run,
    errors,
    summarize,
)
from tests.models import CASES, Case
from tests.models.torch_module import OnnxModule


def main(names: list[str]) -> None:
    """Write the files and print the noise floors."""
    torch.use_deterministic_algorithms(True)
    for name in names or RUNS:
        found: Arrays = {}
        for optimizer in HYPER:
            found.update(_golden(name, CASES[name], RUNS[name], optimizer))
        path = Path(__file__).with_name(f"{name}.npz")
        np.savez_compressed(path, **found)
        print(f"{path.name}: {path.stat().st_size} bytes")


def _golden(name: str, case: Case, run: Run, optimizer: str) -> Arrays:
    model = case.build()
    losses, exact = _train(model, case, run, optimizer, torch.float64)
    losses32, rounded = _train(model, case, run, optimizer, torch.float32)
    found = errors(rounded, exact)
    noise = {key: error.max() for key, error in found.items()}
    loss_noise = np.abs(losses32 / losses - 1).max()
    figures = ", ".join(
        f"{key} {error.max():.1e} ({exact['names'][error.argmax()]})"
        for key, error in found.items()
    )
    print(f"{name} {optimizer}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"  float32 against float64: loss {loss_noise:.1e}, {figures}")
    if loss_noise > LOSS_TOLERANCE / 4 or any(noise[k] > TOLERANCES[k] / 4 for k in TOLERANCES):
        sys.exit(f"{name} {optimizer}: the trajectory amplifies rounding; lower its lr")
    exact |= {"losses": losses, "losses32": losses32, "noise": np.array([*noise.values()])}
    names = exact.pop("names")
    return {"names": names} | {f"{optimizer}/{key}": value for key, value in exact.items()}


def _train(
    model: onnx.ModelProto, case: Case, run: Run, optimizer: str, dtype: torch.dtype
) -> tuple[np.ndarray, Arrays]:
    module = OnnxModule(model).to(dtype)
    start = _arrays(module)
    update = _optimizer(optimizer, run.lr[optimizer], module)
    losses = []
    for x, labels in case.batches(STEPS, run.batch):
        inputs = torch.from_numpy(x)
        logits = module(inputs if case.tokens else inputs.to(dtype))
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, -2), torch.from_numpy(labels).flatten()
        )
        update.zero_grad()
        loss.backward()
        update.step()
        losses.append(loss.item())
    final = _arrays(module)
    _to_population(model, run.batch, start, final)
    return np.array(losses), summarize(start, final)


def _optimizer(name: str, lr: float, module: torch.nn.Module) -> torch.optim.Optimizer:
    hyper = HYPER[name]
    decay = hyper["weight_decay"]
    if name == "momentum":
        momentum = hyper["momentum"]
        return torch.optim.SGD(module.parameters(), lr, momentum=momentum, weight_decay=decay)
    betas = (hyper["beta1"], hyper["beta2"])
    return torch.optim.AdamW(module.parameters(), lr, betas, hyper["eps"], decay)


def _arrays(module: OnnxModule) -> Arrays:
    return {name: t.detach().numpy().copy() for name, t in module.tensors().items()}


def _to_population(model: onnx.ModelProto, batch: int, start: Arrays, final: Arrays) -> None:
    """Rewrite the running variances in `final` as ONNX defines them."""
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    bound.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    values = onnx.shape_inference.infer_shapes(bound, strict_mode=True).graph.value_info
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    for node in model.graph.node:
        if node.op_type != "BatchNormalization":
            continue
        n, _, height, width = shapes[node.input[0]]
        count = n * height * width
        momentum = next(a.f for a in node.attribute if a.name == "momentum")
        variance = node.input[4]
        kept = float(momentum) ** STEPS * start[variance].astype(np.float64)
        final[variance] = kept + (final[variance] - kept) * (count - 1) / count


if __name__ == "__main__":
    main(sys.argv[1:])
