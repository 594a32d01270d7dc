"""Trials in, a file of JSON lines a device, and the choices that won out.

    {"target": "cpu:x86_64,znver4", "compiler": "...", "key": "9f..", "kernel": "fused_matmul",
     "choices": [{"swapped": false, "height": 6, ...}], "outcome": "won", "ratio": 0.71}

Lines are only ever added, each as soon as it is known, so that a killed tuning loses none. `key` is
the structural hash of the kernel before its schedule. Of a key's lines with outcome "won" or
"withdrawn" the last holds. A line of another target or compiler, or that cannot be read, is passed
over and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from aotrain.errors import Diagnostic, InputError
from aotrain.files import writing
from aotrain.runtime.building import cache_folder

WON, WITHDRAWN = "won", "withdrawn"
OUTCOMES = (WON, WITHDRAWN, "slower", "wrong", "crashed", "hung", "failed")
#: Of a choice: `schedules.cpu.Choice`.
FIELDS = {"swapped": bool, "height": int, "width": int, "row_tasks": int, "pack_rows": bool}

Plain = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """One trial. `ratio`: of the time to that of what was best then; None: it was not measured."""

    target: str
    compiler: str
    key: str
    kernel: str
    choices: tuple[Plain, ...]
    outcome: str
    ratio: float | None = None

    @property
    def tried(self) -> tuple[tuple[Any, ...], ...]:
        """The choices, to be found among others."""
        return tuple(tuple(choice[name] for name in FIELDS) for choice in self.choices)


@dataclass
class Database:
    """Records of one target and this compiler; `ignored` counts the lines that are none."""

    path: Path
    target: str
    records: list[Record] = field(default_factory=list)
    ignored: int = 0

    def best(self) -> dict[str, tuple[Plain, ...]]:
        """The choices that hold, by key."""
        found: dict[str, tuple[Plain, ...]] = {}
        for record in self.records:
            if record.outcome == WON:
                found[record.key] = record.choices
            elif record.outcome == WITHDRAWN:
                found.pop(record.key, None)
        return found

    def add(self, records: Iterable[Record]) -> None:
        """Append to the file, and here."""
        new = list(records)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"cannot write '{self.path}': {error.strerror}"
            raise InputError(Diagnostic("AOT-A002", message)) from error
        with writing(self.path), self.path.open("ab+") as file:
            # A process that was killed may have left half a line.
            file.seek(max(file.seek(0, 2) - 1, 0))
            start = b"" if file.read(1) in (b"", b"\n") else b"\n"
            file.write(start + "".join(f"{_line(record)}\n" for record in new).encode())
        self.records += new

    def merge(self, other: Database) -> int:
        """Add the records of `other` that are not here yet; how many."""
        known = {_line(record) for record in self.records}
        new = [record for record in other.records if _line(record) not in known]
        self.add(new)
        return len(new)

    def note(self) -> str:
        """What was passed over, in words; "" for nothing."""
        if not self.ignored:
            return ""
        return f"tuning records of another target or version, or damaged, ignored: {self.ignored}"


def _line(record: Record) -> str:
    return json.dumps(asdict(record), sort_keys=True)


@cache
def compiler() -> str:
    """The versions that a record holds for."""
    return f"aotrain {version('aotrain')}, tvm {version('apache-tvm')}"


def path_of(target: str) -> Path:
    """The file of a device, by its target's full name, in the user's cache."""
    return cache_folder() / "tuning" / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', target)}.jsonl"


def read(target: str, path: Path | None = None) -> Database:
    """The database of `target`: empty where there is no file yet.

    Raises InputError where `path` is given and cannot be read.
    """
    found = Database(path or path_of(target), target)
    try:
        lines = found.path.read_bytes().splitlines()
    except OSError as error:
        if path is None:
            return found
        message = f"cannot read '{path}': {error.strerror}"
        raise InputError(Diagnostic("AOT-D010", message)) from error
    for line in lines:
        record = _parse(line)
        if record is None or (record.target, record.compiler) != (target, compiler()):
            found.ignored += 1
        else:
            found.records.append(record)
    return found


def _parse(line: bytes) -> Record | None:
    """A record, or None for anything else."""
    try:
        data = json.loads(line)
        record = Record(**{**data, "choices": tuple(data["choices"])})
    except (ValueError, TypeError, KeyError):
        return None
    texts = (record.target, record.compiler, record.key, record.kernel)
    plain = all(isinstance(text, str) for text in texts) and record.outcome in OUTCOMES
    return record if plain and all(_is_choice(choice) for choice in record.choices) else None


def _is_choice(choice: object) -> bool:
    return (
        isinstance(choice, Mapping)
        and choice.keys() == FIELDS.keys()
        and all(type(choice[name]) is kind for name, kind in FIELDS.items())
    )
