"""Budgets of 80 to 30 % of a training step's arena: what they cost, predicted and measured.

    python benchmarks/memory.py                  every model, a table each (Markdown)
    python benchmarks/memory.py gpt12 resnet18   some of them
    python benchmarks/memory.py --packing DIR    google/minimalloc's instances in DIR (CSV)

Times of kernels are measured first, by compiling without a budget and tracing steps; the solver
gets them, so that what it predicts can be compared with the steps of the artifact that it makes.
The least of several steps counts. The bound holds for every plan under these times.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parent.parent))

import aotrain
from aotrain.describe_memory import read_report
from aotrain.errors import BudgetError
from aotrain.memory.liveness import Lifetime, max_load
from aotrain.memory.pack import pack_lifetimes
from benchmarks._profile import profile
from tests.models import CASES, gpt

BUDGETS = (80, 60, 50, 40, 30)
STEPS = 5


@dataclass(frozen=True)
class Model:
    build: Callable[[], onnx.ModelProto]
    batch: int


MODELS = {
    "resnet50": Model(CASES["resnet50"].build, 16),
    "unet": Model(CASES["unet"].build, 8),
    "vgg16": Model(CASES["vgg16"].build, 16),
    "resnet18": Model(CASES["resnet18"].build, 32),
    "mobilenetv2": Model(CASES["mobilenetv2"].build, 16),
    "vit": Model(CASES["vit"].build, 16),
    "gpt12": Model(lambda: gpt.build(layers=12, width=128, tokens=64), 16),
    "lstm": Model(CASES["lstm"].build, 32),
}


def budgets(name: str, model: Model, folder: Path, threads: int) -> None:
    free = aotrain.compile(model.build(), output=folder / "free.aot", batch=model.batch)
    times, steps = profile(free.path, STEPS, threads)
    base = min(steps)
    persistent, arena = free.plan.persistent_bytes, free.plan.arena_bytes
    print(
        f"\n### {name}, batch {model.batch}: {len(free.plan.entry('train').launches)} launches, ",
        end="",
    )
    print(f"{base / 1e6:.1f} ms, arena {arena / 2**20:.1f} MiB\n")
    print(
        "| arena | again | extra time, predicted | measured | bound | gap | solver | block = plan |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for share in BUDGETS:
        budget = persistent + arena * share // 100
        seconds: dict[str, float] = {}
        try:
            tight = aotrain.compile(
                model.build(),
                output=folder / "tight.aot",
                batch=model.batch,
                memory_budget=budget,
                times=times,
                force=True,
                report=lambda phase, into=seconds: into.update({phase.name: phase.seconds}),
            )
        except BudgetError as error:
            print(f"| {share}% | {error.diagnostics[0].hint} | | | | | | |", flush=True)
            continue
        entry = read_report(tight.path)[1].entry("train")
        measured = min(profile(tight.path, STEPS, threads)[1])
        with aotrain.Session(tight.path) as session:
            same = session.block_bytes == tight.plan.block_bytes <= budget
        bound = entry.extra_bound / entry.nanoseconds
        print(
            f"| {share}% | {len(entry.again)} | {entry.extra / entry.nanoseconds:+.1%} "
            f"| {measured / base - 1:+.1%} | {bound:+.1%} | {entry.gap:.2%} "
            f"| {seconds['memory']:.1f} s | {'yes' if same else 'NO'} |",
            flush=True,
        )


def packing(folder: Path) -> None:
    print("| instance | tensors | load / capacity | packed / capacity | seconds |")
    print("|---|---|---|---|---|")
    for path in sorted(folder.glob("*.csv")):
        capacity = int(path.stem.split(".")[1])
        alive = read(path)
        started = time.perf_counter()
        _, size = pack_lifetimes(alive)
        seconds = time.perf_counter() - started
        load = max_load(alive) / capacity
        print(
            f"| {path.stem} | {len(alive)} | {load:.4f} | {size / capacity:.4f} | {seconds:.1f} |"
        )


def read(path: Path) -> list[Lifetime]:
    """An instance: lines of id, lower, upper (exclusive), size."""
    with path.open() as file:
        return [
            Lifetime(int(row["id"]), int(row["size"]), int(row["lower"]), int(row["upper"]) - 1)
            for row in csv.DictReader(file)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="all without it")
    parser.add_argument("--packing", type=Path, metavar="DIR")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    if asked.packing:
        packing(asked.packing)
        return
    for name in asked.models or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            budgets(name, MODELS[name], Path(folder), asked.threads)


if __name__ == "__main__":
    main()
