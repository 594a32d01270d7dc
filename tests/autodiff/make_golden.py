"""Gradient cases in, PyTorch's gradients out: writes golden/<family>.npz.

Run in an environment with PyTorch, from the repository's root:

    python -m tests.autodiff.make_golden
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from tests.autodiff import cases_elementwise, cases_network, cases_own, cases_tensor
from tests.autodiff.case import Case

FOLDER = Path(__file__).with_name("golden")


def _tensor(array: np.ndarray) -> torch.Tensor:
    is_float = array.dtype.kind == "f"
    return torch.tensor(array, dtype=torch.float64 if is_float else None, requires_grad=is_float)


def gradients(case: Case) -> list[np.ndarray]:
    """The value and its gradient by every float input."""
    inputs = [_tensor(a) for a in case.arrays()]
    y = case.torch(torch, *inputs)
    parts = list(y) if isinstance(y, tuple | list) else [y]
    weights = case.weights([tuple(p.shape) for p in parts])
    value = sum((p * torch.tensor(w)).sum() for p, w in zip(parts, weights, strict=True))
    floats = [i for i in inputs if i.requires_grad]
    if not value.requires_grad:
        return [value.numpy(), *(np.zeros(tuple(i.shape)) for i in floats)]
    found = torch.autograd.grad(value, floats, allow_unused=True)
    return [
        value.detach().numpy(),
        *(
            np.zeros(tuple(i.shape)) if g is None else g.numpy()
            for i, g in zip(floats, found, strict=True)
        ),
    ]


def main() -> None:
    """Write every family."""
    FOLDER.mkdir(exist_ok=True)
    for module in (cases_elementwise, cases_tensor, cases_network, cases_own):
        for family, cases in module.FAMILIES.items():
            table = {}
            for case in cases:
                if case.torch is not None:
                    table |= {f"{case.name}/{i}": g for i, g in enumerate(gradients(case))}
            flat = {k.replace("/", "|"): v.astype("float32") for k, v in table.items()}
            np.savez_compressed(FOLDER / f"{family}.npz", **flat)


if __name__ == "__main__":
    main()
