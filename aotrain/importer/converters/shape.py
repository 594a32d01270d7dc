"""ONNX operators that move or reshape data in, Relax calls out. Sizes are all static."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.builder import Value, shape_of
from aotrain.importer.node import Converter, Node, normal_axis, np_dtype
from aotrain.importer.problems import BadShape, Unsupported


def reshape_target(target: list[int], shape: tuple[int, ...], allow_zero: bool) -> list[int]:
    """ONNX's target with 0 (copy) and -1 (the rest) replaced by sizes."""
    sizes = [
        shape[i] if d == 0 and not allow_zero and i < len(shape) else d
        for i, d in enumerate(target)
    ]
    total = math.prod(shape)
    if -1 in sizes:
        rest = math.prod(d for d in sizes if d != -1)
        if rest == 0 or total % rest:
            raise BadShape(f"Reshape of {list(shape)} to {target}: sizes do not divide")
        sizes[sizes.index(-1)] = total // rest
    if math.prod(sizes) != total or min(sizes, default=0) < 0:
        raise BadShape(
            f"Reshape of {list(shape)} to {target}: {total} elements do not fit",
            "A batch that is baked into the file is replaced only where its place is certain;"
            " export with a dynamic batch.",
        )
    return sizes


def reshape(n: Node, x: relax.Expr, sizes: list[int] | tuple[int, ...]) -> relax.Expr:
    """Reshape, or nothing where the shape is the same."""
    return x if tuple(sizes) == shape_of(x) else n.emit(R.reshape(x, list(sizes)))


def _reshape(n: Node) -> relax.Expr:
    target = [int(d) for d in n.known(1, "shape").reshape(-1)]
    sizes = reshape_target(target, n.shape(), bool(n.attr("allowzero", 0)))
    return reshape(n, n.x(0), sizes)


def _flatten(n: Node) -> relax.Expr:
    axis = int(n.attr("axis", 1))
    axis = axis + n.rank() if axis < 0 else axis
    shape = n.shape()
    return reshape(n, n.x(0), [math.prod(shape[:axis]), math.prod(shape[axis:])])


def _squeeze(n: Node) -> relax.Expr:
    axes, shape = n.ints("axes", 1), n.shape()
    if axes is None:
        axes = [i for i, d in enumerate(shape) if d == 1]
    gone = {normal_axis(a, n.rank()) for a in axes}
    if any(shape[a] != 1 for a in gone):
        raise BadShape(f"Squeeze of axes {sorted(gone)} of {list(shape)}: not of size 1")
    return reshape(n, n.x(0), [d for i, d in enumerate(shape) if i not in gone])


def _unsqueeze(n: Node) -> relax.Expr:
    axes = n.ints("axes", 1) or []
    rank = n.rank() + len(axes)
    new = {normal_axis(a, rank) for a in axes}
    old = iter(n.shape())
    return reshape(n, n.x(0), [1 if i in new else next(old) for i in range(rank)])


def _transpose(n: Node) -> relax.Expr:
    order = n.ints("perm") or list(range(n.rank()))[::-1]
    return n.x(0) if order == sorted(order) else n.emit(R.permute_dims(n.x(0), order))


def _concat(n: Node) -> relax.Expr:
    parts = [n.x(i) for i in range(len(n.inputs)) if math.prod(n.shape(i))] or [n.x(0)]
    axis = n.axis(1 if n.opset < 4 else 0)
    return parts[0] if len(parts) == 1 else n.emit(R.concat(parts, axis))


