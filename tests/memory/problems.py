"""Random small problems, and their exact optimum by exhaustive search."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator

from aotrain.memory.problem import Problem, Task, Value


def random_problem(seed: int, tasks: int = 7, updates: bool = True) -> Problem:
    """Up to `tasks` tasks; sizes of 1 to 4 lines of 64 bytes; some update a state others read."""
    rng = random.Random(seed)
    values: list[Value] = []
    found: list[Task] = []
    readers: list[int] = []  # tasks that read the one state, since its last update
    writer: int | None = None
    for number in range(rng.randint(2, tasks)):
        reads = rng.sample(range(len(values)), min(len(values), rng.choice([0, 1, 1, 2])))
        if updates and rng.random() < 0.15:
            after = () if writer is None else (writer,)
            task = Task(f"u{number}", 1, tuple(reads), (), after, tuple(readers), False)
            writer, readers = number, []
        else:
            after = ()
            if updates and rng.random() < 0.4:
                after = () if writer is None else (writer,)
                readers.append(number)
            writes = tuple(range(len(values), len(values) + rng.choice([1, 1, 1, 2])))
            values += [Value(f"v{v}", 64 * rng.randint(1, 4), number) for v in writes]
            replayable = rng.random() < 0.85
            cost = rng.randint(1, 9)
            task = Task(f"t{number}", cost, tuple(reads), writes, after, (), replayable)
        found.append(task)
    return Problem(tuple(found), tuple(values))


def optimum(problem: Problem, arena: int, *, again: bool = True) -> int | None:
    """Least extra ns of any schedule within `arena` bytes, None if there is none.

    Dijkstra over (tasks done, values alive): run a task whose reads are alive, then drop any set.
    """
    count = len(problem.tasks)
    everything = (1 << count) - 1
    best = {(0, 0): 0}
    queue = [(0, 0, 0)]
    while queue:
        time, done, alive = heapq.heappop(queue)
        if done == everything:
            return time - problem.nanoseconds
        if best[done, alive] < time:
            continue
        for number in range(count):
            if not again and done >> number & 1:
                continue
            for state in _runs(problem, number, done, alive, arena):
                after = time + problem.tasks[number].nanoseconds
                if after < best.get(state, 1 << 60):
                    best[state] = after
                    heapq.heappush(queue, (after, *state))
    return None


def _runs(
    problem: Problem, number: int, done: int, alive: int, arena: int
) -> Iterator[tuple[int, int]]:
    task = problem.tasks[number]
    ready = all(done >> need & 1 for need in problem.needs[number])
    ready = ready and all(alive >> value & 1 for value in task.reads)
    gone = any(done >> other & 1 for other in problem.overwriters[number])
    if not ready or gone or (done >> number & 1 and not task.replayable):
        return
    held = alive
    for value in task.writes:
        held |= 1 << value
    # keep any superset of what the run itself touches: try every subset of the others
    mine = sum(1 << value for value in {*task.reads, *task.writes})
    others = held & ~mine
    subset = others
    while True:
        kept = subset | mine
        nbytes = sum(v.nbytes for i, v in enumerate(problem.values) if kept >> i & 1)
        if nbytes <= arena:
            yield done | 1 << number, kept
        if subset == 0:
            return
        subset = (subset - 1) & others


def least_arena(problem: Problem, *, again: bool) -> int:
    """Bytes of the smallest arena that any schedule fits."""
    total = sum(value.nbytes for value in problem.values)
    return next(b for b in range(0, total + 1, 64) if optimum(problem, b, again=again) is not None)
