"""Gradient cases: convolution, pooling, normalisation, losses, attention and resizing."""

from __future__ import annotations

import numpy as np

from tests.autodiff.case import Case, apart, integers, uniform


def _conv(rank: int, x, w, strides=1, padding=0, dilation=1, groups=1) -> Case:
    """`padding`: one number, one per dimension, or (before.., after..) as Relax has it."""

    def relax(r, x, w):
        conv = getattr(r.op.nn, f"conv{rank}d")
        return conv(x, w, strides=strides, padding=padding, dilation=dilation, groups=groups)

    def torch(t, x, w):
        conv = getattr(t.nn.functional, f"conv{rank}d")
        pads = padding
        if isinstance(padding, tuple) and len(padding) == 2 * rank:
            both = [(padding[i], padding[rank + i]) for i in reversed(range(rank))]
            x, pads = t.nn.functional.pad(x, [p for pair in both for p in pair]), 0
        return conv(x, w, stride=strides, padding=pads, dilation=dilation, groups=groups)

    name = f"conv{rank}d {x} {w} {strides} {padding} {dilation} {groups}"
    return Case(name, relax, torch, (x, w))


def _conv_transpose(rank, x, w, strides, padding, output_padding, dilation=1, groups=1) -> Case:
    def relax(r, x, w):
        conv = getattr(r.op.nn, f"conv{rank}d_transpose")
        return conv(
            x,
            w,
            strides=strides,
            padding=padding,
            output_padding=output_padding,
            dilation=dilation,
            groups=groups,
        )

    def torch(t, x, w):
        conv = getattr(t.nn.functional, f"conv_transpose{rank}d")
        return conv(x, w, None, strides, padding, output_padding, groups, dilation)

    name = f"conv{rank}d_transpose {x} {w} {strides} {padding} {output_padding} {dilation} {groups}"
    return Case(name, relax, torch, (x, w))


CONV = [
    _conv(2, (1, 1, 1, 1), (1, 1, 1, 1)),
    _conv(2, (2, 3, 5, 7), (4, 3, 3, 3), padding=1),
    _conv(2, (1, 2, 7, 6), (3, 2, 3, 3), strides=2, padding=1),
    _conv(2, (1, 2, 8, 8), (2, 2, 3, 3), strides=2, padding=(0, 0, 1, 1)),
    _conv(2, (1, 2, 9, 8), (3, 2, 1, 1), strides=2),
    _conv(2, (1, 1, 11, 10), (2, 1, 7, 5), strides=(2, 3), padding=(3, 2)),
    _conv(2, (1, 2, 8, 9), (2, 2, 3, 3), padding=2, dilation=2),
    _conv(2, (1, 2, 9, 9), (2, 2, 3, 2), strides=(2, 3), padding=1, dilation=(2, 2)),
    _conv(2, (1, 4, 6, 5), (4, 1, 3, 3), padding=1, groups=4),
    _conv(2, (1, 4, 6, 5), (6, 2, 3, 3), strides=2, padding=1, groups=2),
    _conv(2, (1, 2, 4, 4), (2, 2, 2, 2), strides=3, padding=3),
    _conv(2, (1, 1, 6, 6), (1, 1, 3, 3), strides=4),
    _conv(1, (2, 3, 11), (4, 3, 3), strides=2, padding=(1, 2)),
    _conv(1, (1, 4, 8), (4, 1, 3), padding=2, dilation=2, groups=4),
    _conv(3, (1, 2, 4, 5, 3), (2, 2, 2, 3, 2), strides=(1, 2, 1), padding=1),
    _conv_transpose(2, (1, 3, 4, 5), (3, 2, 3, 3), 2, 1, 1),
    _conv_transpose(2, (1, 4, 3, 3), (4, 1, 2, 2), 2, 0, 0, groups=2),
    _conv_transpose(2, (1, 2, 3, 4), (2, 2, 3, 3), 1, 0, 0, dilation=2),
    _conv_transpose(1, (1, 2, 5), (2, 3, 4), 3, 1, 2),
    _conv_transpose(3, (1, 2, 2, 3, 2), (2, 1, 2, 1, 2), 2, 0, 1),
]


