"""A problem in, an order of its tasks that holds few bytes alive out; nothing runs twice.

Several orders are made and the best is improved. An optimizer's update is a task like any other: it
frees a gradient and allocates nothing, so every order but the given one runs it as soon as it may.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

import numpy as np

from aotrain.memory.bounds import order_bound
from aotrain.memory.problem import Problem
from aotrain.memory.simulate import Simulator

Order = list[int]


ROUNDS = 200
"""Moves that the local search makes at most."""


def best_order(problem: Problem) -> tuple[Order, int]:
    """The best order found, and bytes that no order of the tasks without second runs undercuts."""
    simulator = Simulator(problem)
    order = min((make(problem) for make in PORTFOLIO.values()), key=lambda o: simulator(o).peak)
    order = improve(problem, order, ROUNDS)
    load = simulator(order).load
    highest = [order[i] for i in np.argsort(-load, kind="stable")[:8]]
    return order, order_bound(problem, highest)


def as_given(problem: Problem) -> Order:
    """As the plan has it."""
    return list(range(len(problem.tasks)))


def updates_early(problem: Problem) -> Order:
    """As given, but a task that allocates nothing runs as soon as it may."""
    frees = [not task.writes for task in problem.tasks]
    return _listed(problem, lambda task: (not frees[task], task))


def depth_first(problem: Problem) -> Order:
    """Each task just after what it needs, final tasks in the order given; updates early."""
    done: set[int] = set()
    found: Order = []
    sinks = [task for task, followers in enumerate(problem.followers) if not followers]
    for sink in sinks:
        stack = [sink]
        while stack:
            task = stack[-1]
            waiting = [need for need in problem.needs[task] if need not in done]
            if waiting:
                stack.append(waiting[-1])
                continue
            stack.pop()
            if task not in done:
                done.add(task)
                found.append(task)
    return found


def greedy(problem: Problem) -> Order:
    """Of the tasks that are ready always one that adds the fewest bytes (frees the most)."""
    remaining = [len(readers) for readers in problem.readers]
    allocates = [sum(problem.values[v].nbytes for v in task.writes) for task in problem.tasks]
    scratch = [
        sum(problem.values[v].nbytes for v in task.writes if not problem.readers[v])
        for task in problem.tasks
    ]

    def added(task: int) -> tuple[int, int]:
        freed = sum(
            problem.values[v].nbytes for v in problem.tasks[task].reads if remaining[v] == 1
        )
        return allocates[task] - scratch[task] - freed, task

    def done(task: int) -> Iterable[int]:
        for value in problem.tasks[task].reads:
            remaining[value] -= 1
            if remaining[value] == 1:
                yield from problem.readers[value]

    return _listed(problem, added, done)


def branches_first(problem: Problem) -> Order:
    """Of the tasks that are ready always one that the fewest others wait for.

    A weight's gradient and update run at once, and what they read may die before the next layer.
    """
    reach = [0] * len(problem.tasks)  # descendants, as bits
    for task in reversed(range(len(problem.tasks))):
        for follower in problem.followers[task]:
            reach[task] |= reach[follower] | 1 << follower
    count = [bits.bit_count() for bits in reach]
    return _listed(problem, lambda task: (count[task], task))


PORTFOLIO: dict[str, Callable[[Problem], Order]] = {
    "as given": as_given,
    "updates early": updates_early,
    "depth first": depth_first,
    "greedy": greedy,
    "branches first": branches_first,
}


def _listed(
    problem: Problem,
    key: Callable[[int], tuple[int, int] | tuple[bool, int]],
    done: Callable[[int], Iterable[int]] = lambda _: (),
) -> Order:
    """List scheduling: the ready task of least `key`; `done` names tasks whose key fell."""
    waiting = [len(needs) for needs in problem.needs]
    ready = [key(task) for task, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    queued = {item[1] for item in ready}
    found: Order = []
    while ready:
        item = heapq.heappop(ready)
        task = item[1]
        if task not in queued or item != key(task):
            continue  # queued again since, with a smaller key
        queued.discard(task)
        found.append(task)
        for other in done(task):
            if other in queued:
                heapq.heappush(ready, key(other))
        for follower in problem.followers[task]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                queued.add(follower)
                heapq.heappush(ready, key(follower))
    assert len(found) == len(problem.tasks), "tasks that wait for each other"
    return found


def improve(problem: Problem, order: Order, rounds: int, floor: int = 0) -> Order:
    """Local search: move tasks across the peak, while that lowers it and it is above `floor`.

    A task before the peak moves to just before its first follower, one after it to just behind the
    last task that it needs; a move is kept if (peak, bytes near the peak) falls.
    """
    simulator = Simulator(problem)
    best = _measure(simulator, order)
    for _ in range(rounds):
        if best[0] <= floor:
            break
        for candidate in _moves(problem, simulator, order):
            found = _measure(simulator, candidate)
            if found < best:
                order, best = candidate, found
                break
        else:
            break
    return order


def _measure(simulator: Simulator, order: Order) -> tuple[int, int]:
    trace = simulator(order)
    near = trace.load - trace.peak * 9 // 10
    return trace.peak, int(near[near > 0].sum())


def _moves(problem: Problem, simulator: Simulator, order: Order) -> Iterable[Order]:
    trace = simulator(order)
    peak = int(np.argmax(trace.load))
    place = {task: i for i, task in enumerate(order)}
    for value in sorted(trace.value[trace.alive(peak)], key=lambda v: -problem.values[v].nbytes):
        writer = problem.values[value].writer
        if place[writer] <= peak:
            first = min((place[t] for t in problem.followers[writer]), default=len(order))
            if first > peak + 1:
                yield _moved(order, place[writer], first - 1)
        for reader in problem.readers[value]:
            last = max(place[t] for t in problem.needs[reader])
            if place[reader] > peak and last < peak:
                yield _moved(order, place[reader], last + 1)


def _moved(order: Order, source: int, target: int) -> Order:
    found = order[:source] + order[source + 1 :]
    return found[:target] + [order[source]] + found[target:]
