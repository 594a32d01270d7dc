"""Times of rounds, shares of a profile: by hand."""

import pytest

from aotrain import bench
from aotrain.bench import Part
from tests.runtime import toy


def line(median, p90=2.0, least=0.5, resident=100):
    return {
        "median_ms": median,
        "p90_ms": p90,
        "least_ms": least,
        "samples_per_second": 32 / median,
        "block_bytes": 64,
        "resident_bytes": resident,
    }


def test_times_of_rounds():
    found = bench.times([line(1.0, 3.0), line(1.2, 2.0, 0.4), line(1.1, 9.0, resident=300)])
    assert found.median_ms == 1.1
    assert found.p90_ms == 3.0
    assert found.least_ms == 0.4
    assert found.spread == pytest.approx(0.2 / 1.1)
    assert found.noisy
    assert (found.block_bytes, found.resident_bytes) == (64, 300)
    assert not bench.times([line(1.0), line(1.05)]).noisy


def test_shares_of_a_step():
    """3 launches of 100, 400 and 1000 ns, at 2 bytes a ns; the shortest is what a launch takes."""
    parts = [Part("a", "", 100, 10), Part("b", "", 400, 10_000), Part("c", "", 1000, 400)]
    share = bench.shares(parts, 2.0)
    assert share["launch"] == pytest.approx(300 / 1500)
    assert share["memory"] == pytest.approx((0 + 300 + 200) / 1500)  # b is held up by memory alone
    assert share["compute"] == pytest.approx(700 / 1500)
    assert sum(bench.shares([], 2.0).values()) == 0


def test_bytes_of_a_launch_count_each_tensor_once():
    plan = toy.plan()
    launches = plan.entry("train").launches
    profile = [{"kernel": f"k{x.kernel}", "origin": "o", "ns": i} for i, x in enumerate(launches)]
    parts = bench.parts(plan, profile)
    assert [part.ns for part in parts] == list(range(5))
    assert parts[0].nbytes == 48 + 12 + 48  # x, mean, centred


def test_launches_of_a_kernel_are_added():
    parts = [Part("a", "one", 1, 0), Part("b", "two", 5, 0), Part("a", "three", 7, 0)]
    assert bench.by_kernel(parts) == [
        bench.Kernel("a", "three", 2, 8),
        bench.Kernel("b", "two", 1, 5),
    ]


def test_a_copy_takes_time():
    assert 0.1 < bench.copying_speed(1 << 22, 1) < 1000  # GB/s


@pytest.mark.parametrize("name", ["launch", "memory", "compute"])
def test_advice_is_about_the_largest_share(name):
    share = {**dict.fromkeys(("launch", "memory", "compute"), 0.1), name: 0.8}
    words = {"launch": "launches", "memory": "memory", "compute": "arithmetic"}
    assert bench.advice(share).startswith(f"mostly {words[name]}")