def _pool(kind: str, rank: int, shape, size, strides, padding=0, **attrs) -> Case:
    def relax(r, x):
        pool = getattr(r.op.nn, f"{kind}_pool{rank}d")
        return pool(x, size, strides, padding, **attrs)

    def reference(t, x):
        pool = getattr(t.nn.functional, f"{kind}_pool{rank}d")
        return pool(x, size, strides, padding, **attrs)

    name = f"{kind}_pool{rank}d {shape} {size} {strides} {padding} {attrs or ''}"
    uneven = isinstance(padding, tuple) and len(padding) == 2 * rank  # PyTorch has no such padding
    return Case(name, relax, None if uneven else reference, (apart(*shape),))


def _average(kind: str, shape, out) -> Case:
    rank = len(shape) - 2
    return Case(
        f"adaptive_avg_pool{rank}d {shape} {out}",
        lambda r, x: getattr(r.op.nn, f"adaptive_avg_pool{rank}d")(x, out),
        lambda t, x: getattr(t.nn.functional, f"adaptive_avg_pool{rank}d")(x, out),
        (shape,),
    )


POOL = [
    _pool("max", 2, (1, 2, 6, 6), 2, 2),
    _pool("max", 2, (1, 2, 7, 5), 3, 2, 1),
    _pool("max", 2, (1, 1, 7, 7), 3, 2, ceil_mode=True),
    _pool("max", 2, (1, 1, 6, 8), (3, 2), (1, 3), (1, 0), ceil_mode=True),
    _pool("max", 2, (1, 1, 9, 9), 3, 2, 1, dilation=2),
    _pool("max", 1, (1, 2, 9), 4, 3, 1),
    _pool("max", 3, (1, 1, 4, 5, 4), 2, 2),
    Case(
        "max_pool2d at ties",
        lambda r, x: r.op.nn.max_pool2d(x, 3, 1, 1),
        lambda t, x: t.nn.functional.max_pool2d(x, 3, 1, 1),
        (integers(3, 1, 1, 5, 5).astype("float64"),),
        differences=False,
    ),
    *[
        _pool("avg", 2, shape, size, strides, padding, ceil_mode=ceil, count_include_pad=include)
        for shape, size, strides, padding in [
            ((1, 2, 6, 6), 2, 2, 0),
            ((1, 1, 7, 5), 3, 2, 1),
            ((1, 1, 5, 8), (2, 3), (3, 2), (0, 1)),
        ]
        for ceil, include in [(False, False), (False, True), (True, False), (True, True)]
    ],
    _pool("max", 2, (1, 1, 6, 7), 3, 2, (0, 1, 2, 1)),
    _pool("avg", 2, (1, 1, 6, 7), 3, 2, (0, 1, 2, 1), count_include_pad=True, ceil_mode=True),
    _pool("avg", 2, (1, 1, 6, 7), 3, 2, (0, 1, 2, 1), count_include_pad=False),
    _pool("avg", 1, (1, 2, 9), 4, 3, 1, count_include_pad=False),
    _pool("avg", 3, (1, 1, 4, 5, 4), 2, 2, 1, count_include_pad=True),
    _average("adaptive", (2, 3, 5, 7), (1, 1)),
    _average("adaptive", (1, 2, 6, 4), (3, 2)),
    _average("adaptive", (1, 2, 7, 5), (3, 2)),
    _average("adaptive", (1, 1, 2, 3), (5, 4)),
    _average("adaptive", (1, 2, 7), 3),
    _average("adaptive", (1, 1, 3, 4, 5), (2, 2, 2)),
]

FLOAT32 = {"differences": False, "dtype": "float32"}  # TVM's norms have no float64
CHANNELS = (uniform(0.5, 1.5, 4), uniform(-1.0, 1.0, 4))

