"""GFLOP/s or GB/s of each class of CPU kernel, as a fraction of the machine's measured peak.

    python benchmarks/kernels.py [NAME ...] [--target JSON] [--markdown docs/KERNELS.md]

Peaks are measured by the same compiler: independent fused multiply-adds in registers, and a copy
of 64 MB. A kernel whose operands fit a cache may exceed the second. Where PyTorch can be imported,
its time for the same operation stands beside ours, measured in turn in the same process.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import _machine, _table
from benchmarks._worker import SETTLE_S


@dataclass(frozen=True)
class Case:
    """One kernel: a builder of Relax (builder, *variables), its input shapes, its work.

    flops: floating-point operations, or 0 where bytes moved are what counts. torch: the same
    operation on PyTorch tensors.
    """

    build: Callable
    shapes: tuple[tuple[int, ...], ...]
    flops: int
    torch: Callable


#: (batch, channels in, size, channels out, stride) of ResNet-18's 3x3 convolutions on 32x32 images.
RESNET18 = [
    (8, 64, 32, 64, 1),
    (8, 128, 16, 128, 1),
    (8, 256, 8, 256, 1),
    (8, 512, 4, 512, 1),
    (8, 64, 32, 128, 2),
]


def cases() -> dict[str, Case]:
    from tvm.relax import op

    def one(function: Callable) -> Callable:
        return lambda builder, *variables: builder.emit(function(*variables))

    found = {}
    for m, n, k in [(64, 512, 784), (512, 512, 512), (1024, 1024, 1024), (100, 77, 333)]:
        found[f"matmul {m}x{n}x{k}"] = Case(
            one(op.matmul), ((m, k), (k, n)), 2 * m * n * k, lambda a, b: a @ b
        )
    found["matmul batched 32x128x128x64"] = Case(
        one(op.matmul), ((32, 128, 64), (32, 64, 128)), 2 * 32 * 128 * 128 * 64, lambda a, b: a @ b
    )
    for layer in RESNET18:
        found.update(_convolutions(*layer))
    n, c, size = 8, 96, 48
    found["conv depthwise 8,96,48"] = Case(
        one(lambda x, w: op.nn.conv2d(x, w, padding=1, groups=c)),
        ((n, c, size, size), (c, 1, 3, 3)),
        2 * 9 * n * c * size * size,
        lambda x, w: _torch().nn.functional.conv2d(x, w, None, 1, 1, 1, c),
    )
    found |= {
        "relu 1M": Case(one(op.nn.relu), ((1 << 20,),), 0, lambda x: x.relu()),
        "gelu 1M": Case(
            one(op.nn.gelu), ((1 << 20,),), 0, lambda x: _torch().nn.functional.gelu(x)
        ),
        "exp 1M": Case(one(op.exp), ((1 << 20,),), 0, lambda x: x.exp()),
        "softmax 8192x128": Case(
            one(lambda x: op.nn.softmax(x, -1)), ((8192, 128),), 0, lambda x: x.softmax(-1)
        ),
        "layer norm 1024x256": Case(
            one(lambda x, g, b: op.nn.layer_norm(x, g, b, [-1])),
            ((1024, 256), (256,), (256,)),
            0,
            lambda x, g, b: _torch().nn.functional.layer_norm(x, (256,), g, b),
        ),
        "bias gradient 1024x1024": Case(
            one(lambda x: op.sum(x, 0)), ((1024, 1024),), 0, lambda x: x.sum(0)
        ),
        "channel sums 16,64,32,32": Case(
            one(lambda x: op.sum(x, [0, 2, 3])), ((16, 64, 32, 32),), 0, lambda x: x.sum((0, 2, 3))
        ),
        "transpose 1024x1024": Case(
            one(lambda x: op.permute_dims(x)), ((1024, 1024),), 0, lambda x: x.t().contiguous()
        ),
    }
    return found


def _convolutions(n: int, c: int, size: int, k: int, stride: int) -> dict[str, Case]:
    """A 3x3 convolution and its two gradients."""
    from tvm.relax import op

    from aotrain.ops import conv_grad

    out = (size + 2 - 3) // stride + 1
    flops = 2 * n * k * c * 9 * out * out
    attributes = {
        "strides": [stride] * 2,
        "padding": [1] * 4,
        "dilation": [1, 1],
        "groups": 1,
    }
    x, w, dy = (n, c, size, size), (k, c, 3, 3), (n, k, out, out)

    def forward(builder: Any, x: Any, w: Any) -> Any:
        return builder.emit(op.nn.conv2d(x, w, strides=stride, padding=1))

    def dx(builder: Any, dy: Any, w: Any) -> Any:
        return builder.emit(conv_grad.conv2d_input_grad(dy, w, **attributes, input_shape=list(x)))

    def dw(builder: Any, dy: Any, data: Any) -> Any:
        return builder.emit(
            conv_grad.conv2d_weight_grad(dy, data, **attributes, weight_shape=list(w))
        )

    def torch_forward(x: Any, w: Any) -> Any:
        return _torch().nn.functional.conv2d(x, w, None, stride, 1)

    def torch_dx(dy: Any, w: Any) -> Any:
        return _torch().nn.grad.conv2d_input(x, w, dy, stride, 1)

    def torch_dw(dy: Any, data: Any) -> Any:
        return _torch().nn.grad.conv2d_weight(data, w, dy, stride, 1)

    name = f"{n},{c},{size},{k}/{stride}"
    return {
        f"conv {name}": Case(forward, (x, w), flops, torch_forward),
        f"conv input gradient {name}": Case(dx, (dy, w), flops, torch_dx),
        f"conv weight gradient {name}": Case(dw, (dy, x), flops, torch_dw),
    }


def _torch() -> Any:
    import torch

    return torch


def kernel(case: Case, target: Any) -> tuple[Callable, list[np.ndarray], int, str]:
    """The compiled kernel of `case` with its arguments bound; inputs; bytes moved; leading rule."""
    import tvm
    from tvm import relax, tirx

    from aotrain.schedules.cpu import schedule

    builder = relax.BlockBuilder()
    variables = [
        relax.Var(f"x{i}", relax.TensorType(list(s), "float32")) for i, s in enumerate(case.shapes)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            output = builder.emit_output(case.build(builder, *variables))
        builder.emit_func_output(output)
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    module = tvm.transform.Sequential(passes)(builder.get())
    (func,) = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]
    scheduled, rule = schedule(func, target)
    random = np.random.default_rng(0)
    arrays = [
        np.asarray(random.standard_normal([int(n) for n in p.shape]), str(p.dtype))
        for p in func.params
    ]
    main = compiled(scheduled, target)
    tensors = [tvm.runtime.tensor(a) for a in arrays]
    return (lambda: main(*tensors)), arrays, sum(a.nbytes for a in arrays), rule


def compiled(func: Any, target: Any) -> Any:
    import tvm

    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):
        return tvm.compile(module, target)["main"]


def best(run: Callable, rounds: int, seconds: float = 0.05) -> float:
    """The shortest time of one call."""
    run()
    times = []
    for _ in range(rounds):
        end = time.perf_counter() + seconds
        while True:
            start = time.perf_counter()
            run()
            now = time.perf_counter()
            times.append(now - start)
            if now >= end:
                break
    return min(times)


def peaks(target: Any, threads: int, rounds: int) -> tuple[float, float]:
    """(FLOP/s of multiply-adds in registers, bytes/s of a large copy)."""
    import tvm
    from tvm import te, tirx

    from aotrain.schedules.cpu import isa, loops, schedule

    facts = isa.of(target)
    steps, width = 1 << 17, 10 * facts.lanes
    out = tirx.decl_buffer((threads, width), "float32", "out")

    def store(value: Callable, t: Any, n: Any) -> list[Any]:
        return [tirx.BufferStore(out, value(t, n), [t, n])]

    def task(t: Any) -> list[Any]:
        def each(value: Callable) -> list[Any]:
            return [
                loops.vector(
                    facts.lanes,
                    lambda n, u=u: [
                        tirx.BufferStore(
                            out, value(t, n + u * facts.lanes), [t, n + u * facts.lanes]
                        )
                    ],
                )
                for u in range(10)
            ]

        start = each(lambda t, n: n.astype("float32"))
        fma = lambda t, n: out[t, n] * tirx.const(0.5, "float32") + tirx.const(0.25, "float32")  # noqa: E731
        return [*start, loops.loop(steps, lambda _: each(fma))]

    func = tirx.PrimFunc([out], loops.parallel(threads, task)).with_attr("tirx.noalias", True)
    main = compiled(func.with_attr("s_tir", True), target)
    tensor = tvm.runtime.tensor(np.zeros((threads, width), "float32"))
    flops = 2 * threads * steps * width / best(lambda: main(tensor), rounds)
    count = 1 << 24
    x = te.placeholder((count,), name="x")
    copy, _ = schedule(te.create_prim_func([x, te.compute((count,), lambda i: x[i])]), target)
    move = compiled(copy, target)
    a, b = (tvm.runtime.tensor(np.zeros(count, "float32")) for _ in range(2))
    return flops, 8 * count / best(lambda: move(a, b), rounds)


def torch_time(case: Case, arrays: list[np.ndarray], rounds: int) -> float | None:
    try:
        torch = _torch()
    except ImportError:
        return None
    tensors = [torch.from_numpy(a) for a in arrays[: len(case.shapes)]]
    with torch.no_grad():
        return best(lambda: case.torch(*tensors), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose name starts so")
    parser.add_argument("--target", help="TVM target as JSON; default: this machine")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", type=Path, help="write the page docs/KERNELS.md here")
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ["TVM_BIND_THREADS"] = "0"  # else PyTorch's threads inherit one core

    import tvm

    host = {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()}
    target = tvm.target.Target(json.loads(options.target) if options.target else host)
    flops, bandwidth = peaks(target, options.threads, options.rounds)
    peak = f"peak {flops / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s, {options.threads} threads"
    rows = [["kernel", "rule", "us", "rate", "of peak", "PyTorch, us", "PyTorch / ours"]]
    for name, case in cases().items():
        if options.names and not name.startswith(tuple(options.names)):
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows.append(_row(name, case, target, (flops, bandwidth), options.rounds))
    print(f"{peak}\n{_table.text(rows)}")
    if options.markdown:
        options.markdown.write_text(_page(peak, rows))


def _row(name: str, case: Case, target: Any, peak: tuple[float, float], rounds: int) -> list[str]:
    run, arrays, moved, rule = kernel(case, target)
    seconds = best(run, rounds)
    time.sleep(SETTLE_S)
    other = torch_time(case, arrays, rounds)
    time.sleep(SETTLE_S if other else 0)
    work, most, unit = (case.flops, peak[0], "GFLOP/s") if case.flops else (moved, peak[1], "GB/s")
    rate = work / seconds
    theirs = [f"{other * 1e6:.1f}", f"{other / seconds:.2f}"] if other else ["-", "-"]
    figures = [f"{seconds * 1e6:.1f}", f"{rate / 1e9:.1f} {unit}", f"{rate / most:.0%}"]
    return [name, rule, *figures, *theirs]


def _page(peak: str, rows: list[list[str]]) -> str:
    lines = [
        "# Kernels",
        "",
        "Written by `python benchmarks/kernels.py --markdown docs/KERNELS.md` on "
        f"{datetime.date.today()}, with PyTorch in the same environment.",
        "",
        f"{_machine.describe()}; {peak}. Shortest times; a kernel whose operands fit a cache may "
        "move more than the memory's peak, which is that of a copy of 64 MB.",
        "",
        _table.markdown(rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
