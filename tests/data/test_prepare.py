"""What aotrun reads is passed on; what it does not read is converted to what it does."""

import gzip

import numpy as np
import pytest

from aotrain.data import prepare, read, stored
from aotrain.errors import InputError
from aotrain.plan import TensorSpec

INPUTS = [TensorSpec("x", (8, 2), "float32"), TensorSpec("y", (8,), "int64")]


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "scratch"
    made.mkdir()
    return made


@pytest.mark.parametrize("spec", ["{0}/a.npz", "{0}/a.npy:{0}/b.npy", "x={0}/a.npy,y={0}/b.npy"])
def test_passed_on_as_it_is(spec, tmp_path, folder):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    np.save(tmp_path / "a.npy", np.zeros(3))
    np.save(tmp_path / "b.npy", np.zeros(3))
    text = spec.format(tmp_path)
    assert prepare(text, folder, INPUTS, {"x": "a"}).spec == text
    assert not list(folder.iterdir())


def test_missing_files_are_left_to_aotrun(folder):
    assert prepare("none.npz", folder, INPUTS, {}).spec == "none.npz"


def test_compressed_npz(tmp_path, folder):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(6), y=np.ones(2))
    spec = prepare(str(tmp_path / "a.npz"), folder, INPUTS, {}).spec
    assert stored(folder / "0.npz")
    assert spec == str(folder / "0.npz")
    np.testing.assert_array_equal(read(folder / "0.npz")["x"], np.arange(6))


def test_gz_files_of_a_pair(tmp_path, folder):
    for name in ("i-idx3-ubyte.gz", "l-idx1-ubyte.gz"):
        (tmp_path / name).write_bytes(gzip.compress(name.encode()))
    spec = prepare(
        f"x={tmp_path}/i-idx3-ubyte.gz,y={tmp_path}/l-idx1-ubyte.gz", folder, [], {}
    ).spec
    assert spec == f"x={folder}/0-i-idx3-ubyte,y={folder}/1-l-idx1-ubyte"
    assert (folder / "1-l-idx1-ubyte").read_bytes() == b"l-idx1-ubyte.gz"


def test_csv(tmp_path, folder):
    (tmp_path / "d.csv").write_text("a,b,label\n1,2,0\n3,4,1\n")
    done = prepare(str(tmp_path / "d.csv"), folder, INPUTS, {"y": "label"})
    arrays = read(folder / "0.npz")
    np.testing.assert_array_equal(arrays["x"], np.array([[1, 2], [3, 4]], np.float32))
    assert arrays["label"].dtype == np.int64  # aotrun gets the same --map y=label
    assert done.notes == ("input 'x' takes 2 columns",)


def test_damaged_gz(tmp_path, folder):
    (tmp_path / "l-idx1-ubyte.gz").write_bytes(b"no gz")
    with pytest.raises(InputError) as caught:
        prepare(str(tmp_path / "l-idx1-ubyte.gz"), folder, INPUTS, {})
    assert caught.value.diagnostics[0].code == "AOT-D011"


def test_csv_is_not_combined(tmp_path, folder):
    with pytest.raises(InputError, match="not combined"):
        prepare("a.csv:b.npy", folder, INPUTS, {})
