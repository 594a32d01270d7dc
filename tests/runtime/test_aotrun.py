"""The program aotrun, as a user meets it: data formats, resume, refusals, exit codes."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import struct
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aotrain import artifact
from aotrain.errors import ExitCode
from tests.runtime import toy


class Aotrun:
    """Runs the artifact's aotrun in a folder that holds train.npz (103 rows) and valid.npz (21)."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        np.savez(folder / "train.npz", **toy.batch(103))
        np.savez(folder / "valid.npz", **toy.batch(21, seed=5))

    def command(self, *words: object) -> list[str]:
        return [str(self.path / "aotrun"), str(self.path), *map(str, words)]

    def __call__(self, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*words), cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def refuses(self, *words: object, code: int = ExitCode.INPUT) -> str:
        """The error text; nothing is on stdout but notes, and no file is left."""
        before = set(self.folder.iterdir())
        done = self(*words, code=code)
        assert done.stderr.startswith("error[AOT-"), done.stderr
        assert set(self.folder.iterdir()) == before
        return done.stderr


@pytest.fixture
def aotrun(toy_artifact: Path, tmp_path: Path) -> Aotrun:
    return Aotrun(toy_artifact, tmp_path)


def test_training_prints_a_line_an_epoch(aotrun: Aotrun) -> None:
    out = aotrun("--data", "train.npz", "--valid", "valid.npz", "--epochs", 4).stdout
    lines = out.splitlines()
    assert "103 rows make 25 batches of 4; the last 3" in lines[0]
    assert [line.split("  ")[0] for line in lines[1:]] == [f"epoch {e}/4" for e in (1, 2, 3, 4)]
    losses = [float(line.split("loss ")[1].split()[0]) for line in lines[1:]]
    assert losses == sorted(losses, reverse=True)
    assert all(word in lines[4] for word in ("valid ", "accuracy ", "samples/s"))


def test_json_is_one_object(aotrun: Aotrun) -> None:
    words = ("--data", "train.npz", "--valid", "valid.npz", "--epochs", 2, "--json")
    run = json.loads(aotrun(*words, "--save", "a.safetensors").stdout)
    assert run["schema"] == "aotrain/run/1"
    assert [epoch["epoch"] for epoch in run["epochs"]] == [1, 2]
    assert (run["step"], run["exit_code"], run["saved"]) == (50, 0, "a.safetensors")
    assert json.loads(aotrun("--json").stdout)["block_bytes"] == toy.plan().block_bytes
    assert json.loads(aotrun("--json", "--bench", 3).stdout)["bench"]["steps"] == 3
    bad = aotrun("--data", "none.npz", "--json", code=1)
    assert json.loads(bad.stdout)["exit_code"] == 1


def test_profile_times_every_kernel_of_a_step(aotrun: Aotrun) -> None:
    launches = json.loads(aotrun("--json", "--bench", 3, "--profile").stdout)["launches"]
    assert launches
    assert all(launch["ns"] > 0 for launch in launches)
    table = aotrun("--bench", 3, "--profile").stdout.splitlines()
    shares = [float(line.split()[1].rstrip("%")) for line in table[3:]]
    assert shares == sorted(shares, reverse=True)
    assert abs(sum(shares) - 100) < 1
    refused = aotrun("--profile", code=2)
    assert "--profile needs --bench" in refused.stderr


def test_evaluation_agrees_with_numpy(aotrun: Aotrun) -> None:
    """21 rows in batches of 4: the last one is padded, which must not show."""
    aotrun("--data", "train.npz", "--epochs", 3, "--save", "a.safetensors", "-q")
    words = ("--resume", "a.safetensors", "--valid", "valid.npz", "--json")
    found = json.loads(aotrun(*words).stdout)["epochs"][0]
    aotrun("--resume", "a.safetensors", "--predict", "valid.npz", "-o", "out.npz", "-q")
    logits = np.load(aotrun.folder / "out.npz")["logits"]
    y = toy.batch(21, seed=5)["y"]
    assert logits.shape == (21, 5)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert found["accuracy"] == pytest.approx((logits.argmax(1) == y).mean())
    assert found["valid_loss"] == pytest.approx(-log_p[np.arange(21), y].mean(), rel=1e-5)


@pytest.mark.parametrize("first", ["--epochs 2", "--steps 37", "--steps 1"])
def test_resume_is_bit_for_bit(aotrun: Aotrun, first: str) -> None:
    base = ("--data", "train.npz", "-q", "--lr", "0.07")
    aotrun(*base, "--epochs", 4, "--seed", 3, "--save", "whole.safetensors", "--threads", 1)
    aotrun(*base, *first.split(), "--seed", 3, "--save", "part.safetensors")
    rest = ("--resume", "part.safetensors", "--save", "part.safetensors")  # lr and seed come back
    aotrun("--data", "train.npz", "-q", "--epochs", 4, *rest)
    whole, part = (aotrun.folder / f"{name}.safetensors" for name in ("whole", "part"))
    assert whole.read_bytes() == part.read_bytes()
    done = aotrun("--data", "train.npz", "--epochs", 4, "--resume", "part.safetensors")
    assert "nothing to do" in done.stdout


