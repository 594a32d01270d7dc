"""A contender's training step in, its times out: one process each, a line of JSON a message.

The parent starts every contender, then times them in turn (A B C A B C ...), so that a slow moment
of the machine falls on all. A worker's first line says it is ready; it answers each line with one.

    parent  {"steps": 10}     worker  {"ms": [10 floats]}
    parent  {"stop": true}    worker  {"peak_bytes": int}
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks._machine import peak_resident

ROOT = Path(__file__).parents[1]
SETTLE_S = 0.3  # how long another contender's OpenMP threads spin after their last step, and more
CHECKED = 3  # first steps, whose losses the parent compares


def serve(step: Callable[[], float]) -> None:
    """In the worker: `step` trains once on its batch and returns the loss."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what a library prints must not end up among the answers
    started = time.perf_counter()
    losses = [step() for _ in range(CHECKED)]
    warmed = time.perf_counter() - started
    print(json.dumps({"losses": losses, "warm_up_s": warmed}), file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "stop" in request:
            print(json.dumps({"peak_bytes": peak_resident()}), file=out, flush=True)
            return
        times = []
        for _ in range(request["steps"]):
            started = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - started))
        print(json.dumps({"ms": times}), file=out, flush=True)


class WorkerError(Exception):
    """The contender cannot run this model; the message is the last line that it printed."""


class Worker:
    """In the parent: `python -m module *arguments`, started and warm."""

    def __init__(self, python: str, module: str, arguments: Sequence[object], env: dict[str, str]):
        self._process = subprocess.Popen(
            [python, "-m", module, *map(str, arguments)],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        ready = self._answer()
        self.losses: list[float] = ready["losses"]
        self.warm_up_s: float = ready["warm_up_s"]
        self.ms: list[float] = []
        self.per_round = 1

    def calibrate(self, seconds: float) -> None:
        """Choose a number of steps that takes about `seconds`, at least one."""
        once = min(self._ask({"steps": 2})["ms"]) / 1e3
        self.per_round = max(1, min(2000, round(seconds / once)))

    def time(self) -> None:
        """A round; the first step of it is not counted, the caches are another contender's."""
        time.sleep(SETTLE_S)
        self.ms += self._ask({"steps": self.per_round + 1})["ms"][1:]

    def stop(self) -> int:
        """End the process; the bytes that it had resident at most."""
        peak = self._ask({"stop": True})["peak_bytes"]
        self._process.communicate()
        return int(peak)

    def kill(self) -> None:
        """End the process whatever it does."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            lines = [text for text in errors.splitlines() if text.strip()]
            raise WorkerError(lines[-1].strip() if lines else f"exit {self._process.returncode}")
        return json.loads(line)
