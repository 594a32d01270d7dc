from hypothesis import given

from aotrain.memory import order
from aotrain.memory.liveness import lifetimes, max_load
from aotrain.memory.order import dependencies
from aotrain.plan import Entry, Kind, Launch, Plan, Role, Tensor
from tests.memory.plans import plans


@given(plans())
def test_every_dependency_is_kept(plan: Plan) -> None:
    for before, after in zip(plan.entries, order(plan).entries, strict=True):
        assert sorted(map(id, before.launches)) == sorted(map(id, after.launches))
        place = {id(launch): i for i, launch in enumerate(after.launches)}
        for i, need in enumerate(dependencies(before.launches)):
            assert all(place[id(before.launches[j])] < place[id(before.launches[i])] for j in need)


def test_updates_do_not_wait_for_the_end() -> None:
    """Two gradients, then two updates: after ordering one gradient lives at a time."""
    kinds = [Kind.STATE, Kind.STATE, Kind.INPUT, Kind.TEMP, Kind.TEMP]
    tensors = tuple(
        Tensor(f"t{i}", (16,), "float32", k, Role.TRAINABLE if k is Kind.STATE else None)
        for i, k in enumerate(kinds)
    )
    launches = (
        Launch(0, (2, 3), (1,)),
        Launch(0, (2, 4), (1,)),
        Launch(0, (0, 3), (0,)),
        Launch(0, (1, 4), (0,)),
    )
    plan = Plan(tensors, ("k",), (Entry("train", launches, (2,), ()),))
    ordered = order(plan)
    assert max_load(lifetimes(plan, plan.entries[0])) == 2 * 64
    assert max_load(lifetimes(ordered, ordered.entries[0])) == 64
