"""The page of an artifact's memory: all is on it, and a browser shows it where it should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from aotrain.memory import Report, Solution
from aotrain.memory.held import held_back
from aotrain.memory.page import page
from aotrain.plan import Entry, Kind, Launch, Plan, Role, Tensor
from tests.memory.test_solve import solved

PROBE = """<script>
const boxes = [...document.querySelectorAll("#train rect.tensor")].filter(
  box => !box.classList.contains("scratch"));
const frame = document.querySelector("#train svg").getBoundingClientRect();
const seen = boxes.map(box => {
  const r = box.getBoundingClientRect();
  window.scrollTo(0, 0);
  const at = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
  return [r.width > 0 && r.height > 0, r.top >= frame.top && r.bottom <= frame.bottom, at === box];
});
const colour = getComputedStyle(document.querySelector("#train rect.again")).fill;
document.title = JSON.stringify({count: boxes.length, seen, colour});
</script>"""


@pytest.fixture(scope="module")
def tight() -> Solution:
    return solved(solved().report.block * 3 // 4)


def test_a_report_survives_json(tight: Solution) -> None:
    again = Report.of(json.loads(json.dumps(tight.report.as_dict())))
    assert again == replace(tight.report, seconds=None)
    assert "solved in" not in again.render()


def test_every_tensor_launch_and_point_is_named(tight: Solution) -> None:
    text = page("a <model>", tight.plan, tight.report)
    assert "<model>" not in text and "a &lt;model&gt;" in text
    titles = re.findall("<title>(.*?)</title>", text)
    for launch in tight.plan.entry("train").launches:
        assert any(escape(launch.origin) in title for title in titles)
        for index in launch.args:
            tensor = tight.plan.tensors[index]
            if tensor.kind is Kind.TEMP:
                assert any(title.startswith(f"{tensor.name}:") for title in titles), tensor
    entry = tight.report.entry("train")
    assert text.count('class="point') == len(entry.curve) > 2
    assert text.count("chosen") >= 1 and f"budget: {tight.report.budget:,} bytes" in titles
    assert "http" not in text and "<script" not in text  # nothing is fetched, nothing runs


def test_the_curve_falls_and_stays_above_its_bound(tight: Solution) -> None:
    curve = tight.report.entry("train").curve
    assert list(curve) == sorted(curve, key=lambda point: -point[0])
    assert [extra for _, extra, _ in curve] == sorted(extra for _, extra, _ in curve)
    assert all(bound <= extra for _, extra, bound in curve)


def test_a_browser_shows_it(tight: Solution, tmp_path: Path) -> None:
    browser = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None
    )
    if browser is None:
        pytest.skip("no Chromium")
    path = tmp_path / "page.html"
    path.write_text(page("model", tight.plan, tight.report) + PROBE)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,3000"]
    command = [browser, *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    title = re.search("<title>({.*?})</title>", done.stdout)
    assert title, done.stdout[:500]
    found = json.loads(title[1])
    lives = {i for launch in tight.plan.entry("train").launches for i in launch.args}
    assert found["count"] >= sum(tight.plan.tensors[i].kind is Kind.TEMP for i in lives) // 2
    assert found["count"] == len(found["seen"])
    assert all(all(flags) for flags in found["seen"]), found  # visible, inside, under the pointer
    assert found["colour"] not in ("rgb(0, 0, 0)", "none")  # the style sheet applies


def test_gradients_that_wait_are_found() -> None:
    """d0 is the first of two gradients of w: it waits for d1, not for what is between."""
    state = Tensor("w", (64,), "float32", Kind.STATE, Role.TRAINABLE)
    temps = [Tensor(name, (64,), "float32", Kind.TEMP) for name in ("d0", "a", "b", "d1")]
    launches = (
        Launch(0, (0, 1), (1,), "first"),
        Launch(0, (0, 2), (1,), "between"),
        Launch(0, (2, 3), (1,), "peak"),
        Launch(0, (3, 4), (1,), "second"),
        Launch(0, (0, 1, 4), (0,), "update"),
    )
    entry = Entry("train", launches, (), ())
    plan = Plan((state, *temps), ("k",), (entry,))
    assert held_back(plan, entry, 2) == [("d0", 256, "second")]
    assert held_back(plan, entry, 3) == []  # d1 is being made: nothing left to wait for
    assert held_back(plan, entry, 0) == []
