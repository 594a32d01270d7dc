"""A name in, a `Case` out: a model and its batches, for the tests and the benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from . import cnn, gpt, lstm, mlp, mobilenet, resnet, unet, vgg, vit

Batch = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model with a seeded source of batches that it can learn.

    `shape` is one example's; `classes` the size of the logits' class axis, which is the last one.
    A token model has int64 inputs and a label for each token, a pixel model a label for each pixel,
    and its class axis is 1.
    """

    name: str
    build: Callable[[], onnx.ModelProto]
    input: str
    shape: tuple[int, ...]
    classes: int
    batch: int
    tokens: bool = False
    pixels: bool = False

    def batches(self, steps: int, batch: int | None = None, seed: int = 0) -> list[Batch]:
        """`steps` pairs of inputs and int64 labels."""
        rng = np.random.default_rng(seed)
        draw = self._tokens if self.tokens else self._images
        if self.pixels:
            draw = self._pixels
        return draw(rng, steps, batch or self.batch)

    def _images(self, rng: np.random.Generator, steps: int, batch: int) -> list[Batch]:
        # a prototype for each class, under noise
        prototypes = rng.standard_normal((self.classes, *self.shape))
        found = []
        for _ in range(steps):
            labels = rng.integers(0, self.classes, batch)
            x = 0.5 * prototypes[labels] + rng.standard_normal((batch, *self.shape))
            found.append((x.astype(np.float32), labels))
        return found

    def _pixels(self, rng: np.random.Generator, steps: int, batch: int) -> list[Batch]:
        # a colour for each class, under noise
        colours = rng.standard_normal((self.classes, self.shape[0]))
        found = []
        for _ in range(steps):
            labels = rng.integers(0, self.classes, (batch, *self.shape[1:]))
            x = 0.5 * np.moveaxis(colours[labels], -1, 1)
            found.append(((x + rng.standard_normal(x.shape)).astype(np.float32), labels))
        return found

    def _tokens(self, rng: np.random.Generator, steps: int, batch: int) -> list[Batch]:
        # a Markov chain: two successors for each token, and the label is the next token
        successors = rng.integers(0, self.classes, (self.classes, 2))
        found = []
        for _ in range(steps):
            text = np.empty((batch, self.shape[0] + 1), np.int64)
            text[:, 0] = rng.integers(0, self.classes, batch)
            for t in range(self.shape[0]):
                text[:, t + 1] = successors[text[:, t], rng.integers(0, 2, batch)]
            found.append((np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])))
        return found


CASES = {
    case.name: case
    for case in (
        Case("mlp", mlp.build, "x", (784,), 10, 64),
        Case("cnn", cnn.build, "x", (1, 28, 28), 10, 64),
        Case("resnet18", resnet.build, "x", (3, 32, 32), 10, 16),
        Case("gpt", gpt.build, "tokens", (32,), 96, 16, tokens=True),
        Case("mobilenetv2", mobilenet.build, "x", (3, 96, 96), 10, 8),
        Case("vit", vit.build, "x", (3, 32, 32), 10, 16),
        Case("lstm", lstm.build, "x", (28, 28), 10, 32),
        Case("resnet50", resnet.build50, "x", (3, 96, 96), 10, 16),
        Case("vgg16", vgg.build, "x", (3, 64, 64), 10, 16),
        Case("unet", unet.build, "x", (3, 64, 64), 4, 8, pixels=True),
    )
}
"""At real size; `batch` is the benchmark's."""

WIDER = {
    case.name: case
    for case in (
        Case("cnn", partial(cnn.build, widths=(32, 64, 256)), "x", (1, 28, 28), 10, 64),
        Case(
            "gpt",
            partial(gpt.build, width=256, tokens=128, vocabulary=1024),
            *("tokens", (128,), 1024, 8),
            tokens=True,
        ),
    )
}
"""Where that is too small for a benchmark to say much."""

TINY = {
    case.name: case
    for case in (
        Case("mlp", mlp.tiny, "x", (16,), 4, 8),
        Case("cnn", cnn.tiny, "x", (1, 8, 8), 10, 4),
        Case("resnet18", resnet.tiny, "x", (3, 8, 8), 10, 4),
        Case("gpt", gpt.tiny, "tokens", (6,), 11, 4, tokens=True),
        Case("mobilenetv2", mobilenet.tiny, "x", (3, 16, 16), 10, 4),
        Case("vit", vit.tiny, "x", (3, 8, 8), 10, 4),
        Case("lstm", lstm.tiny, "x", (4, 3), 4, 4),
        Case("resnet50", resnet.tiny50, "x", (3, 16, 16), 10, 4),
        Case("vgg16", vgg.tiny, "x", (3, 8, 8), 10, 4),
        Case("unet", unet.tiny, "x", (3, 8, 8), 4, 4, pixels=True),
    )
}
"""The same graphs, small enough to compile in a second or so."""
