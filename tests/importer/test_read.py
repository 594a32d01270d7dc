"""Files that are missing, broken, too old, too large for one message: one clear error each."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from aotrain.errors import AotError, InputError, UnsupportedModelError
from aotrain.importer import ImportOptions, check, load
from aotrain.importer.read import read
from tests.importer.evaluate import infer
from tests.importer.graphs import f32, model
from tests.models import TINY

W = np.arange(12, dtype=np.float32).reshape(3, 4)


def linear(opset: int = 21) -> onnx.ModelProto:
    return model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 3]}, ["y"], {"w": W}, opset
    )


def code(error: pytest.ExceptionInfo[AotError]) -> str:
    return error.value.diagnostics[0].code


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist") as error:
        load(tmp_path / "none.onnx")
    assert code(error) == "AOT-I001"
    with pytest.raises(InputError, match="is a folder"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs", b"\x80\x02ctorch", b"<html>"])
def test_not_onnx(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(InputError, match="not an ONNX file") as error:
        load(str(tmp_path / "m.onnx"))
    assert code(error) == "AOT-I002"


def test_a_truncated_file(tmp_path: Path) -> None:
    whole = linear().SerializeToString()
    (tmp_path / "m.onnx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize(("opset", "hint"), [(7, "version_converter"), (999, "newer onnx")])
def test_opsets(opset: int, hint: str) -> None:
    proto = linear()
    proto.opset_import[0].version = opset
    with pytest.raises(UnsupportedModelError, match=f"opset {opset}") as error:
        load(proto)
    assert code(error) == "AOT-I004"
    assert hint in error.value.diagnostics[0].hint


def test_a_name_that_nothing_produces() -> None:
    proto = linear()
    proto.graph.node[0].input[1] = "nowhere"
    with pytest.raises(InputError, match="not valid ONNX") as error:
        load(proto)
    assert code(error) == "AOT-I003"


def test_a_cycle() -> None:
    proto = linear()
    proto.graph.node.insert(0, helper.make_node("Add", ["y", "x"], ["z"]))
    proto.graph.node[1].input[0] = "z"
    with pytest.raises(InputError, match="not valid ONNX"):
        load(proto)


def test_external_data(tmp_path: Path) -> None:
    onnx.save(
        linear(),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.bin",
        size_threshold=0,
    )
    made = load(tmp_path / "m.onnx")
    x = np.eye(2, 3, dtype=np.float32)
    np.testing.assert_array_equal(infer(made, {"x": x})[0], W[:2])
    assert made.name == "m"
    # `export` writes this one: it must hold the data, wherever it is saved.
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(made.source.graph.initializer[0]), W)
    (tmp_path / "m.bin").unlink()
    with pytest.raises(InputError, match=r"m\.bin") as error:
        load(tmp_path / "m.onnx")
    assert code(error) == "AOT-I005"


def test_external_data_that_is_too_short(tmp_path: Path) -> None:
    onnx.save(
        linear(),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.bin",
        size_threshold=0,
    )
    (tmp_path / "m.bin").write_bytes(b"1234")
    with pytest.raises(InputError):
        load(tmp_path / "m.onnx")


def test_no_serialisation_of_a_large_model(monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of models above 2 GB, at a limit that this one is above.
    monkeypatch.setattr("aotrain.importer.read.PROTOBUF_LIMIT", 10)
    monkeypatch.setattr(onnx.checker, "check_model", lambda *_: pytest.fail("serialised"))
    assert load(linear()).parameters[0].name == "w"


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_is_refused_or_read(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    content = bytearray(TINY["gpt" if seed % 2 else "cnn"].build().SerializeToString())
    for position in rng.integers(0, len(content), 3):
        content[position] = rng.integers(0, 256)
    (tmp_path / "m.onnx").write_bytes(bytes(content))
    with contextlib.suppress(AotError):
        load(tmp_path / "m.onnx", ImportOptions(batch=2))


def test_every_problem_at_once() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="dynamic"),
        helper.make_node("Mystery", ["x"], ["b"], name="unknown", domain="vendor"),
        helper.make_node("Relu", ["b"], ["c"], name="after"),
        helper.make_node("Secret", ["c"], ["d"], name="later", domain="vendor"),
        helper.make_node("Neg", ["x"], ["e"], name="fine"),
    ]
    infos = [helper.make_tensor_value_info("x", 1, [2, 3])]
    outs = [
        helper.make_tensor_value_info(n, k, s)
        for n, k, s in (("a", 7, [2, "k"]), ("d", 1, [2, 3]), ("e", 1, [2, 3]))
    ]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("vendor", 1)]
    proto = helper.make_model(helper.make_graph(nodes, "g", infos, outs), opset_imports=imports)
    with pytest.raises(UnsupportedModelError) as error:
        load(proto)
    assert [d.code for d in error.value.diagnostics] == ["AOT-I009", "AOT-I006", "AOT-I006"]
    assert "vendor" in error.value.diagnostics[1].message
    assert "NonZero node 'dynamic'" in error.value.diagnostics[0].where
    reports = {r.node: r for r in check(proto)}
    assert {n for n, r in reports.items() if not r.importable} == {"dynamic", "unknown", "later"}
    assert reports["unknown"].domain == "vendor"
    assert not reports["after"].reason


def test_shapes_that_do_not_fit() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "t"], ["h"], name="bad"),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    proto = model(nodes, {"x": ["n", 3]}, ["y"], {"t": np.array([5, 7])})
    with pytest.raises(InputError, match="Reshape of") as error:
        load(proto, ImportOptions(batch=4))
    assert code(error) == "AOT-I011"
    assert "'bad'" in error.value.diagnostics[0].where


def test_an_unsupported_mode_names_it() -> None:
    node = helper.make_node(
        "Resize",
        ["x", "roi", "s"],
        ["y"],
        name="up",
        coordinate_transformation_mode="tf_crop_and_resize",
        mode="linear",
    )
    constants = {"roi": f32(0, 0, 0, 0, 1, 1, 1, 1), "s": f32(1, 1, 2, 2)}
    with pytest.raises(UnsupportedModelError, match="tf_crop_and_resize") as error:
        load(model([node], {"x": [1, 1, 2, 2]}, ["y"], constants))
    assert code(error) == "AOT-I007"


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_name_with_a_nul(tmp_path: Path, in_memory: bool) -> None:
    made = linear()
    made.graph.node[0].output[0] = made.graph.output[0].name = "y\0z"
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(InputError, match="a name in it is not text") as error:
        read(made if in_memory else path)
    assert code(error) == "AOT-I002"


def test_a_newer_ir_version_is_not_blamed_on_the_exporter(tmp_path: Path) -> None:
    made = linear()
    made.ir_version = 99
    with pytest.raises(InputError) as error:
        read(made)
    assert "newer onnx" in error.value.diagnostics[0].hint


def test_what_the_checker_says_is_one_line() -> None:
    made = linear()
    made.graph.node[0].input[0] = "nowhere"
    with pytest.raises(InputError, match="not valid ONNX") as error:
        read(made)
    assert "'nowhere' of node: name:" in error.value.diagnostics[0].message
    assert not error.value.diagnostics[0].where
