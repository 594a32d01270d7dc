"""A packed plan in, the list of what is wrong with it out; every compile runs it.

Shares no code with the packer: it replays each entry over a map from byte intervals to the tensor
whose value they hold, and demands that every read finds what was written last.

    AOT-M001 structure   an index or a position out of range
    AOT-M002 placement   an offset outside the block or unaligned, or persistent tensors overlapping
    AOT-M003 replay      a launch reads bytes that hold no value, or another tensor's
    AOT-M004 replay      an output or the state is not whole when the entry ends
    AOT-M005 replay      one launch has two arguments that overlap, of which it writes one
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from aotrain.errors import Diagnostic, InternalError, raise_if_any
from aotrain.plan import Entry, Kind, Launch, Plan, Tensor

BLOCK_ALIGNMENT = 64


def validate(plan: Plan) -> None:
    """Raise InternalError with every violation."""
    found = _structure(plan)
    if not found:
        found = _placement(plan)
    if not found:
        for entry in plan.entries:
            found += _replay(plan, entry)
    raise_if_any(found, InternalError)


def _structure(plan: Plan) -> list[Diagnostic]:
    found = []
    tensors, kernels = len(plan.tensors), len(plan.kernels)
    for entry in plan.entries:
        indices = [*entry.inputs, *entry.outputs]
        for launch in entry.launches:
            indices += launch.args
            if not 0 <= launch.kernel < kernels:
                found.append(_problem("M001", f"launch of kernel {launch.kernel}", entry))
            if any(not 0 <= position < len(launch.args) for position in launch.writes):
                found.append(_problem("M001", f"writes {launch.writes} of {launch}", entry))
        if any(not 0 <= index < tensors for index in indices):
            found.append(_problem("M001", f"a tensor beyond the {tensors} there are", entry))
    return found


def _placement(plan: Plan) -> list[Diagnostic]:
    found = []
    persistent = []
    for tensor in plan.tensors:
        end = tensor.offset + tensor.nbytes
        if tensor.offset < 0 or end > plan.block_bytes or tensor.offset % BLOCK_ALIGNMENT:
            message = f"'{tensor.name}' lies at {tensor.offset}..{end} of {plan.block_bytes} bytes"
            found.append(_problem("M002", message))
        if tensor.kind is not Kind.TEMP and tensor.nbytes:
            persistent.append((tensor.offset, end, tensor.name))
    persistent.sort()
    for (_, end, name), (begin, _, other) in pairwise(persistent):
        if begin < end:
            found.append(_problem("M002", f"'{name}' and '{other}' overlap"))
    floor = max((end for _, end, _ in persistent), default=0)
    found += [
        _problem("M002", f"'{tensor.name}' overlaps the persistent tensors")
        for tensor in plan.tensors
        if tensor.kind is Kind.TEMP and tensor.nbytes and tensor.offset < floor
    ]
    return found


class _Bytes:
    """Who wrote each byte last: disjoint intervals, sorted."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.owners: list[int] = []

    def write(self, begin: int, end: int, owner: int) -> None:
        """Bytes [begin, end) now hold `owner`'s value; what they held is gone."""
        if begin == end:
            return
        first = bisect_right(self.ends, begin)
        last = first
        keep = []
        while last < len(self.begins) and self.begins[last] < end:
            if self.begins[last] < begin:
                keep.append((self.begins[last], begin, self.owners[last]))
            if self.ends[last] > end:
                keep.append((end, self.ends[last], self.owners[last]))
            last += 1
        keep.append((begin, end, owner))
        keep.sort()
        self.begins[first:last] = [item[0] for item in keep]
        self.ends[first:last] = [item[1] for item in keep]
        self.owners[first:last] = [item[2] for item in keep]

    def holds(self, begin: int, end: int, owner: int) -> bool:
        """Whether all of [begin, end) hold `owner`'s value."""
        at = bisect_right(self.ends, begin)
        while begin < end:
            if at == len(self.begins) or self.begins[at] > begin or self.owners[at] != owner:
                return False
            begin = self.ends[at]
            at += 1
        return True


def _replay(plan: Plan, entry: Entry) -> list[Diagnostic]:
    found = []
    memory = _Bytes()
    for index, tensor in enumerate(plan.tensors):
        if tensor.kind not in (Kind.TEMP, Kind.OUTPUT):
            memory.write(tensor.offset, tensor.offset + tensor.nbytes, index)
    for launch in entry.launches:
        found += _overlaps(plan, entry, launch)
        fresh = _first_writes(plan, launch)
        for position, index in enumerate(launch.args):
            tensor = plan.tensors[index]
            end = tensor.offset + tensor.nbytes
            if position not in fresh and not memory.holds(tensor.offset, end, index):
                message = f"{_call(plan, launch)} reads '{tensor.name}', which is not there"
                found.append(_problem("M003", message, entry))
        for position in launch.writes:
            tensor = plan.tensors[launch.args[position]]
            memory.write(tensor.offset, tensor.offset + tensor.nbytes, launch.args[position])
    kept = [i for i, t in enumerate(plan.tensors) if t.kind in (Kind.STATE, Kind.CONSTANT)]
    for index in [*kept, *entry.outputs]:
        tensor = plan.tensors[index]
        if not memory.holds(tensor.offset, tensor.offset + tensor.nbytes, index):
            found.append(_problem("M004", f"'{tensor.name}' is not whole at the end", entry))
    return found


def _first_writes(plan: Plan, launch: Launch) -> set[int]:
    """Positions that need hold no value before the launch: written temporaries and outputs.

    State is only ever updated from a value, so a written state tensor must hold one.
    """
    return {
        position
        for position in launch.writes
        if plan.tensors[launch.args[position]].kind in (Kind.TEMP, Kind.OUTPUT)
    }


def _overlaps(plan: Plan, entry: Entry, launch: Launch) -> list[Diagnostic]:
    found = []
    for position in launch.writes:
        written = plan.tensors[launch.args[position]]
        for other, index in enumerate(launch.args):
            if other != position and _meet(written, plan.tensors[index]):
                message = f"{_call(plan, launch)} writes '{written.name}' over another argument"
                found.append(_problem("M005", message, entry))
    return found


def _meet(one: Tensor, other: Tensor) -> bool:
    begin = max(one.offset, other.offset)
    return begin < min(one.offset + one.nbytes, other.offset + other.nbytes)


def _call(plan: Plan, launch: Launch) -> str:
    return f"{plan.kernels[launch.kernel]} ({launch.origin})"


def _problem(code: str, message: str, entry: Entry | None = None) -> Diagnostic:
    where = f"entry '{entry.name}'" if entry else ""
    return Diagnostic(f"AOT-{code}", f"invalid plan: {message}", where, "please report this")
