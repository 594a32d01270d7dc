"""Steps made by hand through the lowering: launches, views, updates in place, copies."""

import numpy as np
import pytest
from tvm import relax

from aotrain.errors import UnsupportedModelError
from aotrain.importer.model import Origin
from aotrain.passes import KernelGraph, lower
from aotrain.plan import Kind, Role, TensorSpec
from aotrain.step.program import EntryFunction, StateTensor, TrainStep
from aotrain.targets import get

SHAPE = (4, 6)


def lowered(body, results: tuple[str, ...], origins=None) -> KernelGraph:
    """`body(bb, w, v, x)` returns values for `results`; w and v are state [4, 6], x an input."""
    params = [relax.Var(name, relax.TensorType(SHAPE, "float32")) for name in ("w", "v", "x")]
    bb = relax.BlockBuilder()
    with bb.function("train", params):
        with bb.dataflow():
            out = bb.emit_output(relax.Tuple(list(body(bb, *params))))
        bb.emit_func_output(out)
    step = TrainStep(
        module=bb.finalize(),
        entries=(EntryFunction("train", ("w", "v", "x"), results),),
        state=tuple(
            StateTensor(n, Role.TRAINABLE, np.zeros(SHAPE, np.float32)) for n in ("w", "v")
        ),
        inputs=(TensorSpec("x", SHAPE, "float32"),),
        hyper={},
        origins=origins or {},
    )
    return lower(step, get("cpu").tvm)


def calls(graph: KernelGraph) -> list[str]:
    """Launches as text: "add(w, x, *y)"."""
    plan = graph.plan
    found = []
    for launch in plan.entries[0].launches:
        args = [
            ("*" if i in launch.writes else "") + plan.tensors[t].name
            for i, t in enumerate(launch.args)
        ]
        name = plan.kernels[launch.kernel].split("_", 1)[1]
        found.append(f"{name}({', '.join(args)})")
    return found


def test_an_output_is_computed_where_the_user_reads_it() -> None:
    graph = lowered(lambda bb, w, v, x: [bb.emit(relax.op.add(w, x))], ("y",))
    assert calls(graph) == ["add(w, x, *y)"]
    (index,) = graph.plan.entries[0].outputs
    assert graph.plan.tensors[index].kind is Kind.OUTPUT


def test_an_elementwise_update_is_in_place() -> None:
    graph = lowered(lambda bb, w, v, x: [bb.emit(relax.op.add(w, x))], ("w",))
    assert calls(graph) == ["add(*w, x)"]
    assert graph.kernels[0].aliases == ((2, 0),)


def test_an_update_waits_for_the_readers_of_the_old_value() -> None:
    def body(bb, w, v, x):
        new = bb.emit(relax.op.add(w, x))
        old = bb.emit(relax.op.matmul(x, bb.emit(relax.op.permute_dims(w))))
        return [old, new]

    found = calls(lowered(body, ("y", "w")))
    reader = next(i for i, call in enumerate(found) if "w, *y)" in call)
    assert reader < found.index("add(*w, x)")


def test_updates_that_read_each_other_fall_back_to_a_copy() -> None:
    """w' = w + v and v' = v - w: one of them must be kept apart until the other is done."""

    def body(bb, w, v, x):
        return [bb.emit(relax.op.add(w, v)), bb.emit(relax.op.subtract(v, w))]

    found = calls(lowered(body, ("w", "v")))
    assert sorted(call.split("(")[0] for call in found) == ["add", "copy", "subtract"]
    assert found[-1].startswith("copy(")


def test_an_update_that_is_not_elementwise_is_copied_home() -> None:
    def body(bb, w, v, x):
        return [bb.emit(relax.op.flip(w, axis=0))]

    found = calls(lowered(body, ("w",)))
    assert [call.split("(")[0] for call in found] == ["flip", "copy"]


def test_swapped_states() -> None:
    found = calls(lowered(lambda bb, w, v, x: [v, w], ("w", "v")))
    assert all(call.startswith("copy(") for call in found)
    assert len(found) == 2


def test_an_unchanged_state_costs_nothing() -> None:
    assert calls(lowered(lambda bb, w, v, x: [w], ("w",))) == []


def test_one_value_under_two_names() -> None:
    def body(bb, w, v, x):
        y = bb.emit(relax.op.add(w, x))
        return [y, y]

    assert calls(lowered(body, ("y", "z"))) == ["add(w, x, *y)", "copy(y, *z)"]


