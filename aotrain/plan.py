"""The whole training program as numbers: tensors with offsets, kernels by index, launches in order.

Plain dataclasses, no TVM type: a plan can be brute-force tested, drawn, serialised and replayed
without a compiler. `aotrain.memory` fills the offsets, `aotrain.artifact` writes it, the C loader
replays it.

All tensors live in one block of `Plan.block_bytes` bytes that the loader allocates once; every
offset is in bytes from its start. Persistent tensors (everything but TEMP) own their bytes; TEMP
tensors share the arena part of the block.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

ALIGNMENT = 64
"""Bytes: every offset is a multiple of it (a cache line, an AVX-512 register)."""

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip


class Kind(enum.Enum):
    """Who owns a tensor's bytes, and for how long."""

    STATE = "state"  # parameters, slots, buffers, counters: persistent, saved in a checkpoint
    CONSTANT = "constant"  # written once when the artifact is opened
    HYPER = "hyper"  # a scalar that the user may set between steps (learning rate, ...)
    INPUT = "input"  # a batch; the user writes it before a step
    OUTPUT = "output"  # the user reads it after a step
    TEMP = "temp"  # lives inside one step, in the arena


class Role(enum.Enum):
    """What a STATE tensor is."""

    TRAINABLE = "trainable"
    FROZEN = "frozen"  # a parameter without a gradient
    BUFFER = "buffer"  # BatchNorm's running statistics
    SLOT = "slot"  # an optimizer's moment
    COUNTER = "counter"  # step and RNG


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype (a numpy name, or "bfloat16") of something a user sees."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of the dense, C-ordered tensor."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Tensor:
    """One tensor of the program. `origin` names the ONNX node that it came from."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: Kind
    role: Role | None = None  # set exactly for STATE
    origin: str = ""
    default: float | None = None  # set exactly for HYPER
    offset: int = -1  # bytes; -1 before packing

    @property
    def nbytes(self) -> int:
        """Bytes of the dense, C-ordered tensor."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def spec(self) -> TensorSpec:
        """The part that a user sees."""
        return TensorSpec(self.name, self.shape, self.dtype)

    def at(self, offset: int) -> Tensor:
        """The same tensor, placed."""
        return replace(self, offset=offset)


@dataclass(frozen=True)
class Launch:
    """One call of a kernel: `args` are tensor indices in the order of the kernel's pointers.

    `writes` are the positions in `args` that the kernel writes; a position may be read as well
    (an in-place update). Scratch buffers of a kernel are ordinary TEMP tensors among `args`.
    """

    kernel: int
    args: tuple[int, ...]
    writes: tuple[int, ...]
    origin: str = ""


@dataclass(frozen=True)
class Entry:
    """An entry point (`train`, `eval`, `predict`): launches in order, all over the same state."""

    name: str
    launches: tuple[Launch, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The program. `thread_scratch` is the bytes of scratch that each worker thread needs."""

    tensors: tuple[Tensor, ...]
    kernels: tuple[str, ...]
    entries: tuple[Entry, ...]
    block_bytes: int = 0
    thread_scratch: int = 0

    def entry(self, name: str) -> Entry:
        """The entry point called `name`; KeyError when there is none."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(name)

    @property
    def persistent_bytes(self) -> int:
        """Bytes of the block that outlive a step: all but TEMP, padding included."""
        ends = [t.offset + t.nbytes for t in self.tensors if t.kind is not Kind.TEMP]
        return align(max(ends, default=0))

    @property
    def arena_bytes(self) -> int:
        """Bytes of the block that TEMP tensors share."""
        return self.block_bytes - self.persistent_bytes


def align(nbytes: int) -> int:
    """`nbytes` rounded up to `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
