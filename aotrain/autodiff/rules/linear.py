"""Rules of matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from aotrain.autodiff.vjp import Gradients, NoGradientError, Vjp, rule, shape, unbroadcast

op = relax.op


def _transposed(x: relax.Expr, ndim: int) -> relax.Expr:
    """The last two axes swapped."""
    return op.permute_dims(x, [*range(ndim - 2), ndim - 1, ndim - 2])


@rule("relax.matmul")
def _matmul(v: Vjp) -> Gradients:
    """c [.., M, N] = a [.., M, K] · b [.., K, N]; a 1-D operand is a row or a column."""
    a, b = v.args
    (da, db), (na, nb) = (shape(a), shape(b)), (len(shape(a)), len(shape(b)))
    a2, b2, dims = a, b, list(shape(v.y))
    if na == 1:
        a2, da = op.reshape(a, (1, *da)), (1, *da)
        dims.insert(len(dims) - (nb > 1), 1)
    if nb == 1:
        b2, db = op.reshape(b, (*db, 1)), (*db, 1)
        dims.append(1)
    dc = v.dy if dims == list(shape(v.y)) else op.reshape(v.dy, dims)
    if len(db) == 2 and len(da) > 2:  # one weight for a batch: a single product over all rows
        return _shared_weight(v, a2, b2, dc, da, db)
    lead = dims[:-2]
    grad_a = op.matmul(dc, _transposed(b2, len(db)))  # [lead, M, K]
    grad_b = op.matmul(_transposed(a2, len(da)), dc)  # [lead, K, N]
    return [
        _fold(grad_a, [*lead, *da[-2:]], da, a),
        _fold(grad_b, [*lead, *db[-2:]], db, b),
    ]


def _shared_weight(
    v: Vjp,
    a: relax.Expr,
    b: relax.Expr,
    dc: relax.Expr,
    da: Sequence[int],
    db: Sequence[int],
) -> Gradients:
    """b [K, N] serves every row of a [.., M, K]: db = aᵀ·dc over all rows at once."""
    rows = 1
    for d in da[:-1]:
        rows *= d
    flat_a, flat_c = op.reshape(a, (rows, da[-1])), op.reshape(dc, (rows, db[-1]))
    grad_a = op.matmul(dc, _transposed(b, 2))
    grad_b = op.matmul(_transposed(flat_a, 2), flat_c)
    return [grad_a, op.reshape(grad_b, shape(v.args[1])) if len(shape(v.args[1])) == 1 else grad_b]


def _fold(
    gradient: relax.Expr, source: Sequence[int], padded: Sequence[int], target: relax.Expr
) -> relax.Expr:
    """Sum over broadcast batch axes, then drop the axis that a 1-D operand was given."""
    like = relax.Var("like", relax.TensorType(padded, target.ty.dtype.dtype))
    summed = unbroadcast(gradient, source, like)
    return summed if len(padded) == len(shape(target)) else op.reshape(summed, shape(target))


@rule("relax.outer")
def _outer(v: Vjp) -> Gradients:
    return [op.matmul(v.dy, v.args[1]), op.matmul(v.args[0], v.dy)]


@rule("relax.einsum")
def _einsum(v: Vjp) -> Gradients:
    """Swap an operand's subscript with the output's; letters of it alone are broadcast back."""
    if not isinstance(v.x, relax.Tuple):
        raise NoGradientError("has no gradient for operands in a bound Tuple")
    operands = list(v.x.fields)
    inputs, _, output = str(v.attrs.subscripts).replace(" ", "").partition("->")
    terms = inputs.split(",")
    if "." in inputs or any(len(set(t)) != len(t) for t in terms):
        raise NoGradientError("has no gradient for ellipses or repeated letters in a term")
    if "->" not in str(v.attrs.subscripts):
        letters = sorted(set(inputs) - {","})
        output = "".join(c for c in letters if inputs.count(c) == 1)
    return [[_einsum_operand(v, operands, terms, output, i) for i in range(len(operands))]]


def _einsum_operand(
    v: Vjp, operands: list[relax.Expr], terms: list[str], output: str, index: int
) -> relax.Expr:
    others = [i for i in range(len(terms)) if i != index]
    known = set(output).union(*(terms[i] for i in others))
    kept = "".join(c for c in terms[index] if c in known)
    subscripts = ",".join([output, *(terms[i] for i in others)]) + "->" + kept
    part = op.einsum((v.dy, *(operands[i] for i in others)), subscripts)
    dims = shape(operands[index])
    if kept == terms[index]:
        return part
    ones = [d if c in known else 1 for c, d in zip(terms[index], dims, strict=True)]
    return op.broadcast_to(op.reshape(part, ones), dims)
