"""`run` and `eval` against a stand-in for `aotrun`: options, data, exit codes and signals."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from aotrain.cli.app import run

PROGRAM = """#!{python}
import json, os, sys
with open({log!r}, "w") as file:
    json.dump(sys.argv[1:], file)
{body}
"""


@pytest.fixture
def artifact(tmp_path):
    """A folder whose `aotrun` notes its arguments and then does as `make(body)` says."""
    folder = tmp_path / "m.aot"
    folder.mkdir()
    log = tmp_path / "log.json"

    def make(body=""):
        program = folder / "aotrun"
        program.write_text(PROGRAM.format(python=sys.executable, log=str(log), body=body))
        program.chmod(0o755)
        return str(folder)

    make.arguments = lambda: json.loads(log.read_text())
    return make


def test_options_are_passed_on(artifact):
    folder = artifact()
    options = (
        "--epochs 3 --lr 0.5 --save s --resume r --seed 4 --threads 2 --save-every 10 --keep 2"
    )
    argv = ["run", folder, "--data", "d.npz", "--valid", "v.npz", *options.split()]
    assert run([*argv, "--map", "x=a", "--set", "momentum=0.5", "-q"]) == 0
    found = artifact.arguments()
    assert found[0] == folder
    for name, value in zip(options.split()[::2], options.split()[1::2], strict=True):
        assert found[found.index(name) + 1] == value
    assert found[found.index("--data") + 1] == "d.npz"
    assert found[found.index("--valid") + 1] == "v.npz"
    assert found[found.index("--map") + 1] == "x=a"
    assert found[found.index("--set") + 1] == "momentum=0.5"
    assert "--quiet" in found


def test_a_run_that_keeps_nothing_says_so(artifact, capfd):
    folder = artifact()
    assert run(["run", folder, "--data", "d.npz"]) == 0
    assert "not kept without --save" in capfd.readouterr().err
    for options in (["--save", "s"], ["-q"]):
        assert run(["run", folder, "--data", "d.npz", *options]) == 0
        assert capfd.readouterr().err == ""


def test_eval(artifact):
    folder = artifact()
    assert run(["eval", folder, "--data", "v.npz", "--state", "s.safetensors"]) == 0
    assert artifact.arguments() == [folder, "--resume", "s.safetensors", "--valid", "v.npz"]


def test_compressed_data_is_unpacked_for_the_run(artifact, tmp_path):
    np.savez_compressed(tmp_path / "d.npz", x=np.arange(3))
    body = """
path = sys.argv[sys.argv.index("--data") + 1]
import zipfile
sys.exit(0 if zipfile.ZipFile(path).infolist()[0].compress_type == 0 else 9)
"""
    assert run(["run", artifact(body), "--data", str(tmp_path / "d.npz")]) == 0
    found = artifact.arguments()
    assert not Path(found[found.index("--data") + 1]).exists()


@pytest.mark.parametrize("code", [0, 1, 2, 70, 130])
def test_exit_codes_are_passed_on(artifact, code):
    assert run(["run", artifact(f"sys.exit({code})"), "--data", "d.npz"]) == code


def test_a_crash_is_said(artifact, capfd):
    folder = artifact("os.kill(os.getpid(), 11)")
    assert run(["run", folder, "--data", "d.npz"]) == 70
    assert "error[AOT-X002]: aotrun was ended by SIGSEGV" in capfd.readouterr().err


def test_json(artifact, capfd):
    folder = artifact('print(json.dumps({"schema": "aotrain/run/1", "epochs": [], "step": 5}))')
    assert run(["eval", folder, "--data", "d.npz", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data == {
        "schema": "aotrain/eval/1",
        "ok": True,
        "epochs": [],
        "step": 5,
        "exit_code": 0,
    }
    assert artifact.arguments()[-1] == "--json"


def test_json_of_an_error(artifact, capfd):
    text = "error[AOT-D010]: cannot open d.npz: gone\\n\\nhint: look\\n"
    folder = artifact(f'sys.stderr.write("{text}"); sys.exit(1)')
    assert run(["run", folder, "--data", "d.npz", "--save", "s", "--json"]) == 1
    captured = capfd.readouterr()
    data = json.loads(captured.out)
    assert data["ok"] is False
    assert data["exit_code"] == 1
    assert data["errors"] == [
        {"code": "AOT-D010", "message": "cannot open d.npz: gone", "where": "", "hint": "look"}
    ]
    assert captured.err.startswith("error[AOT-D010]")


def test_no_artifact(tmp_path, capsys):
    assert run(["run", str(tmp_path), "--data", "d.npz"]) == 1
    assert "error[AOT-A010]: no artifact at" in capsys.readouterr().err


def test_an_artifact_of_another_machine(tmp_path, capsys):
    (tmp_path / "aotrun").write_bytes(b"\x7fELF of another kind")
    (tmp_path / "aotrun").chmod(0o755)
    assert run(["run", str(tmp_path), "--data", "d.npz"]) == 1
    assert "another machine" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_aotrun_and_its_exit_code_comes_back(artifact, number, tmp_path):
    body = """
import signal, time
def stop(*_):
    os.write(1, b"saved\\n")  # print is not reentrant
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
os.write(1, b"ready\\n")
time.sleep(30)
"""
    argv = ["run", artifact(body), "--data", "d"]
    code = f"import sys\nfrom aotrain.cli.app import run\nsys.exit(run({argv!r}))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "ready\n"
    started = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert output == "saved\n"
    assert process.returncode == 130
    assert time.monotonic() - started < 20


def test_data_is_not_replaced_though_aotrun_reads_a_copy(artifact, tmp_path, capfd):
    data = tmp_path / "d.npz"
    np.savez_compressed(data, x=np.zeros(3))
    before = data.read_bytes()
    argv = ["run", artifact(), "--data", str(data), "--predict", str(data), "-o", str(data)]
    assert run(argv) == 2
    assert "is read as well" in capfd.readouterr().err
    assert data.read_bytes() == before


def test_a_program_that_is_cut_off_is_not_run(artifact, tmp_path, capfd):
    folder = Path(artifact())
    listed = {"aotrun": {"sha256": "0" * 64}}
    (folder / "manifest.json").write_text(json.dumps({"files": listed}))
    assert run(["run", str(folder), "--data", "d.npz"]) == 1
    assert "error[AOT-A010]" in capfd.readouterr().err
    assert not (tmp_path / "log.json").exists()
