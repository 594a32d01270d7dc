"""The builder of dataflow functions: names stay unique, dead bindings go, origins are recorded."""

from __future__ import annotations

import tvm
from tvm import relax

from aotrain.importer.model import Origin
from aotrain.step.graph import Graph


def forward() -> relax.Function:
    """a -> (sqrt(a), exp(sqrt(a))), with a binding that nothing uses."""
    a = relax.Var("a", relax.TensorType((3,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("f", [a]):
        with builder.dataflow():
            root = builder.emit(relax.op.sqrt(a), "root")
            builder.emit(relax.op.negative(a), "dead")
            power = builder.emit(relax.op.exp(root), "power")
            both = builder.emit_output(relax.Tuple([root, power]))
        builder.emit_func_output(both)
    return builder.get()["f"]


def names(function: relax.Function) -> list[str]:
    return [b.var.name for b in function.body.blocks[0].bindings]


def test_inline_emit_finish() -> None:
    function, origins = forward(), {}
    graph = Graph(origins)
    root, power = graph.inline(function)
    first = graph.emit(relax.op.add(root, power), "root")
    graph.origin = Origin("Loss", "mse")
    second = graph.emit(relax.op.sum(first), "a")
    extra = graph.param("a", (), "float32")
    third = graph.emit(relax.op.multiply(second, extra), "product")
    made = graph.finish([extra, *function.params], [third, root], "main")
    assert names(made) == ["root", "power", "root_2", "a_2", "product", "results"]
    assert [p.name for p in made.params] == ["a_3", "a"]
    assert origins == {"a_2": graph.origin, "product": graph.origin}
    relax.analysis.well_formed(tvm.IRModule({"main": made}))  # raises where it is not
    assert [len(f.shape) for f in made.ret_ty.fields] == [0, 1]


def test_values_tell_what_a_variable_is_bound_to() -> None:
    graph = Graph()
    root, power = graph.inline(forward())
    assert graph.values[power].op.name == "relax.exp"
    assert graph.values[power].args[0].same_as(root)