NORM = [
    Case(
        "layer_norm",
        lambda r, x, g, b: r.op.nn.layer_norm(x, g, b, axes=[-1], epsilon=1e-3),
        lambda t, x, g, b: t.nn.functional.layer_norm(x, (7,), g, b, 1e-3),
        ((2, 3, 7), uniform(0.5, 1.5, 7), (7,)),
        **FLOAT32,
    ),
    Case(
        "layer_norm over two axes",
        lambda r, x, g, b: r.op.nn.layer_norm(x, g, b, axes=[-2, -1]),
        lambda t, x, g, b: t.nn.functional.layer_norm(x, (3, 4), g, b),
        ((2, 3, 4), uniform(0.5, 1.5, 3, 4), (3, 4)),
        **FLOAT32,
    ),
    Case(
        "rms_norm",
        lambda r, x, g: r.op.nn.rms_norm(x, g, axes=[-1], epsilon=1e-3),
        lambda t, x, g: t.nn.functional.rms_norm(x, (5,), g, 1e-3),
        ((2, 3, 5), uniform(0.5, 1.5, 5)),
        **FLOAT32,
    ),
    Case(
        "group_norm",
        lambda r, x, g, b: r.op.nn.group_norm(x, g, b, 2, 1, [2, 3], 1e-3),
        lambda t, x, g, b: t.nn.functional.group_norm(x, 2, g, b, 1e-3),
        ((2, 4, 3, 2), *CHANNELS),
        **FLOAT32,
    ),
    Case(
        "instance_norm",
        lambda r, x, g, b: r.op.nn.instance_norm(x, g, b, 1, [2, 3], 1e-3),
        lambda t, x, g, b: t.nn.functional.instance_norm(x, weight=g, bias=b, eps=1e-3),
        ((2, 4, 3, 2), *CHANNELS),
        **FLOAT32,
    ),
    Case(
        "batch_norm",
        lambda r, x, g, b, m, v: r.TupleGetItem(
            r.op.nn.batch_norm(x, g, b, m, v, axis=1, epsilon=1e-3, training=False), 0
        ),
        lambda t, x, g, b, m, v: (
            (x - m[:, None, None]) / t.sqrt(v[:, None, None] + 1e-3) * g[:, None, None]
            + b[:, None, None]
        ),
        ((2, 4, 3, 2), *CHANNELS, (4,), uniform(0.5, 2.0, 4)),
    ),
    Case(
        "batch_norm of centred data",
        lambda r, x, g, b, m, v: r.op.nn.batch_norm(
            x, g, b, m, v, axis=1, epsilon=1e-3, scale=False, training=False
        ),
        None,
        ((2, 4, 3), *CHANNELS, (4,), uniform(0.5, 2.0, 4)),
    ),
]


def _nll(name: str, shape, target, reduction: str, weighted: bool, ignore: int = -100) -> Case:
    weights = (uniform(0.5, 1.5, shape[1] if len(shape) > 1 else shape[0]),) if weighted else ()
    return Case(
        f"nll_loss {name}",
        lambda r, x, y: r.op.nn.nll_loss(
            x,
            y,
            r.const(weights[0]) if weighted else None,
            reduction=reduction,
            ignore_index=ignore,
        ),
        lambda t, x, y: t.nn.functional.nll_loss(
            x,
            y,
            t.tensor(weights[0]) if weighted else None,
            reduction=reduction,
            ignore_index=ignore,
        ),
        (shape, target),
    )


LOSS = [
    _nll("mean", (4, 5), integers(5, 4), "mean", False),
    _nll("weighted mean", (4, 5), integers(5, 4), "mean", True),
    _nll("sum of pixels", (2, 3, 2, 2), integers(3, 2, 2, 2), "sum", True),
    _nll("none", (4, 5), integers(5, 4), "none", True),
    _nll("ignored", (4, 3), np.array([0, 1, 2, 1]), "mean", True, 1),
    _nll("one row", (5,), np.array(3), "mean", False),
    Case(
        "cross_entropy_with_logits",
        lambda r, x, y: r.op.nn.cross_entropy_with_logits(x, y),
        lambda t, x, y: -(x * y).sum() / 3,
        ((3, 4), (3, 4)),
    ),
]


