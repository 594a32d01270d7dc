"""A plan's entry in, a `Problem` out; and a schedule of that problem in, the entry's launches out.

    launches   conv(x, w, a)  relu(a, b)  sgd(w, dw)      tasks 0, 1, 2; values a, b
    schedule   0 1 0 2                                    task 0 again, before w is updated
    launches   conv(x, w, a)  relu(a, b)  conv(x, w, a')  sgd(w, dw)

A second run writes TEMP tensors of its own (a'), and later readers read those: to the rest of the
pipeline it is a launch like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from aotrain.memory.problem import Problem, Task, Value
from aotrain.plan import Entry, Kind, Launch, Plan, Tensor, align


def derive(plan: Plan, entry: Entry, times: Mapping[int, int]) -> Problem:
    """The problem of `entry`: task i is its launch i. `times` gives nanoseconds by kernel."""
    walk = _Walk(plan)
    tasks = tuple(walk.task(launch, times[launch.kernel]) for launch in entry.launches)
    kept = sum(align(t.nbytes) for t in plan.tensors if t.kind is not Kind.TEMP)
    return Problem(tasks, tuple(walk.values), kept)


@dataclass
class _State:
    """What has happened to a persistent tensor: its last writer, and who has read it since."""

    writer: int | None = None
    readers: list[int] = field(default_factory=list)


class _Walk:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.values: list[Value] = []
        self.current: dict[int, int] = {}  # TEMP tensor -> the value that it holds
        self.states: dict[int, _State] = {}
        self.count = 0

    def task(self, launch: Launch, nanoseconds: int) -> Task:
        number, self.count = self.count, self.count + 1
        temp = [self.plan.tensors[index].kind is Kind.TEMP for index in launch.args]
        positions = range(len(launch.args))
        reads = {
            self.current[launch.args[i]] for i in positions if temp[i] and i not in launch.writes
        }
        after: set[int] = set()
        overwrites: set[int] = set()
        written = {launch.args[i] for i in launch.writes if not temp[i]}
        for index in {launch.args[i] for i in positions if not temp[i]}:
            state = self.states.setdefault(index, _State())
            if state.writer is not None:
                after.add(state.writer)
            if index in written:
                overwrites.update(state.readers)
                self.states[index] = _State(number)
            else:
                state.readers.append(number)
        writes = tuple(self._write(launch.args[i], number) for i in launch.writes if temp[i])
        return Task(
            launch.origin or self.plan.kernels[launch.kernel],
            nanoseconds,
            tuple(sorted(reads)),
            writes,
            tuple(sorted(after)),
            tuple(sorted(overwrites)),
            replayable=not written,
        )

    def _write(self, index: int, number: int) -> int:
        tensor = self.plan.tensors[index]
        self.current[index] = len(self.values)
        self.values.append(Value(tensor.name, align(max(1, tensor.nbytes)), number))
        return self.current[index]


def apply(plan: Plan, entry: Entry, schedule: Sequence[int]) -> tuple[tuple[Tensor, ...], Entry]:
    """`entry` with its launches run in the order of `schedule`, and the tensors it then needs.

    New TEMP tensors follow those of `plan`, so the indices of other entries stay true.
    """
    reads, writes = _bind(plan, entry)
    tensors = list(plan.tensors)
    holder: dict[int, int] = {}  # value -> the tensor that holds its last run
    used: set[int] = set()
    launches = []
    for number in schedule:
        launch = entry.launches[number]
        args = list(launch.args)
        for position, value in reads[number].items():
            args[position] = holder[value]
        for position, value in writes[number].items():
            if args[position] in used:
                tensors.append(plan.tensors[args[position]])
                args[position] = len(tensors) - 1
            used.add(args[position])
            holder[value] = args[position]
        launches.append(replace(launch, args=tuple(args)))
    return tuple(tensors), replace(entry, launches=tuple(launches))


def _bind(plan: Plan, entry: Entry) -> tuple[list[dict[int, int]], list[dict[int, int]]]:
    """For each launch the values it reads and writes, by position, numbered as in `derive`."""
    current: dict[int, int] = {}
    reads: list[dict[int, int]] = []
    writes: list[dict[int, int]] = []
    count = 0
    for launch in entry.launches:
        temp = [i for i, index in enumerate(launch.args) if plan.tensors[index].kind is Kind.TEMP]
        reads.append({i: current[launch.args[i]] for i in temp if i not in launch.writes})
        writes.append({})
        for i in launch.writes:
            if i in temp:
                current[launch.args[i]] = writes[-1][i] = count
                count += 1
    return reads, writes
