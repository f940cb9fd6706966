"""The memory plan as text: what a run needs in place and copying, and what is live at the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from mutcache.memory_plan import MemoryPlan, PlannedStorage
from mutcache.plan import ExecutionPlan
from mutcache_tools.words import byte_words, printable, quantization_words, type_words

#: Longer lists are cut, unless all is asked for.
FEW: Final = 8


class PlanText:
    """Renders a plan that has sizes, in the width it is given.

    Args:
        plan: the plan, with ``memory``.
        path: the file it is of.
        show_all: show long lists in full.
    """

    def __init__(self, plan: ExecutionPlan, path: str, *, show_all: bool = False) -> None:
        assert plan.memory is not None
        self._plan = plan
        self._memory: MemoryPlan = plan.memory
        self._path = path
        self._limit = 1 << 30 if show_all else FEW

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, without spaces at their ends."""
        for part in self._parts():
            for segments in console.render_lines(part, options, pad=False):
                while segments and not segments[-1].text.strip():
                    segments.pop()
                if segments:
                    last = segments.pop()
                    yield from [*segments, Segment(last.text.rstrip(), last.style)]
                yield Segment.line()

    def _parts(self) -> Iterator[Table | Text]:
        memory = self._memory
        sizes = ", ".join(f"{printable(name)} {size}" for name, size in memory.dims.items())
        yield Text.assemble((printable(self._path), "bold underline"), f"  {sizes}" if sizes else "")
        yield Text()
        yield from self._summary()
        yield from self._caches()
        yield from self._tables()
        yield from self._peak()
        yield from self._bodies()
        yield from self._unknown()

    def _summary(self) -> Iterator[Table | Text]:
        memory = self._memory
        table = _table("", ">in place", ">copying", "")
        table.add_row("caches", byte_words(memory.cache_bytes), byte_words(memory.cache_bytes), _quiet("the caller's"))
        table.add_row("inputs", byte_words(memory.input_bytes), byte_words(memory.input_bytes), _quiet("the caller's"))
        if memory.tables:
            pages = byte_words(memory.new_page_bytes)
            table.add_row("new pages", pages, pages, _quiet("the most that a run creates or replaces"))
        table.add_row(
            "allocated",
            byte_words(memory.in_place.peak_bytes),
            byte_words(memory.copying.peak_bytes),
            _quiet("the most at once in a run"),
        )
        bound = "at least " if memory.unknown else ""
        table.add_row(
            Text("peak", "bold"),
            Text(bound + byte_words(memory.peak_bytes), "bold green"),
            Text(bound + byte_words(memory.copying_peak_bytes), "bold yellow"),
            Text(self._saved(), "bold"),
        )
        yield table
        buffers = memory.in_place.buffers
        kept = sum(len(buffer.values) for buffer in buffers)
        if buffers or memory.initializer_bytes:
            yield Text()
        if buffers:
            taken = byte_words(sum(buffer.bytes for buffer in buffers))
            yield _quiet(
                f"{kept} intermediate value{_s(kept)} can take turns in {len(buffers)} buffer{_s(len(buffers))} of "
                f"{taken} together"
            )
        if memory.initializer_bytes:
            yield _quiet(f"initializers, in neither peak: {byte_words(memory.initializer_bytes)}")

    def _saved(self) -> str:
        memory = self._memory
        if not memory.saved_bytes:
            return "nothing saved"
        return f"{byte_words(memory.saved_bytes)} saved, {memory.saved_bytes / memory.copying_peak_bytes:.0%}"

    def _caches(self) -> Iterator[Table | Text]:
        caches = self._memory.caches
        if not caches:
            return
        yield from _heading("caches")
        table = _table("name", ">bytes", "type", "updated by")
        step_of = {step.node.index: number for number, step in enumerate(self._plan.steps)}
        for cache in sorted(caches, key=_by_size)[: self._limit]:
            steps = sorted(step_of[index] for index in self._plan.classes.mutations.get(cache.name, ()))
            labels = [f"#{self._plan.steps[step].node.index}" for step in steps[:FEW]]
            more = f" and {len(steps) - FEW} more" if len(steps) > FEW else ""
            table.add_row(
                Text(printable(cache.name), "bold magenta"),
                byte_words(cache.bytes),
                type_words(cache.type),
                ", ".join(labels) + more or _quiet("nobody"),
            )
        yield table
        yield from _others(caches, self._limit)

    def _tables(self) -> Iterator[Table | Text]:
        tables = self._memory.tables
        if not tables:
            return
        yield from _heading("page tables: the pages that they have are the caller's, and not counted")
        quantizations = self._plan.model.proto.quantizations
        rows = _table("name", "page", ">bytes", "quantized type", ">new pages")
        for planned in tables[: self._limit]:
            name = Text(printable(planned.name), "bold magenta" if planned.is_mutable else "bold")
            new = "?" if planned.new_pages is None else str(planned.new_pages)
            types = [
                (byte_words(size), f"{index} {quantization_words(quantizations[index])}")
                for index, size in planned.page_bytes.items()
            ]
            first, *others = types[: self._limit] or [("?", "none fits")]
            rows.add_row(name, type_words(planned.page), *first, new)
            for other in others:
                rows.add_row("", "", *other, "")
        yield rows
        if len(tables) > self._limit:
            yield _quiet(f"and {len(tables) - self._limit} more")

    def _peak(self) -> Iterator[Table | Text]:
        scope = self._memory.in_place
        if not scope.peak_bytes:
            return
        node = scope.steps[scope.peak_step].node
        yield from _heading(f"allocated at the peak: step {scope.peak_step}, {printable(node.label)}")
        live = [storage for storage in scope.storages if storage.first <= scope.peak_step <= storage.last]
        live.sort(key=_by_size)
        table = _table("name", ">bytes", "type", "steps")
        for storage in live[: self._limit]:
            table.add_row(
                Text(printable(storage.name), "bold"),
                byte_words(storage.bytes),
                type_words(storage.type) or "?",
                _quiet(f"{storage.first} to {storage.last}"),
            )
        for body in scope.steps[scope.peak_step].bodies.values():
            table.add_row(Text(printable(body.path), "bold"), byte_words(body.peak_bytes), _quiet("what it runs"), "")
        yield table
        yield from _others(live, self._limit)

    def _bodies(self) -> Iterator[Table | Text]:
        pairs = list(zip(self._memory.in_place.walk(), self._memory.copying.walk(), strict=True))[1:]
        if not pairs:
            return
        yield from _heading("bodies")
        table = _table("graph", ">in place", ">copying")
        pairs.sort(key=lambda pair: -pair[1].peak_bytes)
        for scope, copying in pairs[: self._limit]:
            table.add_row(printable(scope.path), byte_words(scope.peak_bytes), byte_words(copying.peak_bytes))
        yield table
        if len(pairs) > self._limit:
            yield _quiet(f"and {len(pairs) - self._limit} more")

    def _unknown(self) -> Iterator[Table | Text]:
        unknown = self._memory.unknown
        if not unknown:
            return
        yield from _heading("not counted: their sizes depend on data")
        for place in unknown[: self._limit]:
            yield Text(f"  {printable(place)}", "yellow")
        if len(unknown) > self._limit:
            yield _quiet(f"  and {len(unknown) - self._limit} more")


def _table(*header: str) -> Table:
    """A table without lines; ``>`` before a heading aligns its column to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in header:
        is_right = name.startswith(">")
        table.add_column(
            name.removeprefix(">"), justify="right" if is_right else "left", no_wrap=is_right, overflow="fold"
        )
    return table


def _heading(text: str) -> Iterator[Text]:
    yield Text()
    yield Text(text, "bold")


def _others(storages: Sequence[PlannedStorage], limit: int) -> Iterator[Text]:
    rest = sorted(storages, key=_by_size)[limit:]
    if rest:
        yield _quiet(f"and {len(rest)} more, {byte_words(sum(storage.bytes or 0 for storage in rest))} together")


def _by_size(storage: PlannedStorage) -> tuple[int, int]:
    return -(storage.bytes or 0), storage.first


def _quiet(text: str) -> Text:
    return Text(text, "dim")


def _s(count: int) -> str:
    return "s" * (count != 1)
