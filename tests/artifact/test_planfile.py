"""Plan ⇄ plan.bin: exact for any plan, and nothing damaged gets through."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotrain.artifact.planfile import FileDigest, PlanFile, pack, unpack
from aotrain.errors import InputError
from aotrain.plan import ITEM_BYTES, Entry, Kind, Launch, Plan, Role, Tensor
from tests.runtime import toy

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    kind = draw(st.sampled_from(Kind))
    return Tensor(
        draw(NAMES),
        tuple(draw(st.lists(st.integers(0, 9), max_size=5))),
        draw(st.sampled_from(list(ITEM_BYTES))),
        kind,
        draw(st.sampled_from(Role)) if kind is Kind.STATE else None,
        draw(NAMES),
        draw(st.floats(allow_nan=False)) if kind is Kind.HYPER else None,
        draw(U64),
    )


@st.composite
def plan_files(draw: st.DrawFn) -> PlanFile:
    table = tuple(draw(st.lists(tensors(), max_size=6)))
    indices = st.lists(U32, max_size=4).map(tuple)
    launches = st.lists(st.builds(Launch, U32, indices, indices, NAMES), max_size=4).map(tuple)
    entries = st.lists(st.builds(Entry, NAMES, launches, indices, indices), max_size=3).map(tuple)
    kernels = tuple(draw(st.lists(NAMES, max_size=3)))
    constants = {
        i: draw(st.binary(min_size=t.nbytes, max_size=t.nbytes))
        for i, t in enumerate(table)
        if t.kind is Kind.CONSTANT and t.nbytes < 4096
    }
    table = tuple(  # a constant too large for a test becomes something else
        replace(t, kind=Kind.TEMP) if t.kind is Kind.CONSTANT and i not in constants else t
        for i, t in enumerate(table)
    )
    return PlanFile(
        Plan(table, kernels, draw(entries), draw(U64), draw(U64)),
        FileDigest(draw(U64), draw(U32)),
        FileDigest(draw(U64), draw(U32)),
        draw(NAMES),
        draw(st.none() | st.integers(1, 2**40)),
        draw(st.none() | st.integers(-(2**40), 2**40)),
        constants,
    )


@given(plan_files())
@settings(max_examples=200, deadline=None)
def test_round_trip_is_exact(file: PlanFile) -> None:
    raw = pack(file)
    assert unpack(raw) == file
    assert pack(unpack(raw)) == raw


def toy_file() -> bytes:
    digest = FileDigest.of(b"")
    return pack(PlanFile(toy.plan(), digest, digest, "toy", 5, -100, {9: bytes(12)}))


def test_every_truncation_and_every_flipped_byte_is_refused() -> None:
    raw = toy_file()
    for size in range(len(raw)):
        with pytest.raises(InputError):
            unpack(raw[:size])
    for at in range(len(raw)):
        with pytest.raises(InputError):
            unpack(raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :])


def test_newer_version_is_named() -> None:
    raw = toy_file()
    with pytest.raises(InputError, match=r"AOT-A011.*version 9, this aotrain reads 1"):
        unpack(raw[:8] + struct.pack("<I", 9) + raw[12:])
