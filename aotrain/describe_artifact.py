"""A folder `model.aot/` in; its signature, state, memory and kernels as tables out.

Every file is verified, but no kernel is loaded: any machine can look at any artifact.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aotrain.artifact import Artifact, read
from aotrain.describe import Description, Section
from aotrain.plan import Kind, Plan, Role, Tensor


def describe_artifact(folder: Path) -> Description:
    """Raises `InputError`: AOT-A010 damaged, AOT-A011 newer than this version."""
    artifact = read(folder)
    plan, manifest = artifact.plan, artifact.manifest
    memory = _memory(plan)
    launches = sum(len(entry.launches) for entry in plan.entries)
    facts = [
        ("artifact", artifact.name or folder.name),
        ("target", str(manifest.get("target", "unknown"))),
        ("memory", f"{plan.block_bytes} bytes: all that a run allocates for tensors"),
        ("arena", f"{plan.arena_bytes} bytes of it, shared by what lives inside a step"),
        (
            "kernels",
            f"{len(plan.kernels)}, launched {launches} times by {len(plan.entries)} entries",
        ),
    ]
    if artifact.labels is not None:
        facts.append(("classes", str(artifact.labels)))
    sections = (
        Section("signature", ("entry", "kind", "name", "type"), tuple(_signature(plan))),
        Section("hyperparameters", ("kind", "name", "default"), tuple(_hyper(plan))),
        Section("state", ("role", "name", "type", "bytes"), tuple(_state(plan)), "lllr"),
        Section("memory", ("what", "bytes"), tuple((k, str(v)) for k, v in memory), "lr"),
        Section("kernels", ("kernel", "launches", "origin"), tuple(_kernels(plan)), "lrl"),
    )
    data = _data(artifact, memory)
    return Description("artifact", tuple(facts), sections, data)


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"


def _signature(plan: Plan) -> Iterable[tuple[str, str, str, str]]:
    for entry in plan.entries:
        for kind, indices in (("input", entry.inputs), ("output", entry.outputs)):
            for index in indices:
                tensor = plan.tensors[index]
                yield entry.name, kind, tensor.name, _type(tensor)


def _hyper(plan: Plan) -> Iterable[tuple[str, str, str]]:
    for tensor in plan.tensors:
        if tensor.kind is Kind.HYPER:
            yield "hyper", tensor.name, f"{tensor.default:.6g}"


def _state(plan: Plan) -> Iterable[tuple[str, str, str, str]]:
    """In the order of the roles: what is trained first, slots and counters last."""
    roles = list(Role)
    held = [tensor for tensor in plan.tensors if tensor.role is not None]
    for tensor in sorted(held, key=lambda tensor: roles.index(tensor.role or Role.COUNTER)):
        assert tensor.role is not None
        yield tensor.role.value, tensor.name, _type(tensor), str(tensor.nbytes)


def _memory(plan: Plan) -> list[tuple[str, int]]:
    """Bytes by what holds them; padding is what alignment adds."""
    sums: dict[str, int] = {}
    for tensor in plan.tensors:
        if tensor.kind is not Kind.TEMP:
            what = tensor.role.value if tensor.role is not None else tensor.kind.value
            sums[what] = sums.get(what, 0) + tensor.nbytes
    padding = plan.persistent_bytes - sum(sums.values())
    return [
        *sums.items(),
        ("padding", padding),
        ("arena", plan.arena_bytes),
        ("all", plan.block_bytes),
        ("scratch of each thread", plan.thread_scratch),
    ]


def _kernels(plan: Plan) -> Iterable[tuple[str, str, str]]:
    """How often each kernel is launched in all entries, and the ONNX nodes that asked for it."""
    counts = [0] * len(plan.kernels)
    origins: list[dict[str, None]] = [{} for _ in plan.kernels]
    for entry in plan.entries:
        for launch in entry.launches:
            counts[launch.kernel] += 1
            if launch.origin:
                origins[launch.kernel][launch.origin] = None
    for name, count, nodes in zip(plan.kernels, counts, origins, strict=True):
        first = next(iter(nodes), "")
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        yield name, str(count), first + more


def _data(artifact: Artifact, memory: list[tuple[str, int]]) -> dict[str, Any]:
    plan = artifact.plan
    return {
        "name": artifact.name,
        "manifest": artifact.manifest,
        "signature": [
            {"entry": entry, "kind": kind, "name": name, "type": type_}
            for entry, kind, name, type_ in _signature(plan)
        ],
        "hyperparameters": {
            tensor.name: tensor.default for tensor in plan.tensors if tensor.kind is Kind.HYPER
        },
        "state": [
            {"role": role, "name": name, "type": type_, "bytes": int(nbytes)}
            for role, name, type_, nbytes in _state(plan)
        ],
        "memory_bytes": dict(memory),
        "kernel_table": [
            {"name": name, "launches": int(count), "origin": origin}
            for name, count, origin in _kernels(plan)
        ],
        "labels": artifact.labels,
        "ignore_index": artifact.ignore_index,
    }
