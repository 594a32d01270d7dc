"""The loader: its C sources, built once per compiler and target, and its Python face.

    built = aotrain.runtime.build()      # Built(aotrun=..., library=...), from the cache if it can
    with aotrain.runtime.Session("model.aot") as session:
        loss = session.step(x=x, y=y)

Imports no TVM.
"""

from aotrain.runtime.building import SOURCES, Built, build, cache_folder
from aotrain.runtime.session import Session

__all__ = ["SOURCES", "Built", "Session", "build", "cache_folder"]
