"""LSTM, GRU and RNN in, unrolled Relax matmuls and gates out: T steps, all static.

The input's projection is one matmul for all steps, [T B, I] x [I, G H]; each step adds
h x [H, G H].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.builder import shape_of
from aotrain.importer.node import Converter, Node, np_dtype
from aotrain.importer.problems import Unsupported

Activation = Callable[[relax.Expr], relax.Expr]


@dataclass
class Cell:
    """One direction's weights and activations; B is the batch, H the hidden size, G the gates."""

    n: Node
    hidden: int
    recurrent: relax.Expr  # [H, G H]
    bias: relax.Expr | None  # [G H], of the recurrence; None where it is in the projection
    peephole: list[relax.Expr] | None  # three of [H]
    f: list[Activation]

    def split(self, x: relax.Expr, count: int) -> list[relax.Expr]:
        """[B, count H] to `count` of [B, H]."""
        parts = self.n.emit(R.split(x, count, 1))
        return [self.n.emit(relax.TupleGetItem(parts, i)) for i in range(count)]

    def add(self, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        """a + b."""
        return self.n.emit(R.add(a, b))

    def mul(self, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        """a * b."""
        return self.n.emit(R.multiply(a, b))


Step = Callable[[Cell, relax.Expr, "list[relax.Expr]"], "list[relax.Expr]"]


def _lstm_step(cell: Cell, projected: relax.Expr, state: list[relax.Expr]) -> list[relax.Expr]:
    """Gates in the order i, o, f, c; peepholes in the order i, o, f."""
    h, c = state
    gates = cell.add(projected, cell.n.emit(R.matmul(h, cell.recurrent)))
    i, o, f, g = cell.split(gates, 4)
    if cell.peephole:
        i = cell.add(i, cell.mul(cell.peephole[0], c))
        f = cell.add(f, cell.mul(cell.peephole[2], c))
    i, g = cell.f[0](i), cell.f[1](g)
    f = cell.n.emit(R.subtract(cell.n.scalar(1), i)) if _coupled(cell.n) else cell.f[0](f)
    c = cell.add(cell.mul(f, c), cell.mul(i, g))
    if cell.peephole:
        o = cell.add(o, cell.mul(cell.peephole[1], c))
    return [cell.mul(cell.f[0](o), cell.f[2](c)), c]


def _coupled(n: Node) -> bool:
    return bool(n.attr("input_forget", 0))


def _gru_step(cell: Cell, projected: relax.Expr, state: list[relax.Expr]) -> list[relax.Expr]:
    """Gates in the order z, r, h; the reset applies before or after the recurrence's matmul."""
    n, (h,), size = cell.n, state, cell.hidden
    xz, xr, xh = cell.split(projected, 3)
    if n.attr("linear_before_reset", 0):
        carried = n.emit(R.matmul(h, cell.recurrent))
        carried = cell.add(carried, cell.bias) if cell.bias is not None else carried
        hz, hr, hh = cell.split(carried, 3)
        z, r = cell.f[0](cell.add(xz, hz)), cell.f[0](cell.add(xr, hr))
        new = cell.f[1](cell.add(xh, cell.mul(r, hh)))
    else:
        gates = n.emit(R.strided_slice(cell.recurrent, [1], [0], [2 * size]))
        hz, hr = cell.split(n.emit(R.matmul(h, gates)), 2)
        z, r = cell.f[0](cell.add(xz, hz)), cell.f[0](cell.add(xr, hr))
        last = n.emit(R.strided_slice(cell.recurrent, [1], [2 * size], [3 * size]))
        new = cell.f[1](cell.add(xh, n.emit(R.matmul(cell.mul(r, h), last))))
    keep = n.emit(R.subtract(n.scalar(1), z))
    return [cell.add(cell.mul(keep, new), cell.mul(z, h))]


def _rnn_step(cell: Cell, projected: relax.Expr, state: list[relax.Expr]) -> list[relax.Expr]:
    carried = cell.n.emit(R.matmul(state[0], cell.recurrent))
    return [cell.f[0](cell.add(projected, carried))]


@dataclass(frozen=True)
class Kind:
    """What tells the three operators apart."""

    gates: int
    states: int
    activations: tuple[str, ...]
    step: Step


KINDS = {
    "LSTM": Kind(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
    "GRU": Kind(3, 1, ("Sigmoid", "Tanh"), _gru_step),
    "RNN": Kind(1, 1, ("Tanh",), _rnn_step),
}


def _activation(n: Node, name: str, alpha: float | None, beta: float | None) -> Activation:
    def scaled(x: relax.Expr, a: float, b: float) -> relax.Expr:
        return n.emit(R.add(n.emit(R.multiply(x, n.scalar(a))), n.scalar(b)))

    def clipped(x: relax.Expr) -> relax.Expr:
        a, b = 0.2 if alpha is None else alpha, 0.5 if beta is None else beta
        return n.emit(R.minimum(n.emit(R.maximum(scaled(x, a, b), n.scalar(0))), n.scalar(1)))

    def softsign(x: relax.Expr) -> relax.Expr:
        return n.emit(R.divide(x, n.emit(R.add(n.emit(R.abs(x)), n.scalar(1)))))

    table: dict[str, Activation] = {
        "sigmoid": lambda x: n.emit(R.sigmoid(x)),
        "tanh": lambda x: n.emit(R.tanh(x)),
        "relu": lambda x: n.emit(R.nn.relu(x)),
        "leakyrelu": lambda x: n.emit(R.nn.leakyrelu(x, 0.01 if alpha is None else alpha)),
        "softsign": softsign,
        "affine": lambda x: scaled(x, 1.0 if alpha is None else alpha, beta or 0.0),
        "hardsigmoid": clipped,
    }
    if name.lower() not in table:
        raise Unsupported(f"{n.op_type} with activation {name} is not supported")
    return table[name.lower()]


def _activations(n: Node, kind: Kind, directions: int) -> list[Activation]:
    names = n.attr("activations") or list(kind.activations) * directions
    names = [v.decode() if isinstance(v, bytes) else v for v in names]
    alphas, betas = list(n.attr("activation_alpha") or []), list(n.attr("activation_beta") or [])
    found = []
    for name in names:
        takes_alpha = name.lower() in ("leakyrelu", "hardsigmoid", "affine")
        alpha = alphas.pop(0) if alphas and takes_alpha else None
        beta = betas.pop(0) if betas and name.lower() in ("hardsigmoid", "affine") else None
        found.append(_activation(n, name, alpha, beta))
    return found


def _direction_slice(n: Node, index: int, direction: int) -> relax.Expr | None:
    """Input `index`, [D, ...], at one direction; None where it is absent."""
    if not n.has(index):
        return None
    x = n.x(index)
    count, *rest = shape_of(x)
    if count > 1:
        x = n.emit(R.strided_slice(x, [0], [direction], [direction + 1]))
    return n.emit(R.reshape(x, rest))


def _weights(
    n: Node, kind: Kind, hidden: int, direction: int, f: list[Activation]
) -> tuple[relax.Expr, relax.Expr | None, Cell]:
    """(input weights [I, G H], bias of the projection [G H] or None, Cell)."""
    w, r = (_direction_slice(n, i, direction) for i in (1, 2))
    w, r = (n.emit(R.permute_dims(v, [1, 0])) for v in (w, r))
    both, width = _direction_slice(n, 3, direction), kind.gates * hidden
    first = second = None
    if both is not None:
        first, second = (
            n.emit(R.strided_slice(both, [0], [k * width], [(k + 1) * width])) for k in (0, 1)
        )
        if not n.attr("linear_before_reset", 0):
            first, second = n.emit(R.add(first, second)), None
    peephole = _direction_slice(n, 7, direction)
    peepholes = None
    if peephole is not None:
        peepholes = [
            n.emit(R.strided_slice(peephole, [0], [k * hidden], [(k + 1) * hidden]))
            for k in range(3)
        ]
    return w, first, Cell(n, hidden, r, second, peepholes, f)


def _run(
    n: Node, kind: Kind, x: relax.Expr, direction: int, reverse: bool, f: list[Activation]
) -> tuple[list[relax.Expr], list[relax.Expr]]:
    """One direction over [T, B, I]: hidden states in the order of time, and the last states."""
    steps, batch, size = shape_of(x)
    hidden = n.shape(2)[2]
    w, bias, cell = _weights(n, kind, hidden, direction, f)
    flat = n.emit(R.matmul(n.emit(R.reshape(x, (steps * batch, size))), w))
    flat = flat if bias is None else n.emit(R.add(flat, bias))
    if steps > 1:
        parts = n.emit(R.split(flat, steps, 0))
        projected = [n.emit(relax.TupleGetItem(parts, t)) for t in range(steps)]
    else:
        projected = [flat]
    state = []
    for k in range(kind.states):
        initial = _direction_slice(n, 5 + k, direction)
        if initial is None:
            initial = n.builder.constant(np.zeros((batch, hidden), np_dtype(n.dtype())))
        state.append(initial)
    outputs: list[relax.Expr] = []
    for t in reversed(range(steps)) if reverse else range(steps):
        state = kind.step(cell, projected[t], state)
        outputs.append(state[0])
    return (outputs[::-1] if reverse else outputs), state


def _recurrent(n: Node) -> tuple[relax.Expr, ...]:
    """Y [T, D, B, H], Y_h and Y_c [D, B, H]; with layout 1 the batch comes first."""
    kind, direction = KINDS[n.op_type], n.attr("direction", "forward")
    _check(n)
    batch_first = bool(n.attr("layout", 0))
    if batch_first:
        n.inputs[5:7] = [
            v if v is None else n.emit(R.permute_dims(n.x(5 + k), [1, 0, 2]))
            for k, v in enumerate(n.inputs[5:7])
        ]
    x = n.emit(R.permute_dims(n.x(0), [1, 0, 2])) if batch_first else n.x(0)
    reverses = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    f = _activations(n, kind, len(reverses))
    per = len(kind.activations)
    runs = [
        _run(n, kind, x, d, reverse, f[d * per : (d + 1) * per])
        for d, reverse in enumerate(reverses)
    ]
    steps = len(runs[0][0])
    results: list[relax.Expr] = []
    if n.wants(0):
        rows = [n.emit(R.stack([run[0][t] for run in runs], 0)) for t in range(steps)]
        results.append(n.emit(R.stack(rows, 0)))  # [T, D, B, H]
    else:
        results.append(None)
    results += [n.emit(R.stack([run[1][k] for run in runs], 0)) for k in range(kind.states)]
    if batch_first:
        orders = [[2, 0, 1, 3], [1, 0, 2], [1, 0, 2]]
        results = [
            r if r is None else n.emit(R.permute_dims(r, order))
            for r, order in zip(results, orders, strict=False)
        ]
    return tuple(results)


def _check(n: Node) -> None:
    if n.attr("clip") is not None:
        raise Unsupported(f"{n.op_type} with clip is not supported")
    if n.has(4):
        time = n.shape()[1 if n.attr("layout", 0) else 0]
        if not np.all(n.known(4, "sequence_lens") == time):
            raise Unsupported(f"{n.op_type} with sequences of different lengths is not supported")


TABLE: dict[str, Converter] = dict.fromkeys(KINDS, _recurrent)