def test_seed_changes_the_order_and_nothing_else_does(aotrun: Aotrun) -> None:
    files = []
    for run, seed in enumerate((0, 0, 1)):
        aotrun("--data", "train.npz", "-q", "--seed", seed, "--save", f"{run}.safetensors")
        files.append(artifact.read_checkpoint(aotrun.folder / f"{run}.safetensors"))
    same, other = ((files[0].tensors["w"] == files[i].tensors["w"]).all() for i in (1, 2))
    assert same and not other
    assert files[2].metadata["rng"] == "1 25"  # the model's generator is seeded too
    words = ("--resume", "2.safetensors", "--seed", 0, "--data", "train.npz")
    assert "trained with seed 1" in aotrun.refuses(*words, code=ExitCode.USAGE)


def test_each_row_is_seen_once_an_epoch(aotrun: Aotrun) -> None:
    """With lr 0 an epoch's mean loss is the data's, whatever the order: 100 rows, no rest."""
    batch = toy.batch(100)
    np.savez(aotrun.folder / "even.npz", **batch)
    words = ("--data", "even.npz", "--valid", "even.npz", "--lr", 0, "--epochs", 3, "--json")
    epochs = json.loads(aotrun(*words).stdout)["epochs"]
    for epoch in epochs:
        assert epoch["loss"] == pytest.approx(epoch["valid_loss"], rel=1e-6)


def test_checkpoints_keep_the_last(aotrun: Aotrun) -> None:
    words = ("--save", "c.safetensors", "--save-every", 10, "--keep", 2)
    aotrun("--data", "train.npz", "--epochs", 2, "-q", *words)
    found = sorted(path.name for path in aotrun.folder.glob("c*"))
    assert found == ["c-00000040.safetensors", "c-00000050.safetensors", "c.safetensors"]


def test_npy_pairs_and_maps(aotrun: Aotrun) -> None:
    batch = toy.batch(103)
    np.save(aotrun.folder / "a.npy", batch["x"])
    np.save(aotrun.folder / "b.npy", batch["y"].astype("uint8"))
    np.savez(aotrun.folder / "named.npz", label=batch["y"], image=batch["x"])
    specs = [
        ("train.npz",),
        ("a.npy:b.npy",),
        ("x=a.npy,y=b.npy",),
        ("y=b.npy,x=a.npy",),
        ("named.npz", "--map", "x=image", "--map", "y=label"),
        ("named.npz", "--map", "x=image"),
    ]
    results = []
    for spec in specs:
        aotrun("--data", *spec, "-q", "--save", "s.safetensors")
        results.append((aotrun.folder / "s.safetensors").read_bytes())
    assert all(result == results[0] for result in results)
    assert "no array for input 'x'" in aotrun.refuses("--data", "named.npz", "--map", "x=nope")


def test_zip64_npz(aotrun: Aotrun) -> None:
    """Zip64 fields, as numpy writes them for arrays whose size it does not know."""
    path = aotrun.folder / "wide.npz"
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in toy.batch(103).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)
    aotrun("--data", "wide.npz", "-q", "--save", "wide.safetensors")
    aotrun("--data", "train.npz", "-q", "--save", "plain.safetensors")
    wide, plain = (aotrun.folder / f"{name}.safetensors" for name in ("wide", "plain"))
    assert wide.read_bytes() == plain.read_bytes()


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + array.astype("uint8").tobytes()


def test_idx(aotrun: Aotrun) -> None:
    """Pixels become float32 / 255 and take the input's shape: [N, 1, 3] serves [N, 3]."""
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (50, 1, 3)), rng.integers(0, 5, 50)
    (aotrun.folder / "img-idx3-ubyte").write_bytes(idx(pixels))
    (aotrun.folder / "lab-idx1-ubyte").write_bytes(idx(labels))
    x = pixels.reshape(50, 3).astype("float32") / np.float32(255)
    np.savez(aotrun.folder / "same.npz", x=x, y=labels.astype("int64"))
    for name, spec in (("i", "img-idx3-ubyte:lab-idx1-ubyte"), ("n", "same.npz")):
        aotrun("--data", spec, "-q", "--save", f"{name}.safetensors")
    assert (aotrun.folder / "i.safetensors").read_bytes() == (
        aotrun.folder / "n.safetensors"
    ).read_bytes()
    (aotrun.folder / "packed.gz").write_bytes(gzip.compress(idx(labels)))
    assert "gunzip" in aotrun.refuses("--data", "img-idx3-ubyte:packed.gz")


