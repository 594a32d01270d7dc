"""Every file format in, the same arrays out; damaged files by their codes."""

import gzip
import re
import struct

import numpy as np
import pytest

from aotrain.data import read, stored, write_npz
from aotrain.errors import InputError

X = np.arange(24, dtype=np.float32).reshape(4, 6)
Y = np.array([0, 2, 1, 0], dtype=np.int64)


def idx(values):
    code = {"uint8": 8, "float32": 0x0D}[values.dtype.name]
    header = bytes([0, 0, code, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype(values.dtype.newbyteorder(">")).tobytes()


def test_npz(tmp_path):
    np.savez_compressed(tmp_path / "d.npz", x=X, y=Y)
    arrays = read(tmp_path / "d.npz")
    assert list(arrays) == ["x", "y"]
    np.testing.assert_array_equal(arrays["x"], X)
    assert not stored(tmp_path / "d.npz")


def test_written_npz_is_stored(tmp_path):
    write_npz(tmp_path / "d.npz", {"x": X.T, "y": Y.astype(">i8"), "file": Y})
    assert stored(tmp_path / "d.npz")
    arrays = read(tmp_path / "d.npz")
    np.testing.assert_array_equal(arrays["x"], X.T)
    np.testing.assert_array_equal(arrays["file"], Y)
    assert arrays["y"].dtype == np.int64
    assert arrays["x"].flags.c_contiguous


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("values", [Y.astype(np.uint8), X], ids=["labels", "floats"])
def test_idx(tmp_path, values, suffix):
    path = tmp_path / f"train-labels-idx{values.ndim}-ubyte{suffix}"
    path.write_bytes(gzip.compress(idx(values)) if suffix else idx(values))
    arrays = read(path)
    np.testing.assert_array_equal(arrays["labels"], values)
    assert arrays["labels"].dtype == values.dtype


def test_npy(tmp_path):
    np.save(tmp_path / "pixels.npy", X)
    np.testing.assert_array_equal(read(tmp_path / "pixels.npy")["pixels"], X)


def test_csv_with_header(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("a, b,label\n1,2.5,0\n3,4e1,1\n")
    arrays = read(path)
    assert list(arrays) == ["a", "b", "label"]
    np.testing.assert_array_equal(arrays["b"], [2.5, 40])


def test_csv_without_header(tmp_path):
    path = tmp_path / "d.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n3,4\n"))
    assert {name: list(v) for name, v in read(path).items()} == {"0": [1, 3], "1": [2, 4]}


def make(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("d.txt", b"1 2", "AOT-D011"),
        ("d.npz", b"PK\3\4 not a zip", "AOT-D011"),
        ("d.npy", b"\x93NUMPY", "AOT-D011"),
        ("d.csv", b"", "AOT-D011"),
        ("d.csv", b"a,b\n", "AOT-D011"),
        ("d.csv", b"a,b\n1,2\n3\n", "AOT-D011"),
        ("d.csv", b"a,b\n1,x\n", "AOT-D011"),
        ("d.csv", b"a,a\n1,2\n", "AOT-D011"),
        ("d.csv.gz", b"not gz", "AOT-D011"),
        ("d.idx", b"\0\0\x08\x02\0\0\0\x03", "AOT-D011"),
        ("d.idx", b"\0\0\x08\x01\0\0\0\x03\1\2", "AOT-D011"),
        ("d.idx", b"nonsense", "AOT-D011"),
    ],
)
def test_damaged(tmp_path, name, content, code):
    path = make(tmp_path / name, content)
    with pytest.raises(InputError) as caught:
        read(path)
    (problem,) = caught.value.diagnostics
    assert problem.code == code
    assert str(path) in problem.message


def test_pickles_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.array([{}], dtype=object))
    with pytest.raises(InputError) as caught:
        read(tmp_path / "d.npz")
    assert caught.value.diagnostics[0].code == "AOT-D011"


def test_missing(tmp_path):
    with pytest.raises(InputError) as caught:
        read(tmp_path / "none.npz")
    assert caught.value.diagnostics[0].code == "AOT-D010"


@pytest.mark.parametrize(
    "name, content, why",
    [
        ("a.npz", b"hello", "it is no .npz"),
        ("a.npz", b"", "it is no .npz"),
        ("a.npy", b"hello", "it does not begin as an .npy does"),
        ("a.csv", b"a,b\n1,2\n3,x\n", "row 2, column 'b' holds 'x', which is no number"),
        ("a.csv", b"a,b\n1,2\n,4\n", "row 2, column 'a' is empty"),
        ("a.csv", b"a;b\n1;2\n", "separated by ';'"),
        ("a.csv", b"a,\xe9\n1,2\n", "not UTF-8"),
    ],
)
def test_what_is_said_of_it(tmp_path, name, content, why):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(why)) as caught:
        read(path)
    assert caught.value.diagnostics[0].code == "AOT-D011"
    assert "pickle" not in str(caught.value)
