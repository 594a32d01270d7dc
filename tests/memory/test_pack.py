import random

import pytest
from hypothesis import given

from aotrain.memory import pack, validate
from aotrain.memory.liveness import Lifetime, lifetimes, max_load
from aotrain.memory.pack import pack_lifetimes
from aotrain.plan import ALIGNMENT, Entry, Kind, Launch, Plan, Tensor, align
from tests.memory.plans import plans


def lives(*intervals: tuple[int, int, int]) -> list[Lifetime]:
    return [Lifetime(i, 64 * n, a, b) for i, (n, a, b) in enumerate(intervals)]


def perfect(seed: int, cuts: int = 100, side: int = 256) -> list[Lifetime]:
    """A square of time and bytes cut into rectangles at random: `side` lines of 64 suffice."""
    rng = random.Random(seed)
    boxes = [(0, side, 0, side)]  # births, deaths, lowest and highest line
    for _ in range(cuts):
        box = max(boxes, key=lambda b: (b[1] - b[0]) * (b[3] - b[2]) * rng.random())
        begin, end, low, high = box
        boxes.remove(box)
        if end - begin > 1 and (rng.random() < 0.5 or high - low < 2):
            cut = rng.randrange(begin + 1, end)
            boxes += [(begin, cut, low, high), (cut, end, low, high)]
        else:
            cut = rng.randrange(low + 1, high)
            boxes += [(begin, end, low, cut), (begin, end, cut, high)]
    return lives(*((high - low, begin, end - 1) for begin, end, low, high in sorted(boxes)))


@pytest.mark.parametrize("seed", range(5))
def test_a_layout_without_waste_is_found(seed: int) -> None:
    """First fit needs 312 to 357 lines for these, so the search must close the gap."""
    alive = perfect(seed)
    offsets, size = pack_lifetimes(alive)
    assert size == max_load(alive) == 256 * 64
    assert len(offsets) == len(alive)


@given(plans())
def test_packed_plans_are_valid_and_within_their_bounds(plan: Plan) -> None:
    packed = pack(plan)
    validate(packed)
    for entry in packed.entries:
        alive = lifetimes(packed, entry)
        assert (
            max_load(alive)
            <= packed.arena_bytes
            <= sum(align(max(1, t.nbytes)) for t in packed.tensors if t.kind is Kind.TEMP)
            or not alive
        )
    assert all(t.offset % ALIGNMENT == 0 for t in packed.tensors)


def test_tensors_that_never_meet_share_bytes() -> None:
    offsets, size = pack_lifetimes(lives((4, 0, 1), (4, 2, 3), (2, 1, 2)))
    assert size == 6 * 64
    assert offsets[0] == offsets[1]


def test_a_hole_is_filled() -> None:
    _, size = pack_lifetimes(lives((1, 0, 9), (3, 0, 3), (1, 4, 9), (2, 4, 6)))
    assert size == 4 * 64 == max_load(lives((1, 0, 9), (3, 0, 3), (1, 4, 9), (2, 4, 6)))


def test_entries_share_one_arena() -> None:
    tensors = tuple(Tensor(f"t{i}", (16,), "float32", Kind.TEMP) for i in range(2))
    entries = tuple(Entry(f"e{i}", (Launch(0, (i,), (0,)),), (), ()) for i in range(2))
    packed = pack(Plan(tensors, ("k",), entries))
    assert packed.block_bytes == 64
    validate(packed)


@pytest.mark.parametrize("nbytes, expected", [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_align(nbytes: int, expected: int) -> None:
    assert align(nbytes) == expected
