"""ONNX pooling in, Relax pooling and reductions out: [N, C, spatial...]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.relax import op as R  # noqa: N812

from aotrain.importer.converters.conv import narrow, widen, window_pads
from aotrain.importer.node import Converter, Node
from aotrain.importer.problems import Unsupported


@dataclass
class Window:
    """A sliding window; `after` includes what ceil_mode adds, `ceiled` is that part alone."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]
    ceiled: list[int]


def _window(n: Node) -> Window:
    """With ceil_mode the last window may hang over the end, but must start inside (opset 22)."""
    spatial, kernel = n.shape()[2:], n.ints("kernel_shape") or []
    rank = len(spatial)
    strides, dilations = n.ints("strides") or [1] * rank, n.ints("dilations") or [1] * rank
    before, after = window_pads(n, spatial, kernel, strides, dilations)
    ceiled = [0] * rank
    if n.attr("ceil_mode", 0) and n.attr("auto_pad", "NOTSET") == "NOTSET":
        for i in range(rank):
            reach = spatial[i] + before[i] + after[i] - (kernel[i] - 1) * dilations[i] - 1
            steps = -(-reach // strides[i])
            if steps * strides[i] >= spatial[i] + before[i]:
                steps -= 1
            ceiled[i] = max(steps * strides[i] - reach, 0)
    after = [a + c for a, c in zip(after, ceiled, strict=True)]
    window = Window(list(kernel), strides, dilations, before, after, ceiled)
    return _as_two(window) if rank == 1 else window


def _as_two(w: Window) -> Window:
    return Window(
        [1, *w.kernel],
        [1, *w.strides],
        [1, *w.dilations],
        [0, *w.before],
        [0, *w.after],
        [0, *w.ceiled],
    )


def _checked(n: Node) -> relax.Expr:
    if n.rank() not in (3, 4, 5):
        raise Unsupported(f"{n.op_type} over {n.rank() - 2} spatial dimensions is not supported")
    return widen(n, n.x(0)) if n.rank() == 3 else n.x(0)


def _max_pool(n: Node) -> relax.Expr:
    n.reject("storage_order", 0)
    if n.wants(1):
        raise Unsupported("MaxPool's output Indices is not supported")
    x, w = _checked(n), _window(n)
    call = R.nn.max_pool3d if n.rank() == 5 else R.nn.max_pool2d
    y = n.emit(call(x, w.kernel, w.strides, w.before + w.after, w.dilations))
    return narrow(n, y) if n.rank() == 3 else y


def _average_pool(n: Node) -> relax.Expr:
    """Padding counts with count_include_pad; what ceil_mode adds beyond it never does."""
    x, w = _checked(n), _window(n)
    if n.attr("count_include_pad", 0) and (any(w.before) or any(w.after)):
        # The counted padding becomes part of the data; the rest stays padding.
        own = [a - c for a, c in zip(w.after, w.ceiled, strict=True)]
        widths = [0, 0, 0, 0] + [p for pair in zip(w.before, own, strict=True) for p in pair]
        x = n.emit(R.nn.pad(x, widths)) if any(widths) else x
        w.before, w.after = [0] * len(w.before), w.ceiled
    y = _mean_window(n, x, w)
    return narrow(n, y) if n.rank() == 3 else y


def _mean_window(n: Node, x: relax.Expr, w: Window) -> relax.Expr:
    """The mean of what each window holds of `x`, padding left out."""
    call = R.nn.avg_pool3d if len(w.kernel) == 3 else R.nn.avg_pool2d
    return n.emit(
        call(x, w.kernel, w.strides, w.before + w.after, w.dilations, count_include_pad=False)
    )


def _lp_pool(n: Node) -> relax.Expr:
    """(sum |x|^p)^(1/p): the mean over padded data, times the window's size."""
    p, x, w = float(n.attr("p", 2)), _checked(n), _window(n)
    powered = n.emit(R.power(n.emit(R.abs(x)), n.scalar(p)))
    widths = [0, 0, 0, 0] + [v for pair in zip(w.before, w.after, strict=True) for v in pair]
    powered = n.emit(R.nn.pad(powered, widths)) if any(widths) else powered
    w.before, w.after = [0] * len(w.before), [0] * len(w.after)
    total = n.emit(R.multiply(_mean_window(n, powered, w), n.scalar(float(np.prod(w.kernel)))))
    y = n.emit(R.power(total, n.scalar(1 / p)))
    return narrow(n, y) if n.rank() == 3 else y


def _spatial(n: Node) -> list[int]:
    return list(range(2, n.rank()))


def _global_lp(n: Node) -> relax.Expr:
    p = float(n.attr("p", 2))
    powered = n.emit(R.power(n.emit(R.abs(n.x(0))), n.scalar(p)))
    return n.emit(R.power(n.emit(R.sum(powered, _spatial(n), True)), n.scalar(1 / p)))


TABLE: dict[str, Converter] = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "GlobalAveragePool": lambda n: n.emit(R.mean(n.x(0), _spatial(n), True)),
    "GlobalMaxPool": lambda n: n.emit(R.max(n.x(0), _spatial(n), True)),
    "GlobalLpPool": _global_lp,
}
