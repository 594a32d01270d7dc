"""A model in, one line for every node out: can it be imported, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx

from aotrain.importer.driver import outcomes
from aotrain.importer.options import ImportOptions


@dataclass(frozen=True)
class NodeReport:
    """One node of the main graph. `reason` is empty exactly if it is importable."""

    node: str  # its name, or its first output
    op_type: str
    domain: str  # "" is ONNX's own
    shapes: tuple[str, ...]  # of its inputs, as far as known
    importable: bool
    reason: str = ""
    hint: str = ""
    code: str = ""


def check(
    source: Path | str | onnx.ModelProto, options: ImportOptions | None = None
) -> list[NodeReport]:
    """Report on every node, in the file's order, all problems at once.

    Raises InputError where no node can be judged: a broken file, an unbound dimension, a glob
    without a match.
    """
    found, _ = outcomes(source, options)
    reports = []
    for outcome in found:
        node, problems = outcome.node, outcome.problems
        reports.append(
            NodeReport(
                node=node.name or next((o for o in node.output if o), node.op_type),
                op_type=node.op_type,
                domain=node.domain,
                shapes=outcome.shapes,
                importable=not problems,
                reason="; ".join(p.message for p in problems),
                hint="; ".join(dict.fromkeys(p.hint for p in problems if p.hint)),
                code=problems[0].code if problems else "",
            )
        )
    return reports
