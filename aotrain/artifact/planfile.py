"""Plan ⇄ plan.bin, exactly: `pack` writes what the C loader reads, `unpack` reads it back.

The layout is described where it is parsed: `runtime/plan.c` (header), `runtime/tables.c` (tables).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from aotrain.errors import Diagnostic, InputError
from aotrain.plan import ITEM_BYTES, Entry, Kind, Launch, Plan, Role, Tensor

MAGIC = b"AOTPLAN\0"
VERSION = 1
KERNEL_ABI = 1  # AOT_KERNEL_ABI in runtime/aot_kernel_abi.h
HEADER = struct.Struct("<8sIIQQ")  # magic, version, crc, file bytes, end of the tables
CRC_FROM = 16
NO_LABEL = -(2**63)

DTYPES = tuple(ITEM_BYTES)  # position = code: aot_dtype in runtime/aotrun.h
KINDS = tuple(Kind)
ROLES = (None, *Role)


@dataclass(frozen=True)
class FileDigest:
    """Size in bytes and CRC-32 of a file of the artifact, by which a mixed one is refused."""

    nbytes: int
    crc: int

    @staticmethod
    def of(content: bytes) -> FileDigest:
        """The digest of `content`."""
        return FileDigest(len(content), zlib.crc32(content))


@dataclass(frozen=True)
class PlanFile:
    """All that plan.bin holds. `constants` are raw little-endian bytes by tensor index."""

    plan: Plan
    kernels: FileDigest
    state: FileDigest
    name: str = ""
    labels: int | None = None  # the train entry's last input holds class indices below it
    ignore_index: int | None = None
    constants: Mapping[int, bytes] = field(default_factory=dict)


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def put(self, form: str, *values: float) -> None:
        self.parts.append(struct.pack("<" + form, *values))

    def text(self, text: str) -> None:
        raw = text.encode()
        assert b"\0" not in raw, "names hold no NUL"
        self.put("I", len(raw))
        self.parts.append(raw + b"\0")

    def indices(self, values: tuple[int, ...]) -> None:
        self.put(f"{len(values)}I", *values)


def pack(file: PlanFile) -> bytes:
    """The bytes of plan.bin. The plan must be packed (every offset set)."""
    plan, out = file.plan, _Writer()
    out.put("I", KERNEL_ABI)
    out.put("QIQI", file.kernels.nbytes, file.kernels.crc, file.state.nbytes, file.state.crc)
    out.text(file.name)
    ignore = NO_LABEL if file.ignore_index is None else file.ignore_index
    out.put("QQqq", plan.block_bytes, plan.thread_scratch, file.labels or 0, ignore)
    launches = [launch for entry in plan.entries for launch in entry.launches]
    out.put("IIII", len(plan.tensors), len(plan.kernels), len(plan.entries), len(launches))
    out.put(
        "QQQ",
        sum(len(t.shape) for t in plan.tensors),
        sum(len(launch.args) for launch in launches),
        sum(len(e.inputs) + len(e.outputs) for e in plan.entries),
    )
    for tensor in plan.tensors:
        _put_tensor(out, tensor)
    for kernel in plan.kernels:
        out.text(kernel)
    for entry in plan.entries:
        _put_entry(out, entry)
    tables = b"".join(out.parts)
    constants = b"".join(
        file.constants[index] for index, t in enumerate(plan.tensors) if t.kind is Kind.CONSTANT
    )
    end = HEADER.size + len(tables)
    sizes = struct.pack("<QQ", end + len(constants), end)
    body = sizes + tables + constants
    return MAGIC + struct.pack("<II", VERSION, zlib.crc32(body)) + body


def _put_tensor(out: _Writer, tensor: Tensor) -> None:
    out.text(tensor.name)
    out.text(tensor.origin)
    out.put(
        "BBBBBdQ",
        DTYPES.index(tensor.dtype),
        KINDS.index(tensor.kind),
        ROLES.index(tensor.role),
        len(tensor.shape),
        tensor.default is not None,
        0.0 if tensor.default is None else tensor.default,
        tensor.offset,
    )
    out.put(f"{len(tensor.shape)}q", *tensor.shape)


def _put_entry(out: _Writer, entry: Entry) -> None:
    out.text(entry.name)
    out.put("III", len(entry.launches), len(entry.inputs), len(entry.outputs))
    out.indices(entry.inputs)
    out.indices(entry.outputs)
    for launch in entry.launches:
        out.put("III", launch.kernel, len(launch.args), len(launch.writes))
        out.indices(launch.args)
        out.indices(launch.writes)
        out.text(launch.origin)


class _Reader:
    def __init__(self, raw: bytes, at: int, end: int) -> None:
        self.raw, self.at, self.end = raw, at, end

    def take(self, form: str) -> tuple[int, ...]:
        form = "<" + form
        size = struct.calcsize(form)
        if size > self.end - self.at:
            raise _corrupt("its tables are cut off")
        values = struct.unpack_from(form, self.raw, self.at)
        self.at += size
        return values

    def text(self) -> str:
        (size,) = self.take("I")
        (raw,) = self.take(f"{size}s")
        (end,) = self.take("B")
        if end or b"\0" in raw:  # type: ignore[operator]
            raise _corrupt("a string has no end")
        return raw.decode()  # type: ignore[attr-defined]


def unpack(raw: bytes) -> PlanFile:
    """The inverse of `pack`. InputError AOT-A010 (damaged) or AOT-A011 (newer)."""
    end = _check_header(raw)
    try:
        return _tables(raw, end)
    except (ValueError, IndexError, OverflowError) as error:  # checksum right, content not ours
        raise _corrupt(str(error)) from error


def _check_header(raw: bytes) -> int:
    if len(raw) < HEADER.size:
        raise _corrupt(f"only {len(raw)} bytes", "truncated")
    magic, version, crc, nbytes, end = HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise InputError(Diagnostic("AOT-A010", "plan.bin is not a plan"))
    if version != VERSION:
        raise InputError(
            Diagnostic(
                "AOT-A011",
                f"plan.bin has format version {version}, this aotrain reads {VERSION}",
                hint="upgrade aotrain, or compile the model again",
            )
        )
    if nbytes != len(raw):
        raise _corrupt(f"{len(raw)} bytes, its header says {nbytes}", "truncated")
    if crc != zlib.crc32(raw[CRC_FROM:]):
        raise _corrupt("its checksum does not match")
    return int(end)


def _tables(raw: bytes, end: int) -> PlanFile:
    tables = _Reader(raw, HEADER.size, end)
    tables.take("I")  # kernel ABI: the loader's business
    kernel_bytes, kernel_crc, state_bytes, state_crc = tables.take("QIQI")
    name = tables.text()
    block_bytes, thread_scratch, labels, ignore = tables.take("QQqq")
    tensor_count, kernel_count, entry_count, _ = tables.take("IIII")
    tables.take("QQQ")
    tensors = tuple(_tensor(tables) for _ in range(tensor_count))
    kernels = tuple(tables.text() for _ in range(kernel_count))
    entries = tuple(_entry(tables) for _ in range(entry_count))
    if tables.at != end:
        raise _corrupt("its tables do not add up")
    return PlanFile(
        Plan(tensors, kernels, entries, block_bytes, thread_scratch),
        FileDigest(kernel_bytes, kernel_crc),
        FileDigest(state_bytes, state_crc),
        name,
        labels or None,
        None if ignore == NO_LABEL else ignore,
        _constants(raw, end, tensors),
    )


def _constants(raw: bytes, at: int, tensors: tuple[Tensor, ...]) -> dict[int, bytes]:
    constants = {}
    for index, tensor in enumerate(tensors):
        if tensor.kind is Kind.CONSTANT:
            constants[index] = raw[at : at + tensor.nbytes]
            at += tensor.nbytes
    if at != len(raw):
        raise _corrupt("its constants do not add up")
    return constants


def _tensor(tables: _Reader) -> Tensor:
    name, origin = tables.text(), tables.text()
    dtype, kind, role, rank, has_default, default, offset = tables.take("BBBBBdQ")
    shape = tables.take(f"{rank}q")
    return Tensor(
        name,
        shape,
        DTYPES[dtype],
        KINDS[kind],
        ROLES[role],
        origin,
        default if has_default else None,
        offset,
    )


def _entry(tables: _Reader) -> Entry:
    name = tables.text()
    launches, inputs, outputs = tables.take("III")
    return Entry(
        name,
        inputs=tables.take(f"{inputs}I"),
        outputs=tables.take(f"{outputs}I"),
        launches=tuple(_launch(tables) for _ in range(launches)),
    )


def _launch(tables: _Reader) -> Launch:
    kernel, args, writes = tables.take("III")
    return Launch(kernel, tables.take(f"{args}I"), tables.take(f"{writes}I"), tables.text())


def _corrupt(why: str, what: str = "corrupted") -> InputError:
    return InputError(Diagnostic("AOT-A010", f"plan.bin is {what}: {why}"))
