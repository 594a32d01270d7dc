"""`aotrain tune MODEL`: an ONNX file in; better schedules for its step's kernels, kept, out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotrain.errors import Diagnostic, InputError, UsageError

from .base import Among, define, option
from .compile import LOSSES, OPTIMIZERS
from .console import Console, table
from .values import NamedInt, target_option

if TYPE_CHECKING:
    from aotrain.tuning.database import Database
    from aotrain.tuning.measure import Trial
    from aotrain.tuning.search import Task
    from aotrain.tuning.tune import Tuned


class Duration(click.ParamType):
    """`10m` -> 600.0; also 90s, 1h, and plain seconds."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds, or click's own complaint."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", value.strip().lower())
        if not match or float(match[1]) == 0:
            self.fail(f"'{value}' is no time, such as 10m or 90s", param, ctx)
        return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


@define(
    "Find better schedules for a model's kernels on this machine.",
    examples=(
        (
            "Ten minutes, with the options that it will be compiled with",
            "aotrain tune model.onnx --batch 64 --time 10m",
        ),
        ("Take what was found to a machine like this one", "aotrain tune --export tuned.jsonl"),
    ),
)
@click.argument("model", type=click.Path(path_type=Path), required=False)
@option("--time", "seconds", type=Duration(), metavar="TIME", help="10m, 90s, ... (default 5m).")
@option("--trials", type=click.IntRange(1), metavar="N", help="End after so many, whatever --time.")
@target_option("As for compile; its code must run here.")
@option("--loss", type=Among(LOSSES), metavar="NAME", default="auto", help="As for compile.")
@option(
    "--optimizer", type=Among(OPTIMIZERS), metavar="NAME", default="adamw", help="As for compile."
)
@option("--batch", type=click.IntRange(1), metavar="N", help="As for compile.")
@option("--dim", "dims", type=NamedInt(), multiple=True, advanced=True, help="As for compile.")
@option("--threads", type=click.IntRange(1), metavar="N", advanced=True, help="All cores without.")
@option("--show", is_flag=True, help="List what is known of the target.")
@option("--freeze", multiple=True, metavar="GLOB", advanced=True, help="As for compile.")
@option("--trainable", multiple=True, metavar="GLOB", advanced=True, help="As for compile.")
@option("--seed", type=int, metavar="N", default=0, advanced=True, help="Of the search (0).")
@option("--export", type=click.Path(path_type=Path), help="Write what is known to a new file.")
@option(
    "--import",
    "imports",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Add the records of such a file; may be repeated.",
)
def command(console: Console, model: Path | None, **options: Any) -> None:
    """Compiles MODEL, tries other schedules of the kernels that take its time, each in a process of
    its own and beside the best so far, and keeps what is faster beyond the noise. 'aotrain compile'
    uses it by itself, if given the same options. Stop it at any time with Ctrl-C: nothing measured
    is lost, and the next call goes on from there. The records are in ~/.cache/aotrain/tuning.
    """
    wanted = [options["show"], options["export"] is not None, bool(options["imports"])]
    if sum([model is not None, *wanted]) != 1:
        message = "name one of MODEL, --show, --export and --import"
        raise UsageError(Diagnostic("AOT-U003", message, hint="aotrain tune --help"))
    if model is None:
        _records(console, options)
    else:
        _tune(console, model, options)


def _tune(console: Console, model: Path, options: dict[str, Any]) -> None:
    from aotrain.tuning.tune import tune

    seconds, trials = options["seconds"], options["trials"]
    if seconds is None and trials is None:
        seconds = 300.0
    console.say(f"{model}, for {options['target']}")

    def began(tasks: Sequence[Task], note: str) -> None:
        if note:
            console.note(f"note: {note}")
        console.say(f"{len(tasks)} kernels to tune; Ctrl-C keeps what is found")

    def report(task: Task, trial: Trial, done: int) -> None:
        if not console.progress or (trial.outcome != "won" and not console.verbose):
            return
        left = "" if trials is None else f", {trials - done} trials left"
        before, now = task.ns * 1e-6, task.ns * task.gain * 1e-6
        times = f"{before:.3f} -> {now:.3f} ms"
        console.note(f"{done:5}  {trial.outcome:<8} {times:<22} {task.kernel.name}{left}")

    found = tune(
        model,
        target=options["target"],
        trials=trials,
        seconds=seconds,
        seed=options["seed"],
        threads=options["threads"],
        began=began,
        report=report,
        loss=options["loss"],
        optimizer=options["optimizer"],
        batch=options["batch"],
        dims=dict(options["dims"]),
        freeze=options["freeze"],
        trainable=options["trainable"],
    )
    _summary(console, found)
    if found.interrupted:
        raise click.Abort


def _summary(console: Console, found: Tuned) -> None:
    rows = [
        [
            f"{task.ns * 1e-6:.3f}",
            f"{task.ns * task.gain * 1e-6:.3f}",
            str(task.trials),
            task.kernel.name,
        ]
        for task in found.tasks
        if task.trials
    ]
    if rows:
        console.say(f"\n{table(rows, ('before ms', 'after ms', 'trials', 'kernel'), right='rrrl')}")
    console.result(f"{found.trials} trials, {found.improved} of {len(found.tasks)} kernels faster")
    if found.before_ms is not None and found.after_ms is not None:
        what = "" if found.kept else ": no gain as a whole, so nothing of it is kept"
        console.result(f"step {found.before_ms:.3f} -> {found.after_ms:.3f} ms{what}")
    console.finish(
        {
            "trials": found.trials,
            "kernels": [
                {
                    "name": task.kernel.name,
                    "key": task.key,
                    "before_ns": task.ns,
                    "after_ns": round(task.ns * task.gain),
                    "trials": task.trials,
                }
                for task in found.tasks
            ],
            "step_ms": {"before": found.before_ms, "after": found.after_ms},
            "kept": found.kept,
            "interrupted": found.interrupted,
            "note": found.note,
        },
        ok=not found.interrupted,
    )


def _records(console: Console, options: dict[str, Any]) -> None:
    """--show, --export, --import."""
    from aotrain.targets import get
    from aotrain.tuning import database as db

    target = get(options["target"]).name
    known = db.read(target)
    if options["export"] is not None:
        path: Path = options["export"]
        if path.exists():
            hint = "name another file"
            raise UsageError(Diagnostic("AOT-A001", f"'{path}' exists", hint=hint))
        db.Database(path, target).add(known.records)
        console.result(f"{len(known.records)} records -> {path}")
    added = 0
    for path in options["imports"]:
        other = db.read(target, path)
        if not other.records and other.ignored:
            raise InputError(
                Diagnostic("AOT-D011", f"'{path}' has no record for {target} and this version")
            )
        added += known.merge(other)
        if other.note():
            console.note(f"note: {path}: {other.note()}")
    if options["imports"]:
        console.result(f"{added} records added for {target}")
    if options["show"]:
        _show(console, known)
    console.finish(
        {
            "target": target,
            "file": str(known.path),
            "records": len(known.records),
            "tuned": len(known.best()),
            "ignored": known.ignored,
            "added": added,
        }
    )


def _show(console: Console, known: Database) -> None:
    best = known.best()
    names = {record.key: record.kernel for record in known.records}
    rows = [
        [key, ", ".join(f"{c['height']} x {c['width']}" for c in best[key]), names[key]]
        for key in best
    ]
    console.result(f"{known.target}: {len(known.records)} records, {len(best)} kernels tuned")
    if rows:
        console.result(table(rows, ("key", "tiles", "kernel")))
    if known.note():
        console.note(f"note: {known.note()}")
