"""A hand-made artifact, softmax regression in C kernels: the loader is tested without TVM."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from aotrain import artifact, toolchain
from aotrain.plan import Entry, Kind, Launch, Plan, Role, Tensor, align
from aotrain.runtime import building

HERE = Path(__file__).parent


def plan(batch: int = 4, features: int = 3, classes: int = 5) -> Plan:
    shape = (batch, features)
    tensors = [
        Tensor("x", shape, "float32", Kind.INPUT),  # 0
        Tensor("y", (batch,), "int64", Kind.INPUT),
        Tensor("rows", (), "int32", Kind.INPUT),
        Tensor("w", (features, classes), "float32", Kind.STATE, Role.TRAINABLE),  # 3
        Tensor('b "ä"\n', (classes,), "float32", Kind.STATE, Role.TRAINABLE),
        Tensor("optim.momentum.w", (features, classes), "float32", Kind.STATE, Role.SLOT),
        Tensor("seen", (1,), "int16", Kind.STATE, Role.BUFFER),  # 6
        Tensor("step", (), "int64", Kind.STATE, Role.COUNTER),
        Tensor("rng", (2,), "uint32", Kind.STATE, Role.COUNTER),
        Tensor("mean", (features,), "float32", Kind.CONSTANT),  # 9
        Tensor("lr", (), "float32", Kind.HYPER, default=0.1),
        Tensor("loss", (), "float32", Kind.OUTPUT),  # 11
        Tensor("logits", (batch, classes), "float32", Kind.OUTPUT),
        Tensor("correct", (), "int32", Kind.OUTPUT),  # 13
        Tensor("count", (), "int32", Kind.OUTPUT),
        Tensor("centred", shape, "float32", Kind.TEMP),  # 15
        Tensor("grad", (batch, classes), "float32", Kind.TEMP),
    ]
    offset = 0
    for i, tensor in enumerate(tensors):
        tensors[i] = tensor.at(offset)
        offset += align(tensor.nbytes)
    forward = (Launch(0, (0, 9, 15), (2,)), Launch(1, (15, 3, 4, 12), (3,), "Gemm node 'fc'"))
    train = (
        *forward,
        Launch(2, (12, 1, 16, 11), (2, 3)),
        Launch(3, (3, 4, 5, 15, 16, 10), (0, 1, 2)),
        Launch(4, (7, 8, 6), (0, 1, 2)),
    )
    return Plan(
        tuple(tensors),
        ("center", "logits", "loss_and_grad", "update", "tick", "score"),
        (
            Entry("train", train, (0, 1), (11,)),
            Entry(
                "eval",
                (*forward, Launch(5, (12, 1, 2, 11, 13, 14), (3, 4, 5))),
                (0, 1, 2),
                (11, 13, 14),
            ),
            Entry("predict", forward, (0,), (12,)),
        ),
        block_bytes=offset,
        thread_scratch=align(4 * classes),
    )


def state(batch: int = 4, features: int = 3, classes: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    values = {
        t.name: np.zeros(t.shape, t.dtype)
        for t in plan(batch, features, classes).tensors
        if t.kind is Kind.STATE
    }
    values["w"] = rng.normal(0, 0.1, (features, classes)).astype("float32")
    values["rng"] = np.array([7, 0], "uint32")
    return values


def build(
    folder: Path, batch: int = 4, features: int = 3, classes: int = 5, *, force: bool = False
) -> Path:
    """Write the artifact to `folder` and return it."""
    dims = (batch, features, classes)
    kernels = folder.with_suffix(".so")
    toolchain.compile_shared(
        [HERE / "toy_kernels.c"],
        kernels,
        flags=["-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{building.SOURCES}"]
        + [f"-D{name}={size}" for name, size in zip("BDC", dims, strict=True)]
        + ["-lm"],
    )
    artifact.write(
        folder,
        plan=plan(*dims),
        state=state(*dims),
        constants={9: np.full(features, 0.5, "float32")},
        kernels=kernels,
        info={"name": "toy", "target": "cpu", "ignore_index": -100},
        labels=classes,
        force=force,
    )
    return folder


def batch(
    rows: int = 4, features: int = 3, classes: int = 5, seed: int = 0
) -> dict[str, np.ndarray]:
    """A batch whose label follows from the features."""
    rng = np.random.default_rng(seed)
    x = rng.random((rows, features), "float32")
    teacher = np.random.default_rng(99).normal(size=(features, classes))
    return {"x": x, "y": ((x - 0.5) @ teacher).argmax(1).astype("int64")}
