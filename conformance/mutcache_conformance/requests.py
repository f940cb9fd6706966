"""What the harness asks of a child while it plays a script: requests made of steps, and what they speak of."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from mutcache_conformance import wording
from mutcache_conformance.adapter import Description
from mutcache_conformance.case import Bind, Case, Load, Run, Start, Storage
from mutcache_conformance.child import Answer, Child, ChildTimeout
from mutcache_conformance.evidence import Basis, Evidence, Kind, Observation
from mutcache_conformance.findings import Reader, TableView
from mutcache_conformance.forms import check_mapping, files_of, form_of, forms_of
from mutcache_conformance.memory import HarnessError, Memory, MemoryFile, Placement
from mutcache_conformance.observe import Observer
from mutcache_conformance.status import CaseEnded, Status
from mutcache_conformance.tables import HeldTable, by_page, payload_addresses

_UINT8: Final = 2
_Item = TypeVar("_Item")


@dataclass(slots=True)
class Loaded:
    """A session as the script knows it."""

    name: str
    model: bytes
    initializers: Mapping[str, Placement]
    is_loaded: bool = True


@dataclass(slots=True)
class Bound:
    """What is bound when a run starts; a run without a binding has bound nothing.

    Attributes:
        name: what the child calls the binding.
        session: the session of the script.
        mutable: storage of mutable inputs.
        outputs: storage of outputs.
        tables: names of the page tables of mutable inputs.
        addresses: where the host mapped the storage, by value name.
        lent: the files that the child has for it, and where it mapped them.
        is_bound: whether it is not released yet.
    """

    name: str = ""
    session: str = ""
    mutable: Mapping[str, Placement] = field(default_factory=dict)
    outputs: Mapping[str, Placement] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, int] = field(default_factory=dict)
    lent: tuple[tuple[MemoryFile, int], ...] = ()
    is_bound: bool = True

    def read_only(self) -> list[str]:
        """Storages that the runtime could not write, though it took them as if it could."""
        places = [*self.mutable.values(), *self.outputs.values()]
        return [place.storage.name for place in places if not place.file.writable]


class Requester:
    """Asks a child for what steps say.

    Args:
        case: the case.
        child: the child, described already.
        about: what it said of itself.
        memory: the case's storages in memory.
        step_timeout: seconds for each answer.
        case_timeout: seconds for all of them.

    Attributes:
        case: the case.
        evidence: what was seen so far.
        observer: what the memory holds and must hold.
    """

    def __init__(
        self,
        case: Case,
        child: Child,
        about: Description,
        memory: Memory,
        *,
        step_timeout: float,
        case_timeout: float,
    ) -> None:
        self.case = case
        self.evidence = Evidence()
        self.observer = Observer(memory, child.process, case, about.basis)
        self._child = child
        self._step_timeout, self._case_timeout = step_timeout, case_timeout
        self._deadline = time.monotonic() + case_timeout
        #: None once the load or bind was rightly refused.
        self._sessions: dict[str, Loaded | None] = {}
        self._bindings: dict[str, Bound | None] = {}
        self._run_number = 0

    def _call(self, operation: str, places: Iterable[Placement] = (), **fields: object) -> Answer:
        return self._child.call(operation, timeout=self._timeout(), files=files_of(places), **fields)

    def _timeout(self) -> float:
        """Seconds for the next answer.

        Raises:
            ChildTimeout: the case has had its time.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ChildTimeout(f"the case took longer than {self._case_timeout:g} s")
        return min(self._step_timeout, left)

    def _load(self, step: Load) -> Answer:
        model = self.case.models[step.model]
        session = Loaded(self._child.new_name("s"), model, self._places(step.initializers))
        with Memory([Storage("model", _UINT8, (len(model),), model, writable=False)]) as memory:
            answer = self._call(
                "load",
                [*memory.placements.values(), *session.initializers.values()],
                session=session.name,
                model=form_of(memory.placements["model"]),
                initializers=forms_of(session.initializers),
            )
        if answer.succeeded:
            self._sessions[step.session] = session
        return answer

    def _bind(self, step: Bind) -> Answer:
        mutable, outputs = self._places(step.mutable), self._places(step.outputs)
        names = self._table_names(step.mutable)
        tables = {value: self.observer.renewed(table) for value, table in names.items()}
        name = self._child.new_name("b")
        # Known before the answer, so that a crash can be told from a write to read-only storage.
        binding = self._bindings[step.binding] = Bound(name, step.session, mutable, outputs, names)
        answer = self._call(
            "bind",
            [*mutable.values(), *outputs.values(), *_payloads(tables)],
            session=known(self._sessions, step.session).name,
            binding=name,
            mutable=forms_of(mutable),
            outputs=forms_of(outputs),
            **_table_forms(tables),
        )
        binding.is_bound = answer.succeeded
        if answer.succeeded:
            binding.addresses = {value: int(address) for value, address in answer.body["addresses"].items()}
            bases = check_mapping({**mutable, **outputs}, binding.addresses)
            payloads = payload_addresses(tables, answer.body.get("payloads", {}))
            for value, table in tables.items():
                addresses = payloads[value]
                pages = by_page(value, table.places())
                bases |= check_mapping(pages, dict(zip(pages, addresses, strict=True)), bases)
                self.observer.tables[names[value]] = table.at(addresses)
            self.observer.bases |= bases
            files = {file.name: file for file in files_of([*mutable.values(), *outputs.values(), *_payloads(tables)])}
            binding.lent = tuple((files[name], base) for name, base in bases.items())
        return answer

    def _run_once(self, step: Run) -> Answer:
        self._run_number = self._send_run(step)
        return self._child.wait(self._run_number, timeout=self._timeout())

    def _send_run(self, step: Run | Start) -> int:
        feeds = self._places(step.feeds)
        tables = {value: self.observer.renewed(table) for value, table in self._table_names(step.feeds).items()}
        return self._child.send(
            "run",
            timeout=self._timeout(),
            session=known(self._sessions, step.session).name,
            binding=self._bound(step).name,
            feeds=forms_of(feeds),
            files=files_of([*feeds.values(), *_payloads(tables)]),
            **_table_forms(tables),
        )

    def _inspect(self, bound: Bound) -> dict[str, TableView]:
        """The tables of a binding, as the child tells of them outside a run."""
        number = self._child.send("inspect", timeout=self._timeout(), binding=bound.name)
        answer = self._child.wait(number, timeout=self._timeout())
        self._must_succeed(answer, "inspecting a page table", "the tables")
        told = answer.body["tables"]
        if told.keys() != bound.tables.keys():
            self.evidence.steps[-1].observations.append(Observation.of_names("names of tables", bound.tables, told))
            raise CaseEnded(
                Status.FAIL,
                f"inspect was answered with tables {sorted(told)}; bound are {sorted(bound.tables)}",
                "the tables are not those that were bound",
            )
        return {
            value: TableView(table, value, told[value], self._reader(number), bound.lent)
            for value, table in bound.tables.items()
        }

    def _reader(self, number: int) -> Reader:
        """Reads what the answer to a request has shown."""
        return partial(self._read, number)

    def _read(self, number: int, output: str, offset: int, nbytes: int, *, page: int | None = None) -> bytes:
        with Memory([Storage("into", _UINT8, (nbytes,))]) as memory:
            into = memory.placements["into"]
            answer = self._call(
                "read",
                [into],
                run=number,
                output=output,
                **({} if page is None else {"page": page}),
                offset=str(offset),
                nbytes=str(nbytes),
                into=form_of(into),
            )
            self._must_succeed(answer, f"reading output {output!r}", output)
            return into.file.bytes[into.offset : into.end].tobytes()

    def _must_succeed(self, answer: Answer, what: str, subject: str, cause: str = "reading an output") -> None:
        """End the case if the child does not show what it has."""
        if answer.succeeded:
            return
        unread = Observation(Kind.OUTPUT, f"{subject}: reading", "ok", answer.kind, Basis.REPORTED)
        self.evidence.steps[-1].observations.append(unread)
        raise CaseEnded(
            Status.FAIL,
            f"{what} was answered with {answer}",
            f"{cause} was answered with {wording.masked(str(answer))}",
        )

    # What steps speak of

    def _bound(self, step: Run | Start) -> Bound:
        return known(self._bindings, step.binding) if step.binding else Bound()

    def _table_names(self, names: Mapping[str, str]) -> dict[str, str]:
        """Of the names that values are given, those of page tables."""
        return {value: name for value, name in names.items() if name in self.observer.tables}

    def _places(self, names: Mapping[str, str]) -> dict[str, Placement]:
        """Of the storages that values are given, where they lie."""
        storages = {value: name for value, name in names.items() if name not in self.observer.tables}
        return {value: known(self.observer.memory.placements, storage) for value, storage in storages.items()}


def known(items: Mapping[str, _Item | None] | Mapping[str, _Item], name: str) -> _Item:
    """The item of a name.

    Raises:
        HarnessError: there is none.
    """
    item = items.get(name)
    if item is None:
        raise HarnessError(f"the script names {name!r}, which there is not")
    return item


def _payloads(tables: Mapping[str, HeldTable]) -> list[Placement]:
    return [place for table in tables.values() for place in table.places()]


def _table_forms(tables: Mapping[str, HeldTable]) -> dict[str, object]:
    """The member of a message that has its tables; without any there is none."""
    return {"tables": {value: table.form() for value, table in tables.items()}} if tables else {}
