"""Every way to break a plan is refused, and named."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aotrain.errors import InternalError
from aotrain.memory import pack, validate
from aotrain.memory.liveness import lifetimes
from aotrain.plan import Entry, Kind, Launch, Plan, Role, Tensor
from tests.memory.plans import plans


def chain() -> Plan:
    """x -> a -> b -> loss, and w updated from b."""
    names = [("w", Kind.STATE), ("x", Kind.INPUT), ("a", Kind.TEMP), ("b", Kind.TEMP)]
    tensors = [
        Tensor(n, (16,), "float32", k, Role.TRAINABLE if k is Kind.STATE else None)
        for n, k in [*names, ("loss", Kind.OUTPUT)]
    ]
    launches = (
        Launch(0, (0, 1, 2), (2,)),
        Launch(0, (2, 3), (1,)),
        Launch(0, (3, 4), (1,)),
        Launch(0, (3, 0), (1,)),
    )
    return pack(Plan(tuple(tensors), ("k",), (Entry("train", launches, (1,), (4,)),)))


def refused(plan: Plan) -> list[str]:
    with pytest.raises(InternalError) as caught:
        validate(plan)
    return [d.code for d in caught.value.diagnostics]


def moved(plan: Plan, index: int, offset: int) -> Plan:
    tensors = list(plan.tensors)
    tensors[index] = tensors[index].at(offset)
    return replace(plan, tensors=tuple(tensors))


def with_launches(plan: Plan, *launches: Launch) -> Plan:
    return replace(plan, entries=(replace(plan.entries[0], launches=launches),))


def test_the_chain_is_valid() -> None:
    validate(chain())


def test_two_live_temporaries_on_the_same_bytes() -> None:
    plan = chain()
    assert refused(moved(plan, 3, plan.tensors[2].offset)) == ["AOT-M005"]


def test_a_value_read_before_it_is_computed() -> None:
    plan = chain()
    first, second, third, fourth = plan.entries[0].launches
    assert refused(with_launches(plan, second, first, third, fourth)) == ["AOT-M003"]


def test_a_value_overwritten_before_its_last_reader() -> None:
    plan = chain()
    first, second, third, fourth = plan.entries[0].launches
    late = with_launches(plan, first, second, third, fourth, replace(third, args=(2, 4)))
    validate(late)  # a still holds its bytes, for nothing took them
    other = Tensor("c", (16,), "float32", Kind.TEMP, offset=plan.tensors[2].offset)
    late = replace(late, tensors=(*late.tensors, other))
    clobber = replace(fourth, args=(3, 5))
    found = refused(
        with_launches(late, *late.entries[0].launches[:4], clobber, late.entries[0].launches[4])
    )
    assert found == ["AOT-M003"]


def test_an_output_that_is_never_written() -> None:
    plan = chain()
    first, second, _, fourth = plan.entries[0].launches
    assert refused(with_launches(plan, first, second, fourth)) == ["AOT-M004"]


@pytest.mark.parametrize("offset", [-64, 8, 1 << 20])
def test_offsets_outside_the_block_or_unaligned(offset: int) -> None:
    assert "AOT-M002" in refused(moved(chain(), 2, offset))


def test_a_temporary_over_the_state() -> None:
    plan = chain()
    assert "AOT-M002" in refused(moved(plan, 2, plan.tensors[0].offset))


@pytest.mark.parametrize(
    "launch", [Launch(1, (0, 1), (1,)), Launch(0, (0, 9), (1,)), Launch(0, (0, 1), (2,))]
)
def test_indices_out_of_range(launch: Launch) -> None:
    assert "AOT-M001" in refused(with_launches(chain(), launch))


@given(plans(entries=1), st.data())
def test_any_overlap_of_two_lives_is_found(plan: Plan, data: st.DataObject) -> None:
    """Put one temporary onto another that lives at the same time: the replay must notice."""
    packed = pack(plan)
    alive = [x for x in lifetimes(packed, packed.entries[0]) if packed.tensors[x.tensor].nbytes]
    read_later = {i for launch in packed.entries[0].launches for i in launch.args[:-1]}
    pairs = [
        (a, b)
        for a in alive
        for b in alive
        if a.first < b.first <= a.last and a.tensor in read_later
    ]
    assume(pairs)
    a, b = data.draw(st.sampled_from(pairs))
    assert refused(moved(packed, b.tensor, packed.tensors[a.tensor].offset))
