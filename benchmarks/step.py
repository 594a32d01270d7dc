"""ONNX models in, a table out: a training step of ours beside PyTorch's and onnxruntime's.

    python benchmarks/step.py --torch-python ../torch/bin/python --markdown docs/BENCHMARKS.md

Everybody trains the same ONNX file on the same batch with AdamW, on the same number of threads,
each in a process of its own; steps are timed in turn within one run. Contenders that are not
installed are left out. A contender's first losses must be ours, else it is told.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks import _machine, _table  # noqa: E402
from benchmarks._table import LEAN, OURS, Figures, Result  # noqa: E402
from benchmarks._worker import Worker, WorkerError  # noqa: E402
from tests.models import CASES, TINY, WIDER, Case  # noqa: E402

MODELS = "mlp,cnn,resnet18,gpt,mobilenetv2,vit,lstm"
FIRST_LOSS, LATER_LOSSES = 1e-4, 5e-2
"""Relative. AdamW's first steps are the signs of gradients: where those are near zero, rounding
decides, and PyTorch's float32 is as far from its float64 (MobileNetV2: 1e-2 at the fourth step).
The tests compare trajectories at a learning rate where that does not hide an error."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the page where one was asked for."""
    options = _parser().parse_args(arguments)
    load = _machine.busy()
    contenders = _contenders(options)
    cases = TINY if options.tiny else CASES | WIDER
    results = []
    for name in options.models.split(","):
        print(f"{name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            results.append(_measure(cases[name], Path(folder), contenders, options))
        found = results[-1].contenders.items()
        medians = [f"{who} {figures.median:.2f} ms" for who, figures in found if figures.ms]
        print(f"  {', '.join(medians)}", file=sys.stderr, flush=True)
    names = [n for n in contenders if any(r.contenders[n].ms for r in results)]
    tables = [_table.times(results, names), _table.sizes(results, names)]
    remarks = [line for line in (_table.summary(results, names), *_table.notes(results)) if line]
    if load > 0.5:
        remarks.append(f"the machine was busy before the run began (load average {load:.1f})")
    print("\n\n".join(_table.text(table) for table in tables))
    print("".join(f"\n{line}" for line in remarks))
    if options.markdown:
        options.markdown.write_text(_page(tables, remarks, contenders, options))
    ours = [result.contenders[OURS] for result in results]
    return 1 if any(figures.reason for figures in ours) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=MODELS, help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="three short rounds")
    parser.add_argument("--tiny", action="store_true", help="tiny models: tests the harness alone")
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, help="default: 10, or 3 with --quick")
    parser.add_argument("--seconds", type=float, help="a round; default 0.5, or 0.1 with --quick")
    parser.add_argument("--torch-python", default=sys.executable, help="a Python with torch, onnx")
    parser.add_argument("--ort-python", default=sys.executable, help="with onnxruntime-training")
    parser.add_argument("--no-torch-compile", action="store_true")
    parser.add_argument("--markdown", type=Path, help="write the page docs/BENCHMARKS.md here")
    return parser


def _contenders(options: argparse.Namespace) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Name -> Python, module, last arguments of the worker; ours first."""
    found: dict[str, tuple[str, str, tuple[str, ...]]] = {}
    found[OURS] = (sys.executable, "benchmarks._aotrain", ())
    found[LEAN] = (sys.executable, "benchmarks._aotrain", ())
    if _version(options.torch_python, "torch"):
        found["PyTorch"] = (options.torch_python, "benchmarks._torch", ("eager",))
        channels_last = (options.torch_python, "benchmarks._torch", ("channels-last",))
        found["PyTorch channels-last"] = channels_last
        if not options.no_torch_compile:
            found["torch.compile"] = (options.torch_python, "benchmarks._torch", ("compile",))
    if _version(options.ort_python, "onnxruntime.training.api"):
        found["onnxruntime-training"] = (options.ort_python, "benchmarks._onnxruntime", ())
    return found


def _version(python: str, module: str) -> str:
    """Of an importable module's top package; "" where it cannot be imported."""
    top = module.partition(".")[0]
    code = f"import {module}; import {top}; print({top}.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _measure(
    case: Case,
    folder: Path,
    contenders: dict[str, tuple[str, str, tuple[str, ...]]],
    options: argparse.Namespace,
) -> Result:
    model, batch = folder / "model.onnx", folder / "batch.npz"
    artifacts = {OURS: folder / "model.aot", LEAN: folder / "lean.aot"}
    model.write_bytes(case.build().SerializeToString())
    [(x, y)] = case.batches(1)
    np.savez(batch, x=x, y=y)
    result = Result(case.name, case.batch, {name: Figures() for name in contenders})
    workers: dict[str, Worker] = {}
    try:
        for name, (python, module, rest) in contenders.items():
            if "channels-last" in rest and x.ndim != 4:
                continue
            figures = result.contenders[name]
            try:
                if name in artifacts:
                    _compile(result, model, artifacts[name], "0.02" if name == LEAN else "")
                source = artifacts.get(name, model)
                words = [source, batch, options.threads, *rest]
                workers[name] = Worker(python, module, words, _environment(options.threads))
            except WorkerError as error:
                figures.reason = str(error)
                continue
            figures.warm_up_s = workers[name].warm_up_s
            figures.reason = _disagreement(workers, name)
        _time(workers, options)
        for name, worker in workers.items():
            figures = result.contenders[name]
            figures.ms, figures.peak_bytes = worker.ms, worker.stop()
        for name in artifacts.keys() & workers.keys():
            figures = result.contenders[name]
            figures.peak_bytes = _resident(artifacts[name], options.threads)
    finally:
        for worker in workers.values():
            worker.kill()
    return result


