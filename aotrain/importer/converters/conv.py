"""Conv and ConvTranspose in, Relax convolutions out: [N, C, spatial...], [O, I / groups, ...].

One spatial dimension is run as two, the first of size 1: the gradients and schedules of the
two-dimensional operators then serve both.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.builder import shape_of
from aotrain.importer.node import Converter, Node
from aotrain.importer.problems import Unsupported


def window_pads(
    n: Node, size: Sequence[int], kernel: Sequence[int], strides: list[int], dilations: list[int]
) -> tuple[list[int], list[int]]:
    """Padding (before, after) per spatial dimension from `pads` or `auto_pad`."""
    rank, mode = len(size), n.attr("auto_pad", "NOTSET")
    if mode == "VALID":
        return [0] * rank, [0] * rank
    if mode == "NOTSET":
        flat = n.ints("pads") or [0] * (2 * rank)
        return flat[:rank], flat[rank:]
    before, after = [], []
    for extent, k, stride, dilation in zip(size, kernel, strides, dilations, strict=True):
        out = -(-extent // stride)
        total = max((out - 1) * stride + (k - 1) * dilation + 1 - extent, 0)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return before, after


def widen(n: Node, x: relax.Expr) -> relax.Expr:
    """[A, B, W] -> [A, B, 1, W]."""
    a, b, w = shape_of(x)
    return n.emit(R.reshape(x, (a, b, 1, w)))


def narrow(n: Node, x: relax.Expr) -> relax.Expr:
    """[A, B, 1, W] -> [A, B, W]."""
    a, b, _, w = shape_of(x)
    return n.emit(R.reshape(x, (a, b, w)))


def add_channels(n: Node, y: relax.Expr, bias: int) -> relax.Expr:
    """y + bias[C] along axis 1, where the node has that input."""
    if not n.has(bias):
        return y
    channels = n.shape(bias)[0]
    return n.emit(R.add(y, n.emit(R.reshape(n.x(bias), [1, channels] + [1] * (n.rank() - 2)))))


def _conv(n: Node) -> relax.Expr:
    spatial, kernel = n.shape()[2:], n.shape(1)[2:]
    rank = len(spatial)
    if rank not in (1, 2, 3):
        raise Unsupported(f"Conv over {rank} spatial dimensions is not supported")
    strides, dilations = n.ints("strides") or [1] * rank, n.ints("dilations") or [1] * rank
    before, after = window_pads(n, spatial, kernel, strides, dilations)
    x, w = n.x(0), n.x(1)
    groups = int(n.attr("group", 1))
    if rank == 1:
        x, w = widen(n, x), widen(n, w)
        strides, dilations = [1, *strides], [1, *dilations]
        before, after = [0, *before], [0, *after]
    call = R.nn.conv3d if rank == 3 else R.nn.conv2d
    y = n.emit(call(x, w, strides, before + after, dilations, groups))
    return add_channels(n, narrow(n, y) if rank == 1 else y, 2)


def _transpose_pads(
    n: Node, kernel: Sequence[int], strides: list[int], dilations: list[int], extra: list[int]
) -> tuple[list[int], list[int]]:
    """ConvTranspose's padding; from `output_shape` or `auto_pad` where those are given."""
    rank, spatial = len(kernel), n.shape()[2:]
    mode, wanted = n.attr("auto_pad", "NOTSET"), n.ints("output_shape")
    if wanted is None and mode in ("NOTSET", "VALID"):
        flat = (n.ints("pads") if mode == "NOTSET" else None) or [0] * (2 * rank)
        return flat[:rank], flat[rank:]
    if wanted is None:
        wanted = [s * stride for s, stride in zip(spatial, strides, strict=True)]
    wanted = wanted[-rank:]
    before, after = [], []
    for i in range(rank):
        full = strides[i] * (spatial[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
        total = full - wanted[i]
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return before, after


def _conv_transpose(n: Node) -> relax.Expr:
    """Weights [I, O / groups, ...]. The full result is cropped or zero-padded to ONNX's size."""
    spatial, kernel = n.shape()[2:], n.shape(1)[2:]
    rank = len(spatial)
    if rank not in (1, 2, 3):
        raise Unsupported(f"ConvTranspose over {rank} spatial dimensions is not supported")
    strides, dilations = n.ints("strides") or [1] * rank, n.ints("dilations") or [1] * rank
    extra = n.ints("output_padding") or [0] * rank
    before, after = _transpose_pads(n, kernel, strides, dilations, extra)
    x, w, groups = n.x(0), n.x(1), int(n.attr("group", 1))
    if rank == 1:
        x, w = widen(n, x), widen(n, w)
        strides, dilations, extra = [1, *strides], [1, *dilations], [0, *extra]
        before, after = [0, *before], [0, *after]
    if groups == 1:
        y = _full_transpose(n, x, w, strides, dilations)
    else:
        xs, ws = n.emit(R.split(x, groups, 1)), n.emit(R.split(w, groups, 0))
        parts = [
            _full_transpose(
                n,
                n.emit(relax.TupleGetItem(xs, g)),
                n.emit(relax.TupleGetItem(ws, g)),
                strides,
                dilations,
            )
            for g in range(groups)
        ]
        y = n.emit(R.concat(parts, 1))
    y = _fit(n, y, before, [a - e for a, e in zip(after, extra, strict=True)])
    return add_channels(n, narrow(n, y) if rank == 1 else y, 2)


def _full_transpose(
    n: Node, x: relax.Expr, w: relax.Expr, strides: list[int], dilations: list[int]
) -> relax.Expr:
    call = R.nn.conv3d_transpose if len(strides) == 3 else R.nn.conv2d_transpose
    return n.emit(call(x, w, strides=strides, dilation=dilations))


def _fit(n: Node, y: relax.Expr, before: list[int], after: list[int]) -> relax.Expr:
    """Crop `before` and `after` of every spatial dimension; a negative crop pads with zeros."""
    shape = shape_of(y)
    axes = [i + 2 for i in range(len(before)) if before[i] > 0 or after[i] > 0]
    if axes:
        begin = [max(before[a - 2], 0) for a in axes]
        end = [shape[a] - max(after[a - 2], 0) for a in axes]
        y = n.emit(R.strided_slice(y, axes, begin, end))
    if any(p < 0 for p in (*before, *after)):
        widths = [0, 0, 0, 0]
        for low, high in zip(before, after, strict=True):
            widths += [max(-low, 0), max(-high, 0)]
        y = n.emit(R.nn.pad(y, widths))
    return y


TABLE: dict[str, Converter] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
}
