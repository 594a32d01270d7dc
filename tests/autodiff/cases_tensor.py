"""Gradient cases: reductions, scans, moves, indices and products."""

from __future__ import annotations

import numpy as np

from tests.autodiff.case import Case, apart, array, integers, uniform

AXES = [None, 0, [1], [0, 2], [-1]]


def _reduction(name: str, axis, keepdims: bool, torch) -> Case:
    return Case(
        f"{name} {axis} {keepdims}",
        lambda r, x: getattr(r.op, name)(x, axis=axis, keepdims=keepdims),
        lambda t, x: torch(t, x, _all(axis), keepdims),
        (apart(2, 3, 4),),
    )


def _all(axis):
    return [0, 1, 2] if axis is None else [axis] if isinstance(axis, int) else axis


REDUCE = [
    *[
        _reduction(name, axis, i % 2 == 0, torch)
        for name, torch in {
            "sum": lambda t, x, a, k: t.sum(x, a, keepdim=k),
            "mean": lambda t, x, a, k: t.mean(x, a, keepdim=k),
            "variance": lambda t, x, a, k: t.var(x, a, correction=0, keepdim=k),
            "std": lambda t, x, a, k: t.std(x, a, correction=0, keepdim=k),
            "max": lambda t, x, a, k: t.amax(x, a, keepdim=k),
            "min": lambda t, x, a, k: t.amin(x, a, keepdim=k),
        }.items()
        for i, axis in enumerate(AXES)
    ],
    *[
        Case(
            f"prod {axis}",
            lambda r, x, axis=axis: r.op.prod(x, axis=axis),
            lambda t, x, axis=axis: t.prod(x) if axis is None else t.prod(x, axis),
            (uniform(0.5, 1.5, 2, 3, 2),),
        )
        for axis in (None, 0, 1, -1)
    ],
    Case("sum keeps", lambda r, x: r.op.sum(x, keepdims=True), lambda t, x: t.sum(x), ((2, 3),)),
    Case(
        "prod of zeros",
        lambda r, x: r.op.prod(x, axis=1),
        lambda t, x: t.prod(x, 1),
        (np.array([[0.0, 2, 3], [0, 0, 4], [1, 2, 3]]),),
    ),
    Case(
        "max at ties",
        lambda r, x: r.op.max(x, axis=1),
        lambda t, x: t.amax(x, 1),
        (np.array([[1.0, 3, 3], [2, 2, 2]]),),
        False,
    ),
]

SCAN = [
    *[
        Case(
            f"{name} {axis}",
            lambda r, x, n=name, a=axis: getattr(r.op, n)(x, a),
            lambda t, x, n=name, a=axis: getattr(t, n)(x.reshape(-1) if a is None else x, a or 0),
            (uniform(0.5, 1.5, 2, 3, 4),),
        )
        for name in ("cumsum", "cumprod")
        for axis in (None, 0, 1, 2)
    ],
    Case(
        "cumsum exclusive",
        lambda r, x: r.op.cumsum(x, 1, exclusive=True),
        lambda t, x: t.cumsum(x, 1) - x,
        ((2, 5),),
    ),
    Case(
        "cumprod exclusive",
        lambda r, x: r.op.cumprod(x, 1, exclusive=True),
        lambda t, x: t.cat([t.ones_like(x[:, :1]), t.cumprod(x, 1)[:, :-1]], 1),
        (uniform(0.5, 1.5, 2, 5),),
    ),
    Case(
        "cumprod of zeros",
        lambda r, x: r.op.cumprod(x, 0),
        lambda t, x: t.cumprod(x, 0),
        (array(2, 0, 3, 0, 4),),
    ),
]

