"""MatMul, Gemm and Einsum in, Relax matmuls out."""

from __future__ import annotations

import math

from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.builder import shape_of
from aotrain.importer.node import Converter, Node
from aotrain.importer.problems import Unsupported


def _matmul(n: Node) -> relax.Expr:
    return n.emit(R.matmul(n.x(0), n.x(1)))


def _gemm(n: Node) -> relax.Expr:
    """alpha * A' B' + beta * C."""
    a, b = n.x(0), n.x(1)
    alpha, beta = float(n.attr("alpha", 1.0)), float(n.attr("beta", 1.0))
    if n.attr("transA", 0):
        a = n.emit(R.permute_dims(a, [1, 0]))
    if n.attr("transB", 0):
        b = n.emit(R.permute_dims(b, [1, 0]))
    y = n.emit(R.matmul(a, b))
    if alpha != 1.0:
        y = n.emit(R.multiply(y, n.scalar(alpha)))
    if n.has(2) and beta != 0.0:
        c = n.x(2) if beta == 1.0 else n.emit(R.multiply(n.x(2), n.scalar(beta)))
        y = n.emit(R.add(y, c))
    return y


def _einsum(n: Node) -> relax.Expr:
    """Operands pairwise, left to right: batched matmuls with transposes and sums around."""
    equation = n.attr("equation").replace(" ", "")
    terms, result = _terms(equation, [n.rank(i) for i in range(len(n.inputs))])
    operands = [(n.x(i), term) for i, term in enumerate(terms)]
    while len(operands) > 1:
        first, second, *rest = operands
        needed = set(result).union(*(term for _, term in rest)) if rest else set(result)
        operands = [_contract(n, first, second, needed), *rest]
    x, term = operands[0]
    x, term = _sum_out(n, x, term, set(result))
    return _arrange(n, x, term, result)


def _terms(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Labels of every operand and of the result; an ellipsis becomes upper-case labels."""
    left, arrow, result = equation.partition("->")
    spare = [c for c in "ZYXWVUTS" if c not in equation]
    terms = []
    widest = 0
    for term, rank in zip(left.split(","), ranks, strict=True):
        width = rank - len(term.replace("...", "")) if "..." in term else 0
        widest = max(widest, width)
        terms.append(term.replace("...", "".join(spare[:width][::-1])))
    dots = "".join(spare[:widest][::-1])
    if not arrow:
        labels = "".join(terms)
        result = dots + "".join(c for c in sorted(set(labels) - set(dots)) if labels.count(c) == 1)
    if any(len(set(term)) != len(term) for term in terms):
        raise Unsupported("Einsum with a label twice in one operand is not supported")
    return terms, result.replace("...", dots)


def _sum_out(n: Node, x: relax.Expr, term: str, keep: set[str]) -> tuple[relax.Expr, str]:
    axes = [i for i, c in enumerate(term) if c not in keep]
    if axes:
        x = n.emit(R.sum(x, axes))
    return x, "".join(c for c in term if c in keep)


def _arrange(n: Node, x: relax.Expr, term: str, wanted: str) -> relax.Expr:
    order = [term.index(c) for c in wanted]
    return x if order == sorted(order) else n.emit(R.permute_dims(x, order))


def _contract(
    n: Node, first: tuple[relax.Expr, str], second: tuple[relax.Expr, str], needed: set[str]
) -> tuple[relax.Expr, str]:
    """[batch, rows, k] x [batch, k, cols]; a label of one operand alone is summed beforehand."""
    a, left = _sum_out(n, *first, needed | set(second[1]))
    b, right = _sum_out(n, *second, needed | set(left))
    batch = "".join(c for c in left if c in right and c in needed)
    inner = "".join(c for c in left if c in right and c not in needed)
    rows = "".join(c for c in left if c not in right)
    cols = "".join(c for c in right if c not in left)
    size = dict(zip(left, shape_of(a), strict=True))
    for label, extent in zip(right, shape_of(b), strict=True):
        if size.setdefault(label, extent) != extent:
            raise Unsupported(f"Einsum: label {label} has two sizes")

    def dims(*groups: str) -> list[int]:
        return [math.prod(size[c] for c in group) for group in groups]

    b_size = [size[c] for c in batch]
    a = n.emit(R.reshape(_arrange(n, a, left, batch + rows + inner), b_size + dims(rows, inner)))
    b = n.emit(R.reshape(_arrange(n, b, right, batch + inner + cols), b_size + dims(inner, cols)))
    y = n.emit(R.matmul(a, b))
    term = batch + rows + cols
    return n.emit(R.reshape(y, [size[c] for c in term])), term


TABLE: dict[str, Converter] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
}
