"""Type rule and TE body in, a Relax operator out, on a par with TVM's own.

    scale = define("aotrain.scale", infer=lambda call: call.args[0].ty, legalize=_scale)
    bb.emit(scale(x, factor=2.0))

`LegalizeOps` lowers it with `legalize(bb, call) -> Expr`, usually `bb.call_te(te_function, ...)`.
Attributes are numbers, strings or flat tuples of them, read back as `call.attrs["factor"]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op, register_op_attr

Infer = Callable[[relax.Call], Any]
Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def define(
    name: str, *, inputs: int, infer: Infer, legalize: Legalize
) -> Callable[..., relax.Call]:
    """Register the pure operator `name` with `inputs` tensor arguments; returns its call maker."""
    register_op_attr(name, "FInferType", lambda call, _: infer(call))
    register_op_attr(name, "FLegalize", legalize)
    register_op_attr(name, "FPurity", True)
    op = Op.get(name)
    op.set_num_inputs(inputs)

    def make(*args: relax.Expr, **attrs: Any) -> relax.Call:
        assert len(args) == inputs, f"{name} takes {inputs} tensors, not {len(args)}"
        return relax.Call(op, list(args), tvm.ir.make_node("ir.DictAttrs", **attrs))

    make.__name__ = name.rpartition(".")[2]
    make.__doc__ = f"Call of {name}; `bb.emit` or `bb.normalize` it to give it its type."
    return make
