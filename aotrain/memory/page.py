"""A packed plan and its report in, one self-contained HTML page out.

For each entry: where every tensor lies in the block and when (offsets upwards, launches to the
right), the bytes alive over it, the budget; and the curve of memory against time. Everything is
static SVG: a tooltip names the tensor or the launch, and nothing is loaded or computed when the
page is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from aotrain.memory.liveness import Lifetime, lifetimes
from aotrain.memory.report import EntryReport, Report
from aotrain.plan import Entry, Plan
from aotrain.units import human_bytes

WIDTH, HEIGHT = 1000, 420  # of a chart's inside, in SVG units
CURVE_HEIGHT = 260
LEFT, TOP, BOTTOM = 90, 16, 40  # room for the axes

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #6a737d; --line: #d0d7de; --back: #fff;
  --kept: #9ecae1; --scratch: #d9d9d9; --again: #fdae6b; --held: #e377c2; --load: #08519c;
  --budget: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #8b949e; --line: #30363d;
  --back: #0d1117; --kept: #2f5f86; --scratch: #484f58; --again: #b5651d; --held: #a03b85;
  --load: #79c0ff; --budget: #ff7b72; } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 1140px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem } h2 { font-size: 1.15rem; margin-top: 2.5rem } h3 { font-size: 1rem }
svg { width: 100%; height: auto; overflow: visible } text { fill: var(--dim); font-size: 12px }
table { border-collapse: collapse } td { padding: .1rem 1rem .1rem 0; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.axis { stroke: var(--line) } .load { stroke: var(--load); fill: none; stroke-width: 1.5;
  pointer-events: none } .budget { stroke: var(--budget); stroke-dasharray: 6 4 }
.kept { fill: var(--kept) } .scratch { fill: var(--scratch) } .again { fill: var(--again) }
.held { fill: var(--held) } .persistent { fill: var(--line) }
.tensor { stroke: var(--back); stroke-width: .5 } .tensor:hover, circle:hover { stroke: var(--ink);
  stroke-width: 2 } circle { fill: var(--load) } circle.chosen { fill: var(--budget) }
.bound { stroke: var(--dim); fill: none; stroke-dasharray: 2 3 }
.key span { display: inline-block; width: .8em; height: .8em; margin: 0 .4em 0 1.2em;
  vertical-align: middle } .key .kept { background: var(--kept) }
.key .again { background: var(--again) } .key .held { background: var(--held) }
.key .scratch { background: var(--scratch) } .key .persistent { background: var(--line) }
.key .alive { background: var(--load); height: 2px }
pre { overflow-x: auto }
"""


def page(name: str, plan: Plan, report: Report) -> str:
    """HTML of about 200 bytes a tensor. `plan` is packed, and `report` is about it."""
    limit = "" if report.budget is None else f"; the budget is {report.budget:,}"
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        f"<title>Memory of {escape(name)}</title><style>{STYLE}</style>",
        f"<h1>Memory of {escape(name)}</h1>",
        f"<p>{report.block:,} bytes in all: {report.persistent:,} of state, constants and data, "
        f"and an arena of {report.block - report.persistent:,} that the entries share{limit}.</p>",
        KEY,
    ]
    for entry in plan.entries:
        parts += _entry(plan, entry, report)
    parts.append(f"<h2>As text</h2><pre>{escape(report.render())}</pre></html>\n")
    return "\n".join(parts)


KEY = """<p class="key">Each box is a tensor: its launches to the right, its bytes upwards.
<span class="kept"></span>one run makes it<span class="again"></span>made again by a second run
<span class="held"></span>gradient that waits for its update<span class="scratch"></span>scratch of
one launch<span class="persistent"></span>persistent<span class="alive"></span>bytes alive</p>"""


def _entry(plan: Plan, entry: Entry, report: Report) -> Iterator[str]:
    found = report.entry(entry.name)
    yield f'<section id="{escape(entry.name)}"><h2>{escape(entry.name)}</h2>'
    extra = found.extra / max(1, found.nanoseconds)
    yield f"<p>{found.runs} launches, {len(found.again)} of them second runs ({extra:+.2%} time, "
    yield f"as predicted). Peak: {found.load:,} bytes at {escape(found.peak_at)}.</p>"
    yield from _map(plan, entry, found, report.budget)
    if len(found.curve) > 1:
        yield "<h3>What a budget costs</h3>"
        yield from _curve(found, report)
    yield "</section>"


def _map(plan: Plan, entry: Entry, found: EntryReport, budget: int | None) -> Iterator[str]:
    """Offsets against launches."""
    lives = lifetimes(plan, entry)
    count = max(1, len(entry.launches))
    top = max(plan.block_bytes, budget or 0, 1)
    axes = _Axes(count, top, HEIGHT)
    yield axes.begin(f"{entry.name}: tensors by launch and offset")
    yield axes.box(0, count, 0, plan.persistent_bytes, "persistent", "state, constants and data")
    again = {position for position, _, _ in found.again}
    held = {name for name, _, _ in found.held}
    for life in lives:
        tensor = plan.tensors[life.tensor]
        kind = _kind(life, tensor.name in held, life.first in again)
        node = f" of {tensor.origin}" if tensor.origin else ""
        label = f"{tensor.name}{node}: {life.nbytes:,} bytes, launches {life.first} to {life.last}"
        end = tensor.offset + life.nbytes
        yield axes.box(life.first, life.last + 1, tensor.offset, end, f"tensor {kind}", label)
    load = [plan.persistent_bytes + nbytes for nbytes in _load(lives, len(entry.launches))]
    yield axes.path("load", [(x + d, y) for x, y in enumerate(load) for d in (0, 1)])
    yield from _launches(plan, entry, axes, load)
    if budget is not None:
        yield axes.path("budget", [(0, budget), (count, budget)], f"budget: {budget:,} bytes")
    yield axes.end("launch", 0, count)