X, Y = toy.batch(8)["x"], toy.batch(8)["y"]
BAD_DATA = {
    "x is float64": ({"x": X.astype("float64"), "y": Y}, r"float64[N, 3], expected float32[N, 3]"),
    "x has 4 columns": (
        {"x": np.zeros((8, 4), "f4"), "y": Y},
        "float32[N, 4], expected float32[N, 3]",
    ),
    "x is flat": ({"x": X.ravel(), "y": Y}, "float32[N], expected float32[N, 3]"),
    "y is float": ({"x": X, "y": Y.astype("f4")}, "hint: convert it with .astype(np.int64)"),
    "fewer labels": ({"x": X, "y": Y[:7]}, "input 'y' has 7 rows, the one for 'x' has 8"),
    "label 5": ({"x": X, "y": np.array([0, 1, 5, 0, 0, 0, 0, 0])}, "label 5 in row 2"),
    "label -1": ({"x": X, "y": np.array([0, 1, 2, 0, 0, 0, 0, -1])}, "label -1 in row 7"),
    "huge label": ({"x": X, "y": np.full(8, 2**63, "u8")}, "row 0 of 'y' holds a value that int64"),
    "short": ({"x": X[:3], "y": Y[:3]}, "3 rows, fewer than a batch of 4"),
    "empty": ({"x": X[:0], "y": Y[:0]}, "no rows"),
    "no y": ({"x": X}, "no array for input 'y': the model takes x, y, the file has x"),
    "fortran": ({"x": np.asfortranarray(X), "y": Y}, "np.ascontiguousarray"),
    "big-endian": ({"x": X.astype(">f4"), "y": Y}, "dtype '>f4' is not supported"),
    "objects": ({"x": np.array([{}] * 8), "y": Y}, "dtype '|O' is not supported"),
    "records": ({"x": np.zeros(8, [("a", "f4")]), "y": Y}, "header cannot be read"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data(aotrun: Aotrun, case: str) -> None:
    arrays, message = BAD_DATA[case]
    np.savez(aotrun.folder / "bad.npz", **arrays)
    assert message in aotrun.refuses("--data", "bad.npz", "--save", "s.safetensors")


def test_ignored_label_passes(aotrun: Aotrun) -> None:
    y = np.where(np.arange(8) % 2, Y, -100)
    np.savez(aotrun.folder / "some.npz", x=X, y=y)
    aotrun("--data", "some.npz", "--valid", "some.npz", "-q")


def test_damaged_files(aotrun: Aotrun) -> None:
    folder = aotrun.folder
    np.savez_compressed(folder / "packed.npz", x=X, y=Y)
    assert "np.savez instead of np.savez_compressed" in aotrun.refuses("--data", "packed.npz")
    raw = (folder / "train.npz").read_bytes()
    (folder / "cut.npz").write_bytes(raw[:-40])
    (folder / "flipped.npz").write_bytes(raw[:400] + bytes([raw[400] ^ 1]) + raw[401:])
    (folder / "empty").write_bytes(b"")
    (folder / "text").write_bytes(b"x,y\n1,2\n")
    assert "truncated" in aotrun.refuses("--data", "cut.npz")
    assert "checksum" in aotrun.refuses("--data", "flipped.npz")
    for name in ("empty", "text"):
        assert "must be .npz, .npy or IDX" in aotrun.refuses("--data", name)
    assert "cannot open none.npz: No such file" in aotrun.refuses("--data", "none.npz")
    assert "is no file" in aotrun.refuses("--data", ".")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epoch", "2"], "did you mean --epochs?"),
        (["--epochs", "two"], "--epochs takes a whole number above 0, not 'two'"),
        (["--epochs"], "--epochs needs a value"),
        (["--epochs", "1", "--steps", "1"], "exclude each other"),
        (["--set", "lr"], "--set takes name=value"),
        (["--data", "train.npz", "--set", "momentum=1"], "no hyperparameter 'momentum'"),
        (["--data", "train.npz", "--lr", "fast"], "lr takes a number, not 'fast'"),
        (["--save-every", "2", "--data", "train.npz"], "--save-every needs --save"),
        (["--predict", "valid.npz"], "--predict and --output belong together"),
        (["more"], "two artifacts given"),
        (["--quiet=yes"], "--quiet takes no value"),
    ],
)
def test_usage_errors(aotrun: Aotrun, words: list[str], message: str) -> None:
    assert message in aotrun.refuses(*words, code=ExitCode.USAGE)


def test_help_and_description(aotrun: Aotrun) -> None:
    program = aotrun.path / "aotrun"
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    assert text.startswith("usage: aotrun MODEL.aot") and "examples:" in text
    assert subprocess.run([program], capture_output=True).returncode == ExitCode.USAGE
    assert "20 trainable parameters" in aotrun().stdout


