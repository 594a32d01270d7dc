"""Transposes go into the products around them; values stay."""

import numpy as np
import pytest
import tvm
from tvm import relax

from aotrain.passes.fold_transposes import FoldTransposes

op = relax.op
T2 = [1, 0]


def transpose(bb, x):
    rank = len(x.ty.shape)
    return bb.emit(op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2]))


def module(body, *shapes: tuple[int, ...]) -> tvm.IRModule:
    params = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        with bb.dataflow():
            result = bb.emit_output(body(bb, *params))
        bb.emit_func_output(result)
    return bb.finalize()


def folded(before: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.DeadCodeElimination(["main"])(FoldTransposes()(before))


def operators(mod: tvm.IRModule) -> list[str]:
    return [b.value.op.name for b in mod["main"].body.blocks[0].bindings if hasattr(b.value, "op")]


def evaluate(mod: tvm.IRModule, *arrays: np.ndarray) -> np.ndarray:
    vm = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return vm["main"](*(tvm.runtime.tensor(a) for a in arrays)).numpy()


CASES = {
    "nt": (lambda bb, a, b: op.matmul(a, transpose(bb, b)), (3, 5), (7, 5)),
    "tn": (lambda bb, a, b: op.matmul(transpose(bb, a), b), (5, 3), (5, 7)),
    "tt": (lambda bb, a, b: op.matmul(transpose(bb, a), transpose(bb, b)), (5, 3), (7, 5)),
    "twice": (lambda bb, a, b: op.matmul(transpose(bb, transpose(bb, a)), b), (3, 5), (5, 7)),
    "result": (
        lambda bb, a, b: op.permute_dims(bb.emit(op.matmul(transpose(bb, a), b)), T2),
        (5, 3),
        (5, 7),
    ),
    "batched": (lambda bb, a, b: op.matmul(a, transpose(bb, b)), (2, 4, 3, 5), (2, 4, 7, 5)),
    "broadcast": (lambda bb, a, b: op.matmul(transpose(bb, a), b), (2, 5, 3), (4, 1, 5, 7)),
    "weight": (lambda bb, a, b: op.matmul(a, transpose(bb, b)), (2, 3, 5), (7, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_stay_and_transposes_go(name: str) -> None:
    body, *shapes = CASES[name]
    before = module(body, *shapes)
    after = folded(before)
    assert "relax.permute_dims" not in operators(after)
    assert len(operators(after)) == 1
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    np.testing.assert_allclose(evaluate(after, *arrays), evaluate(before, *arrays), rtol=1e-5)


def test_a_product_that_others_read_is_kept() -> None:
    def body(bb, a, b):
        y = bb.emit(op.matmul(a, b))
        return op.matmul(y, transpose(bb, bb.emit(op.nn.relu(y))))

    assert operators(folded(module(body, (3, 3), (3, 3)))) == [
        "relax.matmul",
        "relax.nn.relu",
        "aotrain.gemm",
    ]


def test_other_permutations_stay() -> None:
    def body(bb, a, b):
        heads = bb.emit(op.permute_dims(a, [1, 0, 2]))
        return op.matmul(heads, b)

    assert operators(folded(module(body, (2, 3, 4), (4, 5)))) == [
        "relax.permute_dims",
        "relax.matmul",
    ]


@pytest.mark.parametrize("readers", [1, 6])
def test_a_transposed_operand_of_many_products_is_made_once(readers: int) -> None:
    def body(bb, a, b):
        weight = transpose(bb, b)
        for _ in range(readers):
            a = bb.emit(op.matmul(a, weight))
        return op.matmul(a, transpose(bb, weight))  # b itself: there is nothing to transpose

    before = module(body, (3, 5), (5, 5))
    many = ["relax.permute_dims", *["relax.matmul"] * (readers + 1)]
    after = folded(before)
    assert operators(after) == (many if readers > 1 else ["aotrain.gemm", "relax.matmul"])
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 5), (5, 5))]
    np.testing.assert_allclose(evaluate(after, *arrays), evaluate(before, *arrays), rtol=1e-4)
