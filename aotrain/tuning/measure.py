"""Two schedules of a kernel in; whether the second is right, and faster beyond the noise, out.

Both become one artifact, whose train entry launches them in turn over equal buffers: they run
through the loader, with its threads and scratch, as in a step. What they write is compared after
the first step. (Time ratios are paired; the spread of their median is that of a notched box plot:
McGill, Tukey, Larsen, "Variations of Box Plots", 1978.)
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aotrain import artifact
from aotrain.plan import Entry, Kind, Launch, Plan, Role, Tensor, align
from aotrain.schedules import cpu as schedules

if TYPE_CHECKING:
    from tvm import tirx

    from aotrain.passes.graph import Kernel
    from aotrain.targets.c_abi import CKernel
    from aotrain.targets.cpu import CpuTarget

#: A gain must be this large besides being beyond the noise; it is also what a swap may cost.
WORTH = 0.02
#: Largest difference of two orders of summation, by the largest value. Data is positive.
TOLERANCE = 2e-5
SECONDS, LIMIT = 0.3, 20.0  # of measuring; of the whole process
COMMAND = (sys.executable, "-m", "aotrain.tuning.worker")

Write = Callable[["tirx.PrimFunc", Sequence[schedules.Choice]], "tirx.PrimFunc"]
"""A PrimFunc and choices -> it, scheduled."""


@dataclass(frozen=True)
class Trial:
    """`outcome` as a record has it; `ratio` of medians of pairs, `noise` half its interval."""

    outcome: str
    ratio: float | None = None
    noise: float = 0.0


@dataclass(frozen=True)
class Bench:
    """What trials share. `writes` of `trial` are positions among the kernel's arguments."""

    target: CpuTarget
    threads: int
    write: Write
    seconds: float = SECONDS
    limit: float = LIMIT

    def trial(
        self,
        kernel: Kernel,
        writes: Sequence[int],
        incumbent: Sequence[schedules.Choice],
        candidate: Sequence[schedules.Choice],
    ) -> Trial:
        """The candidate beside the incumbent; one that seems to win must do so twice."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                self.build(Path(folder, "trial"), kernel, writes, (incumbent, candidate))
            except Exception:  # whatever a schedule makes of a compiler, it costs one trial
                return Trial("failed")
            first = self._run(Path(folder, "trial"))
            return self._run(Path(folder, "trial")) if first.outcome == "won" else first

    def build(
        self,
        folder: Path,
        kernel: Kernel,
        writes: Sequence[int],
        both: Sequence[Sequence[schedules.Choice]],
    ) -> None:
        """The artifact that the worker opens."""
        named = [
            (f"{kernel.name}_{side}", self.write(kernel.func, choices), kernel.aliases)
            for side, choices in zip("ab", both, strict=True)
        ]
        lowered = self.target.lower(named)
        plan = _plan(kernel, writes, lowered)
        with tempfile.TemporaryDirectory() as scratch:
            library = Path(scratch, "kernels.so")
            self.target.build(lowered, library)
            artifact.write(
                folder,
                plan=plan,
                state=_state(plan),
                constants={},
                kernels=library,
                info={"name": kernel.name, "triple": self.target.triple},
                labels=None,
            )

    def _run(self, folder: Path) -> Trial:
        command = [*COMMAND, str(folder), str(self.threads), str(self.seconds)]
        try:
            # A session of its own: a terminal's Ctrl-C is for us, who let the trial end.
            done = subprocess.run(
                command, capture_output=True, timeout=self.limit, start_new_session=True
            )
        except subprocess.TimeoutExpired:
            return Trial("hung")
        if done.returncode < 0:
            return Trial("crashed")
        if done.returncode:
            return Trial("failed")
        found = json.loads(done.stdout)
        if not found["error"] <= TOLERANCE:
            return Trial("wrong")
        return judge(found["ns"])


def judge(pairs: Sequence[Sequence[int]]) -> Trial:
    """`pairs`: ns of incumbent and candidate, a step each."""
    ratios = np.array([b / max(a, 1) for a, b in pairs])
    low, median, high = (float(q) for q in np.percentile(ratios, (25, 50, 75)))
    noise = 1.57 * (high - low) / len(ratios) ** 0.5
    return Trial("won" if median + noise < 1 - WORTH else "slower", median, noise)


def _plan(kernel: Kernel, writes: Sequence[int], lowered: Sequence[CKernel]) -> Plan:
    """Shared inputs, and for each side its own of what it writes, and its scratch."""
    shared = dict(kernel.aliases)
    params = [p for i, p in enumerate(kernel.func.params) if i not in shared]
    tensors: list[Tensor] = []

    def add(name: str, shape: tuple[int, ...], dtype: str, role: Role | None) -> int:
        kind = Kind.TEMP if role is None else Kind.STATE
        tensors.append(Tensor(name, shape, dtype, kind, role))
        return len(tensors) - 1

    def state(name: str, parameter: tirx.Buffer) -> int:
        shape = tuple(int(n) for n in parameter.shape)
        return add(name, shape, str(parameter.dtype), Role.BUFFER)

    inputs = {i: state(f"in.{i}", p) for i, p in enumerate(params) if i not in writes}
    launches = []
    for side, (letter, built) in enumerate(zip("ab", lowered, strict=True)):
        args = [
            inputs[i] if i in inputs else state(f"{letter}.{i}", p) for i, p in enumerate(params)
        ]
        first = len(args)
        for nbytes in built.scratch:
            args.append(add(f"scratch.{letter}", (nbytes,), "uint8", None))
        written = (*writes, *range(first, len(args)))
        launches.append(Launch(side, tuple(args), written))
    loss = len(tensors)
    tensors.append(Tensor("loss", (), "float32", Kind.OUTPUT))
    # TEMP tensors last, as the block has it; each a place of its own.
    offset, placed = 0, dict[int, Tensor]()
    for index in sorted(range(len(tensors)), key=lambda i: tensors[i].kind is Kind.TEMP):
        placed[index] = tensors[index].at(offset)
        offset += align(tensors[index].nbytes)
    return Plan(
        tuple(placed[i] for i in range(len(tensors))),
        tuple(built.symbol for built in lowered),
        (Entry("train", tuple(launches), (), (loss,)),),
        block_bytes=offset,
        thread_scratch=max(built.thread_scratch for built in lowered),
    )


def _state(plan: Plan) -> dict[str, np.ndarray]:
    """Values from 0.25 to 0.75: no optimizer's divisor is small then; integers are 0 and 1.

    What both sides write begins with the same.
    """
    found = {}
    for tensor in plan.tensors:
        if tensor.kind is Kind.STATE:
            random = np.random.default_rng(int(tensor.name.split(".")[1]))
            value = random.uniform(0.25, 0.75, tensor.shape)
            whole = not tensor.dtype.startswith("float")
            found[tensor.name] = np.asarray(value > 0.5 if whole else value, tensor.dtype)
    return found
