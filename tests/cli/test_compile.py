"""What `aotrain compile` asks of `aotrain.compile`, and what it prints of the answer."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import aotrain
from aotrain.cli.app import run
from aotrain.errors import Diagnostic, UnsupportedModelError


@pytest.fixture
def asked(monkeypatch):
    """Stands in for the driver: notes its arguments, reports two phases."""
    found = {}

    def compile(model, *, report, **arguments):
        found.update(arguments, model=model)
        report(SimpleNamespace(name="import", seconds=0.0123, figure="3 nodes", notes=("32 rows",)))
        report(SimpleNamespace(name="memory", seconds=1.5, figure="arena 1,024 B", notes=()))
        return SimpleNamespace(path=Path(arguments["output"]))

    monkeypatch.setattr(aotrain, "compile", compile, raising=False)
    return found


def test_defaults(asked, capsys):
    assert run(["compile", "m.onnx", "-o", "m.aot"]) == 0
    loss = asked.pop("loss")
    assert loss.kind == "auto"
    assert asked == {
        "model": Path("m.onnx"),
        "output": Path("m.aot"),
        "target": "cpu",
        "optimizer": "adamw",
        "lr": None,
        "hyper": {},
        "batch": None,
        "dims": {},
        "trainable": (),
        "freeze": (),
        "batchnorm": "train",
        "seed": 0,
        "memory_budget": None,
        "recompute_budget": None,
        "times": None,
        "tuning": True,
        "force": False,
        "dump": None,
    }
    out = capsys.readouterr().out
    assert "import           12 ms  3 nodes\n                        32 rows\n" in out
    assert "memory          1.50 s  arena 1,024 B\n" in out
    assert "aotrain run m.aot --data" in out


def test_every_option(asked, tmp_path):
    np.save(tmp_path / "w.npy", np.array([1.0, 2.0]))
    (tmp_path / "p.txt").write_text("3\n4\n")
    options = [
        *("--target", "cpu:haswell", "--loss", "bce-with-logits", "--optimizer", "momentum"),
        *("--lr", "1e-2", "--batch", "8", "--dim", "seq=16", "--dim", "w:1=2"),
        *("--freeze", "*", "--trainable", "a", "--trainable", "b", "--batchnorm", "frozen"),
        *("--seed", "7", "--force", "--set", "momentum=0.5", "--dump", str(tmp_path / "d")),
        *("--ignore-index", "-1", "--class-axis", "-1", "--label-smoothing", "0.1"),
        *("--class-weights", str(tmp_path / "w.npy"), "--pos-weight", str(tmp_path / "p.txt")),
        *("--delta", "2", "--reduction", "sum", "--loss-output", "y"),
    ]
    assert run(["compile", "m.onnx", "-o", "m.aot", *options]) == 0
    loss = asked.pop("loss")
    assert (loss.kind, loss.ignore_index, loss.axis, loss.label_smoothing) == (
        "bce-with-logits",
        -1,
        -1,
        0.1,
    )
    assert (loss.delta, loss.reduction, loss.output) == (2, "sum", "y")
    assert loss.class_weights.tolist() == [1, 2]
    assert loss.pos_weight.tolist() == [3, 4]
    assert asked["target"] == "cpu:haswell"
    assert asked["optimizer"] == "momentum"
    assert asked["lr"] == 1e-2
    assert asked["batch"] == 8
    assert asked["dims"] == {"seq": 16, "w:1": 2}
    assert asked["freeze"] == ("*",)
    assert asked["trainable"] == ("a", "b")
    assert asked["batchnorm"] == "frozen"
    assert asked["seed"] == 7
    assert asked["force"] is True
    assert asked["hyper"] == {"momentum": 0.5}
    assert asked["dump"] == tmp_path / "d"


def test_json_is_one_object(asked, capsys):
    assert run(["compile", "m.onnx", "-o", "m.aot", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "aotrain/compile/1"
    assert data["ok"] is True
    assert data["output"] == "m.aot"
    assert [phase["name"] for phase in data["phases"]] == ["import", "memory"]


def test_quiet_prints_nothing(asked, capsys):
    assert run(["compile", "m.onnx", "-o", "m.aot", "-q"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "option",
    [
        ["--dim", "seq"],
        ["--dim", "seq=0"],
        ["--dim", "=3"],
        ["--set", "lr"],
        ["--set", "lr=fast"],
        ["--batch", "0"],
        ["--label-smoothing", "1.5"],
        ["--batchnorm", "off"],
        ["--memory-budget", "0"],
        ["--memory-budget", "300 MeB"],
        ["--recompute-budget", "-1"],
    ],
)
def test_values_that_make_no_sense(asked, option, capsys):
    assert run(["compile", "m.onnx", "-o", "m.aot", *option]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error[AOT-U004]: {option[0]}: ")
    assert not asked


@pytest.mark.parametrize(
    "size, nbytes",
    [("5000", 5000), ("300MiB", 300 << 20), ("1.5GB", 1_500_000_000), ("64k", 64_000)],
)
def test_a_memory_budget_has_a_unit(asked, size, nbytes):
    assert run(["compile", "m.onnx", "-o", "m.aot", "--memory-budget", size]) == 0
    assert asked["memory_budget"] == nbytes


@pytest.mark.parametrize("share, value", [("10%", 0.1), ("0.1", 0.1), ("150%", 1.5), ("0", 0.0)])
def test_a_recompute_budget_is_a_share(asked, share, value):
    assert run(["compile", "m.onnx", "-o", "m.aot", "--recompute-budget", share]) == 0
    assert asked["recompute_budget"] == pytest.approx(value)


def test_all_problems_at_once(monkeypatch, capsys):
    def compile(*_, **__):
        raise UnsupportedModelError(
            Diagnostic("AOT-G001", "no gradient for Foo", "Foo node 'a'\nsecond line", "freeze it"),
            Diagnostic("AOT-G001", "no gradient for Bar", "Bar node 'b'"),
        )

    monkeypatch.setattr(aotrain, "compile", compile, raising=False)
    assert run(["compile", "m.onnx", "-o", "m.aot"]) == 3
    assert capsys.readouterr().err == (
        "error[AOT-G001]: no gradient for Foo\n  at Foo node 'a'\n  at second line\n\n"
        "hint: freeze it\n\nerror[AOT-G001]: no gradient for Bar\n  at Bar node 'b'\n"
    )
    assert run(["compile", "m.onnx", "-o", "m.aot", "--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert [error["where"] for error in data["errors"]] == [
        "Foo node 'a'\nsecond line",
        "Bar node 'b'",
    ]
