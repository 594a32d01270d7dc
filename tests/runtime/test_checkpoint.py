"""Checkpoints that are damaged, foreign, newer, half-written or do not fit on the disk."""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from aotrain import artifact
from aotrain.errors import InputError
from aotrain.runtime import Session
from tests.runtime import toy


@pytest.fixture
def session(toy_artifact: Path):
    with Session(toy_artifact, threads=1) as opened:
        for step in range(3):
            opened.step(**toy.batch(seed=step))
        yield opened


def rewrite(path: Path, change) -> Path:
    """The file with its header changed, and without our keys, as another tool writes it."""
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    metadata = header["__metadata__"]
    header["__metadata__"] = {k: v for k, v in metadata.items() if not k.startswith("aotrain.")}
    header = change(header) or header
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
    return path


def assert_refused(session: Session, path: Path, message: str) -> None:
    before = session.state_dict()
    with pytest.raises(InputError, match=message):
        session.load(path)
    after = session.state_dict()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def test_every_truncation_and_every_flipped_byte_is_refused(
    session: Session, tmp_path: Path
) -> None:
    path = tmp_path / "s.safetensors"
    session.save(path)
    session.step(**toy.batch(seed=9))  # the state differs from the file from here on
    raw = path.read_bytes()
    for size in range(len(raw)):
        path.write_bytes(raw[:size])
        assert_refused(session, path, "AOT-A0")
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert_refused(session, path, "AOT-A0")
        with pytest.raises(InputError):
            artifact.read_checkpoint(path)
    path.write_bytes(raw + b"\0")
    assert_refused(session, path, "belong to no tensor")


def test_another_tools_file_loads(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    session.save(path)
    saved = session.state_dict()
    session.step(**toy.batch(seed=9))
    session.load(rewrite(path, lambda header: dict(reversed(header.items()))))
    assert all((saved[k] == v).all() for k, v in session.state_dict().items())


def _replace(name: str, **fields: object):
    return lambda header: header[name].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.pop("w") and None, "lacks the tensor 'w'"),
        (lambda h: h["__metadata__"].pop("rng") and None, "lacks the tensor 'rng'"),
        (lambda h: h.update(more=h["w"]), "holds a tensor 'more' that this model does not have"),
        (_replace("w", shape=[5, 3]), "tensor 'w' .* the shape differs"),
        (_replace("w", shape=[15]), "tensor 'w' .* the shape differs"),
        (_replace("w", dtype="I32"), "tensor 'w' .* the dtype differs"),
        (_replace("w", data_offsets=[0, 2**62]), "tensor 'w' .* outside the file"),
        (_replace("w", data_offsets=[2**62, 2**62 + 60]), "tensor 'w' .* outside the file"),
        (_replace("w", data_offsets=[60, 0]), "tensor 'w' .* outside the file"),
        (lambda h: h["__metadata__"].update(rng="7"), "counter 'rng' .* impossible"),
        (lambda h: h["__metadata__"].update(rng="7 4294967296"), "counter 'rng' .* impossible"),
        (lambda h: h["__metadata__"].update(step="-1"), "counter 'step' .* impossible"),
        (lambda h: h["__metadata__"].update({"aotrain.format": "2"}), "AOT-A011"),
    ],
)
def test_foreign_files_are_refused(session: Session, tmp_path: Path, change, message: str) -> None:
    path = tmp_path / "s.safetensors"
    session.save(path)
    session.step(**toy.batch(seed=9))
    assert_refused(session, rewrite(path, change), message)


def test_hyperparameters_come_back(session: Session, tmp_path: Path) -> None:
    session.set(lr=0.123)
    session.save(tmp_path / "s.safetensors")
    session.set(lr=9.0)
    session.load(tmp_path / "s.safetensors")
    assert session.view("lr") == np.float32(0.123)


def test_no_space_leaves_the_old_file(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    session.save(path)
    old = path.read_bytes()
    session.step(**toy.batch(seed=9))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(old) - 20, limits[1]))
    try:
        with pytest.raises(InputError, match=r"AOT-A030.*cannot save"):
            session.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["s.safetensors"]


def test_a_folder_that_is_not_there(session: Session, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        session.save(tmp_path / "none" / "s.safetensors")


def test_killed_while_saving(toy_artifact: Path, tmp_path: Path) -> None:
    """At whatever moment the writer dies, the file is whole."""
    path = tmp_path / "s.safetensors"
    code = (
        "import sys\nfrom aotrain.runtime import Session\n"
        "session = Session(sys.argv[1], threads=1)\n"
        "while True:\n session.step()\n session.save(sys.argv[2])\n"
    )
    with Session(toy_artifact, threads=1) as session:
        for delay in (0.0, 0.011, 0.023):
            path.unlink(missing_ok=True)
            child = subprocess.Popen([sys.executable, "-c", code, str(toy_artifact), str(path)])
            while not path.exists():
                time.sleep(0.005)
            time.sleep(delay)
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            session.load(path)
            assert session.info["step"] >= 1
