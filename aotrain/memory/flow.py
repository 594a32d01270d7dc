"""Edges with capacities in, a minimum cut out: its value rounded down, and the source's side.

The solver underneath takes 32-bit integers. Capacities are scaled into that range and rounded down,
so `Cut.value` is never above the true minimum: it may stand in a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
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

    def edge(self, tail: int, head: int, *, infinite: bool = False) -> int:
        """Add an edge; its number, by which `minimum_cut` takes its capacity."""
        self.tails.append(tail)
        self.heads.append(head)
        self.infinite.append(infinite)
        return len(self.tails) - 1

    def minimum_cut(self, capacity: Sequence[float] | npt.NDArray[np.float64]) -> Cut:
        """`capacity` by edge, not negative, not read for infinite edges."""
        infinite = np.array(self.infinite, bool)
        exact = np.where(infinite, 0.0, np.asarray(capacity, np.float64))
        scale = (INFINITE - 1) / (exact.sum() or 1.0)
        scaled = np.where(infinite, INFINITE, np.floor(exact * scale)).astype(np.int32)
        live = scaled > 0
        shape = (self.vertices, self.vertices)
        places = (np.array(self.tails)[live], np.array(self.heads)[live])
        graph = coo_array((scaled[live], places), shape=shape).tocsr()
        result = maximum_flow(graph, SOURCE, SINK)
        residual = (graph - result.flow).tocsr()
        residual.data = np.where(residual.data > 0, 1, 0)
        residual.eliminate_zeros()
        side = np.zeros(self.vertices, bool)
        side[breadth_first_order(residual, SOURCE, return_predecessors=False)] = True
        value = None if result.flow_value >= INFINITE else float(result.flow_value) / scale
        return Cut(value, side)
