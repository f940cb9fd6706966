"""The memory plan as a drawing: memory over the steps for both plans, and a bar for the life of each value.

Nothing but SVG and its own style, light or dark as the reader's system is. Names, types and steps of everything are
in tooltips.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mutcache.memory_plan import MemoryPlan, PlannedStorage, Role, ScopeMemory
from mutcache.plan import ExecutionPlan
from mutcache_tools.drawing import clean, dot, line, path, rect, shorten, text
from mutcache_tools.words import byte_words, printable, type_words

#: Rows of one section; what is smaller is summed up.
MAX_ROWS: Final = 24
#: Sections for bodies.
MAX_BODIES: Final = 12
#: Steps that are drawn one by one; of more, several share a column.
MAX_COLUMNS: Final = 800

_WIDTH: Final = 1080
_LEFT: Final = 232  # names stand left of it
_RIGHT: Final = 972  # numbers stand right of it
_ROW: Final = 20
_BAR: Final = 12
_CHART: Final = 200
_FONT: Final = 12

STYLE: Final = """
.plan { --paper: #ffffff; --ink: #182230; --quiet: #5d6b82; --grid: #e4e8ef; --cache: #6f5be0; --input: #9aa7ba;
  --place: #0d9488; --output: #1d6fd1; --copy: #e2650b; --glow: #fff1e2; --card: #f6f8fb; }
@media (prefers-color-scheme: dark) { .plan { --paper: #10151d; --ink: #e7ebf2; --quiet: #94a1b8; --grid: #273142;
  --cache: #9d8cff; --input: #5f6e86; --place: #2dc9b8; --output: #64aaff; --copy: #ff9a4d; --glow: #33230f;
  --card: #18202b; } }
.plan text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-size: 12px; fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 3px;
  stroke-linejoin: round; }
.plan .mono { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.plan .small { font-size: 11px; } .plan .quiet { fill: var(--quiet); }
.plan .title { font-size: 19px; font-weight: 650; } .plan .heading { font-size: 13.5px; font-weight: 650; }
.plan .figure { font-size: 24px; font-weight: 650; } .plan .strong { font-weight: 650; }
.plan .on-card { stroke: none; }
.plan .paper { fill: var(--paper); } .plan .card { fill: var(--card); }
.plan .cache { fill: var(--cache); } .plan .input { fill: var(--input); } .plan .place { fill: var(--place); }
.plan .output { fill: var(--output); } .plan .copy { fill: var(--copy); } .plan .carried { fill: var(--input); }
.plan .glow { fill: var(--glow); } .plan .track { fill: var(--card); } .plan .hover { fill: transparent; }
.plan .hover:hover { fill: var(--ink); fill-opacity: .08; }
.plan .grid { stroke: var(--grid); } .plan .copy-line { stroke: var(--copy); stroke-width: 1.6; fill: none; }
.plan .place-line { stroke: var(--place); stroke-width: 1.6; fill: none; }
.plan .peak-place { stroke: var(--place); } .plan .peak-copy { stroke: var(--copy); }
.plan .peak-place, .plan .peak-copy { stroke-dasharray: 2 4; stroke-width: 1.3; pointer-events: none; }
.plan .place-text { fill: var(--place); } .plan .copy-text { fill: var(--copy); }
.plan .mark { fill: var(--paper); stroke: var(--cache); stroke-width: 1.6; }
.plan .place-dot { fill: var(--place); stroke: var(--paper); stroke-width: 1.5; }
.plan .copy-dot { fill: var(--copy); stroke: var(--paper); stroke-width: 1.5; }
"""

_STYLES: Final = {
    Role.CACHE: "cache",
    Role.INPUT: "input",
    Role.INTERMEDIATE: "place",
    Role.OUTPUT: "output",
    Role.CARRIED: "carried",
    Role.COPY: "copy",
}


def plan_svg(plan: ExecutionPlan, path: str) -> str:
    """The drawing of a plan that has sizes, of the model at ``path``."""
    assert plan.memory is not None
    return _Drawing(plan, plan.memory, path).svg()


@dataclass(frozen=True, slots=True)
class _Row:
    """One bar."""

    name: str
    bytes: int | None
    style: str
    first: int
    last: int
    title: str


class _Drawing:
    """Draws from the top down; ``y`` is where the next thing goes. Texts lie above lines, and lines above bars."""

    def __init__(self, plan: ExecutionPlan, memory: MemoryPlan, path: str) -> None:
        self._plan = plan
        self._memory = memory
        self._path = path
        self._shapes: list[str] = []
        self._lines: list[str] = []
        self._texts: list[str] = []
        self._y = 0.0

    def svg(self) -> str:
        self._y = 20
        self._head()
        main, copying = self._memory.in_place, self._memory.copying
        if main.steps:
            self._chart()
        top = self._y + 6
        self._section("Caches: the caller's, alive across runs", list(self._cache_rows()), main, self._marks())
        self._section("Only if updates copy: a second cache each", list(_rows(copying, {Role.COPY})), main)
        self._section("Values that a run allocates, in both plans", list(_rows(main)), main)
        if main.steps:
            self._peak_lines(top, self._y + 4)
        self._bodies()
        self._unknown()
        height = math.ceil(self._y + 16)
        label = f"Memory plan of {self._path}: peak {byte_words(self._memory.peak_bytes)} in place"
        size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} class="plan" role="img" aria-label="{clean(label)}">',
                f"<style>{STYLE}</style>",
                rect(0, 0, _WIDTH, height, "paper"),
                *self._shapes,
                *self._lines,
                *self._texts,
                "</svg>\n",
            ]
        )

    def _add(self, *shapes: str) -> None:
        self._shapes += shapes

    def _say(self, *texts: str) -> None:
        """Add what must stay readable whatever it lies on."""
        self._texts += texts

    # The head: what the model is, and the three figures.

    def _head(self) -> None:
        memory = self._memory
        self._y += 14
        self._say(text(24, self._y, shorten(printable(self._path), _WIDTH - 48, 19), "title", title=self._path))
        sizes = ", ".join(f"{printable(name)} {size}" for name, size in memory.dims.items())
        steps = len(memory.in_place.steps)
        words = f"{steps} step{'s' * (steps != 1)}" + (f", for {sizes}" if sizes else "")
        self._y += 20
        self._say(text(24, self._y, shorten(words, _WIDTH - 48, _FONT), "quiet", title=words))
        self._y += 14
        bound = "at least " if memory.unknown else ""
        share = f" ({memory.saved_bytes / memory.copying_peak_bytes:.0%})" if memory.saved_bytes else ""
        cards = [
            (
                "Peak with updates in place",
                bound + byte_words(memory.peak_bytes),
                "place",
                self._parts(memory.in_place),
            ),
            (
                "Peak if updates copy",
                bound + byte_words(memory.copying_peak_bytes),
                "copy",
                self._parts(memory.copying),
            ),
            (
                "Saved by the contract",
                byte_words(memory.saved_bytes) + share,
                "cache",
                f"initializers, in neither: {byte_words(memory.initializer_bytes)}",
            ),
        ]
        width = (_WIDTH - 48 - 2 * 12) / 3
        for number, (label, figure, style, note) in enumerate(cards):
            x = 24 + number * (width + 12)
            self._add(rect(x, self._y, width, 84, "card", round_by=8), rect(x, self._y + 8, 4, 68, style, round_by=2))
            self._say(
                text(x + 16, self._y + 22, label, "quiet on-card"),
                text(x + 16, self._y + 50, figure, "figure on-card"),
                text(x + 16, self._y + 72, shorten(note, width - 20, 11), "small quiet on-card", title=note),
            )
        self._y += 84

    def _parts(self, scope: ScopeMemory) -> str:
        memory = self._memory
        parts = [
            ("caches", memory.cache_bytes),
            ("new pages", memory.new_page_bytes),
            ("inputs", memory.input_bytes),
            ("allocated", scope.peak_bytes),
        ]
        return ", ".join(f"{byte_words(size)} {name}" for name, size in parts if size) or "nothing"

    # The chart: bytes over steps.

    def _chart(self) -> None:
        memory = self._memory
        in_place = [step.bytes for step in memory.in_place.steps]
        copying = [step.bytes for step in memory.copying.steps]
        base, inputs = memory.cache_bytes + memory.new_page_bytes, memory.input_bytes
        top = max(base + inputs + max(copying), 1)
        unit = _tick(top)
        highest = math.ceil(top / unit) * unit
        self._y += 36
        self._say(text(24, self._y, "Memory in each step", "heading"))
        self._legend(self._y)
        self._y += 52
        upper, lower = self._y, self._y + _CHART

        def level(size: float) -> float:
            return lower - _CHART * size / highest

        for tick in range(highest // unit + 1):
            y = level(tick * unit)
            self._add(line(_LEFT, y, _RIGHT, y, "grid"))
            self._say(text(_LEFT - 10, y + 4, byte_words(tick * unit), "small quiet", anchor="end"))
        columns = _columns(len(in_place))
        at = self._scale(memory.in_place)
        lower_line = _stairs(columns, in_place, at, lambda size: level(base + inputs + size))
        upper_line = _stairs(columns, copying, at, lambda size: level(base + inputs + size))
        self._add(
            path([*upper_line, *reversed(lower_line)], "glow", closed=True),
            rect(_LEFT, level(base), _RIGHT - _LEFT, lower - level(base), "cache"),
            rect(_LEFT, level(base + inputs), _RIGHT - _LEFT, level(base) - level(base + inputs), "input"),
            path([*lower_line, (_RIGHT, level(base + inputs)), (_LEFT, level(base + inputs))], "place", closed=True),
            path(upper_line, "copy-line"),
        )
        for first, last in columns:
            node = memory.in_place.steps[first].node
            through = f" to {last}" if last > first else ""
            ours, theirs = (base + inputs + max(sizes[first : last + 1]) for sizes in (in_place, copying))
            figures = f"in place {byte_words(ours)}\nif updates copy {byte_words(theirs)}"
            title = f"step {first}{through}: {node.label}\n{figures}"
            self._add(rect(at(first), upper, at(last + 1) - at(first), _CHART, "hover", title=title))
        for scope, style, words, y in (
            (memory.copying, "copy", "copying", upper - 26),
            (memory.in_place, "place", "in place", upper - 10),
        ):
            total = base + inputs + scope.peak_bytes
            x, label = at(scope.peak_step + 0.5), f"peak {words}: {byte_words(total)} in step {scope.peak_step}"
            half = 3.1 * len(label)  # the label is centered over its line as far as the chart allows
            self._say(
                text(min(max(x, _LEFT + half), _RIGHT - half), y, label, f"small strong {style}-text", anchor="middle")
            )
            self._lines.append(line(x, y + 4, x, lower, f"peak-{style}"))
            title = f"{label}, {scope.steps[scope.peak_step].node.label}"
            self._lines.append(dot(x, level(total), 4.5, f"{style}-dot", title=title))
        self._y = lower
        self._axis(memory.in_place)

    def _legend(self, y: float) -> None:
        x = float(_RIGHT)
        for name, style in (
            ("copies", "copy"),
            ("allocated", "place"),
            ("inputs", "input"),
            ("caches", "cache"),
        ):
            x -= 8 * len(name) + 22
            self._add(rect(x, y - 9, 10, 10, style, round_by=2))
            self._say(text(x + 15, y, name, "small quiet"))

    def _scale(self, scope: ScopeMemory) -> Callable[[float], float]:
        """Where a step begins."""
        count = max(len(scope.steps), 1)
        return lambda step: _LEFT + (_RIGHT - _LEFT) * step / count

    def _axis(self, scope: ScopeMemory) -> None:
        at, count = self._scale(scope), len(scope.steps)
        stride = next((k * 10**p for p in range(12) for k in (1, 2, 5) if count / (k * 10**p) <= 12), max(count, 1))
        self._y += 18
        for step in range(0, count, stride):
            self._say(text(at(step + 0.5), self._y, str(step), "small quiet", anchor="middle"))
        self._say(text(_LEFT - 10, self._y, "step", "small quiet", anchor="end"))

    # The bars.

    def _section(
        self, heading: str, rows: list[_Row], scope: ScopeMemory, marks: dict[str, list[tuple[int, str]]] | None = None
    ) -> None:
        if not rows:
            return
        kept = sorted(sorted(rows, key=lambda row: -(row.bytes or 0))[:MAX_ROWS], key=lambda row: (row.first, row.last))
        left_out = len(rows) - len(kept)
        self._y += 34
        self._say(text(24, self._y, shorten(heading, _WIDTH - 48, 13.5), "heading", title=heading))
        self._y += 8
        at = self._scale(scope)
        for row in kept:
            y, middle = self._y, self._y + _ROW / 2
            begin = at(max(row.first, 0))
            width = max(at(row.last + 1) - begin, 2.5)
            self._add(
                rect(_LEFT, y + (_ROW - _BAR) / 2, _RIGHT - _LEFT, _BAR, "track", round_by=3),
                rect(begin, y + (_ROW - _BAR) / 2, width, _BAR, row.style, title=row.title, round_by=min(3, width / 2)),
            )
            name = shorten(row.name, _LEFT - 34, 11, monospace=True)
            self._say(
                text(_LEFT - 10, middle + 4, name, "small mono", anchor="end", title=row.title),
                text(_RIGHT + 10, middle + 4, byte_words(row.bytes), "small"),
            )
            for step, label in (marks or {}).get(row.name, ())[:MAX_COLUMNS]:
                self._say(dot(at(step + 0.5), middle, 4, "mark", title=f"step {step}: {label}"))
            self._y += _ROW
        if left_out:
            smaller = sorted(rows, key=lambda row: -(row.bytes or 0))[MAX_ROWS:]
            total = byte_words(sum(row.bytes or 0 for row in smaller))
            self._y += 15
            words = f"and {left_out} others of {byte_words(smaller[0].bytes)} or less, {total} if all were live at once"
            self._say(text(_LEFT, self._y, words, "small quiet"))

    def _cache_rows(self) -> Iterator[_Row]:
        for storage in self._memory.caches:
            yield _row(storage, "alive before, during and after the run")
        last = max(len(self._memory.in_place.steps) - 1, 0)
        for table in self._memory.tables:
            if table.is_mutable:
                title = (
                    f"{printable(table.name)}\npages that a run creates or replaces at most; those it finds not counted"
                )
                yield _Row(printable(table.name), table.new_bytes, "cache", 0, last, title)

    def _marks(self) -> dict[str, list[tuple[int, str]]]:
        """The steps that update each cache."""
        step_of = {step.node.index: number for number, step in enumerate(self._plan.steps)}
        mutations = self._plan.classes.mutations
        names = [cache.name for cache in self._memory.caches] + [table.name for table in self._memory.tables]
        return {
            printable(name): sorted(
                (step_of[index], self._plan.steps[step_of[index]].node.label) for index in mutations.get(name, ())
            )
            for name in names
        }

    def _peak_lines(self, top: float, bottom: float) -> None:
        at = self._scale(self._memory.in_place)
        for scope, style in ((self._memory.copying, "peak-copy"), (self._memory.in_place, "peak-place")):
            x = at(scope.peak_step + 0.5)
            self._lines.append(line(x, top, x, bottom, style))

    def _bodies(self) -> None:
        pairs = list(zip(self._memory.in_place.walk(), self._memory.copying.walk(), strict=True))[1:]
        pairs.sort(key=lambda pair: -pair[1].peak_bytes)
        for scope, copying in pairs[:MAX_BODIES]:
            rows = [*_rows(copying, {Role.COPY}), *_rows(scope)]
            carried = {storage.name for storage in scope.storages if storage.role is Role.CARRIED}
            rows += [
                _row(storage, "carried, only if updates copy", "copy")
                for storage in copying.storages
                if storage.role is Role.CARRIED and storage.name not in carried
            ]
            words = (
                f"{printable(scope.path)}: {byte_words(scope.peak_bytes)} in place, "
                f"{byte_words(copying.peak_bytes)} if updates copy"
            )
            self._section(words, rows, scope)
            if rows:
                self._axis(scope)
        if len(pairs) > MAX_BODIES:
            self._y += 28
            self._say(text(24, self._y, f"and {len(pairs) - MAX_BODIES} bodies that need less", "quiet"))

    def _unknown(self) -> None:
        unknown = self._memory.unknown
        if unknown:
            self._y += 34
            names = ", ".join(map(printable, unknown[:6])) + (", ..." if len(unknown) > 6 else "")
            words = f"Not counted, since their sizes depend on data: {len(unknown)}. {names}"
            self._say(text(24, self._y, shorten(words, _WIDTH - 48, _FONT), "quiet", title="\n".join(unknown[:200])))


def _row(storage: PlannedStorage, when: str, style: str = "") -> _Row:
    names = ", ".join(map(printable, storage.names))
    title = f"{names}\n{storage.role}, {type_words(storage.type) or '?'}, {byte_words(storage.bytes)}\n{when}"
    return _Row(
        printable(storage.name), storage.bytes, style or _STYLES[storage.role], storage.first, storage.last, title
    )


def _rows(scope: ScopeMemory, roles: set[Role] | None = None) -> Iterator[_Row]:
    """The values that a scope allocates, and the bodies that it runs."""
    turn = {name: number for number, buffer in enumerate(scope.buffers) for name in buffer.values}
    for storage in scope.storages:
        if storage.bytes is not None and (roles is None or storage.role in roles):
            buffer = f", buffer {turn[storage.name]}" if storage.name in turn else ""
            yield _row(storage, f"steps {storage.first} to {storage.last}{buffer}")
    for number, step in enumerate(scope.steps if roles is None else ()):
        for attribute, body in step.bodies.items():
            if not body.peak_bytes:
                continue
            name = f"{step.node.op_type}.{attribute}" if attribute else body.path
            title = f"{body.path}\nallocates {byte_words(body.peak_bytes)}\nstep {number}: {step.node.label}"
            yield _Row(printable(name), body.peak_bytes, "carried", number, number, title)


def _tick(top: int) -> int:
    """The distance of the lines of a chart that reaches ``top``: a power of two, for five to eight lines."""
    size = 1
    while top / size > 8:
        size *= 2
    return size


def _columns(steps: int) -> list[tuple[int, int]]:
    """The first and last step of each column."""
    count = min(steps, MAX_COLUMNS)
    edges = [steps * number // count for number in range(count + 1)]
    return [(first, last - 1) for first, last in pairwise(edges)]


def _stairs(
    columns: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    at: Callable[[float], float],
    level: Callable[[float], float],
) -> list[tuple[float, float]]:
    points = []
    for first, last in columns:
        y = level(max(sizes[first : last + 1]))
        points += [(at(first), y), (at(last + 1), y)]
    return points