def _kind(life: Lifetime, held: bool, again: bool) -> str:
    if held:
        return "held"
    if life.first == life.last:
        return "scratch"
    return "again" if again else "kept"


def _load(lives: Iterable[Lifetime], count: int) -> list[int]:
    load = [0] * count
    for life in lives:
        for position in range(life.first, life.last + 1):
            load[position] += life.nbytes
    return load


def _launches(plan: Plan, entry: Entry, axes: _Axes, load: list[int]) -> Iterator[str]:
    """A strip below the axis, a box a launch, which names it."""
    for position, launch in enumerate(entry.launches):
        label = f"launch {position}: {plan.kernels[launch.kernel]}, {launch.origin}: "
        label += f"{load[position]:,} bytes alive"
        yield axes.box(position, position + 1, -axes.high // 50, 0, "tensor scratch", label)


def _curve(found: EntryReport, report: Report) -> Iterator[str]:
    """Extra time against memory, and the bound that no plan undercuts."""
    points = [(report.persistent + load, extra, bound) for load, extra, bound in found.curve]
    scale = 100 / max(1, found.nanoseconds)
    high = max(extra for _, extra, _ in points) * scale * 1.05 or 1.0
    low_bytes, high_bytes = min(p[0] for p in points), max(p[0] for p in points)
    axes = _Axes(max(1, high_bytes - low_bytes), high, CURVE_HEIGHT, "%")
    yield axes.begin(f"{found.name}: extra time against memory")
    yield axes.path("bound", [(b - low_bytes, bound * scale) for b, _, bound in points])
    yield axes.path("load", [(b - low_bytes, extra * scale) for b, extra, _ in points])
    for nbytes, extra, bound in points:
        chosen = " chosen" if nbytes == report.persistent + found.load else ""
        label = f"{nbytes:,} bytes: {extra * scale:+.2f} % time, at least {bound * scale:+.2f} %"
        yield axes.dot(nbytes - low_bytes, extra * scale, f"point{chosen}", label)
    if report.budget is not None and low_bytes <= report.budget <= high_bytes:
        at = report.budget - low_bytes
        yield axes.path("budget", [(at, 0), (at, high)], f"budget: {report.budget:,} bytes")
    yield axes.end("bytes", low_bytes, high_bytes)


class _Axes:
    """From [0, wide] x [0, high] to SVG units, y upwards."""

    def __init__(self, wide: float, high: float, height: int, unit: str = "") -> None:
        self.wide, self.high, self.height, self.unit = wide, high, height, unit

    def begin(self, title: str) -> str:
        """The opening tag and the y axis, with four marks."""
        width, height = LEFT + WIDTH, TOP + self.height + BOTTOM
        lines = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
        for quarter in range(5):
            value = self.high * quarter / 4
            y = self.y(value)
            mark = f"{value:.1f} %" if self.unit else human_bytes(value)
            lines.append(f'<path class="axis" d="M{LEFT} {y}H{LEFT + WIDTH}"/>')
            lines.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{mark}</text>')
        return "\n".join(lines)

    def end(self, what: str, first: int, last: int) -> str:
        """The marks of the x axis and the closing tag."""
        y = TOP + self.height + BOTTOM - 12
        ends = [f"{v:,}" if what == "launch" else human_bytes(v) for v in (first, last)]
        return (
            f'<text x="{LEFT}" y="{y}">{what} {ends[0]}</text>'
            f'<text x="{LEFT + WIDTH}" y="{y}" text-anchor="end">{ends[1]}</text></svg>'
        )

    def x(self, value: float) -> float:
        return round(LEFT + WIDTH * value / self.wide, 2)

    def y(self, value: float) -> float:
        return round(TOP + self.height * (1 - value / self.high), 2)

    def box(self, left: float, right: float, low: float, high: float, kind: str, label: str) -> str:
        """A rectangle with a tooltip."""
        x, y = self.x(left), self.y(high)
        width, height = round(self.x(right) - x, 2), round(self.y(low) - y, 2)
        shape = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        return f'<rect class="{kind}" {shape}><title>{escape(label)}</title></rect>'

    def path(self, kind: str, points: list[tuple[float, float]], label: str = "") -> str:
        """A line through `points`."""
        steps = "L".join(f"{self.x(x)} {self.y(y)}" for x, y in points) or "0 0"
        return f'<path class="{kind}" d="M{steps}"><title>{escape(label)}</title></path>'

    def dot(self, x: float, y: float, kind: str, label: str) -> str:
        """A point with a tooltip."""
        at = f'cx="{self.x(x)}" cy="{self.y(y)}" r="4"'
        return f'<circle class="{kind}" {at}><title>{escape(label)}</title></circle>'
