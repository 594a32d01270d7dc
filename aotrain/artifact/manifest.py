"""Plan and compile options in, the manifest's JSON out: readable, sorted, byte-identical."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from aotrain.artifact.planfile import VERSION
from aotrain.plan import Entry, Kind, Plan, Tensor

SCHEMA = "aotrain/artifact/1"
NAME = "manifest.json"
REPORT = "memory_report"
"""Key of what the memory solver found and proved: `aotrain.memory.Report.as_dict()`."""


def build(
    plan: Plan,
    info: Mapping[str, Any],
    labels: int | None,
    files: Mapping[str, bytes],
) -> dict[str, Any]:
    """The manifest. `info` adds keys (name, target, options, versions); ours win over it.

    `files` maps the names of the artifact's files to their content, for size and SHA-256.
    """
    versions = {"aotrain": version("aotrain"), "plan": VERSION, **info.get("versions", {})}
    return {
        **info,
        "schema": SCHEMA,
        "versions": versions,
        "entries": {entry.name: _entry(plan, entry) for entry in plan.entries},
        "state": [
            {**_tensor(t), "role": t.role.value}
            for t in plan.tensors
            if t.kind is Kind.STATE and t.role
        ],
        "hyper": {t.name: t.default for t in plan.tensors if t.kind is Kind.HYPER},
        "labels": labels,
        "memory": _memory(plan),
        "files": {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        },
    }


def dump(manifest: Mapping[str, Any]) -> bytes:
    """UTF-8 JSON with sorted keys. Raises TypeError for what JSON cannot hold."""
    return (json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}


def _entry(plan: Plan, entry: Entry) -> dict[str, Any]:
    return {
        "inputs": [_tensor(plan.tensors[i]) for i in entry.inputs],
        "outputs": [_tensor(plan.tensors[i]) for i in entry.outputs],
        "launches": len(entry.launches),
    }


def _memory(plan: Plan) -> dict[str, int]:
    """Bytes; block = persistent + arena, and scratch comes on top, once a thread."""
    by_kind = {
        f"{kind.value}_bytes": sum(t.nbytes for t in plan.tensors if t.kind is kind)
        for kind in Kind
    }
    return {
        **by_kind,
        "block_bytes": plan.block_bytes,
        "persistent_bytes": plan.persistent_bytes,
        "arena_bytes": plan.arena_bytes,
        "thread_scratch_bytes": plan.thread_scratch,
    }
