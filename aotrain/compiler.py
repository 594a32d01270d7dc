"""An ONNX model and options in, an artifact on disk out: every stage, once, in order.

importer -> step -> passes -> schedules -> target.lower -> memory -> target.build -> artifact
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
import tvm
from tvm.s_tir.analysis import estimate_tir_flops

from aotrain import artifact, memory, passes, scalar
from aotrain.arguments import CALLABLE, MAPPING, NONE, NUMBER, PATH, WHOLE, check_types, globs
from aotrain.artifact import statefile
from aotrain.artifact.manifest import REPORT
from aotrain.compiled import Compiled
from aotrain.errors import Diagnostic, InputError, UsageError
from aotrain.exporter import SOURCE, STATE, embed_source
from aotrain.files import check_parent, writing
from aotrain.importer import ImportOptions, load
from aotrain.importer.model import Model
from aotrain.memory.times import measured_times, read_times
from aotrain.passes import KernelGraph
from aotrain.plan import Kind, Launch, Plan, Role, Tensor
from aotrain.step import LossOptions, OptimizerOptions, StepOptions, TrainStep, build
from aotrain.targets import get as get_target
from aotrain.tuning.choices import Choices, choices

if TYPE_CHECKING:
    from aotrain.targets.target import LoweredKernel, Target

DEFAULT_BATCH = 32
BATCHNORM = ("train", "frozen")


@dataclass(frozen=True)
class Phase:
    """One line of the compile summary, and decisions to print below it. `seconds` is wall time."""

    name: str
    seconds: float
    figure: str
    notes: tuple[str, ...] = ()


Report = Callable[[Phase], None]


def compile(
    model: str | Path | onnx.ModelProto,
    *,
    output: str | Path,
    target: str = "cpu",
    loss: str | LossOptions = "auto",
    optimizer: str = "adamw",
    lr: float | None = None,
    hyper: Mapping[str, float] | None = None,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    trainable: str | Sequence[str] = (),
    freeze: str | Sequence[str] = (),
    batchnorm: Literal["train", "frozen"] = "train",
    seed: int = 0,
    memory_budget: int | None = None,
    recompute_budget: float | None = None,
    times: str | Path | Mapping[str, int] | None = None,
    tuning: bool = True,
    force: bool = False,
    dump: str | Path | None = None,
    report: Report | None = None,
) -> Compiled:
    """Compile `model` into the folder `output`, which then trains without Python or TVM.

    The result trains in this process, too: `Compiled`.

    `batch` is the first dimension of every input; where it is None, a dimension that the file
    leaves open, or fixes at 1, becomes 32. `hyper` holds defaults of the optimizer's scalars, which
    stay settable at run time; `lr` is short for one of them.

    `memory_budget` limits the bytes of all tensors together; launches run again where that keeps
    it, in the least time found. `recompute_budget` (0.1: a tenth of the step) limits that time, or
    alone gives the least memory that so much time buys. Results are the same bit for bit. What
    launches cost is modelled; `times` has ns by kernel name, or names a report of `aotrun --bench N
    --profile --json`, and is believed where it knows a kernel.

    Kernels that `aotrain tune` found better schedules for on this machine get those, unless
    `tuning` is False.

    `dump` names a folder for every intermediate form; `report` is called after each phase.

    Raises a subclass of `AotError`, and then leaves nothing at `output`: `InputError` for a file
    that cannot be read, `UsageError` for options that make no sense, `UnsupportedModelError` for a
    model that needs what we do not have, `BudgetError` for a budget that no plan found keeps,
    `ToolchainError` where no C compiler is found.
    """
    check_types(
        "compile",
        {
            "model": (model, (*PATH, onnx.ModelProto)),
            "output": (output, PATH),
            "target": (target, (str,)),
            "loss": (loss, (str, LossOptions)),
            "optimizer": (optimizer, (str,)),
            "lr": (lr, (*NUMBER, *NONE)),
            "hyper": (hyper, (*MAPPING, *NONE)),
            "batch": (batch, (*WHOLE, *NONE)),
            "dims": (dims, (*MAPPING, *NONE)),
            "seed": (seed, WHOLE),
            "memory_budget": (memory_budget, (*WHOLE, *NONE)),
            "recompute_budget": (recompute_budget, (*NUMBER, *NONE)),
            "times": (times, (*PATH, *MAPPING, *NONE)),
            "dump": (dump, (*PATH, *NONE)),
            "report": (report, (*CALLABLE, *NONE)),
        },
    )
    folder = Path(output)
    _check_output(folder, force)
    if batchnorm not in BATCHNORM:
        message = f"batchnorm '{batchnorm}' is none of {', '.join(BATCHNORM)}"
        raise UsageError(Diagnostic("AOT-S008", message))
    chosen = get_target(target)
    known = read_times(Path(times)) if isinstance(times, str | Path) else times
    stages = _Stages(report or (lambda phase: None), Path(dump) if dump else None)
    imported = _import(stages, model, batch, dims or {}, trainable, freeze, batchnorm)
    step = _step(stages, imported, _step_options(loss, optimizer, lr, hyper, seed))
    graph, rules, kernels = _kernels(stages, step, chosen, tuning)
    plan, found = _plan(stages, graph, rules, kernels, memory_budget, recompute_budget, known)
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch, "kernels.so")
        with stages.phase("codegen") as figure:
            chosen.build(kernels, library)
            figure.append(f"{library.stat().st_size / 1024:.0f} KiB")
        with stages.phase("artifact") as figure:
            state = {tensor.name: tensor.value for tensor in step.state}
            artifact.write(
                folder,
                plan=plan,
                state=state,
                constants=graph.constants,
                kernels=library,
                info={**_info(imported, step, chosen, optimizer), REPORT: found.as_dict()},
                labels=step.labels,
                extra={SOURCE: _source(imported, plan, state, Path(scratch))},
                force=force,
            )
            nbytes = sum(file.stat().st_size for file in folder.iterdir())
            figure.append(f"{nbytes / 1024:.0f} KiB")
    return Compiled(folder, plan, rules, graph.kernels)


def _check_output(folder: Path, force: bool) -> None:
    """Refuse before the work rather than after it."""
    if folder.exists() and not force:
        hint = "--force (force=True) replaces it"
        raise UsageError(Diagnostic("AOT-A001", f"'{folder}' exists", hint=hint))
    check_parent(folder)


class _Stages:
    """Times phases, reports them, writes their intermediate forms."""

    def __init__(self, report: Report, folder: Path | None) -> None:
        self.report, self.folder = report, folder
        self.dumped = 0
        if folder:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                message = f"cannot write the dump into '{folder}': {error.strerror}"
                raise InputError(Diagnostic("AOT-A002", message)) from error

    @contextmanager
    def phase(self, name: str) -> Iterator[list[str]]:
        started = time.perf_counter()
        figures: list[str] = []
        self.notes: tuple[str, ...] = ()
        yield figures
        seconds = time.perf_counter() - started
        self.report(Phase(name, seconds, ", ".join(figures), self.notes))

    def dump(self, name: str, form: Any) -> None:
        if self.folder:
            text = form.script(show_meta=False) if hasattr(form, "script") else str(form)
            path = Path(self.folder, f"{self.dumped:02}-{name}.txt")
            with writing(path):
                path.write_text(text)
            self.dumped += 1


def _import(
    stages: _Stages,
    model: str | Path | onnx.ModelProto,
    batch: int | None,
    dims: Mapping[str, int],
    trainable: str | Sequence[str],
    freeze: str | Sequence[str],
    batchnorm: Literal["train", "frozen"],
) -> Model:
    options = ImportOptions(
        dims=dict(dims),
        batch=batch,
        default_batch=DEFAULT_BATCH,
        trainable=globs("compile", "trainable", trainable),
        freeze=globs("compile", "freeze", freeze),
        batchnorm=batchnorm,
    )
    with stages.phase("import") as figure:
        source = Path(model) if isinstance(model, str) else model
        imported = load(source, options)
        figure += [
            f"{len(imported.source.graph.node)} nodes",
            _parameters(imported, Role.TRAINABLE),
        ]
        inputs = ", ".join(f"{s.name} {s.dtype}{list(s.shape)}" for s in imported.inputs)
        stages.notes = (f"inputs: {inputs}", *imported.notes)
    stages.dump("import", imported.module)
    return imported


def _parameters(model: Model, role: Role) -> str:
    sizes = [p.value.size for p in model.parameters if p.role is role]
    return f"{len(sizes)} {role.value} tensors of {sum(sizes):,} values"


def _step_options(
    loss: str | LossOptions,
    optimizer: str,
    lr: float | None,
    hyper: Mapping[str, float] | None,
    seed: int,
) -> StepOptions:
    values = {**(hyper or {}), **({} if lr is None else {"lr": lr})}
    chosen = LossOptions(kind=loss) if isinstance(loss, str) else loss
    return StepOptions(chosen, OptimizerOptions(optimizer, values), seed)


def _step(stages: _Stages, model: Model, options: StepOptions) -> TrainStep:
    with stages.phase("step") as figure:
        step = build(model, options)
        figure.append(f"{len(step.state)} state tensors")
        hyper = ", ".join(f"{name} {value:g}" for name, value in step.hyper.items())
        stages.notes = (*step.notes, f"optimizer: {options.optimizer.kind}, {hyper}")
    stages.dump("step", step.module)
    return step


def _kernels(
    stages: _Stages, step: TrainStep, target: Target, tuning: bool
) -> tuple[KernelGraph, dict[str, str], Sequence[LoweredKernel]]:
    with stages.phase("lower") as figure:
        legalize = target.legalize_map()
        graph = passes.lower(step, target.tvm, legalize=legalize, dump=stages.dump)
        launches = sum(len(entry.launches) for entry in graph.plan.entries)
        figure.append(f"{len(graph.kernels)} kernels, {launches} launches")
    with stages.phase("schedule") as figure:
        tuned = choices(target.name, graph.kernels) if tuning else Choices()
        scheduled = {
            k.name: target.schedule(k.func, tuned.of.get(k.name, ())) for k in graph.kernels
        }
        rules = {name: rule for name, (_, rule) in scheduled.items()}
        figure.append(_count(rules.values()))
        if tuned.of:
            count, total = len(tuned.of), len(graph.kernels)
            figure.append(f"{total} kernels: {count} tuned, {total - count} rule")
        stages.notes = (tuned.note,) if tuned.note else ()
    stages.dump("schedule", "\n".join(f"# {n}: {r}\n{f}" for n, (f, r) in scheduled.items()))
    with stages.phase("lower-tir"):
        kernels = target.lower([(k.name, scheduled[k.name][0], k.aliases) for k in graph.kernels])
    return graph, rules, kernels


def _count(rules: Any) -> str:
    names = sorted(rules)
    return ", ".join(f"{names.count(rule)} {rule}" for rule in dict.fromkeys(names))


def _plan(
    stages: _Stages,
    graph: KernelGraph,
    rules: Mapping[str, str],
    kernels: Sequence[LoweredKernel],
    memory_budget: int | None,
    recompute_budget: float | None,
    measured: Mapping[str, int] | None,
) -> memory.Solution:
    with stages.phase("memory") as figure:
        unplaced = _with_scratch(graph.plan, kernels)
        times = memory.model_times(unplaced, _flops(graph))
        if measured is not None:
            times = measured_times(unplaced, times, measured)
        plan, report = memory.solve(
            unplaced,
            times,
            memory_budget=memory_budget,
            recompute_budget=recompute_budget,
        )
        naive = sum(t.nbytes for t in plan.tensors if t.kind is Kind.TEMP)
        figure += [
            f"arena {plan.arena_bytes:,} B (each tensor apart {naive:,} B)",
            f"state and data {plan.persistent_bytes:,} B",
        ]
        stages.notes = (*report.notes(), *scalar.warnings(unplaced, rules, times))
    stages.dump("memory", report.render())
    stages.dump("plan", _describe(plan))
    return memory.Solution(plan, report)


def _flops(graph: KernelGraph) -> dict[int, float]:
    """Arithmetic by kernel, before its schedule, where TVM can count it."""
    found = {}
    for index, kernel in enumerate(graph.kernels):
        with suppress(tvm.error.InternalError):
            found[index] = estimate_tir_flops(tvm.IRModule({"main": kernel.func}))
    return found


def _with_scratch(plan: Plan, kernels: Sequence[LoweredKernel]) -> Plan:
    """Give each launch the scratch buffers of its kernel, as TEMP tensors of its own."""
    tensors = list(plan.tensors)

    def extend(launch: Launch) -> Launch:
        args, writes = list(launch.args), list(launch.writes)
        for nbytes in kernels[launch.kernel].scratch:
            name = f"{plan.kernels[launch.kernel]}.scratch"
            writes.append(len(args))
            args.append(len(tensors))
            tensors.append(Tensor(name, (nbytes,), "uint8", Kind.TEMP, origin=launch.origin))
        return replace(launch, args=tuple(args), writes=tuple(writes))

    entries = tuple(
        replace(entry, launches=tuple(extend(launch) for launch in entry.launches))
        for entry in plan.entries
    )
    scratch = max((kernel.thread_scratch for kernel in kernels), default=0)
    return replace(plan, tensors=tuple(tensors), entries=entries, thread_scratch=scratch)


def _describe(plan: Plan) -> str:
    """The plan as text, a launch a line."""
    lines = [f"block {plan.block_bytes} B, arena {plan.arena_bytes} B"]
    for entry in plan.entries:
        lines.append(f"\n{entry.name}")
        for launch in entry.launches:
            args = ", ".join(
                ("*" if i in launch.writes else "") + plan.tensors[index].name
                for i, index in enumerate(launch.args)
            )
            lines.append(f"  {plan.kernels[launch.kernel]}({args})  # {launch.origin}")
    return "\n".join(lines)


def _info(model: Model, step: TrainStep, target: Target, optimizer: str) -> dict[str, Any]:
    """What the manifest says beyond the plan."""
    return {
        "name": model.name,
        "target": target.name,
        "optimizer": optimizer,
        "triple": target.triple,
        "backend": target.backend,
        "ignore_index": step.ignore_index,
        "notes": list(model.notes),
    }


def _source(model: Model, plan: Plan, state: Mapping[str, np.ndarray], folder: Path) -> bytes:
    """The user's model, with weights that point into the initial state: `export` starts there."""
    with writing(folder / STATE):
        Path(folder, STATE).write_bytes(statefile.dump(plan, state))
    return embed_source(model.source, Path(folder, STATE))