def _compile(result: Result, model: Path, artifact: Path, recompute: str) -> None:
    command = [sys.executable, "-m", "benchmarks._compile", model, artifact, result.batch]
    command.append(recompute)
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise WorkerError(lines[-1].strip())
    figures = json.loads(done.stdout.splitlines()[-1])
    if recompute:
        return
    result.compile_s = figures["compile_s"]
    result.program_bytes = figures["program_bytes"]
    result.artifact_bytes = figures["artifact_bytes"]
    result.block_bytes = figures["block_bytes"]


def _environment(threads: int) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def _disagreement(workers: dict[str, Worker], name: str) -> str:
    if OURS not in workers or name == OURS:
        return ""
    ours, theirs = workers[OURS].losses, workers[name].losses
    same = np.isclose(ours[0], theirs[0], rtol=FIRST_LOSS)
    if same and np.allclose(ours, theirs, rtol=LATER_LOSSES):
        return ""
    shown = ", ".join(f"{loss:.5f}" for loss in theirs)
    return f"first losses {shown} are not ours, {', '.join(f'{loss:.5f}' for loss in ours)}"


def _time(workers: dict[str, Worker], options: argparse.Namespace) -> None:
    rounds = options.rounds or (3 if options.quick else 10)
    seconds = options.seconds or (0.1 if options.quick else 0.5)
    for worker in workers.values():
        worker.calibrate(seconds)
    for _ in range(rounds):
        for worker in workers.values():
            worker.time()


def _resident(artifact: Path, threads: int) -> int:
    """Bytes that `aotrun`, the program that would train on a device, has resident at most."""
    command = [artifact / "aotrun", artifact, "--json", "--threads", threads, "--bench", 5]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["bench"]["resident_bytes"])


def _page(
    tables: Sequence[list[list[str]]],
    remarks: Sequence[str],
    contenders: dict[str, tuple[str, str, tuple[str, ...]]],
    options: argparse.Namespace,
) -> str:
    versions = [f"Python {sys.version.split()[0]}"]
    if "PyTorch" in contenders:
        versions.append(f"PyTorch {_version(options.torch_python, 'torch')}")
    if "onnxruntime-training" in contenders:
        versions.append(f"onnxruntime-training {_version(options.ort_python, 'onnxruntime')}")
    times, sizes = (_table.markdown(table) for table in tables)
    lines = [
        "# Benchmarks",
        "",
        "Written by `python benchmarks/step.py --markdown docs/BENCHMARKS.md` on "
        f"{datetime.date.today()}.",
        "",
        f"{_machine.describe()}; {options.threads} threads; {', '.join(versions)}.",
        "",
        "## A training step",
        "",
        "AdamW, float32, one batch; milliseconds, the median over steps timed in turn, ± half the "
        "distance between the quartiles. Ratios above 1: ours is faster.",
        "",
        times,
        "",
        "## Memory and size",
        "",
        "Resident memory is the most that a training process had: of `aotrun` for ours, of Python "
        "for the others. Planned is what the loader allocates for all tensors. The program is "
        "`kernels.so`, `aotrun` and `libaotrun.so`; the artifact holds the initial state as well.",
        "",
        sizes,
    ]
    if remarks:
        lines += ["", "## Remarks", "", *(f"- {line}" for line in remarks)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