def test_interrupt_finishes_the_step_and_saves(aotrun: Aotrun) -> None:
    words = ("--data", "train.npz", "--epochs", 10**9, "--save", "s.safetensors")
    with subprocess.Popen(
        aotrun.command(*words), cwd=aotrun.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout and child.stderr
        while b"epoch 2/" not in child.stdout.readline():
            pass
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=20)
        assert child.returncode == ExitCode.INTERRUPTED
    aotrun("--resume", "s.safetensors", "--valid", "valid.npz")


def test_no_space_leaves_nothing(aotrun: Aotrun) -> None:
    command = aotrun.command("--data", "train.npz", "--save", "s.safetensors")
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *command]
    done = subprocess.run(
        limited, cwd=aotrun.folder, stdout=subprocess.DEVNULL, stderr=-1, text=True
    )
    assert done.returncode == ExitCode.INPUT
    assert "cannot save s.safetensors: File too large" in done.stderr
    assert not list(aotrun.folder.glob("s.*"))


def test_prediction_is_all_or_nothing(aotrun: Aotrun) -> None:
    message = aotrun.refuses("--predict", "valid.npz", "-o", "none/out.npz")
    assert "none/out.npz: cannot write" in message


def damage(path: Path, name: str, change) -> Path:
    file = path / name
    file.write_bytes(change(file.read_bytes()))
    return path


@pytest.mark.parametrize("name", ["plan.bin", "kernels.so", "state.safetensors"])
def test_damaged_artifacts_are_refused(aotrun: Aotrun, name: str) -> None:
    changes = {
        "truncated": lambda raw: raw[:-7],
        "longer": lambda raw: raw + b"\0",
        "flipped": lambda raw: raw[:-5] + bytes([raw[-5] ^ 4]) + raw[-4:],
        "empty": lambda raw: b"",
    }
    for kind, change in changes.items():
        folder = aotrun.folder / f"{kind}.aot"
        shutil.copytree(aotrun.path, folder)
        other = Aotrun(damage(folder, name, change), aotrun.folder)
        assert name in other.refuses("--data", "train.npz")
    (folder / name).unlink()
    assert "No such file" in other.refuses()


def test_newer_and_mixed_artifacts_are_refused(aotrun: Aotrun) -> None:
    newer, mixed = aotrun.folder / "newer.aot", aotrun.folder / "mixed.aot"
    shutil.copytree(aotrun.path, newer)
    damage(newer, "plan.bin", lambda raw: raw[:8] + struct.pack("<I", 2) + raw[12:])
    message = Aotrun(newer, aotrun.folder).refuses()
    assert "AOT-A011" in message and "format version 2, this loader reads 1" in message
    toy.build(mixed, classes=6)
    shutil.copy(aotrun.path / "state.safetensors", mixed)
    assert "from another artifact" in Aotrun(mixed, aotrun.folder).refuses()


@pytest.mark.parametrize("option", ["--save", "-o"])
@pytest.mark.parametrize(
    "path, code, why",
    [
        ("train.npz", 2, "is read as well"),
        ("notes.txt", 2, "exists and is no"),
        ("none/there", 1, "No such file or directory"),
        ("notes.txt/there", 1, "Not a directory"),
        (".", 1, "Is a directory"),
        ("", 2, "needs a file name"),
    ],
)
def test_outputs_are_checked_before_the_work(
    aotrun: Aotrun, option: str, path: str, code: int, why: str
) -> None:
    (aotrun.folder / "notes.txt").write_text("a user's own words, longer than nine bytes")
    before = {file.name: file.read_bytes() for file in aotrun.folder.iterdir()}
    words = ["--data", "train.npz", "--epochs", 1, option, path]
    if option == "-o":
        words += ["--predict", "valid.npz"]
    done = aotrun(*words, code=code)
    assert why in done.stderr
    assert not done.stdout
    assert {file.name: file.read_bytes() for file in aotrun.folder.iterdir()} == before


def test_a_map_of_no_input_is_refused(aotrun: Aotrun) -> None:
    message = aotrun.refuses("--data", "train.npz", "--map", "image=x")
    assert "--map: the model has no input 'image'" in message


def test_an_empty_npz_has_no_arrays(aotrun: Aotrun) -> None:
    np.savez(aotrun.folder / "none.npz")
    assert "the file has none" in aotrun.refuses("--data", "none.npz")


@pytest.mark.parametrize("value", ["garbage", "0", "-1", "3x"])
def test_a_thread_count_that_is_none(
    aotrun: Aotrun, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("AOTRUN_NUM_THREADS", value)
    message = aotrun.refuses("--data", "train.npz", code=2)
    assert f"AOTRUN_NUM_THREADS is '{value}', not a whole number above 0" in message
