"""Run as a worker: an ONNX file and a batch in, a step of PyTorch timed.

The module is straight-line `torch.nn.functional` code from the file, the optimizer is the fused
AdamW: what a person who cares for speed would write. `mode` is "eager", "channels-last" or
"compile".
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
import torch

from benchmarks._worker import serve
from tests.models.torch_module import OnnxModule


def main(model: str, batch: str, threads: str, mode: str) -> None:
    """`batch` holds x and y."""
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    module = OnnxModule(onnx.load(model))
    with np.load(batch) as file:
        x, y = torch.from_numpy(file["x"]), torch.from_numpy(file["y"]).flatten()
    if mode == "channels-last":
        module = module.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(module(x).flatten(0, -2), y)

    run = torch.compile(loss_of) if mode == "compile" else loss_of

    def step() -> float:
        loss = run(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    serve(step)


if __name__ == "__main__":
    main(*sys.argv[1:])
