"""What a user may decide about an import: dimensions, batch, roles of weights, BatchNorm's form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class ImportOptions:
    """Choices of `load` and `check`.

    `dims` binds named dimensions ("seq": 64), or one dimension of one input ("tokens:1": 64)
    where the file gives it no name. `batch` is the size of the inputs' first dimension; None keeps
    a fixed one, but `default_batch` serves where the file leaves it open or fixes it at 1.
    `freeze` is applied first, then `trainable`: `freeze=("*",), trainable=("head.*",)` trains a
    head alone. A statistic of a BatchNormalization that is frozen, or `batchnorm="frozen"`, keeps
    the node in its inference form.
    """

    dims: dict[str, int] = field(default_factory=dict)
    batch: int | None = None
    default_batch: int | None = None
    trainable: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    batchnorm: Literal["train", "frozen"] = "train"
