"""Relax expressions in, fused PrimFuncs out; and a check of what `schedule` makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from aotrain.schedules.cpu import schedule

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
FLOAT_TOLERANCE = {"float32": 4e-6, "float64": 1e-13}


def lower(build: Callable, *shapes: Sequence[int], dtypes: Sequence[str] | None = None) -> list:
    """The PrimFuncs of `build(builder, *variables)` after legalization and fusion."""
    builder = relax.BlockBuilder()
    types = dtypes or ["float32"] * len(shapes)
    variables = [
        relax.Var(f"x{i}", relax.TensorType(list(shape), dtype))
        for i, (shape, dtype) in enumerate(zip(shapes, types, strict=True))
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            output = builder.emit_output(build(builder, *variables))
        builder.emit_func_output(output)
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    module = tvm.transform.Sequential(passes)(builder.get())
    return [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]


def op(function: Callable) -> Callable:
    """A builder that emits one operator."""
    return lambda builder, *variables: builder.emit(function(*variables))


def chain(*functions: Callable) -> Callable:
    """A builder that emits operators one after another; the first takes all variables."""

    def build(builder: relax.BlockBuilder, *variables: relax.Var) -> relax.Var:
        value = builder.emit(functions[0](*variables))
        for function in functions[1:]:
            value = builder.emit(function(value))
        return value

    return build


def matmul(
    m: int, n: int, k: int, batch: int = 0, transpose: tuple[bool, bool] = (False, False)
) -> tirx.PrimFunc:
    """C [m, n] = A [m, k] B [k, n], either stored transposed, over a batch where it is not 0."""
    lead = (batch,) if batch else ()
    a = te.placeholder((*lead, *((k, m) if transpose[0] else (m, k))), name="A")
    b = te.placeholder((*lead, *((n, k) if transpose[1] else (k, n))), name="B")
    r = te.reduce_axis((0, k), name="k")

    def element(*index: Any) -> Any:
        *b_, i, j = index
        left = a(*b_, r, i) if transpose[0] else a(*b_, i, r)
        right = b(*b_, j, r) if transpose[1] else b(*b_, r, j)
        return te.sum(left * right, axis=r)

    return te.create_prim_func([a, b, te.compute((*lead, m, n), element, name="C")])


def arguments(func: tirx.PrimFunc, seed: int = 0) -> list[np.ndarray]:
    """Random arrays for every parameter; integers are in 0..2."""
    random = np.random.default_rng(seed)
    result = []
    for parameter in func.params:
        shape, dtype = [int(n) for n in parameter.shape], str(parameter.dtype)
        if dtype.startswith("float"):
            result.append(np.asarray(random.standard_normal(shape), dtype))
        else:
            result.append(np.asarray(random.integers(0, 2 if dtype == "bool" else 3, shape), dtype))
    return result


def run(
    func: tirx.PrimFunc, arrays: Sequence[np.ndarray], target: Any = TARGET
) -> list[np.ndarray]:
    """All parameters after one call."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    tensors = [tvm.runtime.tensor(a) for a in arrays]
    # TVM's own elimination of common subexpressions is wrong beside Let; see targets/c_abi.py.
    with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):
        main = tvm.compile(module, target)["main"]
    main(*tensors)
    return [t.numpy() for t in tensors]


def check(func: tirx.PrimFunc, target: Any = TARGET, positive: bool = False) -> str:
    """Compare the scheduled function with the unscheduled one; returns the rule's name."""
    scheduled, rule = schedule(func, target)
    arrays = arguments(func)
    if positive:
        arrays = [np.abs(a) + a.dtype.type(0.5) if a.dtype.kind == "f" else a for a in arrays]
    for before, after in zip(run(func, arrays), run(scheduled, arrays, target), strict=True):
        tolerance = FLOAT_TOLERANCE.get(str(before.dtype))
        if tolerance is None:
            np.testing.assert_array_equal(after, before)
            continue
        largest = np.max(np.abs(before[np.isfinite(before)]), initial=1e-30)
        np.testing.assert_allclose(after, before, rtol=tolerance, atol=tolerance * largest)
    return rule
