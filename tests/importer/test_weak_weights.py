"""Operands of arithmetic: which are weights, when they are computed, and which are tables."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from aotrain.importer import ImportOptions, load
from aotrain.importer.model import Model
from aotrain.importer.sinusoids import sinusoids
from aotrain.plan import Role
from tests.importer.graphs import f32, model
from tests.importer.test_classify import imported, names, node

GATE = f32(-1, 0.5, 2)
TRAINED = "trained through arithmetic (--freeze keeps): "
FROZEN = "frozen, tables of sines and cosines (--trainable trains): "


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("Sigmoid", "w", "g"), node("Mul", "x", "g", "y")], {}),
        ([node("Exp", "w", "g"), node("Div", "x", "g", "y")], {}),
        # Gemma's RMSNorm: x (1 + w)
        ([node("Add", "w", "one", "g"), node("Mul", "x", "g", "y")], {"one": f32(1)}),
        # SiLU(w), where w goes in twice
        (
            [
                node("Sigmoid", "w", "s"),
                node("Mul", "w", "s", "g"),
                node("Unsqueeze", "g", "first", "u"),
                node("Add", "x", "u", "y"),
            ],
            {"first": np.array([0])},
        ),
    ],
    ids=["sigmoid", "exp", "1 + w", "silu"],
)
def test_a_weight_under_arithmetic_is_trained(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]
) -> None:
    made = imported(nodes, {"w": GATE, **constants})
    assert [(p.name, p.role) for p in made.parameters] == [("w", Role.TRAINABLE)]
    assert TRAINED + "w" in made.notes
    frozen = imported(nodes, {"w": GATE, **constants}, freeze="w")
    assert [p.role for p in frozen.parameters] == [Role.FROZEN]
    assert not frozen.notes


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        # ALiBi: slopes times distances
        ([node("Mul", "w", "far", "b"), node("Add", "x", "b", "y")], {"far": f32(0, 1, 2)}),
        # positions that the graph counts
        (
            [
                node("Range", "from", "to", "by", "ids"),
                node("Cast", "ids", "far", to=1),
                node("Mul", "w", "far", "b"),
                node("Add", "x", "b", "y"),
            ],
            {"from": np.array(0), "to": np.array(3), "by": np.array(1)},
        ),
        # positions times frequencies, then a sine
        (
            [
                node("Mul", "w", "two", "angle"),
                node("Sin", "angle", "s"),
                node("Add", "x", "s", "y"),
            ],
            {"two": f32(2)},
        ),
    ],
    ids=["alibi", "range", "sine"],
)
def test_a_computed_table_is_a_constant(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]
) -> None:
    made = imported(nodes, {"w": GATE, **constants})
    assert not names(made)
    assert not made.notes


@pytest.mark.parametrize("name", ["val_7", "onnx::Sigmoid_3"])
def test_what_the_exporter_folded_is_a_constant(name: str) -> None:
    nodes = [node("Sigmoid", name, "g"), node("Mul", "x", "g", "y")]
    assert not names(imported(nodes, {name: GATE}))


def rotary(**options: object) -> Model:
    """x [2, 6, 8] with a rotary embedding, x cos + swap(x) sin, and a scale of its own."""
    angle = np.arange(6)[:, None] * 10.0 ** -np.arange(4)
    angle = np.concatenate([angle, angle], axis=1)  # [6, 8]
    constants = {
        "cos": np.cos(angle).astype(np.float32),
        "sin": np.sin(angle).astype(np.float32),
        "scale": np.cos(angle).astype(np.float32)[::-1].copy(),  # a weight that looks like cos
        "start": np.array([4]),
        "end": np.array([8]),
        "zero": np.array([0]),
        "axis": np.array([2]),
    }
    nodes = [
        node("Slice", "x", "start", "end", "axis", "right"),
        node("Slice", "x", "zero", "start", "axis", "left"),
        node("Neg", "right", "minus"),
        node("Concat", "minus", "left", "swapped", axis=2),
        node("Mul", "x", "cos", "a"),
        node("Mul", "swapped", "sin", "b"),
        node("Add", "a", "b", "c"),
        node("Mul", "c", "scale", "y"),
    ]
    return load(model(nodes, {"x": [2, 6, 8]}, ["y"], constants), ImportOptions(**options))  # type: ignore[arg-type]


def test_rotary_tables_are_frozen() -> None:
    made = rotary()
    roles = {p.name: p.role for p in made.parameters}
    assert roles == {"cos": Role.FROZEN, "sin": Role.FROZEN, "scale": Role.TRAINABLE}
    assert FROZEN + "cos, sin" in made.notes


def test_rotary_tables_can_be_trained() -> None:
    made = rotary(trainable=("cos",))
    assert {p.name for p in made.parameters if p.role is Role.TRAINABLE} == {"cos", "scale"}
    assert FROZEN + "sin" in made.notes


def positions(length: int, width: int, dtype: type, interleaved: bool) -> np.ndarray:
    angle = np.arange(length)[:, None] / 1e4 ** (np.arange(0, width, 2) / width)
    parts = [np.sin(angle), np.cos(angle)]
    if interleaved:
        return np.stack(parts, axis=-1).reshape(length, width).astype(dtype)
    return np.concatenate(parts, axis=1).astype(dtype)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sinusoidal_positions_are_a_table(dtype: type, interleaved: bool) -> None:
    table = positions(20, 16, dtype, interleaved)
    assert sinusoids({"pe": table}) == {"pe"}
    bent = table.copy()
    bent[7, 3] += dtype(0.1)
    assert sinusoids({"pe": bent}) == set()


@pytest.mark.parametrize(
    "value",
    [
        np.ones((4, 4), np.float32),
        np.eye(8, dtype=np.float32)[:, :2],
        np.tile(f32(1, 0), (8, 1)),  # scales beside shifts
        np.random.default_rng(0).uniform(-1, 1, (64, 64)),
        f32(0.6, 0.8),
    ],
    ids=["ones", "one-hot", "halves", "uniform", "two numbers"],
)
def test_weights_are_no_table(value: np.ndarray) -> None:
    assert sinusoids({"w": value, "v": value.copy(), "zero": np.zeros_like(value)}) == set()
