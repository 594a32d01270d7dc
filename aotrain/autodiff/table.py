"""The rules in, `docs/operators.md` out: which Relax operators can be trained through.

Operators of our own (`aotrain.*`) are not listed: they appear in no model, only in its compilation.

    python -m aotrain.autodiff.table           writes the page
    python -m aotrain.autodiff.table --check   only says whether it is current
"""

from __future__ import annotations

import sys
from pathlib import Path

from tvm.ir import Op

from aotrain.autodiff import rules  # noqa: F401  fills the table
from aotrain.autodiff.vjp import RULES, ZERO, find_rule

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
INTERNAL = ("builtin", "ccl", "dist", "grad", "inspect", "memory", "vm", "vision")
NOT_OPERATORS = (
    *("assert_op", "call_", "hint_on_device", "invoke_", "make_closure", "null_value", "print"),
    *("shape_of", "shape_to_tensor", "size", "tensor_to_shape", "to_vdevice", "wrap_param"),
)
HEAD = """# Operators and their gradients

Written by `python -m aotrain.autodiff.table`; a test checks that it is current.

`aotrain check MODEL` tells for a model which of its nodes stand in the way of training. Some rules
cover a part of an operator only (a layout, a padding mode): `check` tries the rule on the node.
"""


def families() -> dict[str, list[str]]:
    """Heading → operators under it, in the page's order."""
    names = sorted(n for n in map(str, Op.list_op_names()) if _shown(n))
    result: dict[str, list[str]] = {}
    for name in names:
        result.setdefault(_heading(name), []).append(name)
    return dict(
        sorted(result.items(), key=lambda item: (not item[0].startswith("Gradient: "), item[0]))
    )


def _shown(name: str) -> bool:
    space, _, rest = name.partition(".")
    first = rest.partition(".")[0]
    return space == "relax" and first not in INTERNAL and not rest.startswith(NOT_OPERATORS)


def _heading(name: str) -> str:
    if name in ZERO:
        return "Gradient zero, or none to have"
    if name in RULES:
        family = RULES[name].__module__.rpartition(".")[2]
        return f"Gradient: {family}"
    return "Gradient: from TVM" if find_rule(Op.get(name)) else "No gradient rule"


def render() -> str:
    """The page."""
    parts = [HEAD]
    for heading, names in families().items():
        parts.append(f"## {heading}\n\n" + ", ".join(f"`{n}`" for n in names) + "\n")
    return "\n".join(parts)


def main() -> int:
    """Write or check the page; 1 when it is stale."""
    page = render()
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != page)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
