"""An ONNX model in; for every node whether it imports, differentiates and lowers, and why not, out.

The stages of a compile run one after the other, each until its end, and their diagnostics are laid
beside the nodes that they name. A stage is not reached where the one before it failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aotrain.arguments import MAPPING, NONE, PATH, check_types, globs
from aotrain.errors import AotError, Diagnostic

_NODE = re.compile(r"^\S+ node '(.*?)'(?: \(|$)")  # as importer.model.Origin prints itself


@dataclass(frozen=True)
class NodeReport:
    """One node of the ONNX graph. True and False are verdicts; None means not reached."""

    name: str  # the node's, or its first output where it has none
    op_type: str
    shapes: tuple[str, ...]  # of its inputs, as far as they are known
    imported: bool
    differentiable: bool | None = None
    kernel: bool | None = None
    reasons: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class Report:
    """All nodes in the order of the file, and the problems that belong to none of them."""

    nodes: tuple[NodeReport, ...]
    others: tuple[Diagnostic, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the model can be trained as it is."""
        return not self.others and not any(node.reasons for node in self.nodes)

    def as_json(self) -> dict[str, Any]:
        """Plain values, the field names being those of `NodeReport`."""
        return {
            "nodes": [
                {
                    "name": node.name,
                    "op": node.op_type,
                    "shapes": list(node.shapes),
                    "imported": node.imported,
                    "differentiable": node.differentiable,
                    "kernel": node.kernel,
                    "reasons": [_json(reason) for reason in node.reasons],
                }
                for node in self.nodes
            ],
            "problems": [_json(problem) for problem in self.others],
        }


@dataclass(frozen=True)
class _Verdict:
    """What a stage after the import said: problems by node name, and those of no node."""

    by_node: Mapping[str, list[Diagnostic]] = field(default_factory=dict)
    others: tuple[Diagnostic, ...] = ()


def check(
    model: str | Path,
    *,
    target: str = "cpu",
    loss: str = "auto",
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    trainable: Sequence[str] = (),
    freeze: Sequence[str] = (),
) -> Report:
    """Try to compile `model` up to its kernels, and report on each node; nothing is written.

    The arguments are those of `aotrain.compile`. Raises `InputError` where there is no node to
    report on: a missing or broken file, a dimension without a size, a glob that matches nothing.
    """
    from aotrain import importer, passes, step, targets
    from aotrain.compiler import DEFAULT_BATCH
    from aotrain.importer import ImportOptions
    from aotrain.step.options import LossOptions, StepOptions

    types = {"model": (model, PATH), "target": (target, (str,)), "loss": (loss, (str,))}
    check_types("check", {**types, "dims": (dims, (*MAPPING, *NONE))})
    chosen = targets.get(target)
    options = ImportOptions(
        dims=dict(dims or {}),
        batch=batch,
        default_batch=DEFAULT_BATCH,
        trainable=globs("check", "trainable", trainable),
        freeze=globs("check", "freeze", freeze),
    )
    found = importer.check(Path(model), options)
    nodes = tuple(
        NodeReport(r.node, r.op_type, r.shapes, r.importable, reasons=_import_reason(r))
        for r in found
    )
    if any(node.reasons for node in nodes):
        return Report(nodes)
    loaded = importer.load(Path(model), options)
    names = {node.name for node in nodes}
    try:
        program = step.build(loaded, StepOptions(loss=LossOptions(kind=loss)))
    except AotError as error:
        return _judge(nodes, _sort(error, names), lambda node, ok: replace(node, differentiable=ok))
    nodes = tuple(replace(node, differentiable=True) for node in nodes)
    try:
        passes.lower(program, chosen.tvm, legalize=chosen.legalize_map())
    except AotError as error:
        return _judge(nodes, _sort(error, names), lambda node, ok: replace(node, kernel=ok))
    return Report(tuple(replace(node, kernel=True) for node in nodes))


def _import_reason(report: Any) -> tuple[Diagnostic, ...]:
    if report.importable:
        return ()
    return (Diagnostic(report.code, report.reason, hint=report.hint),)


def _sort(error: AotError, names: set[str]) -> _Verdict:
    by_node: dict[str, list[Diagnostic]] = {}
    others = []
    for diagnostic in error.diagnostics:
        match = _NODE.match(diagnostic.where)
        if match and match[1] in names:
            by_node.setdefault(match[1], []).append(diagnostic)
        else:
            others.append(diagnostic)
    return _Verdict(by_node, tuple(others))


def _judge(
    nodes: Sequence[NodeReport],
    verdict: _Verdict,
    mark: Callable[[NodeReport, bool | None], NodeReport],
) -> Report:
    """`nodes` with the verdict of a stage that failed.

    A node that it does not name passed, unless the stage broke off for another reason.
    """
    judged = []
    for node in nodes:
        reasons = tuple(verdict.by_node.get(node.name, ()))
        passed = not reasons if verdict.by_node else None
        judged.append(mark(replace(node, reasons=reasons), passed))
    return Report(tuple(judged), verdict.others)


def _json(diagnostic: Diagnostic) -> dict[str, str]:
    return {"code": diagnostic.code, "message": diagnostic.message, "hint": diagnostic.hint}
