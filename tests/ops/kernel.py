"""Relax functions and operators of ours, run on TVM's virtual machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax

Emit = Callable[..., relax.Expr]
Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


def function(emit: Emit, arrays: Sequence[np.ndarray]) -> relax.Function:
    """main(*arrays) = (emit(*arrays),), or = emit(...) where that is a Tuple already.

    Nested calls are bound one by one.
    """
    params = [
        relax.Var(f"a{i}", relax.TensorType(a.shape, a.dtype.name)) for i, a in enumerate(arrays)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            value = builder.emit(emit(*params), "value")
            whole = isinstance(value.ty, tvm.ir.TupleType)
            result = builder.emit_output(value if whole else relax.Tuple([value]))
        builder.emit_func_output(result)
    return builder.get()["main"]


def runner(main: relax.Function) -> Run:
    """A function, compiled."""
    module = relax.transform.LegalizeOps()(tvm.IRModule({"main": main}))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        result = machine["main"](*map(tvm.runtime.tensor, arrays))
        return [r.numpy() for r in ([result] if hasattr(result, "numpy") else result)]

    return run


def evaluate(emit: Emit, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of `emit(*arrays)`."""
    arrays = tuple(np.asarray(a) for a in arrays)
    return runner(function(emit, arrays))(arrays)


def prim_func(emit: Emit, *arrays: np.ndarray) -> tvm.tirx.PrimFunc:
    """The only kernel of `emit(*arrays)`."""
    main = function(emit, [np.asarray(a) for a in arrays])
    module = relax.transform.LegalizeOps()(tvm.IRModule({"main": main}))
    (found,) = [f for f in module.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    return found
