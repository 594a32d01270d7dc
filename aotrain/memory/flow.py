"""Edges with capacities in, a minimum cut out: its value rounded down, and the source's side.

The solver underneath takes 32-bit integers. Capacities are scaled into that range and rounded down,
so `Cut.value` is never above the true minimum: it may stand in a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

SOURCE, SINK = 0, 1
FIRST = 2  # the number of a network's first own vertex
INFINITE = 1 << 30  # above the scaled sum of all finite capacities


@dataclass(frozen=True)
class Cut:
    """`value` <= the minimum; None where every cut is infinite. `source_side[v]` by vertex."""

    value: float | None
    source_side: npt.NDArray[np.bool_]


class Network:
    """Directed edges between SOURCE, SINK and vertices from FIRST on; None is infinite."""

    def __init__(self, vertices: int) -> None:
        self.vertices = vertices
        self.heads: list[int] = []
        self.tails: list[int] = []
        self.infinite: list[bool] = []
        self._made: _Layout | None = None

    def edge(self, tail: int, head: int, *, infinite: bool = False) -> int:
        """Add an edge; its number, by which `minimum_cut` takes its capacity."""
        self.tails.append(tail)
        self.heads.append(head)
        self.infinite.append(infinite)
        return len(self.tails) - 1

    def minimum_cut(self, capacity: Sequence[float] | npt.NDArray[np.float64]) -> Cut:
        """`capacity` by edge, not negative, not read for infinite edges."""
        layout = self._layout()
        exact = np.where(layout.infinite, 0.0, np.asarray(capacity, np.float64))
        scale = (INFINITE - 1) / (exact.sum() or 1.0)
        scaled = np.where(layout.infinite, INFINITE, np.floor(exact * scale)).astype(np.int32)
        data = np.zeros(len(layout.indices), np.int32)
        data[layout.slot] = scaled
        graph = csr_array((data, layout.indices, layout.begin), shape=(self.vertices,) * 2)
        result = maximum_flow(graph, SOURCE, SINK)
        open_ = data > result.flow.data  # every edge has its reverse, so the layouts are the same
        begin = np.concatenate([[0], np.cumsum(open_)])[layout.begin]
        residual = csr_array(
            (np.ones(begin[-1], np.int8), layout.indices[open_], begin), shape=graph.shape
        )
        side = np.zeros(self.vertices, bool)
        side[breadth_first_order(residual, SOURCE, return_predecessors=False)] = True
        value = None if result.flow_value >= INFINITE else float(result.flow_value) / scale
        return Cut(value, side)

    def _layout(self) -> _Layout:
        """Made on the first cut; edges may not be added afterwards."""
        if self._made is None:
            tails, heads = np.array(self.tails, np.int64), np.array(self.heads, np.int64)
            keys = np.concatenate([tails * self.vertices + heads, heads * self.vertices + tails])
            cells, place = np.unique(keys, return_inverse=True)
            slot = place[: len(tails)]
            assert len(np.unique(slot)) == len(slot), "an edge that is there twice"
            begin = np.searchsorted(cells, np.arange(self.vertices + 1) * self.vertices)
            indices = (cells % self.vertices).astype(np.int32)
            infinite = np.array(self.infinite, bool)
            self._made = _Layout(infinite, slot, indices, begin.astype(np.int32))
        return self._made


@dataclass(frozen=True)
class _Layout:
    """The rows of a sparse matrix with every edge and its reverse; `slot` is an edge's place."""

    infinite: npt.NDArray[np.bool_]
    slot: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    begin: npt.NDArray[np.int32]
