"""The driver: which bindings it visits, how it adds up, what it refuses, and what it names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tvm import relax

from aotrain.autodiff import Request, differentiable, differentiate
from aotrain.errors import UnsupportedModelError, UsageError
from aotrain.importer.model import Origin
from aotrain.ops.dropout import dropout
from tests.autodiff.evaluate import compile_functions

op = relax.op
F64 = "float64"


def var(name: str, *dims: int, dtype: str = F64) -> relax.Var:
    return relax.Var(name, relax.TensorType(dims, dtype))


def function(params: Sequence[relax.Var], body: Callable[..., list[relax.Expr]]) -> relax.Function:
    """`body(emit, *params)` returns the results; emit(name, expr) binds."""
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            results = body(lambda name, e: builder.emit(e, name_hint=name), *params)
            output = builder.emit_output(relax.Tuple(list(results)))
        builder.emit_func_output(output)
    return builder.get()["main"]


def operators(f: relax.Function) -> list[str]:
    return [
        f"{b.var.name}: {b.value.op.name.removeprefix('relax.')}"
        for b in f.body.blocks[0].bindings
        if isinstance(b.value, relax.Call)
    ]


def results(f: relax.Function) -> list[relax.Expr]:
    return list(f.body.blocks[0].bindings[-1].value.fields)


def evaluate(f: relax.Function, *inputs: np.ndarray) -> list[np.ndarray]:
    return compile_functions({"main": f})["main"](inputs)


def mlp() -> relax.Function:
    x, w, b = var("x", 2, 3), var("w", 3, 4), var("b", 4)

    def body(emit, x, w, b):
        fc = emit("fc", op.matmul(x, w))
        act = emit("act", op.nn.relu(emit("biased", op.add(fc, b))))
        emit("unused", op.exp(act))
        return [emit("loss", op.sum(act))]

    return function([x, w, b], body)


def test_before_and_after() -> None:
    f = mlp()
    after = differentiate(f, [Request("loss", (f.params[1], f.params[2]))])
    assert operators(f) == [
        "fc: matmul",
        "biased: add",
        "act: nn.relu",
        "unused: exp",
        "loss: sum",
    ]
    assert operators(after) == [
        "fc: matmul",
        "biased: add",
        "act: nn.relu",
        "loss: sum",
        "d_act: broadcast_to",
        "d_biased_greater: greater",
        "d_biased: where",
        "d_b: sum",
        "d_w_permute_dims: permute_dims",
        "d_w: matmul",
    ]
    assert [p.name for p in after.params] == ["x", "w", "b"]
    assert [r.name for r in results(after)] == ["loss", "d_w", "d_b"]


def test_relu_keeps_its_output_and_not_its_input() -> None:
    f = mlp()
    after = differentiate(f, [Request("loss", (f.params[1],))])
    readers = [
        b.var.name
        for b in after.body.blocks[0].bindings
        if isinstance(b.value, relax.Call)
        and any(a.same_as(_bound(after, "biased")) for a in b.value.args)
    ]
    assert readers == ["act"]


def _bound(f: relax.Function, name: str) -> relax.Var:
    return next(b.var for b in f.body.blocks[0].bindings if b.var.name == name)


def test_input_gradient_of_the_first_layer_is_not_computed() -> None:
    x, w1, w2 = var("x", 1, 1, 6, 6), var("w1", 2, 1, 3, 3), var("w2", 2, 2, 3, 3)

    def body(emit, x, w1, w2):
        h = emit("conv1", op.nn.conv2d(x, w1))
        return [emit("loss", op.sum(emit("conv2", op.nn.conv2d(h, w2))))]

    f = function([x, w1, w2], body)
    names = [o.partition(": ")[2] for o in operators(differentiate(f, [Request("loss", (w1, w2))]))]
    assert names.count("aotrain.conv2d_input_grad") == 1
    assert names.count("aotrain.conv2d_weight_grad") == 2
    frozen = [o.partition(": ")[2] for o in operators(differentiate(f, [Request("loss", (w2,))]))]
    assert "aotrain.conv2d_input_grad" not in frozen


def test_requests_of_several_values_and_duplicates() -> None:
    x, y = var("x", 3), var("y", 3)

    def body(emit, x, y):
        product = emit("product", x * y)
        return [emit("a", op.sum(product)), emit("b", op.sum(op.exp(x)))]

    f = function([x, y], body)
    requests = [
        Request("a", (x, y)),
        Request("b", (y, x)),
        Request("a", (y,)),
        Request(_bound(f, "a"), (x, _bound(f, "product"))),
    ]
    after = differentiate(f, requests)
    fields = results(after)
    assert len(fields) == 9
    assert fields[3].same_as(fields[6])  # both are d a / d y
    xs, ys = np.array([1.0, 2, 3]), np.array([4.0, 5, 6])
    found = evaluate(after, xs, ys)
    expected = [ys, xs, np.zeros(3), np.exp(xs), xs, ys, np.ones(3)]
    for gradient, value in zip(found[2:], expected, strict=True):
        np.testing.assert_allclose(gradient, value, rtol=1e-12)
    assert sum(o.endswith(": exp") for o in operators(after)) == 1, "equal calls are merged"


def test_a_variable_used_often_adds_up() -> None:
    x = var("x", 2)
    f = function([x], lambda emit, x: [emit("loss", op.sum(x * x * x + x))])
    (_, gradient) = evaluate(differentiate(f, [Request("loss", (x,))]), np.array([2.0, -1.0]))
    np.testing.assert_allclose(gradient, [13.0, 4.0])


def test_no_path_gives_zeros_of_the_right_shape() -> None:
    x, y = var("x", 2, 3), var("y", 5)
    f = function([x, y], lambda emit, x, y: [emit("loss", op.sum(x))])
    found = evaluate(differentiate(f, [Request("loss", (y,))]), np.ones((2, 3)), np.ones(5))
    np.testing.assert_array_equal(found[1], np.zeros(5))


def test_value_may_be_a_wrt() -> None:
    x = var("x")
    f = function([x], lambda emit, x: [emit("loss", x * x)])
    after = differentiate(f, [Request("loss", (_bound(f, "loss"), x)), Request(x, (x,))])
    assert [float(r) for r in evaluate(after, np.array(3.0))] == [9.0, 1.0, 6.0, 1.0]


def test_integers_carry_no_gradient() -> None:
    x = var("x", 2, 3)

    def body(emit, x):
        index = emit("index", op.argmax(x, axis=1))
        return [emit("loss", op.sum(op.astype(index, F64)) + op.sum(x))]

    f = function([x], body)
    after = differentiate(f, [Request("loss", (x,))])
    np.testing.assert_array_equal(evaluate(after, np.ones((2, 3)))[1], np.ones((2, 3)))


def test_a_bare_result_becomes_a_tuple() -> None:
    x = var("x", 2)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            loss = builder.emit_output(op.sum(x), name_hint="loss")
        builder.emit_func_output(loss)
    after = differentiate(builder.get()["main"], [Request("loss", (x,))])
    assert [r.name for r in results(after)] == ["loss", "d_x"]


def test_gradient_of_a_scalar_gradient_by_name() -> None:
    x = var("x")
    f = function([x], lambda emit, x: [emit("loss", op.exp(x) * x * x)])
    requests = [Request("loss", (x,)), Request("d_x", (x,))]
    _, first, second = evaluate(differentiate(f, requests), np.array(1.5))
    assert first == pytest.approx(np.exp(1.5) * (1.5**2 + 2 * 1.5))
    assert second == pytest.approx(np.exp(1.5) * (1.5**2 + 4 * 1.5 + 2))


def test_gradient_penalty() -> None:
    """d/dw of Σ (d loss/d x)² through a convolution and an activation, against differences."""
    x, w = var("x", 1, 2, 5, 4), var("w", 2, 2, 3, 3)

    def body(emit, x, w):
        y = emit("conv", op.nn.conv2d(x, w, strides=2, padding=1))
        return [emit("loss", op.sum(emit("act", op.tanh(y))))]

    first = differentiate(function([x, w], body), [Request("loss", (x,))])
    block = first.body.blocks[0]
    dx = results(first)[1]
    square = relax.BlockBuilder().normalize(op.multiply(dx, dx))
    squared = relax.DataflowVar("squared", square.ty)
    total = relax.BlockBuilder().normalize(op.sum(squared))
    penalty = relax.Var("penalty", total.ty)
    bindings = [
        *list(block.bindings)[:-1],
        relax.VarBinding(squared, square),
        relax.VarBinding(penalty, total),
    ]
    body_expr = relax.SeqExpr([relax.DataflowBlock(bindings)], penalty)
    extended = relax.Function(first.params, body_expr, penalty.ty)
    run = compile_functions(
        {"main": differentiate(extended, [Request("penalty", (first.params[1],))])}
    )
    rng = np.random.default_rng(0)
    xs, ws = rng.standard_normal((1, 2, 5, 4)), rng.standard_normal((2, 2, 3, 3))
    gradient = run["main"]([xs, ws])[1]
    for index in np.ndindex(ws.shape):
        step = np.zeros_like(ws)
        step[index] = 1e-5
        high, low = (run["main"]([xs, ws + s])[0] for s in (step, -step))
        assert gradient[index] == pytest.approx((high - low) / 2e-5, rel=1e-5, abs=1e-7)


def test_dropouts_are_merged_only_with_the_same_salt() -> None:
    x, rng = var("x", 4, 8), var("rng", 2, dtype="uint32")

    def body(emit, x, rng):
        drops = [emit(f"drop{s}", dropout(x, rng, ratio=0.5, salt=s)) for s in (1, 2)]
        same = emit("same", dropout(x, rng, ratio=0.5, salt=2))
        return [emit("loss", op.sum(op.exp(drops[0]) * drops[1] * same))]

    after = differentiate(function([x, rng], body), [Request("loss", (x,))])
    salts = [
        int(b.value.attrs["salt"])
        for b in after.body.blocks[0].bindings
        if isinstance(b.value, relax.Call) and b.value.op.name == "aotrain.dropout"
    ]
    assert sorted(salts) == [1, 1, 2, 2, 2]


def test_every_problem_is_reported_at_once_with_its_node() -> None:
    x = var("x", 2, 4, 3, 3)

    def body(emit, x):
        a = emit("median", relax.TupleGetItem(op.median(x, axis=1), 0))
        b = emit("reflected", op.nn.pad(x, [0] * 6 + [1, 1], "edge"))
        c = emit("packed", op.call_dps_packed("elsewhere", [x], x.ty))
        return [emit("loss", op.sum(a) + op.sum(b) + op.sum(c))]

    f = function([x], body)
    origins = {"reflected": Origin("Pad", "/features/pad", ("float64[2,4,3,3]",))}
    with pytest.raises(UnsupportedModelError) as caught:
        differentiate(f, [Request("loss", (x,))], origins=origins)
    found = {d.message: d for d in caught.value.diagnostics}
    assert {m: d.code for m, d in found.items()} == {
        "relax.median has no gradient rule": "AOT-G001",
        "relax.nn.pad has no gradient for pad mode 'edge'": "AOT-G002",
        "relax.call_dps_packed has no gradient rule": "AOT-G001",
    }
    where = found["relax.nn.pad has no gradient for pad mode 'edge'"].where
    assert where == "Pad node '/features/pad' (float64[2,4,3,3])"


def test_problems_behind_problems_are_found() -> None:
    x = var("x", 4)

    def body(emit, x):
        a = emit("inner", relax.TupleGetItem(op.median(x, axis=0, keepdims=True), 0))
        b = emit("outer", relax.TupleGetItem(op.median(a, axis=0), 0))
        return [emit("loss", op.sum(b))]

    with pytest.raises(UnsupportedModelError) as caught:
        differentiate(function([x], body), [Request("loss", (x,))])
    assert len(caught.value.diagnostics) == 2


def test_calls_of_functions_are_refused() -> None:
    x = var("x", 2)
    other = relax.Var("other", relax.FuncType([x.ty], x.ty))
    f = function([x, other], lambda emit, x, other: [emit("loss", op.sum(relax.Call(other, [x])))])
    with pytest.raises(UnsupportedModelError) as caught:
        differentiate(f, [Request("loss", (x,))])
    assert [d.code for d in caught.value.diagnostics] == ["AOT-G003"]


def test_branches_are_refused() -> None:
    x, c = var("x", 2), relax.Var("c", relax.TensorType((), "bool"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, c]):
        y = builder.emit(relax.If(c, op.exp(x), op.sin(x)), name_hint="y")
        builder.emit_func_output(builder.emit(op.sum(y), name_hint="loss"))
    with pytest.raises(UnsupportedModelError) as caught:
        differentiate(builder.get()["main"], [Request("loss", (x,))])
    assert [d.code for d in caught.value.diagnostics] == ["AOT-G003"]


@pytest.mark.parametrize(
    ("value", "wrt", "code"),
    [
        ("nowhere", "x", "AOT-G004"),
        ("wide", "x", "AOT-G004"),
        ("index", "x", "AOT-G004"),
        ("loss", "nowhere", "AOT-G005"),
        ("loss", "index", "AOT-G005"),
    ],
)
def test_senseless_requests(value: str, wrt: str, code: str) -> None:
    def body(emit, x):
        emit("index", op.argmax(x))
        return [emit("loss", op.sum(emit("wide", op.exp(x))))]

    with pytest.raises(UsageError) as caught:
        differentiate(function([var("x", 3)], body), [Request(value, (wrt,))])
    assert caught.value.diagnostics[0].code == code


def test_origins_are_inherited_from_the_node_whose_rule_it_was() -> None:
    f = mlp()
    origins = {n: Origin("Node", n) for n in ("fc", "biased", "act", "loss")}
    inherited: dict[str, Origin] = {}
    after = differentiate(
        f, [Request("loss", (f.params[1],))], origins=origins, inherited=inherited
    )
    new = {n.partition(":")[0] for n in operators(after)} - set(origins)
    assert {n: inherited[n].node for n in new} == {
        "d_act": "loss",
        "d_biased_greater": "act",
        "d_biased": "act",
        "d_w_permute_dims": "fc",
        "d_w": "fc",
    }


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x: op.exp(x), None),
        (lambda x: op.argmax(x), None),
        (lambda x: op.median(x, axis=0), "has no gradient rule"),
        (lambda x: op.nn.pad(x, [1, 1, 0, 0], "edge"), "has no gradient for pad mode 'edge'"),
        (lambda x: relax.Call(relax.ExternFunc("f"), [x], ty_args=[x.ty]), "is a function, whose"),
    ],
)
def test_differentiable_gives_a_reason(call, reason: str | None) -> None:
    found = differentiable(call(var("x", 2, 3)))
    assert (found is None) if reason is None else (found or "").startswith(reason)


def test_the_function_given_is_not_changed() -> None:
    f = mlp()
    before = f.script(show_meta=True)
    differentiate(f, [Request("loss", (f.params[1],))])
    assert f.script(show_meta=True) == before
