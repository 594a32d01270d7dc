"""Kernels with their share of a step in, trials of them in the order of what they promise out.

The next trial goes to the kernel with the most time in the step for each trial since its last gain;
its plan is either the next in the model's order, or one beside the best so far, which differs in
two settings at most. Nothing is tried twice, in this tuning or one before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from aotrain.passes.graph import Kernel
from aotrain.schedules.cpu import Choice
from aotrain.tuning.database import FIELDS, WON, Database, Record, compiler
from aotrain.tuning.measure import Trial

Choices = tuple[Choice, ...]
Measure = Callable[["Task", Choices], Trial]

#: Of a kernel's first plans in the model's order, how many may be tried; then it is done.
DEPTH = 96


@dataclass
class Task:
    """A kernel that may be tuned. `ns`: of a step, all its launches and those of its equals.

    `space`: for each of its contractions what there is, the model's own choice first.
    """

    key: str
    kernel: Kernel
    writes: tuple[int, ...]
    ns: int
    space: list[list[Choice]]
    best: Choices = ()
    gain: float = 1.0  # time as tuned now, to that when the tuning began
    trials: int = 0
    since_gain: int = 0
    seen: set[tuple[tuple[object, ...], ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.best = self.best or tuple(choices[0] for choices in self.space)
        self.seen.add(_plain(self.best))

    def propose(self, rng: random.Random) -> Choices | None:
        """What to try next; None: nothing is left."""
        at = rng.randrange(len(self.space))
        for shift in range(len(self.space)):
            place = (at + shift) % len(self.space)
            found = self._of(place, near=rng.random() < 0.5) or self._of(place, near=False)
            if found is not None:
                return found
        return None

    def _of(self, place: int, near: bool) -> Choices | None:
        """The best so far with another choice for the contraction at `place`."""
        for choice in self.space[place][:DEPTH]:
            if near and _differences(choice, self.best[place]) > 2:
                continue
            choices = (*self.best[:place], choice, *self.best[place + 1 :])
            if _plain(choices) not in self.seen:
                return choices
        return None


def _plain(choices: Sequence[Choice]) -> tuple[tuple[object, ...], ...]:
    return tuple(tuple(getattr(choice, name) for name in FIELDS) for choice in choices)


def _differences(one: Choice, other: Choice) -> int:
    return sum(getattr(one, name) != getattr(other, name) for name in FIELDS)


def resume(tasks: Sequence[Task], database: Database) -> None:
    """What the database knows of the tasks: what holds, and what was tried."""
    best = database.best()
    for task in tasks:
        if task.key in best and len(best[task.key]) == len(task.space):
            task.best = tuple(Choice(**choice) for choice in best[task.key])
            task.seen.add(_plain(task.best))
        task.seen |= {r.tried for r in database.records if r.key == task.key}


def search(
    tasks: Sequence[Task],
    database: Database,
    measure: Measure,
    *,
    trials: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    report: Callable[[Task, Trial, int], None] = lambda task, trial, done: None,
    stop: Callable[[], object] = lambda: False,
) -> int:
    """Try until `trials`, `seconds` or the space is used up, or `stop`; how many trials that were.

    Each is in the database before the next begins. `report` is called after each, with how many
    there have been.
    """
    rng, began, done = random.Random(seed), time.monotonic(), 0
    left = list(tasks)
    while left and not stop() and (trials is None or done < trials):
        if seconds is not None and time.monotonic() - began >= seconds:
            break
        task = max(left, key=lambda t: t.ns * t.gain / (1 + t.since_gain))
        choices = task.propose(rng)
        if choices is None:
            left.remove(task)
            continue
        trial = measure(task, choices)
        _note(task, choices, trial, database)
        done += 1
        report(task, trial, done)
    return done


def _note(task: Task, choices: Choices, trial: Trial, database: Database) -> None:
    task.seen.add(_plain(choices))
    task.trials += 1
    task.since_gain += 1
    if trial.outcome == WON:
        assert trial.ratio is not None
        task.best, task.since_gain = choices, 0
        task.gain *= trial.ratio
    plain = tuple(asdict(choice) for choice in choices)
    record = Record(
        database.target, compiler(), task.key, task.kernel.name, plain, trial.outcome, trial.ratio
    )
    database.add([record])
