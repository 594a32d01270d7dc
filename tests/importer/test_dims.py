"""Symbolic dimensions, the batch, and what is said where one has no size."""

from __future__ import annotations

import pytest
from onnx import helper

from aotrain.errors import InputError
from aotrain.importer import ImportOptions, load
from aotrain.importer.model import Model
from tests.importer.graphs import model


def imported(shapes: dict[str, list[int | str]], **options: object) -> Model:
    nodes = [helper.make_node("Relu", [x], [f"{x}_y"]) for x in shapes]
    made = model(nodes, shapes, [f"{x}_y" for x in shapes])  # type: ignore[arg-type]
    return load(made, ImportOptions(**options))  # type: ignore[arg-type]


def shapes(made: Model) -> list[tuple[int, ...]]:
    return [i.shape for i in made.inputs]


def test_batch_binds_the_first_dimension_by_name() -> None:
    made = imported({"a": ["n", 3], "b": ["n", "t"], "c": [4, "n"]}, batch=8, dims={"t": 5})
    assert shapes(made) == [(8, 3), (8, 5), (4, 8)]


def test_a_named_batch_by_dim() -> None:
    assert shapes(imported({"a": ["n", 3]}, dims={"n": 2})) == [(2, 3)]


def test_a_fixed_batch_of_one() -> None:
    assert shapes(imported({"a": [1, 3], "b": [1, 2], "c": [7, 2]}, batch=8)) == [
        (8, 3),
        (8, 2),
        (7, 2),
    ]
    assert shapes(imported({"a": [1, 3]})) == [(1, 3)]


def test_a_fixed_one_beside_a_named_batch_stays() -> None:
    assert shapes(imported({"a": ["n", 3], "state": [1, 2]}, batch=8)) == [(8, 3), (1, 2)]


def test_a_dimension_without_a_name() -> None:
    assert shapes(imported({"a": ["n", "?"]}, batch=2, dims={"a:1": 9})) == [(2, 9)]


def test_every_unbound_dimension_is_named_with_its_flag() -> None:
    with pytest.raises(InputError) as error:
        imported({"a": ["n", "height", "?"]})
    assert [d.code for d in error.value.diagnostics] == ["AOT-I008"] * 3
    hints = [d.hint for d in error.value.diagnostics]
    assert "--batch N" in hints[0] and "--dim n=N" in hints[0]
    assert "--dim height=N" in hints[1]
    assert "--dim a:2=N" in hints[2]


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(InputError, match="hight") as error:
        imported({"a": ["n", "height"]}, batch=1, dims={"hight": 3, "height": 3})
    assert "height" in error.value.diagnostics[0].hint


@pytest.mark.parametrize("options", [{"batch": 0}, {"batch": 1, "dims": {"t": -1}}])
def test_impossible_sizes(options: dict[str, object]) -> None:
    with pytest.raises(InputError):
        imported({"a": ["n", "t"]}, **options)


@pytest.mark.parametrize(
    ("dims", "options", "said"),
    [
        (["n", 4], {"batch": 2**62}, "larger than any memory"),
        (["n", 4], {"batch": 10**20}, "larger than any memory"),
        (["n", "t"], {"dims": {"t": 10**15}}, "larger than any memory"),
        (["n", 4], {"batch": 1.5}, "batch = 1.5 is no whole number"),
        (["n", "t"], {"dims": {"t": "8"}}, "t = '8' is no whole number"),
    ],
)
def test_sizes_that_cannot_be(dims: list[int | str], options: dict, said: str) -> None:
    with pytest.raises(InputError, match="AOT-I008") as error:
        imported({"a": dims}, **{"batch": 2, **options})
    assert said in error.value.render()
