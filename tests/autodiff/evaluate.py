"""Relax functions in, a Python callable for each out: compiled once, together, for this CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tvm
from tvm import relax

Callables = dict[str, Callable[[Sequence[np.ndarray]], list[np.ndarray]]]


def compile_functions(functions: Mapping[str, relax.Function]) -> Callables:
    """`run[name](inputs)` gives the fields of the Tuple that the function returns."""
    named = {n: f.with_attr("global_symbol", n) for n, f in functions.items()}
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    executable = relax.build(tvm.IRModule(named), target)
    machine = relax.VirtualMachine(executable, tvm.cpu())

    def call(name: str) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
        return lambda inputs: [
            t.numpy() for t in machine[name](*(tvm.runtime.tensor(a) for a in inputs))
        ]

    return {name: call(name) for name in functions}
