"""The command line as a whole: what it imports, its help, its errors and exit codes."""

import json
import signal
import subprocess
import sys

import pytest

from aotrain.cli.app import COMMANDS, cli, run
from aotrain.cli.base import Command, Option

HEAVY = ("tvm", "onnx", "numpy", "onnxruntime")


def command_of(name):
    found = cli.get_command(None, name)
    assert isinstance(found, Command)
    return found


def run_in_new_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["compile", "--help"], ["explain"]])
def test_help_imports_nothing_heavy(argv):
    code = (
        "import sys\nfrom aotrain.cli.app import run\n"
        f"code = run({argv!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], code)"
    )
    assert run_in_new_process(code).stdout.splitlines()[-1] == "[] 0"


def test_package_imports_nothing_heavy():
    code = f"import sys, aotrain; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert run_in_new_process(code).stdout.strip() == "[]"


def test_help_imports_no_command():
    code = (
        "import sys\nfrom aotrain.cli.app import run, COMMANDS\nrun(['--help'])\n"
        "print([name for name in COMMANDS if 'aotrain.cli.' + name in sys.modules])"
    )
    assert run_in_new_process(code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_command_help(name, capsys):
    command = command_of(name)
    assert command.short_help == COMMANDS[name]
    assert len(command.examples) == 2
    assert all(f"aotrain {name}" in line for _, line in command.examples)
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert COMMANDS[name] in text
    assert text.rstrip().endswith(command.examples[-1][1])
    shown = [line for line in text.splitlines() if line.startswith("  -")]
    assert len(shown) <= 12, shown


@pytest.mark.parametrize("name", COMMANDS)
def test_help_all_shows_every_option(name, capsys):
    assert run([name, "--help-all"]) == 0
    text = capsys.readouterr().out
    for param in command_of(name).params:
        if isinstance(param, Option):
            assert param.help, param.name
            assert max(param.opts, key=len) in text


def test_bare_call_prints_help(capsys):
    assert run([]) == 0
    assert "Usage: aotrain" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["compil"], "AOT-U001", "did you mean 'compile'"),
        (["zzz"], "AOT-U001", "known: check, compile"),
        (["compile", "m.onnx", "--bacth", "3"], "AOT-U002", "did you mean --batch"),
        (["compile"], "AOT-U003", "needs MODEL"),
        (["compile", "m.onnx", "--batch", "many"], "AOT-U004", "--batch"),
        (["compile", "m.onnx", "--optimizer", "adam-w"], "AOT-U004", "did you mean 'adamw'"),
        (["explain", "a", "b"], "AOT-U005", "'aotrain explain --help'"),
        (["explain", "AOT-Z999"], "AOT-U008", "no error code"),
    ],
)
def test_usage_errors(argv, code, text, capsys):
    assert run(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error[{code}]: ")
    assert text in captured.err
    assert "Traceback" not in captured.err


def test_json_of_a_usage_error(capsys):
    assert run(["explain", "--json", "AOT-Z999"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "aotrain/explain/1"
    assert data["ok"] is False
    assert data["exit_code"] == 2
    assert data["errors"][0]["code"] == "AOT-U008"


@pytest.fixture
def broken(monkeypatch):
    """`aotrain explain` that raises what the test says."""

    def breaks_with(error):
        def pages():
            raise error

        monkeypatch.setattr("aotrain.explain.pages", pages)

    return breaks_with


def test_a_bug_of_ours_is_70_and_says_how_to_report_it(broken, capsys):
    broken(KeyError("w1"))
    assert run(["explain"]) == 70
    error = capsys.readouterr().err
    assert error.startswith("error[AOT-X001]: unexpected failure: KeyError: 'w1'")
    assert "report" in error and "--debug" in error
    assert "Traceback" not in error


def test_debug_shows_the_traceback(broken, capsys):
    broken(KeyError("w1"))
    assert run(["explain", "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_is_130(broken, capsys):
    broken(KeyboardInterrupt())
    assert run(["explain"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_interrupt_within_a_callback_of_tvm_is_130(monkeypatch, capsys):
    def pages():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError from None  # as TVM's bridge does
        raise AssertionError

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("aotrain.explain.pages", pages)
    assert run(["explain"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("arguments", "environment", "colored"),
    [
        (["--color", "always"], {}, True),
        (["--color=always"], {"NO_COLOR": "1"}, True),
        ([], {}, False),
        (["--color", "never"], {}, False),
    ],
)
def test_color(arguments, environment, colored, capsys, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run(["explain", "AOT-Z999", *arguments])
    assert ("\x1b[" in capsys.readouterr().err) == colored


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell, capsys):
    assert run(["completion", shell]) == 0
    assert f"_AOTRAIN_COMPLETE={shell}_complete" in capsys.readouterr().out
