"""Matrix products of transposed operands in, products that read them where they stand out.

    wt = permute_dims(w, [1, 0])
    y  = matmul(x, wt)                 ->   y  = gemm(x, w; transpose_b)

    g  = matmul(permute_dims(x), dy)   ->   dw = gemm(dy, x; transpose_a)
    dw = permute_dims(g)

A transposed operand that many products read (an unrolled LSTM's weight) stays: transposed once, it
spares each of them a packing.

Not handled: transposes that move a leading axis (attention's split into heads), 1-D operands.
"""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from aotrain.ops.gemm import gemm
from aotrain.passes.names import bindings

Product = tuple[relax.Expr, relax.Expr, bool, bool]
"""Operands, and whether each is read transposed."""

MANY = 4
"""Readers from which on a transposed operand is worth its memory."""


@tvm.transform.module_pass(opt_level=0, name="FoldTransposes")
class FoldTransposes:
    """Fold both ways; what becomes unused is left for dead code elimination."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function of `module`."""
        result = tvm.IRModule(dict(module.functions.items()))
        for name, function in module.functions.items():
            if isinstance(function, relax.Function):
                result.update_func(name, _Folder(module, function).visit_expr(function))
        return result


@mutator
class _Folder(PyExprMutator):
    def __init__(self, module: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(module)
        self.uses = _uses(function)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        product = self._product(call)
        if product is None and _swaps_last_two(call):
            operand = call.args[0]
            inner = self._definition(operand)
            found = self._product(inner) if inner is not None else None
            if found and self.uses[operand] <= 1:
                a, b, flip_a, flip_b = found
                product = b, a, not flip_b, not flip_a
        if product is None:
            return call
        a, b, flip_a, flip_b = product
        a, flip_a = self._through(a, flip_a)
        b, flip_b = self._through(b, flip_b)
        if not flip_a and not flip_b:
            return relax.op.matmul(a, b)
        return gemm(a, b, transpose_a=flip_a, transpose_b=flip_b)

    def _product(self, call: relax.Call) -> Product | None:
        """`call` as a product of matrices, None when it is something else."""
        if _is(call, "aotrain.gemm"):
            flips = bool(call.attrs["transpose_a"]), bool(call.attrs["transpose_b"])
            return call.args[0], call.args[1], *flips
        if _is(call, "relax.matmul") and all(len(arg.ty.shape) >= 2 for arg in call.args):
            same = len({str(ty.dtype) for ty in (call.ty, *(arg.ty for arg in call.args))}) == 1
            return (call.args[0], call.args[1], False, False) if same else None
        return None

    def _through(self, operand: relax.Expr, flip: bool) -> tuple[relax.Expr, bool]:
        """`operand` without the swaps of its last two axes, unless many share it swapped."""
        inner, flipped = operand, flip
        call = self._definition(operand)
        while call is not None and _swaps_last_two(call):
            inner, flipped = call.args[0], not flipped
            call = self._definition(inner)
        shared = flipped != flip and self.uses[operand] >= MANY
        return (operand, flip) if shared else (inner, flipped)

    def _definition(self, operand: relax.Expr) -> relax.Call | None:
        value = self.builder_.lookup_binding(operand) if isinstance(operand, relax.Var) else None
        return value if isinstance(value, relax.Call) else None


def _uses(function: relax.Function) -> Counter[relax.Var]:
    """How often each variable is read."""
    found: Counter[relax.Var] = Counter()

    def count(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var):
            found[expr] += 1

    for binding in bindings(function):
        relax.analysis.post_order_visit(binding.value, count)
    relax.analysis.post_order_visit(function.body.body, count)
    return found


def _is(call: relax.Call, name: str) -> bool:
    return getattr(call.op, "name", "") == name


def _swaps_last_two(call: relax.Call) -> bool:
    if not _is(call, "relax.permute_dims"):
        return False
    rank = len(call.args[0].ty.shape)
    axes = call.attrs.axes
    order = [*range(rank)][::-1] if axes is None else [int(a) % rank for a in axes]
    return rank >= 2 and order == [*range(rank - 2), rank - 1, rank - 2]
