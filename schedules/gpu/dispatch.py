"""A grid of threads and what one of them does: what the rules make and targets translate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from aotrain.schedules.cpu.nest import sequence

#: Vulkan's guaranteed minima: threads a group, groups a dimension, bytes of shared memory.
MAX_THREADS, MAX_GROUPS, MAX_SHARED = 128, 65_535, 16_384


@dataclass(frozen=True)
class Dispatch:
    """`body` runs once for each thread (0 .. threads-1) of each group (0 .. groups-1).

    group and thread are int64 variables of `body`. Groups run in any order; a barrier is
    `barrier()`, which all threads of a group must reach. `shared` are buffers of a group.
    """

    name: str
    groups: int
    threads: int
    group: tirx.Var
    thread: tirx.Var
    body: tirx.Stmt
    shared: tuple[tirx.Buffer, ...] = ()

    @property
    def grid(self) -> tuple[int, int]:
        """Groups across and down: at least `groups` together, within what a device must take."""
        if self.groups <= MAX_GROUPS:
            return self.groups, 1
        across = 32_768
        return across, -(-self.groups // across)

    def __str__(self) -> str:
        return f"dispatch {self.name} <{self.groups} x {self.threads}>\n{self.body}"


Body = Callable[[tirx.Expr, tirx.Expr], Sequence[tirx.Stmt]]


def dispatch(
    name: str, groups: int, threads: int, body: Body, shared: Sequence[tirx.Buffer] = ()
) -> Dispatch:
    """`body(group, thread)` gives the statements."""
    group, thread = tirx.Var("group", "int64"), tirx.Var("thread", "int64")
    statement = sequence(body(group, thread))
    return Dispatch(name, groups, threads, group, thread, statement, tuple(shared))


def barrier() -> tirx.Stmt:
    """All threads of the group wait here, and see each other's shared memory."""
    return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared"))
