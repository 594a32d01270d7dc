"""Make golden.npz with PyTorch: `python -m tests.step.make_golden`.

PyTorch computes in float64 on float32 data, so that the file holds what both sides approximate.
Per loss case: output, target, weights, then loss and gradient of the output. Per optimizer case:
the parameter after each 20 steps and the slots at the end; `gradients` [STEPS, WIDTH] and `start`
are common to all.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from tests.step.cases import GOLDEN, LOSSES, OPTIMIZERS, STEPS, WIDTH


def loss_case(kind: str, shape: tuple[int, ...], options: dict, rng: np.random.Generator) -> dict:
    output = rng.standard_normal(shape) * options.get("scale", 1.0)
    axis = options.get("axis", 1) % len(shape)
    case = {"output": output.astype(np.float32)}
    if kind == "cross-entropy":
        labels = rng.integers(0, shape[axis], shape[:axis] + shape[axis + 1 :])
        if "ignored" in options:
            labels.flat[::3] = options["ignored"]
        case["target"] = labels
        if "weights" in options:
            case["weights"] = rng.uniform(0.2, 2.0, shape[axis]).astype(np.float32)
    else:
        target = rng.uniform(0, 1, shape) if kind.startswith("bce") else rng.standard_normal(shape)
        case["target"] = target.astype(np.float32)
        if "tie" in options:
            case["target"].flat[0] = case["output"].flat[0]
        if "weights" in options:
            case["weights"] = rng.uniform(0.2, 2.0, shape[-1]).astype(np.float32)
    return case | run_loss(kind, case, options, axis)


def run_loss(kind: str, case: dict, options: dict, axis: int) -> dict:
    output = torch.tensor(case["output"], dtype=torch.float64, requires_grad=True)
    target = torch.tensor(case["target"])
    target = target.double() if target.is_floating_point() else target
    weights = torch.tensor(case["weights"]).double() if "weights" in case else None
    reduction = options.get("reduction", "mean")
    if kind == "cross-entropy":
        moved = output if axis in (0, 1) else output.movedim(axis, 1)
        if axis == 0:
            moved = output.movedim(0, 1)
        loss = functional.cross_entropy(
            moved,
            target,
            weights,
            ignore_index=options.get("ignore_index", -100),
            label_smoothing=options.get("label_smoothing", 0.0),
            reduction=reduction,
        )
    elif kind == "bce-with-logits":
        loss = functional.binary_cross_entropy_with_logits(
            output, target, pos_weight=weights, reduction=reduction
        )
    elif kind == "huber":
        delta = options.get("delta", 1.0)
        loss = functional.huber_loss(output, target, delta=delta, reduction=reduction)
    else:
        function = {"mse": functional.mse_loss, "l1": functional.l1_loss}[kind]
        loss = function(output, target, reduction=reduction)
    loss.backward()
    return {"loss": loss.detach().numpy(), "gradient": output.grad.numpy()}


def make_optimizer(kind: str, hyper: dict[str, float], p: torch.Tensor) -> torch.optim.Optimizer:
    if kind in ("adam", "adamw"):
        betas = (hyper.get("beta1", 0.9), hyper.get("beta2", 0.999))
        rest = {k: v for k, v in hyper.items() if not k.startswith("beta")}
        return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](
            [p], betas=betas, **rest
        )
    return torch.optim.SGD([p], nesterov=kind == "nesterov", **hyper)


def optimizer_case(kind: str, hyper: dict, start: np.ndarray, gradients: np.ndarray) -> dict:
    p = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer = make_optimizer(kind, hyper, p)
    trajectory = []
    for step, gradient in enumerate(gradients, 1):
        p.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        if step % 20 == 0 or step == 1:
            trajectory.append(p.detach().numpy().copy())
    state = optimizer.state[p]
    names = {"momentum_buffer": "momentum", "exp_avg": "m", "exp_avg_sq": "v"}
    slots = {names[k]: v.numpy() for k, v in state.items() if names.get(k) and v is not None}
    return {"trajectory": np.stack(trajectory), **slots}


def main() -> None:
    rng = np.random.default_rng(7)
    arrays = {}
    for name, (kind, shape, options) in LOSSES.items():
        made = loss_case(kind, shape, options, rng)
        arrays |= {f"loss/{name}/{k}": v for k, v in made.items()}
    start = rng.standard_normal(WIDTH).astype(np.float32)
    scales = 10.0 ** rng.uniform(-4, 1, WIDTH)
    gradients = ((rng.standard_normal((STEPS, WIDTH)) + 0.3) * scales).astype(np.float32)
    arrays |= {"start": start, "gradients": gradients}
    for name, (kind, hyper) in OPTIMIZERS.items():
        made = optimizer_case(kind, hyper, start, gradients)
        arrays |= {f"optimizer/{name}/{k}": v for k, v in made.items()}
    np.savez_compressed(GOLDEN, **arrays)


if __name__ == "__main__":
    main()
