"""Launches in a valid order in, an equivalent order that holds fewer bytes alive out.

What one launch owes another: read after write, write after read, write after write, on the same
tensor. Within that, launches keep their order, except that a launch which frees more bytes than it
allocates (an optimizer's update, above all) runs as soon as it may: gradients then do not all live
at once.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

from aotrain.plan import Entry, Kind, Launch, Plan


def order(plan: Plan) -> Plan:
    """Reorder every entry's launches."""
    entries = tuple(_order_entry(plan, entry) for entry in plan.entries)
    return replace(plan, entries=entries)


def dependencies(launches: tuple[Launch, ...]) -> list[set[int]]:
    """For each launch, the positions of earlier launches that must stay before it."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    needs: list[set[int]] = []
    for position, launch in enumerate(launches):
        need = set()
        written = {launch.args[i] for i in launch.writes}
        for tensor in launch.args:
            if tensor in writer:
                need.add(writer[tensor])
            if tensor in written:
                need.update(readers.get(tensor, ()))
        for tensor in launch.args:
            if tensor in written:
                writer[tensor] = position
                readers[tensor] = []
            else:
                readers.setdefault(tensor, []).append(position)
        need.discard(position)
        needs.append(need)
    return needs


def _order_entry(plan: Plan, entry: Entry) -> Entry:
    needs = dependencies(entry.launches)
    followers: list[list[int]] = [[] for _ in needs]
    for position, need in enumerate(needs):
        for earlier in need:
            followers[earlier].append(position)
    waiting = [len(need) for need in needs]
    urgent = [_frees(plan, launch) for launch in entry.launches]
    ready = [(not urgent[i], i) for i, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    result = []
    while ready:
        _, position = heapq.heappop(ready)
        result.append(entry.launches[position])
        for follower in followers[position]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, (not urgent[follower], follower))
    assert len(result) == len(entry.launches)
    return replace(entry, launches=tuple(result))


def _frees(plan: Plan, launch: Launch) -> bool:
    """Whether the launch allocates nothing: it writes persistent tensors only."""
    return all(plan.tensors[launch.args[i]].kind is not Kind.TEMP for i in launch.writes)
