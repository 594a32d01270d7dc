"""Parameter, gradient, slots and scalars in, their new values out: one fused kernel a parameter.

    adamw(p, g, m, v, lr, beta1, beta2, eps, weight_decay, c1, c2) -> (p', m', v')

Every kernel is one block that loads all it needs of one element before it stores any of it, so that
the new values may share the bytes of the old ones. Scalars are 0-d float32 tensors, read at run
time. Arithmetic is that of `torch.optim`, in float32, or in float64 where the parameter is that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from aotrain.ops.registry import define

Body = Callable[..., Sequence[Any]]


def update_kernel(name: str, args: dict[str, Any], results: dict[str, Any], body: Body) -> Any:
    """PrimFunc of one block: load an element of each argument, `body(...)`, store each result.

    `args` and `results` map buffer names to tensor types; the results and the arguments of their
    rank share one shape, the other arguments are 0-d. `body` takes and returns expressions.
    """
    shape = [tirx.IntImm("int64", int(d)) for d in next(iter(results.values())).shape]
    with IRBuilder() as builder, T.prim_func(private=True, s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        sources = [T.arg(n, _buffer(ty)) for n, ty in args.items()]
        sinks = [T.arg(n, _buffer(ty)) for n, ty in results.items()]
        with ExitStack() as stack:
            loops = _vars(stack.enter_context(T.grid(*shape))) if shape else []
            stack.enter_context(T.sblock(name))
            axes = _vars(T.axis.remap("S" * len(loops), loops)) if loops else []
            loads = [b[tuple(axes if b.shape else ())] for b in sources]
            T.reads(loads)
            T.writes([b[tuple(axes)] for b in sinks])
            values = [T.bind(load) for load in loads]
            for sink, value in zip(sinks, body(*values), strict=True):
                T.buffer_store(sink, _cast(value, str(sink.dtype)), axes)
    return builder.get()


def _buffer(ty: relax.TensorType) -> Any:
    # int64 extents, as in every PrimFunc that Relax legalises: FuseTIR compares buffer types
    return T.Buffer([tirx.IntImm("int64", int(d)) for d in ty.shape], str(ty.dtype))


def _vars(frame: Any) -> list[tirx.Var]:
    return [frame] if isinstance(frame, tirx.Var) else list(frame)


def _cast(value: Any, dtype: str) -> Any:
    return value if str(value.ty.dtype) == dtype else T.bind(tirx.Cast(dtype, value))


def _define_update(
    name: str, slots: Sequence[str], scalars: Sequence[str], body: Body
) -> Callable[..., relax.Call]:
    """Operator `aotrain.<name>(p, g, *slots, *scalars) -> (p', *slots')`, or p' without slots."""
    names = ["p", "g", *slots, *scalars]
    kept = [0, *range(2, 2 + len(slots))]  # positions of what is updated

    def infer(call: relax.Call) -> relax.Type:
        types = [call.args[i].ty for i in kept]
        return relax.TupleType(types) if slots else types[0]

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        types = [arg.ty for arg in call.args]
        wide = "float64" if str(types[0].dtype) == "float64" else "float32"

        def widened(*values: Any) -> Sequence[Any]:
            return body(*(_cast(v, wide) for v in values))

        kernel = update_kernel(
            name,
            dict(zip(names, types, strict=True)),
            {f"new_{names[i]}": types[i] for i in kept},
            widened,
        )
        return relax.call_tir(bb.add_func(kernel, name), relax.Tuple(call.args), _fields(call.ty))

    return define(f"aotrain.{name}", inputs=len(names), infer=infer, legalize=legalize)


def _fields(ty: Any) -> Sequence[Any]:
    return list(ty.fields) if isinstance(ty, tvm.ir.TupleType) else [ty]


def _sgd(p: Any, g: Any, lr: Any, weight_decay: Any) -> Sequence[Any]:
    return [p - lr * (g + weight_decay * p)]


