"""Plays a case again from its evidence, without a runtime: what the harness must have looked at, and expected.

The answers are those that were recorded; the memory is made to hold what the oracle says that it must. The harness's
own code then records what it looks at, and what it expects there. So a record of other bytes, of another storage or of
fewer looks than the harness takes is found, though nothing can tell whether a runtime ever ran.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from mutcache_conformance.adapter import Description
from mutcache_conformance.case import Bind, Case, Finish, Load, Release, Request, Run, Start, Unload
from mutcache_conformance.child import Answer, Child
from mutcache_conformance.dtypes import number_of
from mutcache_conformance.evidence import Basis, Evidence, Kind, Observation, StepRecord
from mutcache_conformance.findings import Reader, RunView
from mutcache_conformance.judgement import UnsoundEvidence
from mutcache_conformance.memory import SPARSE_BYTES, HarnessError, Memory, Placement
from mutcache_conformance.observe import Observer
from mutcache_conformance.oracle import Contents, OracleRefusal, OracleResult
from mutcache_conformance.peek import ProcessMemory
from mutcache_conformance.requests import Bound, Loaded, known
from mutcache_conformance.script import Flight, ScriptRun
from mutcache_conformance.status import CaseEnded

#: Where recorded storages are said to be mapped; nothing is.
_BASE: Final = 1 << 40
#: What a record says of a child that did not live to answer all that was asked of it in a step.
_BROKEN_OFF: Final = ("crash", "timeout", "garbage")
#: What is recorded only when it is wrong.
_ONLY_WRONG: Final = ("names of outputs", ": reading")


def check(case: Case, evidence: Evidence, about: Description) -> bool:
    """Hold the evidence of a case against what the harness looks at and expects.

    Nothing is said of cases with page tables, whose bytes are the runtime's choice within bounds, and of such with
    storages too large to be filled.

    Args:
        case: the case.
        evidence: what was recorded, sound in form: ``judgement.judge`` came to a status.
        about: the runtime.

    Returns:
        Whether anything could be said.

    Raises:
        UnsoundEvidence: no play of the case leaves it.
    """
    script = [record for record in evidence.steps if record.index < len(case.script)]
    try:
        with Memory(case.storages, alignment=about.alignment) as memory:
            if case.tables or any(place.nbytes > SPARSE_BYTES for place in memory.placements.values()):
                return False
            recollected = _Recollection(case, about, memory, script)
            with contextlib.suppress(CaseEnded, _Over):
                recollected.play()
    except HarnessError as error:
        raise UnsoundEvidence(f"no run can have come to this: {error}") from error
    for told, made in zip(script, recollected.evidence.steps, strict=False):
        _compare(told, made)
    return True


def _compare(told: StepRecord, made: StepRecord) -> None:
    recorded = [one for one in told.observations if one.kind is not Kind.MEMORY]
    wanted = made.observations
    if told.answer in _BROKEN_OFF:  # somewhere between the answer and the last look
        wanted = wanted[: len(recorded)]
    where = f"step {told.index + 1} ({told.operation})"
    if all(one.holds for one in recorded):
        if recorded != wanted:
            raise UnsoundEvidence(f"{where}: {_first_difference(recorded, wanted)}")
        return
    possible = {_side(one) for one in made.observations}
    for one in recorded:
        is_known = _side(one) in possible or one.subject.endswith(_ONLY_WRONG) or one.expected.endswith("whole updates")
        if not is_known and not (told.answer == "crash" and one.kind is Kind.UNTOUCHED):
            raise UnsoundEvidence(f"{where}: {one.kind} of {one.subject}: the harness expects nothing like it")


def _side(one: Observation) -> tuple[object, ...]:
    """What is expected of an observation. Where memory is wrong, a poke is held against what it holds all the same."""
    return one.kind, one.subject, "" if one.kind is Kind.POKE else one.expected, one.basis


def _first_difference(recorded: Sequence[Observation], made: Sequence[Observation]) -> str:
    for told, wanted in zip(recorded, made, strict=False):
        if told != wanted:
            must = f"{wanted.kind} of {wanted.subject} ({wanted.expected}, {wanted.basis})"
            return f"recorded is {told.kind} of {told.subject} ({told.expected}, {told.basis}), and it must be {must}"
    return f"{len(recorded)} things were looked at, and it must be {len(made)}"


class _Over(Exception):  # noqa: N818 - the record ends here
    """The recorded play came to its end in this step."""


class _Nobody:
    """In the place of a child: it is never asked."""

    process = cast(ProcessMemory, None)

    def new_name(self, prefix: str) -> str:
        return prefix

    def answer_to(self, _: int) -> None:
        return None


class _Recollection(ScriptRun):
    """Plays a script with recorded answers."""

    def __init__(self, case: Case, about: Description, memory: Memory, recorded: Sequence[StepRecord]) -> None:
        super().__init__(case, cast(Child, _Nobody()), about, memory, step_timeout=1.0, case_timeout=float("inf"))
        self._recorded = recorded
        self._ideal = self.observer = _IdealObserver(memory, _Nobody.process, case, about.basis)

    def _send(self, step: Request) -> Answer:
        index = len(self.evidence.steps) - 1
        if index >= len(self._recorded):
            raise _Over
        told = self._ideal.told = self._recorded[index]
        if told.answer == "rejected":
            return Answer("rejected", {"phase": told.phase, "requirement": told.requirement, "message": ""})
        is_broken_off = told.answer in _BROKEN_OFF and bool(told.observations)
        if told.answer not in ("ok", "started", "done") and not is_broken_off:
            raise _Over
        match step:
            case Load():
                model = self.case.models[step.model]
                self._sessions[step.session] = Loaded("", model, self._places(step.initializers))
            case Bind():
                self._bindings[step.binding] = self._bound_to(step)
            case Start():
                return self._started(step)
            case Run():
                return self._ran(step, told)
            case Finish():
                return self._ran(self._flights[step.run].step, told)
            case Release():
                known(self._bindings, step.binding).is_bound = False
            case Unload():
                known(self._sessions, step.session).is_loaded = False
        return Answer("ok", {})

    def _bound_to(self, step: Bind) -> Bound:
        mutable, outputs = self._places(step.mutable), self._places(step.outputs)
        addresses = {value: _BASE + number for number, value in enumerate({**mutable, **outputs})}
        return Bound("", step.session, mutable, outputs, addresses=addresses)

    def _started(self, step: Start) -> Answer:
        bound = self._bound(step)
        self.observer.unsettled |= {place.file.name for place in (*bound.mutable.values(), *bound.outputs.values())}
        self._flights[step.run] = Flight(step, 0, not self._flights)
        return Answer("started", {})

    def _ran(self, step: Run | Start, told: StepRecord) -> Answer:
        """The answer of a run that has made what it must."""
        bound = self._bound(step)
        try:
            expected = self._oracle(step)
        except OracleRefusal:  # a success that is none, which the script finds itself
            return Answer("done", {"outputs": {}})
        shown = {one.subject for one in told.observations if one.kind is Kind.ADDRESS}
        outputs = {}
        for name, array in expected.outputs.items():
            address = bound.addresses.get(expected.root_of_output.get(name, name))
            outputs[name] = {
                "dtype": number_of(array.dtype),
                "shape": list(array.shape),
                "nbytes": array.nbytes,
                "address": address if name in shown else None,
            }
        self._ideal.expected, self._ideal.bound = expected, bound
        return Answer("done", {"outputs": outputs})

    def _reader(self, number: int) -> Reader:  # noqa: ARG002 - there is one run at a time that is read
        return self._ideal.read

    def _clean_up(self) -> None:
        """Nothing is open."""


class _IdealObserver(Observer):
    """Makes memory hold what it must, and then looks at it."""

    def __init__(self, memory: Memory, process: ProcessMemory, case: Case, basis: Basis) -> None:
        super().__init__(memory, process, case, basis)
        self.told = StepRecord(0, "")
        self.expected = OracleResult({}, {}, {})
        self.bound = Bound()

    def read(self, output: str, offset: int, nbytes: int, *, page: int | None = None) -> bytes:  # noqa: ARG002
        """Bytes of an output, as an adapter shows them that has what it must have."""
        root = self.expected.root_of_output.get(output)
        place = self.bound.outputs.get(output) if root is None else self.bound.mutable.get(root)
        array = self.expected.outputs[output] if place is None else place.array_in(place.file.bytes)
        data: bytes = array.tobytes()
        return data[offset : offset + nbytes]

    def expect_prefix(
        self, record: StepRecord, mutable: Mapping[str, Placement], histories: Mapping[str, Sequence[Contents]]
    ) -> None:
        """Make each class hold the prefix that was recorded of it."""
        told = [one for one in self.told.observations if " of at most " in one.found]
        found = {one.subject: one.found.partition(" ")[0] for one in told}
        for root, history in histories.items():
            number = found.get(mutable[root].storage.name, "") if root in mutable else ""
            if number.isdecimal() and int(number) < len(history):
                self._make(mutable[root], history[int(number)])
        super().expect_prefix(record, mutable, histories)

    def expect_all(self, mutable: Mapping[str, Placement], histories: Mapping[str, Sequence[Contents]]) -> None:
        """Make each class hold all that it can."""
        for root, history in histories.items():
            if root in mutable:
                self._make(mutable[root], history[-1])
        super().expect_all(mutable, histories)

    def _expect_written(self, expected: OracleResult, run: RunView) -> list[Placement]:
        written = super()._expect_written(expected, run)
        for place in written:
            self._make(place, self._image(place).elements(place))
        return written

    @staticmethod
    def _make(place: Placement, elements: Any) -> None:
        place.array_in(place.file.bytes)[...] = elements
