from hypothesis import given

from aotrain.memory.cost import model_times
from aotrain.memory.derive import apply, derive
from aotrain.memory.liveness import lifetimes, max_load
from aotrain.memory.problem import Problem
from aotrain.memory.simulate import Simulator
from aotrain.plan import Entry, Kind, Launch, Plan, Role, Tensor
from tests.memory.plans import plans
from tests.memory.problems import random_problem


def tensor(name: str, kind: Kind) -> Tensor:
    return Tensor(name, (16,), "float32", kind, Role.TRAINABLE if kind is Kind.STATE else None)


W, X, A, B, LOSS = range(5)


def step() -> Plan:
    """a = f(x, w); b = f(a); loss = f(b); w = f(w, b)."""
    names = [("w", Kind.STATE), ("x", Kind.INPUT), ("a", Kind.TEMP), ("b", Kind.TEMP)]
    tensors = [tensor(name, kind) for name, kind in [*names, ("loss", Kind.OUTPUT)]]
    launches = (
        Launch(0, (X, W, A), (2,)),
        Launch(0, (A, B), (1,)),
        Launch(0, (B, LOSS), (1,)),
        Launch(0, (W, B), (0,)),
    )
    return Plan(tuple(tensors), ("k",), (Entry("train", launches, (X,), (LOSS,)),))


def test_what_a_plan_says_about_order() -> None:
    plan = step()
    problem = derive(plan, plan.entries[0], {0: 5})
    assert [task.reads for task in problem.tasks] == [(), (0,), (1,), (1,)]
    assert [task.replayable for task in problem.tasks] == [True, True, False, False]
    assert problem.tasks[3].overwrites == (0,)
    assert problem.overwriters[0] == (3,)
    assert problem.needs == ((), (0,), (1,), (0, 1))
    assert problem.persistent_bytes == 3 * 64


def test_a_second_run_writes_tensors_of_its_own() -> None:
    plan = step()
    tensors, entry = apply(plan, plan.entries[0], [0, 1, 2, 0, 1, 3])
    again, after, update = entry.launches[3:]
    assert len(tensors) == 7
    assert again.args[:2] == (X, W) and again.args[2] >= 5
    assert after.args == (again.args[2], after.args[1]) and after.args[1] >= 5
    assert update.args == (W, after.args[1])


def test_an_arena_tensor_written_twice_is_two_values() -> None:
    tensors = tuple(tensor(n, k) for n, k in [("a", Kind.TEMP), ("s", Kind.STATE)])
    launches = (Launch(0, (0,), (0,)), Launch(1, (1, 0), (0,))) * 2
    plan = Plan(tensors, ("k", "update"), (Entry("train", launches, (), ()),))
    problem = derive(plan, plan.entries[0], {0: 1, 1: 1})
    assert len(problem.values) == 2
    assert problem.tasks[3].reads == (1,) and problem.tasks[3].after == (1,)


def test_json_round_trip() -> None:
    for seed in range(20):
        problem = random_problem(seed)
        assert Problem.load(problem.dump()) == problem


@given(plans())
def test_simulation_agrees_with_liveness(plan: Plan) -> None:
    times = model_times(plan)
    for entry in plan.entries:
        problem = derive(plan, entry, times)
        trace = Simulator(problem)(range(len(entry.launches)))
        assert trace.peak == max_load(lifetimes(plan, entry))
        assert trace.nanoseconds == problem.nanoseconds