def _attention(name: str, s: int, k: int, mask: str | None, scale=None, bias: bool = False) -> Case:
    def relax(r, q, key, v, *b):
        return r.op.nn.attention(q, key, v, *b, scale=scale, causal_mask=mask)

    def torch(t, q, key, v, *b):
        q, key, v = (a.transpose(1, 2) for a in (q, key, v))
        scores = q @ key.transpose(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if b:
            scores = scores + b[0]
        if mask:
            shift = abs(s - k) if mask == "BottomRight" else 0
            hidden = t.ones(s, k).tril(shift) == 0
            scores = scores.masked_fill(hidden, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2)

    inputs = ((2, s, 2, 4), (2, k, 2, 4), (2, k, 2, 3))
    return Case(f"attention {name}", relax, torch, (*inputs, (2, 2, s, k)) if bias else inputs)


ATTENTION = [
    _attention("plain", 3, 5, None),
    _attention("scaled", 3, 3, None, scale=0.3),
    _attention("causal", 3, 3, "TopLeft"),
    _attention("causal bottom right", 2, 5, "BottomRight"),
    _attention("with bias", 3, 2, None, bias=True),
]


def _resize(name: str, shape, size, torch, **attrs) -> Case:
    return Case(
        f"resize2d {name}",
        lambda r, x: r.op.image.resize2d(x, size, layout="NCHW", **attrs),
        torch,
        (shape,),
        differences=False,  # TVM resizes in float32
    )


SAMPLE = [
    Case(
        f"grid_sample {padding} {corners}",
        lambda r, x, grid, padding=padding, corners=corners: r.op.image.grid_sample(
            x, grid, "bilinear", "NCHW", padding, corners
        ),
        lambda t, x, grid, padding=padding, corners=corners: t.nn.functional.grid_sample(
            x, grid.permute(0, 2, 3, 1), "bilinear", padding, corners
        ),
        ((2, 3, 4, 5), uniform(-1.4, 1.4, 2, 2, 3, 6)),  # some points are outside
    )
    for padding in ("zeros", "border")
    for corners in (True, False)
]


def _interpolate(size, mode: str, align: bool | None = None):
    return lambda t, x: t.nn.functional.interpolate(x, size, mode=mode, align_corners=align)


NEAREST = {
    "method": "nearest_neighbor",
    "coordinate_transformation_mode": "asymmetric",
    "rounding_method": "floor",
}

RESIZE = [
    _resize("nearest twice", (1, 2, 3, 4), (6, 8), _interpolate((6, 8), "nearest"), **NEAREST),
    _resize("nearest odd", (1, 1, 5, 4), (7, 3), _interpolate((7, 3), "nearest"), **NEAREST),
    _resize(
        "linear",
        (1, 2, 3, 4),
        (5, 8),
        _interpolate((5, 8), "bilinear", False),
        method="linear",
        coordinate_transformation_mode="half_pixel",
    ),
    _resize(
        "linear down",
        (1, 1, 7, 6),
        (3, 4),
        _interpolate((3, 4), "bilinear", False),
        method="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    ),
    _resize(
        "linear aligned",
        (1, 1, 4, 3),
        (7, 5),
        _interpolate((7, 5), "bilinear", True),
        method="linear",
        coordinate_transformation_mode="align_corners",
    ),
    _resize(
        "cubic",
        (1, 1, 5, 6),
        (9, 7),
        _interpolate((9, 7), "bicubic", False),
        method="cubic",
        coordinate_transformation_mode="half_pixel",
        cubic_alpha=-0.75,
    ),
]

FAMILIES = {
    "sample": SAMPLE,
    "conv": CONV,
    "pool": POOL,
    "norm": NORM,
    "loss": LOSS,
    "attention": ATTENTION,
    "resize": RESIZE,
}