def _split(n: Node) -> tuple[Value, ...]:
    axis = n.axis(0)
    size, count = n.shape()[axis], len(n.proto.output)
    sizes = n.ints("split", 1)
    if sizes is None:
        chunk = -(-size // count)
        sizes = [min(chunk, size - chunk * i) for i in range(count)]
    if sum(sizes) != size or len(sizes) != count:
        raise BadShape(f"Split of {size} into {sizes} for {count} outputs")
    if count == 1:
        return (n.x(0),)
    filled = [s for s in sizes if s]  # TVM splits into no empty parts
    cuts = [int(c) for c in np.cumsum(filled)[:-1]]
    parts = n.emit(R.split(n.x(0), cuts, axis)) if cuts else None
    found = iter(
        [n.emit(relax.TupleGetItem(parts, i)) for i in range(len(filled))] if cuts else [n.x(0)]
    )
    shape = n.shape()
    empty = np.zeros((*shape[:axis], 0, *shape[axis + 1 :]), np_dtype(n.dtype()))
    return tuple(next(found) if s else n.builder.constant(empty) for s in sizes)


def _expand(n: Node) -> relax.Expr:
    target = [int(d) for d in n.known(1, "shape").reshape(-1)]
    sizes = list(np.broadcast_shapes(tuple(target), n.shape()))
    return n.x(0) if tuple(sizes) == n.shape() else n.emit(R.broadcast_to(n.x(0), sizes))


def _tile(n: Node) -> relax.Expr:
    repeats = [int(r) for r in n.known(1, "repeats").reshape(-1)]
    return n.x(0) if set(repeats) <= {1} else n.emit(R.tile(n.x(0), repeats))


def _shape(n: Node) -> Value:
    shape = n.shape()
    start, end = n.attr("start", 0), n.attr("end", len(shape))
    return np.array(shape[start:end], np.int64)


def _depth_to_space(n: Node) -> relax.Expr:
    """[N, C, H, W] -> [N, C / b^2, H b, W b], blocks first (DCR) or channels first (CRD)."""
    b, (batch, c, h, w) = n.attr("blocksize"), n.shape()
    deep = c // (b * b)
    if n.attr("mode", "DCR") == "DCR":
        sizes, order = [batch, b, b, deep, h, w], [0, 3, 4, 1, 5, 2]
    else:
        sizes, order = [batch, deep, b, b, h, w], [0, 1, 4, 2, 5, 3]
    y = n.emit(R.permute_dims(reshape(n, n.x(0), sizes), order))
    return reshape(n, y, [batch, deep, h * b, w * b])


def _space_to_depth(n: Node) -> relax.Expr:
    """[N, C, H, W] -> [N, C b^2, H / b, W / b]; opset 25 adds the mode CRD."""
    b, (batch, c, h, w) = n.attr("blocksize"), n.shape()
    x = reshape(n, n.x(0), [batch, c, h // b, b, w // b, b])
    order = [0, 3, 5, 1, 2, 4] if n.attr("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    return reshape(n, n.emit(R.permute_dims(x, order)), [batch, c * b * b, h // b, w // b])


def _pads(n: Node) -> list[tuple[int, int]]:
    """(before, after) for every axis; negative ones crop."""
    flat = n.ints("pads", 1)
    if flat is None:
        raise Unsupported("Pad without pads")
    axes = [normal_axis(int(a), n.rank()) for a in n.known(3, "axes")] if n.has(3) else None
    axes = list(range(n.rank())) if axes is None else axes
    pairs = [(0, 0)] * n.rank()
    for i, axis in enumerate(axes):
        pairs[axis] = (flat[i], flat[i + len(axes)])
    return pairs


def _pad(n: Node) -> relax.Expr:
    mode, pairs, x = n.attr("mode", "constant"), _pads(n), n.x(0)
    for axis, (low, high) in enumerate(pairs):
        if low < 0 or high < 0:
            end = shape_of(x)[axis] + min(high, 0)
            x = n.emit(R.strided_slice(x, [axis], [max(-low, 0)], [end]))
    pairs = [(max(low, 0), max(high, 0)) for low, high in pairs]
    if not any(low or high for low, high in pairs):
        return x
    if mode == "constant":
        fill = n.known(2, "pad value").reshape(()) if n.has(2) else n.attr("value", 0.0)
        if n.dtype() == "bool":
            raise Unsupported("Pad of bool is not supported")
        widths = [w for pair in pairs for w in pair]
        return n.emit(R.nn.pad(x, widths, "constant", float(fill)))
    return _pad_by_index(n, x, pairs, mode)


def _pad_by_index(n: Node, x: relax.Expr, pairs: list[tuple[int, int]], mode: str) -> relax.Expr:
    """reflect, edge, wrap: a gather along every padded axis, with numpy's own indices."""
    if mode not in ("reflect", "edge", "wrap"):
        raise Unsupported(f"Pad with mode={mode} is not supported")
    for axis, pair in enumerate(pairs):
        if any(pair):
            indices = np.pad(np.arange(shape_of(x)[axis], dtype=np.int64), pair, mode=mode)  # type: ignore[call-overload]
            x = n.emit(R.take(x, n.builder.constant(indices), axis, "clip"))
    return x


def _trilu(n: Node) -> relax.Expr:
    k = int(n.known(1, "k").reshape(())) if n.has(1) else 0
    return n.emit((R.triu if n.attr("upper", 1) else R.tril)(n.x(0), k))


def _eye_like(n: Node) -> Value:
    from onnx import helper

    kind = n.attr("dtype")
    dtype = n.dtype() if kind is None else helper.tensor_dtype_to_np_dtype(kind)
    rows, cols = n.shape()
    return np.eye(rows, cols, n.attr("k", 0)).astype(dtype)


TABLE: dict[str, Converter] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "Shape": _shape,
    "Size": lambda n: np.array(math.prod(n.shape()), np.int64),
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Pad": _pad,
    "Trilu": _trilu,
    "EyeLike": _eye_like,
}
