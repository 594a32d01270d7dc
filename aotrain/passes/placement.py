"""Calls and named results of one entry in, launches in a valid order with results in place out.

Values are in single assignment up to here. A result goes home to the tensor that a user knows it
by: an OUTPUT, or a STATE tensor, whose old value dies at that moment. So a call may write a new
state only after every reader of the old one:

    grad = wgrad(x, dy)            grad = wgrad(x, dy)
    w1   = sgd(w, grad)     ->     dx   = dgrad(w, dy)
    dx   = dgrad(w, dy)            w    = sgd(w, grad)

Where that is impossible, or the kernel cannot work in place, the new value gets bytes of its own
and is copied home after the last reader.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import prod

from tvm import te, tirx

from aotrain.passes.graph import Aliases
from aotrain.passes.inplace import may_share
from aotrain.passes.table import Table
from aotrain.plan import Kind, Launch, Tensor


@dataclass(eq=False)
class Call:
    """A launch in the making: `inputs` and `outputs` are values, in parameter order."""

    name: str
    func: tirx.PrimFunc
    inputs: list[int]
    outputs: list[int]
    origin: str
    aliases: dict[int, int] = field(default_factory=dict)  # output position -> input position
    after: list[Call] = field(default_factory=list)  # readers of the state that it overwrites

    @property
    def pairs(self) -> Aliases:
        """Aliases as positions of PrimFunc parameters."""
        count = len(self.inputs)
        return tuple(sorted((count + out, operand) for out, operand in self.aliases.items()))


def place(
    table: Table, calls: list[Call], results: dict[str, int], shapes: dict[str, tuple[int, ...]]
) -> tuple[tuple[Launch, ...], tuple[int, ...]]:
    """`results` maps names to values -> (launches, indices of the outputs).

    `shapes` are those of the results: a value may be a reshaped one by another name.
    """
    placement = _Placement(table, calls)
    outputs = []
    for name, value in results.items():
        if not placement.is_state(name):
            outputs.append(placement.output(name, value, shapes[name]))
    for name, value in results.items():
        if placement.is_state(name):
            placement.update(table.named[name], value)
    return placement.launches(), tuple(outputs)


class _Placement:
    def __init__(self, table: Table, calls: list[Call]) -> None:
        self.table, self.calls = table, calls
        self.home: dict[int, int] = {}  # value -> the persistent tensor that it is computed into
        self.writer = {value: call for call in calls for value in call.outputs}

    def is_state(self, name: str) -> bool:
        index = self.table.named.get(name)
        return index is not None and self.table.tensors[index].kind is Kind.STATE

    def output(self, name: str, value: int, shape: tuple[int, ...]) -> int:
        """Compute `value` where the user reads it; the OUTPUT's index."""
        dtype = self.table.tensors[value].dtype
        index = self.table.persistent(name, shape, dtype, kind=Kind.OUTPUT)
        if value in self.writer and value not in self.home:
            self.home[value] = index
        else:
            self._copy(value, index)
        return index

    def update(self, state: int, value: int) -> None:
        """Make `value` the new `state`, in place if possible."""
        if value != state and not self._overwrite(state, value):
            self._copy(value, state)

    def _overwrite(self, state: int, value: int) -> bool:
        call = self.writer.get(value)
        if call is None or value in self.home:
            return False
        operands = [i for i, other in enumerate(call.inputs) if other == state]
        readers = [c for c in self.calls if state in c.inputs and c is not call]
        if len(operands) > 1 or not self._descendants(call).isdisjoint(readers):
            return False
        if operands:
            output = call.outputs.index(value)
            if not may_share(call.func, len(call.inputs) + output, operands[0]):
                return False
            call.aliases[output] = operands[0]
        call.after += readers
        self.home[value] = state
        return True

    def _copy(self, value: int, target: int) -> None:
        tensor = self.table.tensors[target]
        func = _copy_kernel(prod(tensor.shape), tensor.dtype)
        fresh = self.table.add(Tensor(tensor.name, tensor.shape, tensor.dtype, Kind.TEMP))
        call = Call("copy", func, [value], [fresh], tensor.name)
        call.after = [c for c in self.calls if target in c.inputs]
        self.calls.append(call)
        self.writer[fresh] = call
        self.home[fresh] = target

    def _needs(self, call: Call) -> list[Call]:
        """The calls that must run before `call`."""
        written = [self.writer[value] for value in call.inputs if value in self.writer]
        return [*written, *call.after]

    def _descendants(self, call: Call) -> set[Call]:
        """The calls that must run after `call`, so far as is decided."""
        followers: dict[Call, list[Call]] = {}
        for other in self.calls:
            for need in self._needs(other):
                followers.setdefault(need, []).append(other)
        found: set[Call] = set()
        stack = [call]
        while stack:
            for follower in followers.get(stack.pop(), ()):
                if follower not in found:
                    found.add(follower)
                    stack.append(follower)
        return found

    def launches(self) -> tuple[Launch, ...]:
        """The calls in their order, but each after all that it needs."""
        number = {call: i for i, call in enumerate(self.calls)}
        needs = [{number[need] for need in self._needs(call)} for call in self.calls]
        followers: list[list[int]] = [[] for _ in needs]
        for i, need in enumerate(needs):
            for earlier in need:
                followers[earlier].append(i)
        waiting = [len(need) for need in needs]
        ready = [i for i, count in enumerate(waiting) if count == 0]
        found = []
        while ready:
            i = heapq.heappop(ready)
            found.append(self._launch(self.calls[i]))
            for follower in followers[i]:
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    heapq.heappush(ready, follower)
        assert len(found) == len(self.calls), "calls that wait for each other"
        return tuple(found)

    def _launch(self, call: Call) -> Launch:
        own = [value for i, value in enumerate(call.outputs) if i not in call.aliases]
        first = len(call.inputs)
        writes = (*sorted(call.aliases.values()), *range(first, first + len(own)))
        args = tuple(self.home.get(value, value) for value in (*call.inputs, *own))
        kernel = self.table.kernel(call.name, call.func, call.pairs)
        return Launch(kernel, args, writes, call.origin)


def _copy_kernel(count: int, dtype: str) -> tirx.PrimFunc:
    source = te.placeholder((count,), dtype, name="source")
    return te.create_prim_func([source, te.compute((count,), lambda i: source[i], name="copy")])
