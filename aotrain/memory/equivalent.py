"""A finished plan and the plan that it was made from in, the list of how they differ out.

Both are run on symbols: a launch's result is named by its kernel, the position it is written to and
the names of all that the launch read. The finished plan runs over bytes, so a name is found only if
every byte of the tensor still holds it. The two agree if every entry leaves the same names in state
and outputs. A second run that reads an updated weight, or a buffer updated twice, has other names.

    AOT-M006 equivalence   an output or a state tensor ends with another value than it should
"""

from __future__ import annotations

from bisect import bisect_right

from aotrain.errors import Diagnostic, InternalError, raise_if_any
from aotrain.plan import Entry, Kind, Plan

Symbol = int


def check_equivalent(plan: Plan, reference: Plan) -> None:
    """Raise InternalError unless `plan` (placed) computes what `reference` (unplaced) does.

    The persistent tensors come first or not, but have the same names in both.
    """
    names: dict[object, Symbol] = {}
    found = []
    for entry, original in zip(plan.entries, reference.entries, strict=True):
        got, want = _Placed(plan, names).run(entry), _Unplaced(reference, names).run(original)
        found += [
            Diagnostic("AOT-M006", f"invalid plan: '{name}' ends wrong", f"entry '{entry.name}'")
            for name in want
            if got.get(name) != want[name]
        ]
    raise_if_any(found, InternalError)


class _Run:
    """Symbolic execution over some memory; `names` gives equal computations equal symbols."""

    def __init__(self, plan: Plan, names: dict[object, Symbol]) -> None:
        self.plan, self.names = plan, names

    def run(self, entry: Entry) -> dict[str, Symbol]:
        """The symbols that outputs and state hold at the end, by tensor name."""
        for index, tensor in enumerate(self.plan.tensors):
            if tensor.kind not in (Kind.TEMP, Kind.OUTPUT):
                self.write(index, self._symbol(tensor.name))
        for launch in entry.launches:
            reads = tuple(
                -1 if position in launch.writes and self._fresh(index) else self.read(index)
                for position, index in enumerate(launch.args)
            )
            call = self._symbol((self.plan.kernels[launch.kernel], reads))
            for position in launch.writes:
                self.write(launch.args[position], self._symbol((call, position)))
        state = [i for i, t in enumerate(self.plan.tensors) if t.kind is Kind.STATE]
        return {self.plan.tensors[i].name: self.read(i) for i in (*state, *entry.outputs)}

    def _symbol(self, key: object) -> Symbol:
        return self.names.setdefault(key, len(self.names))

    def _fresh(self, index: int) -> bool:
        return self.plan.tensors[index].kind in (Kind.TEMP, Kind.OUTPUT)

    def read(self, index: int) -> Symbol:
        """The symbol that the tensor holds; -2 if it holds none."""
        raise NotImplementedError

    def write(self, index: int, symbol: Symbol) -> None:
        """Make the tensor hold `symbol`."""
        raise NotImplementedError


class _Unplaced(_Run):
    """Every tensor has bytes of its own."""

    def __init__(self, plan: Plan, names: dict[object, Symbol]) -> None:
        super().__init__(plan, names)
        self.holds: dict[int, Symbol] = {}

    def read(self, index: int) -> Symbol:
        return self.holds.get(index, -2) if self.plan.tensors[index].nbytes else -3

    def write(self, index: int, symbol: Symbol) -> None:
        self.holds[index] = symbol


class _Placed(_Run):
    """Bytes of one block: `marks[i]` holds from `begins[i]` to `begins[i + 1]`."""

    def __init__(self, plan: Plan, names: dict[object, Symbol]) -> None:
        super().__init__(plan, names)
        self.begins = [0]
        self.marks = [-2]

    def read(self, index: int) -> Symbol:
        tensor = self.plan.tensors[index]
        if not tensor.nbytes:
            return -3
        first = bisect_right(self.begins, tensor.offset) - 1
        held = {self.marks[first]}
        for i in range(first + 1, len(self.begins)):
            if self.begins[i] >= tensor.offset + tensor.nbytes:
                break
            held.add(self.marks[i])
        return held.pop() if len(held) == 1 else -2

    def write(self, index: int, symbol: Symbol) -> None:
        tensor = self.plan.tensors[index]
        if tensor.nbytes:
            self._cut(tensor.offset)
            self._cut(tensor.offset + tensor.nbytes)
            first = bisect_right(self.begins, tensor.offset) - 1
            last = bisect_right(self.begins, tensor.offset + tensor.nbytes - 1)
            self.begins[first:last] = [tensor.offset]
            self.marks[first:last] = [symbol]

    def _cut(self, at: int) -> None:
        i = bisect_right(self.begins, at) - 1
        if self.begins[i] != at:
            self.begins.insert(i + 1, at)
            self.marks.insert(i + 1, self.marks[i])