MOVE = [
    Case(
        "reshape", lambda r, x: r.op.reshape(x, (4, 6)), lambda t, x: x.reshape(4, 6), ((2, 3, 4),)
    ),
    Case("flatten", lambda r, x: r.op.flatten(x), lambda t, x: x.flatten(), ((2, 3),)),
    Case(
        "batch_flatten",
        lambda r, x: r.op.nn.batch_flatten(x),
        lambda t, x: x.flatten(1),
        ((2, 3, 4),),
    ),
    Case("squeeze", lambda r, x: r.op.squeeze(x, [0, -1]), lambda t, x: x.squeeze(), ((1, 3, 1),)),
    Case("squeeze all", lambda r, x: r.op.squeeze(x), lambda t, x: x.squeeze(), ((1, 3, 1),)),
    Case(
        "expand_dims",
        lambda r, x: r.op.expand_dims(x, [0, -1]),
        lambda t, x: x[None, :, None],
        ((3,),),
    ),
    Case(
        "permute_dims",
        lambda r, x: r.op.permute_dims(x, [2, 0, -2]),
        lambda t, x: x.permute(2, 0, 1),
        ((2, 3, 4),),
    ),
    Case(
        "permute_dims reversed",
        lambda r, x: r.op.permute_dims(x),
        lambda t, x: x.permute(2, 1, 0),
        ((2, 3, 4),),
    ),
    Case(
        "broadcast_to",
        lambda r, x: r.op.broadcast_to(x, (2, 3, 4)),
        lambda t, x: x.expand(2, 3, 4),
        ((3, 1),),
    ),
    Case(
        "collapse_sum_to",
        lambda r, x: r.op.collapse_sum_to(x, (3, 1)),
        lambda t, x: x.sum_to_size(3, 1),
        ((2, 3, 4),),
    ),
    Case(
        "collapse_sum_like",
        lambda r, x: r.op.collapse_sum_like(x, r.op.zeros((3, 1), x.ty.dtype)),
        lambda t, x: x.sum_to_size(3, 1),
        ((2, 3, 4),),
    ),
    Case(
        "layout_transform",
        lambda r, x: r.op.layout_transform(x, lambda i, j: (j // 2, i, j % 2)),
        lambda t, x: x.reshape(3, 2, 2).permute(1, 0, 2),
        ((3, 4),),
    ),
    Case(
        "slice_scatter",
        lambda r, x, u: r.op.slice_scatter(x, u, 1, 6, 2, axis=0),
        lambda t, x, u: t.slice_scatter(x, u, 0, 1, 6, 2),
        ((7, 2), (3, 2)),
    ),
    Case(
        "concat",
        lambda r, a, b, c: r.op.concat([a, b, c], -1),
        lambda t, a, b, c: t.cat([a, b, c], -1),
        ((2, 3), (2, 1), (2, 2)),
    ),
    Case("concat same", lambda r, a: r.op.concat([a, a], 0), lambda t, a: t.cat([a, a]), ((2, 3),)),
    Case(
        "split",
        lambda r, x: r.op.split(x, [2, 3], 1),
        lambda t, x: t.split(x, [2, 1, 3], 1),
        ((2, 6),),
    ),
    Case(
        "split one used",
        lambda r, x: r.TupleGetItem(r.op.split(x, 3, 1), 1),
        lambda t, x: t.split(x, 2, 1)[1],
        ((2, 6),),
    ),
    Case(
        "stack",
        lambda r, a, b: r.op.stack([a, b], 1),
        lambda t, a, b: t.stack([a, b], 1),
        ((2, 3), (2, 3)),
    ),
    Case("tile", lambda r, x: r.op.tile(x, (2, 1, 3)), lambda t, x: x.tile(2, 1, 3), ((2, 3),)),
    Case("tile short", lambda r, x: r.op.tile(x, (2,)), lambda t, x: x.tile(2), ((2, 3),)),
    Case(
        "repeat",
        lambda r, x: r.op.repeat(x, 3, 1),
        lambda t, x: x.repeat_interleave(3, 1),
        ((2, 3, 2),),
    ),
    Case(
        "repeat flat",
        lambda r, x: r.op.repeat(x, 2),
        lambda t, x: x.repeat_interleave(2),
        ((2, 3),),
    ),
    Case("flip", lambda r, x: r.op.flip(x, 1), lambda t, x: x.flip(1), ((2, 3, 2),)),
    Case("triu", lambda r, x: r.op.triu(x, 1), lambda t, x: x.triu(1), ((2, 3, 4),)),
    Case("tril", lambda r, x: r.op.tril(x, -1), lambda t, x: x.tril(-1), ((4, 3),)),
    Case(
        "reverse_sequence",
        lambda r, x, n: r.op.reverse_sequence(x, n, 1, 0),
        None,
        ((2, 4), np.array([2, 4])),
    ),
    Case(
        "meshgrid",
        lambda r, a, b: r.op.meshgrid([a, b]),
        lambda t, a, b: t.meshgrid(a, b, indexing="ij"),
        ((3,), (2,)),
    ),
    Case(
        "slice",
        lambda r, x: r.op.strided_slice(x, [0, 2], [1, 0], [3, 3]),
        lambda t, x: x[1:3, :, 0:3],
        ((4, 2, 5),),
    ),
    Case(
        "slice steps",
        lambda r, x: r.op.strided_slice(x, [0, 1], [0, 1], [5, 7], [2, 3]),
        lambda t, x: x[0:5:2, 1:7:3],
        ((5, 7),),
    ),
    Case(
        "slice backwards",
        lambda r, x: r.op.strided_slice(x, [0], [6], [0], [-2]),
        lambda t, x: x.flip(0)[0:6:2],
        ((7, 2),),
    ),
    Case(
        "slice clamped",
        lambda r, x: r.op.strided_slice(x, [0], [-3], [2147483647]),
        lambda t, x: x[-3:],
        ((7,),),
    ),
    *[
        Case(
            f"pad {mode}",
            lambda r, x, m=mode: r.op.nn.pad(x, [0, 0, 0, 0, 2, 1, 1, 2], m),
            lambda t, x, m=mode: t.nn.functional.pad(x, (1, 2, 2, 1), m),
            ((1, 2, 4, 3),),
        )
        for mode in ("constant", "reflect", "replicate", "circular")
    ],
    Case(
        "pad one side",
        lambda r, x: r.op.nn.pad(x, [0, 0, 3, 0], "constant", 1.5),
        lambda t, x: t.nn.functional.pad(x, (3, 0), value=1.5),
        ((2, 3),),
    ),
]

ROWS = np.array([[2, 0, 2], [1, 2, -1]])

INDEX = [
    Case(
        "take rows",
        lambda r, x, i: r.op.take(x, i, 0),
        lambda t, x, i: x[i],
        ((4, 3), np.array([[2, 0, 2], [1, 3, 2]])),
    ),
    Case(
        "take wide rows",
        lambda r, x, i: r.op.take(x, i, 0),
        lambda t, x, i: x[i],
        ((5, 128), np.array([4, 4, 0])),
    ),
    Case(
        "take middle",
        lambda r, x, i: r.op.take(x, i, 1),
        lambda t, x, i: x[:, i],
        ((2, 5, 3), np.array([4, 4, 0, 1])),
    ),
    Case(
        "take one", lambda r, x: r.op.take(x, r.const(2, "int64"), 0), lambda t, x: x[2], ((4, 3),)
    ),
    Case(
        "take flat",
        lambda r, x, i: r.op.take(x, i),
        lambda t, x, i: t.take(x, i),
        ((6,), np.array([5, 0, 5])),
    ),
    Case(
        "gather_elements",
        lambda r, x, i: r.op.gather_elements(x, i, 1),
        lambda t, x, i: t.gather(x, 1, i),
        ((2, 5), integers(5, 2, 4)),
    ),
    Case(
        "gather_nd",
        lambda r, x, i: r.op.gather_nd(x, i),
        lambda t, x, i: x[i[:, 0], i[:, 1]],
        ((3, 4, 2), np.array([[0, 1], [2, 3], [0, 1]])),
    ),
    Case(
        "scatter_elements update",
        lambda r, x, i, u: r.op.scatter_elements(x, i, u, 1, "update"),
        lambda t, x, i, u: t.scatter(x, 1, i, u),
        ((2, 5), np.array([[1, 3], [4, 0]]), (2, 2)),
    ),
    *[
        Case(
            f"scatter_elements {kind}",
            lambda r, x, i, u, k=kind: r.op.scatter_elements(x, i, u, 0, k),
            lambda t, x, i, u, n=name: t.scatter_reduce(x, 0, i, u, n),
            (apart(5, 2), np.array([[1, 3], [1, 0], [4, 3]]), apart(3, 2)),
        )
        for kind, name in (("add", "sum"), ("max", "amax"), ("min", "amin"))
    ],
    *[
        Case(
            f"scatter_nd {kind}",
            lambda r, x, i, u, k=kind: r.op.scatter_nd(x, i, u, k),
            lambda t, x, i, u, k=kind: x.index_put((i[:, 0],), u, accumulate=k == "add"),
            ((4, 3), np.array([[2], [0]]), (2, 3)),
        )
        for kind in ("update", "add")
    ],
    Case(
        "topk both",
        lambda r, x: r.TupleGetItem(r.op.topk(x, 2, 1), 0),
        lambda t, x: t.topk(x, 2, 1)[0],
        (apart(3, 5),),
    ),
    Case(
        "topk values",
        lambda r, x: r.op.topk(x, 2, 0, "values", False),
        lambda t, x: t.topk(x, 2, 0, largest=False)[0],
        (apart(5, 3),),
    ),
    Case(
        "sort",
        lambda r, x: r.op.sort(x, 1, True),
        lambda t, x: t.sort(x, 1, True)[0],
        (apart(3, 5),),
    ),
]

PRODUCT = [
    *[
        Case(
            f"matmul {a} {b}",
            lambda r, a, b: r.op.matmul(a, b),
            lambda t, a, b: a @ b,
            (a, b),
        )
        for a, b in [
            ((3, 4), (4, 5)),
            ((1, 1), (1, 7)),
            ((2, 3, 4), (4, 5)),
            ((2, 2, 3, 4), (4, 1)),
            ((2, 3, 4), (2, 4, 5)),
            ((2, 1, 3, 4), (3, 4, 2)),
            ((3, 4), (2, 4, 5)),
            ((4,), (4, 5)),
            ((4,), (2, 4, 5)),
            ((3, 4), (4,)),
            ((2, 3, 4), (4,)),
            ((4,), (4,)),
        ]
    ],
    Case("outer", lambda r, a, b: r.op.outer(a, b), lambda t, a, b: t.outer(a, b), ((3,), (2,))),
    *[
        Case(
            f"einsum {subscripts}",
            lambda r, *x, s=subscripts: r.op.einsum(x, s),
            lambda t, *x, s=subscripts: t.einsum(s, *x),
            shapes,
        )
        for subscripts, shapes in [
            ("ij,jk->ik", ((2, 3), (3, 4))),
            ("bhqd,bhkd->bhqk", ((1, 2, 3, 4), (1, 2, 2, 4))),
            ("ij->j", ((2, 3),)),
            ("ij,j,k->k", ((2, 3), (3,), (2,))),
        ]
    ],
]

FAMILIES = {
    "reduce": REDUCE,
    "scan": SCAN,
    "move": MOVE,
    "index": INDEX,
    "product": PRODUCT,
}