def test_a_reshape_is_a_view() -> None:
    def body(bb, w, v, x):
        flat = bb.emit(relax.op.reshape(bb.emit(relax.op.add(w, x)), (24,)))
        return [bb.emit(relax.op.sum(flat))]

    found = calls(lowered(body, ("y",)))
    assert [call.split("(")[0] for call in found] == ["add", "sum"]


def test_a_reshaped_output_has_the_shape_of_the_view() -> None:
    def body(bb, w, v, x):
        total = bb.emit(relax.op.add(w, x))
        return [total, bb.emit(relax.op.reshape(total, (2, 12))), bb.emit(relax.op.flatten(x))]

    graph = lowered(body, ("whole", "halves", "flat"))
    shapes = [graph.plan.tensors[i].shape for i in graph.plan.entries[0].outputs]
    assert shapes == [(4, 6), (2, 12), (24,)]


def test_equal_kernels_are_one() -> None:
    def body(bb, w, v, x):
        return [
            bb.emit(relax.op.matmul(w, bb.emit(relax.op.permute_dims(x)))),
            bb.emit(relax.op.matmul(v, bb.emit(relax.op.permute_dims(x)))),
        ]

    graph = lowered(body, ("y", "z"))
    assert len(graph.kernels) < len(graph.plan.entries[0].launches)


def test_equal_constants_are_one() -> None:
    def body(bb, w, v, x):
        one = relax.const(np.arange(24, dtype=np.float32).reshape(SHAPE))
        two = relax.const(np.arange(24, dtype=np.float32).reshape(SHAPE))
        return [bb.emit(relax.op.matmul(bb.emit(relax.op.permute_dims(one)), two))]

    assert len(lowered(body, ("y",)).constants) == 1


def test_origins_survive_fusion() -> None:
    def body(bb, w, v, x):
        h = bb.emit(relax.op.matmul(w, bb.emit(relax.op.permute_dims(x))), "mm")
        return [bb.emit(relax.op.nn.relu(h), "act")]

    graph = lowered(body, ("y",), {"mm": Origin("MatMul", "fc1"), "act": Origin("Relu", "r1")})
    assert "MatMul node 'fc1'" in graph.plan.entries[0].launches[-1].origin


def test_equal_groups_keep_origins_of_their_own() -> None:
    def body(bb, w, v, x):
        values = []
        for i, weight in enumerate((w, v)):
            h = bb.emit(relax.op.matmul(x, bb.emit(relax.op.permute_dims(weight))), f"mm{i}")
            values.append(bb.emit(relax.op.nn.relu(h), f"act{i}"))
        return values

    origins = {f"mm{i}": Origin("MatMul", f"fc{i}") for i in (0, 1)}
    graph = lowered(body, ("y", "z"), origins)
    launches = graph.plan.entries[0].launches
    assert len(graph.kernels) == 1  # which both call
    assert [launch.origin for launch in launches] == ["MatMul node 'fc0'", "MatMul node 'fc1'"]


def test_every_operator_without_a_kernel_is_reported_at_once() -> None:
    def body(bb, w, v, x):
        a = bb.emit(relax.op.unique(w, sorted=True), "first")
        b = bb.emit(relax.op.unique(v, sorted=True), "second")
        return [a, b]

    origins = {"first": Origin("Unique", "u1"), "second": Origin("Unique", "u2")}
    with pytest.raises(UnsupportedModelError) as caught:
        lowered(body, ("y", "z"), origins)
    assert [d.where for d in caught.value.diagnostics] == ["Unique node 'u1'", "Unique node 'u2'"]


def test_a_kernel_that_needs_the_tvm_runtime_is_no_kernel() -> None:
    def body(bb, w, v, x):
        return [bb.emit(relax.op.sort(w, axis=1), "sorted")]

    with pytest.raises(UnsupportedModelError) as caught:
        lowered(body, ("y",), {"sorted": Origin("TopK", "t")})
    assert [d.where for d in caught.value.diagnostics] == ["TopK node 't'"]


def test_cumulative_sums_have_a_kernel() -> None:
    found = calls(lowered(lambda bb, w, v, x: [bb.emit(relax.op.cumsum(w, axis=1))], ("y",)))
    assert len(found) == 1
