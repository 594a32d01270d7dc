"""Legalization of operators that only rename a shape: nothing is computed, so no kernel is made.

    y = relax.squeeze(x)       ->   y = relax.reshape(x, shape of y)
    y = relax.flatten(x)       ->   y = relax.reshape(x, shape of y)

`extract` turns the reshape that is left into a second name for x's bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

RESHAPE = "relax.reshape"  # LegalizeOps must skip it
VIEWS = ("relax.squeeze", "relax.expand_dims", "relax.flatten")


def legalize_views() -> dict[str, Callable[[relax.BlockBuilder, relax.Call], relax.Expr]]:
    """The entries of LegalizeOps' map for the view operators."""

    def view(_: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return relax.op.reshape(call.args[0], call.ty.shape)

    return dict.fromkeys(VIEWS, view)
