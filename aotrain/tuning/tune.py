"""A model, options of its compilation and a budget in, better plans in the database out.

compile -> profile: which kernels take the step's time -> search -> compile again -> both steps,
A B A B: what was found stays only if the step as a whole is no slower
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from aotrain.errors import Diagnostic, InternalError, UsageError
from aotrain.schedules import cpu as schedules
from aotrain.targets import get as get_target
from aotrain.targets.cpu import CpuTarget
from aotrain.tuning import database as db
from aotrain.tuning.choices import key
from aotrain.tuning.measure import Bench, Trial
from aotrain.tuning.search import Task, resume, search

if TYPE_CHECKING:
    from aotrain.compiled import Compiled

#: Kernels below this share of the step are not worth a trial.
SHARE = 0.005
ROUNDS, STEPS = 5, 20


@dataclass(frozen=True)
class Tuned:
    """What came of it. Milliseconds a step as compiled before and after, None: not measured.

    `kept`: whether what was found holds; `trials`: how many there were; `note`: of the database.
    """

    tasks: Sequence[Task]
    trials: int
    before_ms: float | None
    after_ms: float | None
    kept: bool
    interrupted: bool
    note: str

    @property
    def improved(self) -> int:
        """Kernels that run faster than before."""
        return sum(task.gain < 1 for task in self.tasks)


def tune(
    model: str | Path,
    *,
    target: str = "cpu",
    trials: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    began: Callable[[Sequence[Task], str], None] = lambda tasks, note: None,
    report: Callable[[Task, Trial, int], None] = lambda task, trial, done: None,
    **options: Any,
) -> Tuned:
    """Tune the kernels of the step that `aotrain.compile(model, target=target, **options)` makes.

    `began` is called once with the kernels chosen, `report` after each trial. Ctrl-C ends it after
    the trial under way, a second one at once; what was found by then is kept. Raises what `compile`
    raises, and UsageError for a target whose code does not run here.
    """
    from aotrain.compiler import compile

    chosen = _cpu_here(target)
    used = threads or len(os.sched_getaffinity(0))
    found = db.read(chosen.name)
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.aot"), Path(folder, "after.aot")
        compiled = compile(model, output=before, target=target, **options)
        tasks = _tasks(compiled, _bench(before, used, "--profile")["launches"], chosen)
        resume(tasks, found)
        began(tasks, found.note())
        at_start = len(found.records)
        write = lambda func, choices: chosen.schedule(func, choices)[0]  # noqa: E731
        bench = Bench(chosen, used, write)
        measure = lambda task, choices: bench.trial(  # noqa: E731
            task.kernel, task.writes, task.best, choices
        )
        with _noting_interrupt() as interrupted:
            search(
                tasks,
                found,
                measure,
                trials=trials,
                seconds=seconds,
                seed=seed,
                report=report,
                stop=lambda: interrupted,
            )
        done = len(found.records) - at_start
        if interrupted or not any(task.gain < 1 for task in tasks):
            return Tuned(tasks, done, None, None, True, bool(interrupted), found.note())
        compile(model, output=after, target=target, **options)
        times = _in_turn(before, after, used)
        kept = times[1] <= times[0]
        if not kept:
            _withdraw(tasks, found, at_start)
        return Tuned(tasks, done, *times, kept, False, found.note())


@contextmanager
def _noting_interrupt() -> Iterator[list[int]]:
    """A list that the first Ctrl-C adds to in place of raising KeyboardInterrupt.

    Raised while a candidate is built, that would look like the candidate's own failure.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted  # signals belong to the main thread
        return

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, previous)


def _cpu_here(name: str) -> CpuTarget:
    """The target, which must be a CPU of this machine's architecture."""
    target, here = get_target(name), get_target("cpu")
    assert isinstance(here, CpuTarget)
    if not isinstance(target, CpuTarget):
        message = f"only schedules for CPUs can be tuned so far, none for {target.name}"
        raise UsageError(Diagnostic("AOT-U013", message, "--target"))
    if target.arch != here.arch:
        message = f"code for {target.name} does not run here, so it cannot be timed"
        hint = f"tune on the device itself; this machine is {here.name}"
        raise UsageError(Diagnostic("AOT-U013", message, "--target", hint))
    return target


def _tasks(
    compiled: Compiled, launches: Sequence[Mapping[str, Any]], target: CpuTarget
) -> list[Task]:
    """The kernels with contractions that take a share of the step, equal ones once."""
    times: dict[str, int] = {}
    for launch in launches:
        times[launch["kernel"]] = times.get(launch["kernel"], 0) + int(launch["ns"])
    writes = {}
    for launch_ in compiled.plan.entry("train").launches:
        writes[compiled.plan.kernels[launch_.kernel]] = launch_.writes
    tasks: dict[str, Task] = {}
    for kernel in compiled.kernels:
        if kernel.name not in times or times[kernel.name] < SHARE * sum(times.values()):
            continue
        name = key(kernel.func)
        if name in tasks:
            tasks[name].ns += times[kernel.name]
            continue
        space = schedules.candidates(kernel.func, target.tvm)
        arguments = len(kernel.func.params) - len(kernel.aliases)
        written = tuple(i for i in writes[kernel.name] if i < arguments)
        if space:
            tasks[name] = Task(name, kernel, written, times[kernel.name], space)
    return sorted(tasks.values(), key=lambda task: -task.ns)


def _bench(folder: Path, threads: int, *more: str) -> dict[str, Any]:
    """The report of `aotrun --bench`."""
    command = [str(folder / "aotrun"), str(folder), "--bench", str(STEPS), "--json"]
    command += ["--threads", str(threads), *more]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        message = f"a step of the model does not run: {done.stderr.strip()[:2000]}"
        raise InternalError(Diagnostic("AOT-X002", message))
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _in_turn(before: Path, after: Path, threads: int) -> tuple[float, float]:
    """ms a step of both artifacts: medians of rounds, A B A B."""
    rounds = [
        [_bench(folder, threads)["bench"]["median_ms"] for folder in (before, after)]
        for _ in range(ROUNDS)
    ]
    first, second = zip(*rounds, strict=True)
    return statistics.median(first), statistics.median(second)


def _withdraw(tasks: Sequence[Task], database: db.Database, start: int) -> None:
    """Take back what this tuning found; what held before holds again."""
    changed = {r.key for r in database.records[start:] if r.outcome == db.WON}
    earlier = db.Database(database.path, database.target, database.records[:start])
    held = earlier.best()
    for task in tasks:
        if task.key in changed:
            outcome = db.WON if task.key in held else db.WITHDRAWN
            choices = held.get(task.key, ())
            name = task.kernel.name
            database.add(
                [db.Record(database.target, db.compiler(), task.key, name, choices, outcome)]
            )
