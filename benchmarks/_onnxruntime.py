"""Run as a worker: an ONNX file and a batch in, a step of onnxruntime-training timed.

The package is `onnxruntime-training-cpu`, last 1.19.2: with Python 3.11 or older, numpy 1, onnx
1.17 or older (it reads no newer IR) and torch, which its artifact builder imports.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from benchmarks._worker import serve


def main(model: str, batch: str, threads: str) -> None:
    """`batch` holds x and y."""
    source = _prepared(onnx.load(model))
    statistics = {
        name
        for node in source.graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[3:5]
    }
    weights = [
        tensor.name
        for tensor in source.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims
    ]
    with tempfile.TemporaryDirectory() as folder, np.load(batch) as file:
        artifacts.generate_artifacts(
            source,
            requires_grad=[name for name in weights if name not in statistics],
            frozen_params=[name for name in weights if name in statistics],
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=artifacts.OptimType.AdamW,
            artifact_directory=folder,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(threads)
        state = CheckpointState.load_checkpoint(f"{folder}/checkpoint")
        module = Module(
            f"{folder}/training_model.onnx",
            state,
            f"{folder}/eval_model.onnx",
            session_options=options,
        )
        optimizer = Optimizer(f"{folder}/optimizer_model.onnx", module)
        optimizer.set_learning_rate(1e-3)
        module.train()
        x, y = file["x"], file["y"]

        def step() -> float:
            loss = module(x, y)
            optimizer.step()
            module.lazy_reset_grad()
            return float(loss)

        serve(step)


def _prepared(model: onnx.ModelProto) -> onnx.ModelProto:
    """As its gradients want it: logits [N, C, T], and all of LayerNormalization's outputs."""
    for node in model.graph.node:
        if node.op_type == "LayerNormalization":
            node.output.extend([f"{node.output[0]}.mean", f"{node.output[0]}.inv_std"])
    output = model.graph.output[0]
    dims = output.type.tensor_type.shape.dim
    if len(dims) == 3:
        node = onnx.helper.make_node("Transpose", [output.name], ["scores"], perm=[0, 2, 1])
        model.graph.node.append(node)
        output.name = "scores"
        dims[1].dim_value, dims[2].dim_value = dims[2].dim_value, dims[1].dim_value
    return model


if __name__ == "__main__":
    main(*sys.argv[1:])
