"""What memory and outputs must be after each step of a case, worked out without a runtime, for harnesses elsewhere.

The specification leaves choices: a refused chain of updates may leave any whole prefix of it. So a case is played in
*worlds*, one for each choice; nearly always there is one. Pages are those of a runtime with the canonical encoder.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from mutcache_conformance.case import RUN, Bind, Case, Finish, Load, Release, Run, Start, Step, Unload, Write
from mutcache_conformance.dtypes import dtype_of
from mutcache_conformance.image import Image
from mutcache_conformance.memory import SPARSE_BYTES, Memory, Placement
from mutcache_conformance.oracle import Contents, OracleRefusal, OracleResult, run_model
from mutcache_conformance.oracle_pages import PageImage, Pages
from mutcache_conformance.overlay import Overlay

#: More worlds than this are a case that says too little.
_WORLDS: Final = 64


@dataclass(frozen=True, slots=True)
class TableState:
    """A page table: its pages, and for each the storage of the caller's that holds its payload, or ""."""

    pages: Pages
    storages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step comes to in one world.

    Attributes:
        answer: ``ok``, ``rejected``, or ``skipped`` for a step that needs what was rightly refused.
        storages: the elements of each storage that the step writes: an array, or of a large one what is written to it.
        tables: each page table that the step may change, as it is then.
        outputs: each output of a run: the storage or table that it is a name of, or an array of its own.
        inexact: outputs that another encoder makes otherwise, within the bound of its declaration.
    """

    answer: str
    storages: Mapping[str, Contents] = field(default_factory=dict)
    tables: Mapping[str, TableState] = field(default_factory=dict)
    outputs: Mapping[str, Contents | str] = field(default_factory=dict)
    inexact: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _World:
    """All that there is after some steps."""

    images: Mapping[str, Image]
    tables: Mapping[str, TableState]
    sessions: Mapping[str, Load | None] = field(default_factory=dict)
    bindings: Mapping[str, Bind | None] = field(default_factory=dict)
    flights: Mapping[str, Start] = field(default_factory=dict)

    def digest(self) -> object:
        """Equal for worlds between which nothing can tell."""
        images = tuple(image.digest(0, image.file.nbytes) for image in self.images.values())
        pages = tuple(
            (name, *((page.quantized_type, page.dims, page.payload, page.key) for page in table.pages.pages))
            for name, table in self.tables.items()
        )
        lost = [name for name, step in {**self.sessions, **self.bindings}.items() if step is None]
        return images, pages, tuple(lost)


def outcomes(case: Case) -> list[list[Outcome]]:
    """For each step what it may come to, one outcome for each world.

    Raises:
        ValueError: the specification leaves too many choices.
        HarnessError: the case cannot be played.
    """
    with Memory(case.storages) as memory:
        play = _Play(case, memory.placements)
        worlds = [_World({file.name: Image(file) for file in memory.files}, play.tables())]
        found = []
        for step in case.script:
            results = [result for world in worlds for result in play.step(step, world)]
            found.append([outcome for outcome, _ in results])
            worlds = list({world.digest(): world for _, world in results}.values())
            if len(worlds) > _WORLDS:
                raise ValueError(f"case {case.id} may come to more than {_WORLDS} states")
        return found


class _Play:
    """Plays steps of a case in any world."""

    def __init__(self, case: Case, places: Mapping[str, Placement]) -> None:
        self._case = case
        self._places = places

    def tables(self) -> dict[str, TableState]:
        """The page tables of the case, before the first step."""
        made = {}
        for table in self._case.tables:
            pages = sorted(table.pages, key=lambda page: page.key or 0) if table.container == "map" else table.pages
            # The bytes are taken from memory when they are needed.
            images = tuple(PageImage(page.quantized_type, page.dims, b"", page.key) for page in pages)
            storages = tuple(page.storage for page in pages)
            made[table.name] = TableState(Pages(table.container, images, table.budget), storages)
        return made

    def step(self, step: Step, world: _World) -> Iterator[tuple[Outcome, _World]]:
        """What a step may come to, and the world after it."""
        if _is_moot(step, world):
            lost = {step.binding: None} if isinstance(step, Bind) else {}
            yield Outcome("skipped"), replace(world, bindings={**world.bindings, **lost})
            return
        may_fail = bool(step.expect.rejected_in) or (isinstance(step, Finish) and step.may_be_refused)
        if may_fail:
            yield from self._refused(step, world)
        if not step.expect.is_rejection:
            yield self._accepted(step, world)

    def _accepted(self, step: Step, world: _World) -> tuple[Outcome, _World]:
        match step:
            case Load():
                return Outcome("ok"), replace(world, sessions={**world.sessions, step.session: step})
            case Bind():
                budgets = {table.name: table.budget for table in self._case.tables}
                bound = {
                    name: replace(table, pages=replace(table.pages, budget=budgets[name]))
                    for name, table in world.tables.items()
                    if name in step.mutable.values()
                }
                bindings = {**world.bindings, step.binding: step}
                return Outcome("ok"), replace(world, bindings=bindings, tables={**world.tables, **bound})
            case Start():
                return Outcome("ok"), replace(world, flights={**world.flights, step.run: step})
            case Run():
                return self._ran(step, world, self._oracle(step, world))
            case Finish():
                return self._ran(world.flights[step.run], world, self._oracle(world.flights[step.run], world))
            case Write():
                image = world.images[self._places[step.source].file.name]
                elements = image.elements(self._places[step.source])
                return Outcome("ok", {step.storage: elements}), self._written(world, {step.storage: elements})
            case Release() | Unload():
                return Outcome("ok"), world

    def _refused(self, step: Step, world: _World) -> Iterator[tuple[Outcome, _World]]:
        match step:
            case Load():
                yield Outcome("rejected"), replace(world, sessions={**world.sessions, step.session: None})
            case Bind():
                yield Outcome("rejected"), replace(world, bindings={**world.bindings, step.binding: None})
            case Run() | Finish():
                run = step if isinstance(step, Run) else world.flights[step.run]
                histories = self._histories(run, world, is_late=step.expect.rejected_in == RUN)
                for choice in itertools.product(*histories.values()):
                    yield self._left(run, world, dict(zip(histories, choice, strict=True)))
            case _:
                yield Outcome("rejected"), world

    # Runs

    def _oracle(self, run: Run | Start, world: _World) -> OracleResult:
        session = world.sessions[run.session]
        assert session is not None  # else the step is moot
        names = {**session.initializers, **run.feeds, **self._bound(run, world).mutable}
        return run_model(
            self._case.models[session.model], {value: self._contents(name, world) for value, name in names.items()}
        )

    def _bound(self, run: Run | Start, world: _World) -> Bind:
        bound = world.bindings[run.binding] if run.binding else Bind(run.session, "", {})
        assert bound is not None  # else the step is moot
        return bound

    def _contents(self, name: str, world: _World) -> Contents:
        table = world.tables.get(name)
        if table is not None:
            return self._pages(table, world)
        place = self._places[name]
        if place.nbytes > SPARSE_BYTES:
            return Overlay(dtype_of(place.storage.dtype), place.storage.shape)
        return world.images[place.file.name].elements(place)

    def _pages(self, table: TableState, world: _World) -> Pages:
        """The pages of a table, with the bytes that memory holds."""
        pages = [
            replace(page, payload=self._payload(storage, world)) if storage else page
            for page, storage in zip(table.pages.pages, table.storages, strict=True)
        ]
        return replace(table.pages, pages=tuple(pages))

    def _payload(self, storage: str, world: _World) -> bytes:
        place = self._places[storage]
        return world.images[place.file.name].read(place.offset, place.end).tobytes()

    def _ran(self, run: Run | Start, world: _World, result: OracleResult) -> tuple[Outcome, _World]:
        """What a run leaves behind that succeeds."""
        bound = self._bound(run, world)
        final = {root: history[-1] for root, history in result.classes.items() if root in bound.mutable}
        outcome, after = self._left(run, world, final, retired=result.retired)
        own = {
            bound.outputs[name]: array
            for name, array in result.outputs.items()
            if name in bound.outputs and name not in result.root_of_output
        }
        names: dict[str, Contents | str] = {
            name: bound.mutable.get(result.root_of_output.get(name, ""), bound.outputs.get(name, array))
            for name, array in result.outputs.items()
        }
        complete = replace(
            outcome,
            answer="ok",
            storages={**outcome.storages, **own},
            outputs=names,
            inexact=frozenset(name for name in result.gathered if name in result.outputs),
        )
        flights = {name: flight for name, flight in after.flights.items() if flight is not run}
        return complete, replace(self._written(after, own), flights=flights)

    def _histories(self, run: Run | Start, world: _World, *, is_late: bool) -> Mapping[str, tuple[Contents, ...]]:
        """What a refused run may leave in each class: any prefix of its updates.

        A fault that a runtime can know before it runs leaves everything as it was.
        """
        try:
            result = self._oracle(run, world)
            classes = result.classes if is_late else {}
        except OracleRefusal as refusal:
            classes = refusal.classes
        except Exception:
            classes = {}  # inputs that no operator takes end the oracle anyhow
        return {root: history for root, history in classes.items() if len(history) > 1}

    def _left(
        self,
        run: Run | Start,
        world: _World,
        classes: Mapping[str, Contents],
        retired: Mapping[str, tuple[PageImage, ...]] | None = None,
    ) -> tuple[Outcome, _World]:
        """The world in which these are the contents of the classes of a run, which is not in flight any more."""
        bound = self._bound(run, world)
        storages: dict[str, Contents] = {}
        tables: dict[str, TableState] = {}
        payloads: dict[str, bytes] = {}
        for root, contents in classes.items():
            name = bound.mutable.get(root, "")
            if isinstance(contents, Pages):
                before = world.tables[name]
                tables[name] = _placed(contents, before)
                everything = [*contents.pages, *(retired or {}).get(root, ())]
                payloads |= {before.storages[page.identity]: page.payload for page in everything if page.identity >= 0}
            elif name:
                storages[name] = contents
        payloads.pop("", None)
        flights = {name: flight for name, flight in world.flights.items() if flight is not run}
        after = replace(self._written(world, storages, payloads), tables={**world.tables, **tables}, flights=flights)
        shown = {name: replace(table, pages=self._pages(table, after)) for name, table in tables.items()}
        return Outcome("rejected", storages, shown), after

    def _written(
        self, world: _World, storages: Mapping[str, Contents], payloads: Mapping[str, bytes] | None = None
    ) -> _World:
        """The world with other elements of some storages, and other bytes of some payloads."""
        images = dict(world.images)
        for name in (*storages, *(payloads or {})):
            file = self._places[name].file.name
            if images[file] is world.images[file]:
                images[file] = images[file].copy()
        for name, elements in storages.items():
            place = self._places[name]
            images[place.file.name].write_elements(place, elements)
        for name, payload in (payloads or {}).items():
            place = self._places[name]
            images[place.file.name].write(place.offset, np.frombuffer(payload, np.uint8))
        return replace(world, images=images)


def _placed(pages: Pages, before: TableState) -> TableState:
    """The table that a run has left; a page that it made lies in no storage of the caller's."""
    storages = [before.storages[page.identity] if page.identity >= 0 else "" for page in pages.pages]
    return TableState(pages, tuple(storages))


def _is_moot(step: Step, world: _World) -> bool:
    """Whether the step needs a session or a binding that was rightly refused."""
    match step:
        case Load() | Write():
            return False
        case Finish():
            return step.run not in world.flights
        case Release():
            return world.bindings.get(step.binding) is None
        case Run() | Start() if step.binding and world.bindings.get(step.binding) is None:
            return True
        case _:
            return world.sessions.get(step.session) is None
