"""A finished plan that computes something else is refused, whatever its bytes look like."""

from dataclasses import replace

import pytest

from aotrain.errors import InternalError
from aotrain.memory import pack
from aotrain.memory.derive import apply
from aotrain.memory.equivalent import check_equivalent
from aotrain.memory.validate import validate
from aotrain.plan import Plan
from tests.memory.test_problem import B, W, step


def scheduled(*schedule: int) -> Plan:
    plan = step()
    tensors, entry = apply(plan, plan.entries[0], schedule)
    return pack(replace(plan, tensors=tensors, entries=(entry,)))


def test_second_runs_change_nothing() -> None:
    check_equivalent(scheduled(0, 1, 2, 0, 1, 3), step())
    check_equivalent(scheduled(0, 1, 3, 2), step())


def test_a_second_run_that_reads_an_updated_weight() -> None:
    """Every byte is there, but the second run is of another version of w."""
    plan = scheduled(0, 1, 3, 0, 1, 2)
    validate(plan)
    with pytest.raises(InternalError, match="'loss' ends wrong"):
        check_equivalent(plan, step())


def test_an_update_that_happens_twice() -> None:
    with pytest.raises(InternalError, match="'w' ends wrong"):
        check_equivalent(scheduled(0, 1, 2, 3, 3), step())


def test_bytes_that_something_else_took() -> None:
    plan = scheduled(0, 1, 2, 3)
    clobbered = list(plan.tensors)
    clobbered[B] = plan.tensors[B].at(plan.tensors[W].offset)
    with pytest.raises(InternalError, match="ends wrong"):
        check_equivalent(replace(plan, tensors=tuple(clobbered)), step())
