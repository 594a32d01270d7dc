"""Which tensors of a file become parameters, and how globs change that."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from aotrain.errors import InputError, UnsupportedModelError
from aotrain.importer import ImportOptions, load
from aotrain.importer.classify import is_mask
from aotrain.importer.model import Model
from aotrain.plan import Role
from tests.importer.evaluate import infer
from tests.importer.graphs import f32, model

NORMAL = np.random.default_rng(0).normal
W = NORMAL(size=(3, 3)).astype(np.float32)


def node(op: str, *args: str, **attrs: object) -> onnx.NodeProto:
    """The last argument is the output."""
    return helper.make_node(op, list(args[:-1]), [args[-1]], name=f"{op}_{args[-1]}", **attrs)


def names(made: Model) -> list[str]:
    return [p.name for p in made.parameters]


def imported(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], **options: object
) -> Model:
    return load(model(nodes, {"x": [2, 3]}, ["y"], constants), ImportOptions(**options))  # type: ignore[arg-type]


def test_weight_of_a_constant_node() -> None:
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(W))
    made = imported([constant, node("MatMul", "x", "w", "y")], {})
    assert names(made) == ["w"]
    np.testing.assert_array_equal(made.parameters[0].value, W)


@pytest.mark.parametrize("moved", ["Identity", "Transpose", "Squeeze"])
def test_a_moved_weight_stays_the_stored_one(moved: str) -> None:
    made = imported([node(moved, "w", "v"), node("MatMul", "x", "v", "y")], {"w": W})
    assert names(made) == ["w"]


def test_a_dequantized_weight_is_a_parameter_by_its_own_name() -> None:
    stored, scale = np.int8([[1, -2, 3]] * 3), np.float32(0.5)
    nodes = [node("DequantizeLinear", "q", "s", "w"), node("MatMul", "x", "w", "y")]
    made = imported(nodes, {"q": stored, "s": np.asarray(scale)})
    assert names(made) == ["w"]
    np.testing.assert_array_equal(made.parameters[0].value, stored * scale)


def test_a_shared_weight_is_one_parameter() -> None:
    made = imported([node("MatMul", "x", "w", "h"), node("MatMul", "h", "w", "y")], {"w": W})
    assert names(made) == ["w"]


def test_weights_that_the_file_draws_are_the_same_at_every_import() -> None:
    nodes = [node("RandomNormal", "w", shape=[3, 3]), node("MatMul", "x", "w", "y")]
    first, second = (imported(nodes, {}).parameters[0] for _ in range(2))
    assert first.name == "w" and first.value.std() > 0.1
    np.testing.assert_array_equal(first.value, second.value)


def test_noise_is_no_constant() -> None:
    nodes = [node("RandomNormal", "noise", shape=[2, 3]), node("Add", "x", "noise", "y")]
    with pytest.raises(UnsupportedModelError, match="RandomNormal"):
        imported(nodes, {})


def test_equal_tensors_that_the_exporter_merged_part() -> None:
    nodes = [
        node("Identity", "one", "var"),
        node("Identity", "w", "w2"),
        helper.make_node("BatchNormalization", ["x", "one", "zero", "zero2", "var"], ["h"]),
        node("MatMul", "h", "w", "i"),
        node("MatMul", "i", "w2", "y"),
    ]
    constants = {"one": f32(1, 1, 1), "zero": f32(0, 0, 0), "zero2": f32(0, 0, 0), "w": W}
    made = imported(nodes, constants)
    assert set(names(made)) == {"one", "zero", "w", "w2"}
    assert [p.name for p in made.buffers] == ["zero2", "var"]
    assert made.notes == ("2 tensors that the exporter had merged with an equal one trained apart",)


def test_a_table_tied_to_the_output_layer_stays_tied() -> None:
    nodes = [
        node("Identity", "w", "head"),
        node("Cast", "x", "ids", to=7),
        node("Gather", "w", "ids", "h"),
        node("MatMul", "h", "head", "y"),
    ]
    assert names(imported(nodes, {"w": W})) == ["w"]


def test_half_of_a_group_norm_is_constant() -> None:
    ones = helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(f32(1, 1)))
    zeros = helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(f32(0, 0)))
    nodes = [
        ones,
        zeros,
        node("Reshape", "x", "split", "g"),
        node("InstanceNormalization", "g", "s", "b", "n"),
        node("Reshape", "n", "whole", "m"),
        node("Mul", "m", "weight", "y"),
    ]
    constants = {"split": np.array([1, 2, 3]), "whole": np.array([2, 3]), "weight": f32(1, 1, 1)}
    assert names(imported(nodes, constants)) == ["weight"]


def test_half_of_a_group_norm_lifted_to_initializers_is_constant() -> None:
    norm = node("InstanceNormalization", "g", "s", "b", "n")
    constants = {"split": np.array([1, 2, 3]), "s": f32(1, 1), "b": f32(0, 0)}
    grouped = [node("Reshape", "x", "split", "g"), norm, node("Mul", "n", "weight", "y")]
    weight = {"weight": f32(1, 2, 3)}
    assert names(imported(grouped, constants | weight)) == ["weight"]
    alone = [node("Unsqueeze", "x", "first", "g"), norm, node("Relu", "n", "y")]
    constants |= {"first": np.array([0])}
    assert names(imported(alone, constants)) == ["s", "b"]


NORMS = {
    "BatchNormalization": ("mean", "var"),
    "InstanceNormalization": (),
    "LayerNormalization": (),
    "GroupNormalization": (),
}


def norm_of(op: str, form: str, scale: np.ndarray, shift: np.ndarray, prefix: str) -> Model:
    """`op` on x [2, 3, 4]; scale and shift, `<prefix>1` and `<prefix>2`, are held as `form`."""
    held = dict(zip((f"{prefix}1", f"{prefix}2"), (scale, shift), strict=True))
    constants = {"mean": f32(0, 1, 0), "var": f32(1, 2, 1)} if NORMS[op] else {}
    attributes = {"num_groups": 3} if op == "GroupNormalization" else {}
    nodes = []
    for name, value in held.items():
        tensor = numpy_helper.from_array(value if form == "Constant" else value[:1])
        if form == "initializer":
            constants[name] = value
        elif form == "Constant":
            nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            constants["size"] = np.array(value.shape)
            nodes.append(helper.make_node("ConstantOfShape", ["size"], [name], value=tensor))
    nodes += [node("Relu", "x", "r"), node(op, "r", *held, *NORMS[op], "y", **attributes)]
    return load(model(nodes, {"x": [2, 3, 4]}, ["y"], constants, opset=21), ImportOptions())


@pytest.mark.parametrize("op", NORMS)
@pytest.mark.parametrize("form", ["initializer", "Constant", "ConstantOfShape"])
def test_scales_and_shifts_that_the_exporter_made_up_are_constants(op: str, form: str) -> None:
    """What stands in for the weights of a norm without any (affine=False)."""
    size = 4 if op == "LayerNormalization" else 3
    ones, zeros = np.ones(size, np.float32), np.zeros(size, np.float32)
    assert not names(norm_of(op, form, ones, zeros, "val_"))
    assert names(norm_of(op, form, 2 * ones, ones, "val_")) == ["val_1", "val_2"]
    # A module's own weights are as neutral before they are trained.
    own = names(norm_of(op, form, ones, zeros, "norm.weight"))
    assert own == ([] if form == "Constant" else ["norm.weight1", "norm.weight2"])


def test_arithmetic_takes_vectors_not_scalars_or_masks() -> None:
    mask = np.array([[0, -np.inf, 0]], np.float32)
    constants = {
        "bias": f32(0, 0, 0),  # as yet untrained: still a bias
        "scale": f32(1, 1, 1),
        "eps": np.array([1e-5], np.float32),
        "mask": mask,
    }
    nodes = [
        node("Add", "x", "bias", "a"),
        node("Mul", "a", "scale", "b"),
        node("Add", "b", "eps", "c"),
        node("Add", "c", "mask", "d"),
        node("Max", "d", "floor", "y"),
    ]
    constants["floor"] = f32(-1, -2, -3)
    assert names(imported(nodes, constants)) == ["bias", "scale", "floor"]


def test_clip_bounds_and_pad_values_are_constants() -> None:
    nodes = [node("Clip", "x", "low", "", "a"), node("Pad", "a", "pads", "fill", "y")]
    constants = {
        "low": np.array(0, np.float32),
        "pads": np.array([0, 1, 0, 1]),
        "fill": np.array(2.0, np.float32),
    }
    assert not names(imported(nodes, constants))


def test_a_weight_that_arithmetic_makes_is_trained_where_it_is_stored() -> None:
    """Weight normalisation, g v / |v|, and a softmax over a weight: their gradients pass."""
    nodes = [
        node("ReduceL2", "v", "norm", axes=[1], keepdims=1),
        node("Div", "v", "norm", "unit"),
        node("Mul", "unit", "g", "w"),
        node("MatMul", "x", "w", "h"),
        node("Softmax", "s", "mix"),
        node("MatMul", "h", "mix", "y"),
    ]
    constants = {"v": W, "g": f32(1, 2, 3).reshape(3, 1), "s": W}
    made = load(model(nodes, {"x": [2, 3]}, ["y"], constants, opset=17), ImportOptions())
    assert names(made) == ["v", "g", "s"]
    mask = np.tril(np.ones((3, 3), np.float32))
    pruned = [node("Mul", "w", "mask", "kept"), node("MatMul", "x", "kept", "y")]
    assert names(imported(pruned, {"w": W, "mask": mask})) == ["w"]
    scaled = [node("Mul", "w", "scale", "kept"), node("MatMul", "x", "kept", "y")]
    assert names(imported(scaled, {"w": W, "scale": f32(0.1)})) == ["w"]
    folded = [node("Div", "w", "onnx::Div_7", "unit"), node("MatMul", "x", "unit", "y")]
    assert names(imported(folded, {"w": W, "onnx::Div_7": f32(1, 2, 3)})) == ["w"]


def test_arithmetic_among_constants_makes_no_parameter() -> None:
    # A rotary table: positions times frequencies, then cos.
    nodes = [
        node("MatMul", "t", "f", "angle"),
        node("Cos", "angle", "c"),
        node("Mul", "x", "c", "y"),
    ]
    constants = {"t": f32(1, 2).reshape(2, 1), "f": f32(1, 2, 3).reshape(1, 3)}
    made = imported(nodes, constants)
    assert not names(made)
    x = NORMAL(size=(2, 3)).astype(np.float32)
    want = x * np.cos(constants["t"] @ constants["f"])
    np.testing.assert_allclose(infer(made, {"x": x})[0], want, rtol=1e-6)


def test_a_position_table_gathered_by_constants_is_a_parameter() -> None:
    nodes = [node("Gather", "table", "ids", "p"), node("Add", "x", "p", "y")]
    made = imported(
        nodes, {"table": NORMAL(size=(5, 3)).astype(np.float32), "ids": np.array([0, 1])}
    )
    assert names(made) == ["table"]


def test_is_mask() -> None:
    assert is_mask(np.array([0, -1e9]))
    assert is_mask(np.array([0, 1, 1]))
    assert not is_mask(np.array([0, 0]))
    assert not is_mask(np.array([1, 1]))
    assert not is_mask(np.array([0, 0.5]))


def test_freeze_then_train() -> None:
    nodes = [node("MatMul", "x", "body.w", "h"), node("MatMul", "h", "head.w", "y")]
    made = imported(nodes, {"body.w": W, "head.w": W.copy()}, freeze=("*",), trainable=("head.*",))
    assert [p.role for p in made.parameters] == [Role.FROZEN, Role.TRAINABLE]


def test_a_constant_made_trainable() -> None:
    nodes = [node("Mul", "x", "temperature", "y")]
    made = imported(nodes, {"temperature": f32(2)}, trainable=("temperature",))
    assert names(made) == ["temperature"]


def test_a_glob_for_all_leaves_constants_alone() -> None:
    nodes = [node("MatMul", "x", "w", "h"), node("Mul", "h", "temperature", "y")]
    made = imported(nodes, {"w": W, "temperature": f32(2)}, freeze=("w",), trainable=("*",))
    assert [(p.name, p.role) for p in made.parameters] == [("w", Role.TRAINABLE)]


def test_a_glob_without_a_match_names_close_ones() -> None:
    with pytest.raises(InputError) as error:
        imported(
            [node("MatMul", "x", "layer1.weight", "y")],
            {"layer1.weight": W},
            freeze=("layer.weight", "nothing*"),
        )
    assert len(error.value.diagnostics) == 2
    assert "--freeze 'layer.weight'" in error.value.diagnostics[0].message
    assert "layer1.weight" in error.value.diagnostics[0].hint


def test_a_statistic_that_is_a_weight_too() -> None:
    nodes = [helper.make_node("BatchNormalization", ["x", "one", "zero", "zero", "one"], ["y"])]
    constants = {"one": f32(1, 1, 1), "zero": f32(0, 0, 0)}
    with pytest.raises(InputError) as error:
        imported(nodes, constants)
    assert {d.code for d in error.value.diagnostics} == {"AOT-I012"}
    assert len(error.value.diagnostics) == 2