def _momentum(
    p: Any, g: Any, b: Any, lr: Any, momentum: Any, weight_decay: Any, gain: Any
) -> Sequence[Any]:
    b = T.bind(momentum * b + gain * (g + weight_decay * p))
    return [p - lr * b, b]


def _nesterov(p: Any, g: Any, b: Any, lr: Any, momentum: Any, weight_decay: Any) -> Sequence[Any]:
    g = T.bind(g + weight_decay * p)
    b = T.bind(momentum * b + g)
    return [p - lr * (g + momentum * b), b]


def _adam_step(p: Any, g: Any, m: Any, v: Any, hyper: Sequence[Any]) -> Sequence[Any]:
    """Algorithm 1 of Kingma and Ba, 2015; c1 and c2 are 1 - beta1^t and 1 - beta2^t."""
    lr, beta1, beta2, eps, c1, c2 = hyper
    m = T.bind(m + (1 - beta1) * (g - m))
    v = T.bind(beta2 * v + (1 - beta2) * g * g)
    return [p - lr / c1 * m / (tirx.sqrt(v) / tirx.sqrt(c2) + eps), m, v]


def _adam(
    p: Any, g: Any, m: Any, v: Any, lr: Any, beta1: Any, beta2: Any, eps: Any,
    weight_decay: Any, c1: Any, c2: Any,
) -> Sequence[Any]:  # fmt: skip
    g = T.bind(g + weight_decay * p)
    return _adam_step(p, g, m, v, (lr, beta1, beta2, eps, c1, c2))


def _adamw(
    p: Any, g: Any, m: Any, v: Any, lr: Any, beta1: Any, beta2: Any, eps: Any,
    weight_decay: Any, c1: Any, c2: Any,
) -> Sequence[Any]:  # fmt: skip
    """Loshchilov and Hutter, 2019: the decay is decoupled from the gradient."""
    p = T.bind(p * (1 - lr * weight_decay))
    return _adam_step(p, g, m, v, (lr, beta1, beta2, eps, c1, c2))


_ADAM_SCALARS = ("lr", "beta1", "beta2", "eps", "weight_decay", "c1", "c2")

sgd = _define_update("sgd", (), ("lr", "weight_decay"), _sgd)
momentum = _define_update("momentum", ("b",), ("lr", "momentum", "weight_decay", "gain"), _momentum)
nesterov = _define_update("nesterov", ("b",), ("lr", "momentum", "weight_decay"), _nesterov)
adam = _define_update("adam", ("m", "v"), _ADAM_SCALARS, _adam)
adamw = _define_update("adamw", ("m", "v"), _ADAM_SCALARS, _adamw)


def _define_scalar(name: str, names: Sequence[str], body: Body) -> Callable[..., relax.Call]:
    """Operator on 0-d tensors whose float32 result is `body(*arguments)`."""
    result = relax.TensorType((), "float32")

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        args = {n: arg.ty for n, arg in zip(names, call.args, strict=True)}
        kernel = update_kernel(name, args, {"out": result}, lambda *v: [body(*v)])
        return relax.call_tir(bb.add_func(kernel, name), relax.Tuple(call.args), result)

    return define(
        f"aotrain.{name}", inputs=len(names), infer=lambda call: result, legalize=legalize
    )


bias_correction = _define_scalar(
    "bias_correction", ("c", "beta"), lambda c, b: c + (1 - b) * (1 - c)
)
"""c, beta -> c + (1 - beta)(1 - c): from 0, it is 1 - beta^t after t steps, and true when beta
changes on the way."""

momentum_gain = _define_scalar(
    "momentum_gain",
    ("step", "dampening"),
    lambda step, d: tirx.Select(step == 0, tirx.const(1, "float32"), 1 - d),
)
"""step (int64), dampening -> the factor of the gradient in the momentum buffer: 1 at the first
step, 1 - dampening later, since `torch.optim.SGD` starts its buffer as the gradient itself."""
