"""Plays the script of a case against a child, step by step.

The child never learns what is expected of a step. A refusal is judged by the operation that gave it; what a runtime
catches earlier than the step that must be refused is right too, when the step's phases say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from mutcache.proto import parse
from mutcache.proto.onnx_ml import ModelProto
from mutcache_conformance import wording
from mutcache_conformance.adapter import Description
from mutcache_conformance.case import (
    RUN,
    Bind,
    Case,
    Finish,
    Load,
    Release,
    Request,
    Run,
    Start,
    Unload,
    Write,
)
from mutcache_conformance.child import Answer, Child, ChildGone, ChildTimeout
from mutcache_conformance.course import Course, Objection
from mutcache_conformance.evidence import Kind, Observation, StepRecord
from mutcache_conformance.findings import RunView, TableView
from mutcache_conformance.memory import HarnessError, Memory
from mutcache_conformance.oracle import Contents, OracleRefusal, OracleResult, run_model
from mutcache_conformance.oracle_pages import ContainerForm
from mutcache_conformance.protocol import ProtocolError
from mutcache_conformance.requests import Requester, known
from mutcache_conformance.status import CaseEnded, Status
from mutcache_conformance.wording import title

#: Cause of a case that came to no verdict, since things that it asks for at once were done one after the other.
NO_OVERLAP: Final = "the runtime was never asked for two things at once"
#: Bytes at the start of a storage that are watched for a run to begin, and seconds between looks.
_WATCHED: Final = 64
_LOOK: Final = 0.0005
#: What ends a case because the child does not live up to the protocol.
ACCIDENTS: Final = (ChildGone, ChildTimeout, ProtocolError)


@dataclass(frozen=True, slots=True)
class Flight:
    """A run in flight: what asked for it, the number of its request, and whether it was alone then."""

    step: Start
    number: int
    is_first: bool


class ScriptRun(Requester):
    """One play of a script.

    Args:
        case: the case.
        child: the child, described already.
        about: what it said of itself.
        memory: the case's storages in memory.
        step_timeout: seconds for each answer.
        case_timeout: seconds for all of them.

    Attributes:
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
        super().__init__(case, child, about, memory, step_timeout=step_timeout, case_timeout=case_timeout)
        #: What the latest step sent, and what came back.
        self._sent = self._answered = ""
        self._course = Course(case)
        self._flights: dict[str, Flight] = {}

    def play(self) -> None:
        """Play every step, and end what the script leaves open; returns if all is as it must be.

        Raises:
            CaseEnded: it is not.
            ChildGone, ChildTimeout, ProtocolError: the child did not live up to the protocol.
            HarnessError: the case cannot be played.
        """
        for index, step in enumerate(self.case.script):
            is_moot = self._course.is_moot(step)
            allowed = () if is_moot else sorted(phase.value for phase in self._course.allowed(index))
            record = StepRecord(index, type(step).__name__.lower(), tuple(allowed))
            self.evidence.steps.append(record)
            if is_moot:
                record.answer = "skipped"
                self._course.skip(step)
                if isinstance(step, Bind):
                    self._bindings[step.binding] = None
                continue
            if isinstance(step, Write):
                record.answer = "ok"
                places = self.observer.memory.placements
                self.observer.copy_elements(known(places, step.storage), known(places, step.source))
                continue
            try:
                self._step(step, record)
            except ChildGone as gone:
                record.answer = word_of(gone)
                self._judge_crash(step, record, gone)
                raise
            except (ChildTimeout, ProtocolError) as end:
                record.answer = word_of(end)
                self._timeout()  # which says so if it was the case's time that was over
                raise
        _raise(self._course.end())
        self._clean_up()

    def details(self) -> str:
        """What the latest step sent, and what came back unless the reason has it already, one a line."""
        lines = [f"sent: {self._sent}"] if self._sent else []
        lines += [f"came back: {self._answered}"] if self._answered else []
        return "\n".join(lines)

    def note_after(self, answer: str) -> None:
        """Record what became of a question that was asked after the script."""
        self.evidence.steps.append(StepRecord(len(self.case.script), "describe", answer=answer))

    # Steps

    def _step(self, step: Request, record: StepRecord) -> None:
        places = self.observer.memory.placements
        self._sent, self._answered = wording.request(step, self.case, places, self.observer.elements), ""
        answer = self._send(step)
        if not isinstance(step, Finish):
            self._check_overlap(record)
        if answer.succeeded:
            told = wording.outputs(answer.body.get("outputs", {}))
            self._answered = ", ".join(filter(None, [answer.kind, told]))
        record.answer = answer.kind
        if answer.kind == "rejected":
            self._after_rejection(step, record, answer)
        elif answer.succeeded:
            self._after_success(step, record, answer)
        elif isinstance(step, Start):
            _raise(self._course.accept(record))  # what comes of it, the step says that finishes it
        elif answer.kind == "unsupported":
            raise CaseEnded(Status.UNSUPPORTED, wording.printable(answer.body["what"]))
        elif answer.kind == "not-applicable":
            raise CaseEnded(Status.NOT_APPLICABLE, wording.printable(answer.body["what"]))
        else:
            raise CaseEnded(
                Status.FAIL,
                f"{title(record)} was answered with {answer}",
                f"{wording.a(record.operation)} was answered with {wording.masked(str(answer))}",
            )

    def _send(self, step: Request) -> Answer:
        match step:
            case Load():
                return self._load(step)
            case Bind():
                return self._bind(step)
            case Run():
                return self._run(step)
            case Start():
                return self._start(step)
            case Finish():
                self._run_number = self._flights[step.run].number
                return self._child.wait(self._run_number, timeout=self._timeout())
            case Release():
                binding = known(self._bindings, step.binding)
                answer = self._call("release", binding=binding.name)
                binding.is_bound = not answer.succeeded
                return answer
            case Unload():
                session = known(self._sessions, step.session)
                answer = self._call("unload", session=session.name)
                session.is_loaded = not answer.succeeded
                return answer

    def _run(self, step: Run) -> Answer:
        """Run as often as the step says; stops at the first answer of another kind than the first."""
        first = answer = self._run_once(step)
        for _ in range(1, step.times):
            answer = self._run_once(step)
            if answer.kind != first.kind:
                break
        return answer

    # Runs in flight

    def _start(self, step: Start) -> Answer:
        """Ask for a run, and wait until it is in flight. Its last answer is left for the step that finishes it."""
        is_first = not self._flights
        bound = self._bound(step)
        watched = [place.file.bytes[place.offset : place.offset + _WATCHED] for place in bound.mutable.values()]
        before = [data.copy() for data in watched]
        if bound.tables:
            raise HarnessError("what runs in flight do to page tables is not observed")
        number = self._send_run(step)
        self.observer.unsettled |= {place.file.name for place in (*bound.mutable.values(), *bound.outputs.values())}
        if not self._child.has_started(number, timeout=self._timeout()):
            raise ChildTimeout(f"a run did not start within {self._step_timeout:g} s")
        # Behind the first run another one may wait, or be refused, so that it writes nothing that could be seen.
        while is_first and all(map(np.array_equal, before, watched)):
            self._timeout()
            if self._child.has_ended(number, timeout=_LOOK):
                break
        self._flights[step.run] = Flight(step, number, is_first)
        return Answer("started", {})

    def _check_overlap(self, record: StepRecord) -> None:
        """End the case, without a verdict, if a run that should be in flight was done before the latest answer came.

        A run that failed is judged when the script finishes it.
        """
        answers = [self._child.answer_to(flight.number) for flight in self._flights.values() if flight.is_first]
        if not any(answer is not None and answer.succeeded for answer in answers):
            return
        record.answer = "no-overlap"
        for flight in self._flights.values():
            self._child.wait(flight.number, timeout=self._timeout())
        self._clean_up()
        raise CaseEnded(Status.UNSUPPORTED, f"a run was over before {title(record)} could overlap with it", NO_OVERLAP)

    def _land(self, step: Finish) -> Start:
        """The step that started a run which has ended. Its storage is settled, unless it is another run's too."""
        started = self._flights.pop(step.run).step
        self.observer.unsettled = {
            place.file.name
            for flight in self._flights.values()
            for place in (*self._bound(flight.step).mutable.values(), *self._bound(flight.step).outputs.values())
        }
        return started

    def _is_overtaken(self, step: Run | Start) -> bool:
        """Whether another run of the same binding is in flight."""
        return any(flight.step.binding == step.binding for flight in self._flights.values())

    # What came of them

    def _after_rejection(self, step: Request, record: StepRecord, answer: Answer) -> None:
        record.phase, record.requirement = answer.body["phase"], answer.body.get("requirement") or ""
        _raise(self._course.reject(record, str(answer), answer.body["message"]))
        run = self._land(step) if isinstance(step, Finish) else step
        if isinstance(run, Run | Start):
            bound, histories = self._bound(run), self._histories(run)
            if self._is_overtaken(run):
                self.observer.expect_all(bound.mutable, histories)
            else:
                self.observer.expect_prefix(record, bound.mutable, histories)
            if bound.tables and bound.is_bound:
                self.observer.expect_table_prefix(record, self._inspect(bound), histories)
        self.observer.check_untouched(record, f"after the refusal of {title(record)},")
        if isinstance(step, Load):
            self._sessions[step.session] = None
        elif isinstance(step, Bind):
            self._bindings[step.binding] = None

    def _after_success(self, step: Request, record: StepRecord, answer: Answer) -> None:
        _raise(self._course.accept(record))
        when = f"after {title(record)},"
        run = self._land(step) if isinstance(step, Finish) else step
        if isinstance(run, Run | Start):
            expected, is_readable = self._expected(run, record), not self._is_overtaken(run)
            self._note(run, expected)
            view = self._view(run, answer, expected)
            self.observer.check_run(record, expected, view, when, is_readable=is_readable)
            return
        self.observer.check_untouched(record, when)

    def _note(self, step: Run | Start, expected: OracleResult) -> None:
        """A run has succeeded, and this is what it has to come to."""

    def _judge_crash(self, step: Request, record: StepRecord, gone: ChildGone) -> None:
        """A write to memory that is mapped read-only ends a native runtime: that is a verdict, and no accident."""
        bound = self._bindings.get(step.binding) if isinstance(step, Bind | Run | Start) and step.binding else None
        read_only = bound.read_only() if bound is not None else []
        if gone.signal in ("SIGSEGV", "SIGBUS") and read_only:
            written = Observation(Kind.UNTOUCHED, read_only[0], "unchanged", f"written to, with {gone.signal}")
            record.observations.append(written)
            raise CaseEnded(
                Status.FAIL,
                f"read-only storage {read_only[0]!r} was accepted and written to ({gone.signal})",
                "read-only storage was accepted and written to",
            ) from gone

    # What a run must leave behind

    def _oracle(self, step: Run | Start) -> OracleResult:
        session = known(self._sessions, step.session)
        places = {**session.initializers, **self._places(step.feeds), **self._bound(step).mutable}
        inputs: dict[str, Contents] = {name: self.observer.elements(place) for name, place in places.items()}
        tables = {**self._table_names(step.feeds), **self._bound(step).tables}
        return run_model(session.model, inputs | {name: self.observer.pages(table) for name, table in tables.items()})

    def _histories(self, step: Run | Start) -> Mapping[str, tuple[Contents, ...]]:
        """What a refused run may leave in each class: any prefix of its updates.

        A fault that a runtime can know before it runs leaves everything as it was.
        """
        unchanged = self._unchanged(step)
        try:
            result = self._oracle(step)
        except OracleRefusal as refusal:
            return {**unchanged, **refusal.classes}
        except Exception:
            return unchanged  # inputs that no operator takes end the oracle anyhow
        return result.classes if step.expect.rejected_in == RUN else unchanged

    def _unchanged(self, step: Run | Start) -> Mapping[str, tuple[Contents, ...]]:
        """The page tables of a binding as they are; other storage is compared with its image anyhow."""
        tables = self._bound(step).tables
        model = parse(known(self._sessions, step.session).model) if tables else ModelProto()
        forms = {value.name: ContainerForm.of(model, value.type) for value in model.graph.input if value.name in tables}
        return {
            name: (self.observer.pages(tables[name]).begin(form),) for name, form in forms.items() if form is not None
        }

    def _expected(self, step: Run | Start, record: StepRecord) -> OracleResult:
        try:
            return self._oracle(step)
        except OracleRefusal as refusal:
            raise HarnessError(f"the case wants {title(record)} to succeed, the oracle refuses it: {refusal}") from None

    def _view(self, step: Run | Start, answer: Answer, expected: OracleResult) -> RunView:
        bound, outputs, read = self._bound(step), answer.body["outputs"], self._reader(self._run_number)
        return RunView(
            outputs, bound.mutable, bound.outputs, bound.addresses, read, self._tables(step, answer, expected)
        )

    def _tables(self, step: Run | Start, answer: Answer, expected: OracleResult) -> dict[str, TableView]:
        """The tables that a run may have changed, as the outputs show them; those that none shows are asked for."""
        bound, outputs, read = self._bound(step), answer.body["outputs"], self._reader(self._run_number)
        shown = {
            root: TableView(bound.tables[root], name, outputs[name], read, bound.lent)
            for name, root in expected.root_of_output.items()
            if root in bound.tables and "container" in outputs.get(name, ())
        }
        return shown if shown.keys() == bound.tables.keys() else {**self._inspect(bound), **shown}

    # The end

    def _clean_up(self) -> None:
        """Release and unload what is left open, so that the child can play another case."""
        for binding in self._bindings.values():
            session = self._sessions.get(binding.session) if binding is not None else None
            if binding is not None and binding.is_bound and session is not None and session.is_loaded:
                self._close("release", binding=binding.name)
        for session in self._sessions.values():
            if session is not None and session.is_loaded:
                self._close("unload", session=session.name)

    def _close(self, operation: str, **fields: object) -> None:
        record = StepRecord(len(self.case.script), operation)
        try:
            answer = self._call(operation, (), **fields)
        except ACCIDENTS as accident:
            record.answer = word_of(accident)
            self.evidence.steps.append(record)
            raise
        if not answer.succeeded:
            record.answer = "error"
            self.evidence.steps.append(record)
            raise CaseEnded(
                Status.FAIL,
                f"after the last step, {operation} was answered with {answer}",
                f"{wording.a(operation)} was answered with {wording.masked(str(answer))}",
            )


def word_of(accident: Exception) -> str:
    """What a record says of an accident of the child."""
    if isinstance(accident, ChildGone):
        return "crash"
    return "timeout" if isinstance(accident, ChildTimeout) else "garbage"


def _raise(objection: Objection | None) -> None:
    if objection is not None:
        raise CaseEnded(Status.FAIL, objection.reason, objection.cause)
