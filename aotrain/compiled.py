"""What `aotrain.compile` returns: where the artifact lies, and training it from Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aotrain.plan import Plan
from aotrain.runtime import Session

if TYPE_CHECKING:
    from aotrain.exporter import Exported
    from aotrain.passes.graph import Kernel


@dataclass(frozen=True)
class Compiled:
    """A compiled model. `rules` maps each kernel to the schedule rule that took it;
    `kernels` are they before their schedules.

        model = aotrain.compile("model.onnx", output="model.aot", loss="cross-entropy")
        model.fit("train.npz", epochs=5)
        model.export("trained.onnx")

    `session` is opened by the first method that needs it; the methods below are its most used
    ones, where their docstrings are. `aotrain.Session(path)` opens the same folder again.
    """

    path: Path
    plan: Plan
    rules: Mapping[str, str] = field(default_factory=dict)
    kernels: tuple[Kernel, ...] = ()

    @cached_property
    def session(self) -> Session:
        """The artifact opened, with its initial state, on this machine's cores."""
        return Session(self.path)

    def close(self) -> None:
        """End the session, if one is open; the next use opens a new one, in its initial state."""
        session: Session | None = self.__dict__.pop("session", None)
        if session is not None:
            session.close()

    def __enter__(self) -> Compiled:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def step(self, **inputs: Any) -> float:
        """One training step; the loss."""
        return self.session.step(**inputs)

    def fit(
        self, data: str | Path | Mapping[str, Any], *, epochs: int = 1, **options: Any
    ) -> list[dict[str, float]]:
        """Epochs over `data`; `options` are those of `Session.fit`."""
        return self.session.fit(data, epochs=epochs, **options)

    def eval(self, rows: int | None = None, **inputs: Any) -> dict[str, float | int]:
        """Loss, and of a classifier correct and count, over a batch."""
        return self.session.eval(rows, **inputs)

    def predict(self, **inputs: Any) -> dict[str, np.ndarray]:
        """The model's outputs by their ONNX names."""
        return self.session.predict(**inputs)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of all state tensors by name."""
        return self.session.state_dict()

    def save(self, path: str | Path) -> None:
        """Write a checkpoint."""
        self.session.save(path)

    def load(self, path: str | Path) -> None:
        """Read a checkpoint."""
        self.session.load(path)

    def export(self, output: str | Path, *, check: bool = True, force: bool = False) -> Exported:
        """Write the ONNX model with the weights as they are now."""
        return self.session.export(output, check=check, force=force)
