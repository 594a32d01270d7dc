"""Temporary files and folders: whole or not at all, whoever is killed, and whatever is full."""

import resource
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from aotrain import artifact
from aotrain.errors import InputError
from aotrain.files import folder_beside, replacing
from tests.runtime import toy

HOLD = """
import sys
from pathlib import Path
from aotrain.files import folder_beside
with folder_beside(Path(sys.argv[1])) as folder:
    (folder / "new").mkdir()
    print(folder.name, flush=True)
    sys.stdin.read()
"""


@contextmanager
def full_disk(limit):
    """Files of this process end at `limit` bytes, with EFBIG where a full disk has ENOSPC."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def holder(path):
    """A process that is about to write `path`, and the name of its folder."""
    command = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def test_what_a_killed_process_left_goes_and_what_a_living_one_holds_stays(tmp_path):
    path = tmp_path / "m[1].aot"
    killed, left = holder(path)
    living, held = holder(path)
    other, neighbour = holder(tmp_path / "m.aot")
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert (tmp_path / left / "new").is_dir()
    with folder_beside(path) as folder:
        assert {p.name for p in tmp_path.iterdir()} == {folder.name, held, neighbour}
    for process in (living, other):
        process.communicate("")
        assert process.returncode == 0
    killed.communicate()
    assert list(tmp_path.iterdir()) == []


def test_an_artifact_on_a_full_disk(tmp_path_factory, tmp_path):
    kernels = toy.build(tmp_path_factory.mktemp("toy") / "toy.aot") / "kernels.so"
    arguments = {"plan": toy.plan(), "state": toy.state(), "labels": 5, "info": {"name": "toy"}}
    constants = {9: toy.batch()["x"][0]}
    with full_disk(1000), pytest.raises(InputError, match="AOT-A002") as caught:
        artifact.write(tmp_path / "m.aot", kernels=kernels, constants=constants, **arguments)
    assert f"cannot write '{tmp_path / 'm.aot' / 'kernels.so'}': File too large" in str(
        caught.value
    )
    assert list(tmp_path.iterdir()) == []


def test_a_file_on_a_full_disk(tmp_path):
    path = tmp_path / "t.onnx"
    path.write_text("old")
    message = f"cannot write '{path}': File too large"
    with full_disk(100), pytest.raises(InputError) as caught, replacing(path) as temporary:
        temporary.write_bytes(bytes(1000))
    assert message in str(caught.value)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_not_said_to_be_full(tmp_path):
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "t.onnx"):
        (tmp_path / "gone").read_bytes()
