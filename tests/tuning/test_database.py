"""The file of records: read back, appended to, merged; the foreign and damaged are passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aotrain.errors import InputError
from aotrain.tuning.database import Database, Record, compiler, path_of, read

TARGET = "cpu:x86_64,haswell"
CHOICE = {"swapped": False, "height": 6, "width": 16, "row_tasks": 1, "pack_rows": False}
OTHER = {**CHOICE, "height": 4}


def record(outcome: str = "won", key: str = "k1", choice: dict = CHOICE) -> Record:
    return Record(TARGET, compiler(), key, "matmul", (choice,), outcome, 0.9)


def test_what_is_added_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.jsonl"
    Database(path, TARGET).add([record(), record("slower", choice=OTHER)])
    Database(path, TARGET).add([record("crashed", "k2")])
    found = read(TARGET, path)
    assert found.records == [
        record(),
        record("slower", choice=OTHER),
        record("crashed", "k2"),
    ]
    assert found.ignored == 0 and found.note() == ""


def test_the_last_that_won_holds_until_withdrawn(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.jsonl", TARGET)
    database.add([record(), record(choice=OTHER), record("wrong")])
    assert database.best() == {"k1": (OTHER,)}
    database.add([record("withdrawn")])
    assert database.best() == {}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"not json",
        b"[1]",
        b'{"target": 1}',
        b"\xff\xfe",
        json.dumps({**record().__dict__, "compiler": "aotrain 0"}).encode(),
        json.dumps({**record().__dict__, "target": "cpu:aarch64,generic"}).encode(),
        json.dumps({**record().__dict__, "outcome": "great"}).encode(),
        json.dumps({**record().__dict__, "choices": [{**CHOICE, "height": "6"}]}).encode(),
        json.dumps({**record().__dict__, "choices": [{"height": 6}]}).encode(),
        json.dumps({**record().__dict__, "choices": 6}).encode(),
        json.dumps({**record().__dict__, "more": 6}).encode(),
    ],
)
def test_other_lines_are_ignored_and_counted(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    Database(path, TARGET).add([record()])
    path.write_bytes(path.read_bytes() + line + b"\n" + path.read_bytes())
    found = read(TARGET, path)
    assert found.records == [record(), record()]
    assert found.ignored == 1 and found.note().endswith("ignored: 1")


def test_half_a_line_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Database(path, TARGET).add([record()])
    path.write_bytes(path.read_bytes() + b'{"target": "cp')  # killed while it wrote
    Database(path, TARGET).add([record("hung", "k2")])
    found = read(TARGET, path)
    assert found.records == [record(), record("hung", "k2")]
    assert found.ignored == 1


def test_merging_adds_what_is_new(tmp_path: Path) -> None:
    one, other = (Database(tmp_path / name, TARGET) for name in "ab")
    one.add([record()])
    other.add([record(), record("slower", choice=OTHER)])
    assert one.merge(other) == 1
    assert one.merge(other) == 0
    assert read(TARGET, one.path).records == [record(), record("slower", choice=OTHER)]


def test_one_file_a_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert path_of(TARGET) == tmp_path / "aotrain" / "tuning" / "cpu-x86_64-haswell.jsonl"
    assert read(TARGET).records == []
    with pytest.raises(InputError, match="cannot read"):
        read(TARGET, tmp_path / "none")
