"""Which outputs may take an input's bytes: the optimizer's may, a stencil's may not."""

import pytest
from tvm import relax, te, tirx

from aotrain.ops import optimizer
from aotrain.passes.inplace import may_share

N = 12


def func(compute, inputs: int = 2) -> tirx.PrimFunc:
    args = [te.placeholder((N, N), "float32", name=f"arg{i}") for i in range(inputs)]
    results = compute(*args)
    return te.create_prim_func([*args, *(results if isinstance(results, tuple) else (results,))])


def plus(a, b):
    return te.compute((N, N), lambda i, j: a[i, j] + b[i, j], name="plus")


def chained(a, b):
    m = te.compute((N, N), lambda i, j: a[i, j] * 2 + b[i, j], name="m")
    return te.compute((N, N), lambda i, j: b[i, j] - m[i, j], name="p"), m


def transposed(a, b):
    return te.compute((N, N), lambda i, j: a[j, i] + b[i, j], name="t")


def row_sum(a, b):
    k = te.reduce_axis((0, N))
    return te.compute((N, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="mm")


def stencil(a, b):
    shifted = te.compute((N, N), lambda i, j: a[(i + 1) % N, j] + a[i, j] + b[i, j], name="s")
    return shifted


@pytest.mark.parametrize(
    "compute, output, operand, expected",
    [
        (plus, 2, 0, True),
        (plus, 2, 1, True),
        (chained, 3, 0, True),  # m over a
        (chained, 2, 1, False),  # p over b: the block of m reads b as well
        (chained, 2, 0, False),  # p over a: read by another block
        (transposed, 2, 0, False),
        (transposed, 2, 1, True),
        (row_sum, 2, 0, False),
        (stencil, 2, 0, False),
        (stencil, 2, 1, True),
    ],
)
def test_may_share(compute, output: int, operand: int, expected: bool) -> None:
    assert may_share(func(compute), output, operand) is expected


def test_a_change_of_dtype_cannot_share() -> None:
    a = te.placeholder((N,), "float32")
    assert not may_share(
        te.create_prim_func([a, te.compute((N,), lambda i: a[i].astype("int32"))]), 1, 0
    )


def test_every_optimizer_works_in_place() -> None:
    for make, slots, scalars in [
        (optimizer.sgd, 0, 2),
        (optimizer.momentum, 1, 4),
        (optimizer.nesterov, 1, 3),
        (optimizer.adam, 2, 7),
        (optimizer.adamw, 2, 7),
    ]:
        tensor, scalar = relax.TensorType((3, 5), "float32"), relax.TensorType((), "float32")
        args = [relax.Var(f"a{i}", tensor) for i in range(2 + slots)]
        args += [relax.Var(f"s{i}", scalar) for i in range(scalars)]
        bb = relax.BlockBuilder()
        with bb.function("main", args):
            with bb.dataflow():
                result = bb.emit_output(make(*args))
            bb.emit_func_output(result)
        module = relax.transform.LegalizeOps()(bb.finalize())
        (kernel,) = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]
        updated = [0, *range(2, 2 + slots)]
        for position, operand in enumerate(updated):
            assert may_share(kernel, len(args) + position, operand), make.__name__
