"""What the solver knows of a step: tasks with a time, values with bytes, who must precede whom.

    {"persistent_bytes": 4096,
     "values": [{"name": "relu", "nbytes": 2048, "writer": 0}],
     "tasks":  [{"name": "conv+relu", "nanoseconds": 900, "reads": [], "writes": [0], ...}]}

A task is one launch, a value what one launch writes into the arena: written once, so an arena
tensor that is written twice is two values. State, inputs and outputs have no value; their reads and
writes leave an order between tasks (`after`, `overwrites`) and pin what writes them to one run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property


@dataclass(frozen=True)
class Value:
    """`nbytes` (aligned) that the task `writer` leaves; scratch is a value that no task reads."""

    name: str
    nbytes: int
    writer: int


@dataclass(frozen=True)
class Task:
    """One launch. A schedule may run it again if `replayable`; each run writes all its values.

    `after`: tasks of which one run must have ended before the first run of this one (they write the
    state that it reads). `overwrites`: tasks of which *every* run precedes this one, for they read
    the state that it changes.
    """

    name: str
    nanoseconds: int
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    overwrites: tuple[int, ...] = ()
    replayable: bool = True


@dataclass(frozen=True)
class Problem:
    """Tasks in a valid order. `persistent_bytes` lie beside the arena all the time."""

    tasks: tuple[Task, ...]
    values: tuple[Value, ...]
    persistent_bytes: int = 0

    @cached_property
    def needs(self) -> tuple[tuple[int, ...], ...]:
        """For each task, in ascending order, the tasks whose first run precedes its own."""
        return tuple(
            tuple(
                sorted(
                    {self.values[v].writer for v in task.reads} | {*task.after, *task.overwrites}
                )
            )
            for task in self.tasks
        )

    @cached_property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """`needs`, backwards."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for task, needs in enumerate(self.needs):
            for need in needs:
                found[need].append(task)
        return tuple(tuple(tasks) for tasks in found)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each value the tasks that read it, ascending."""
        found: list[list[int]] = [[] for _ in self.values]
        for number, task in enumerate(self.tasks):
            for value in set(task.reads):
                found[value].append(number)
        return tuple(tuple(tasks) for tasks in found)

    @cached_property
    def overwriters(self) -> tuple[tuple[int, ...], ...]:
        """For each task those that every run of it must precede."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for number, task in enumerate(self.tasks):
            for reader in task.overwrites:
                found[reader].append(number)
        return tuple(tuple(tasks) for tasks in found)

    @cached_property
    def nanoseconds(self) -> int:
        """The time of a step that runs every task once."""
        return sum(task.nanoseconds for task in self.tasks)

    def reach(self, task: int, *, forward: bool) -> set[int]:
        """All that follow `task` (its descendants), or all that it needs (its ancestors)."""
        edges = self.followers if forward else self.needs
        found: set[int] = set()
        stack = [task]
        while stack:
            for other in edges[stack.pop()]:
                if other not in found:
                    found.add(other)
                    stack.append(other)
        return found

    def local_bytes(self, task: int) -> int:
        """Bytes of what `task` reads, writes and scribbles on: no schedule needs fewer."""
        return total_bytes(self, {*self.tasks[task].reads, *self.tasks[task].writes})

    def dump(self) -> str:
        """JSON, a value or task a line."""
        head = f'{{"persistent_bytes": {self.persistent_bytes},\n "values": [\n  '
        values = ",\n  ".join(json.dumps(asdict(value)) for value in self.values)
        tasks = ",\n  ".join(json.dumps(asdict(task)) for task in self.tasks)
        return f'{head}{values}],\n "tasks": [\n  {tasks}]}}\n'

    @staticmethod
    def load(text: str) -> Problem:
        """What `dump` wrote."""
        raw = json.loads(text)
        lists = ("reads", "writes", "after", "overwrites")
        tasks = tuple(
            Task(**{**task, **{name: tuple(task[name]) for name in lists}}) for task in raw["tasks"]
        )
        values = tuple(Value(**value) for value in raw["values"])
        return Problem(tasks, values, raw["persistent_bytes"])


def total_bytes(problem: Problem, values: Iterable[int]) -> int:
    """Bytes of `values` together."""
    return sum(problem.values[value].nbytes for value in values)
