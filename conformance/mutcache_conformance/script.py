"""Plays the script of a case against a child, step by step.

The child never learns what is expected of a step. A refusal is judged by the operation that gave it; what a runtime
catches earlier than the step that must be refused is right too, when the step's phases say so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from mutcache.requirements import Phase
from mutcache_conformance import wording
from mutcache_conformance.case import (
    LOAD,
    RUN,
    Bind,
    Case,
    Finish,
    Load,
    Release,
    Request,
    Run,
    Start,
    Step,
    Storage,
    Unload,
    Write,
)
from mutcache_conformance.child import Answer, Child, ChildGone, ChildTimeout
from mutcache_conformance.evidence import Evidence, StepRecord
from mutcache_conformance.forms import check_mapping, files_of, form_of, forms_of
from mutcache_conformance.memory import HarnessError, Memory, Placement
from mutcache_conformance.observe import Observer, RunView
from mutcache_conformance.oracle import Contents, OracleRefusal, OracleResult, run_model
from mutcache_conformance.protocol import ProtocolError
from mutcache_conformance.status import CaseEnded, Status
from mutcache_conformance.wording import title

_UINT8: Final = 2
#: Cause of a case that came to no verdict, since things that it asks for at once were done one after the other.
NO_OVERLAP: Final = "the runtime was never asked for two things at once"
#: Bytes at the start of a storage that are watched for a run to begin, and seconds between looks.
_WATCHED: Final = 64
_LOOK: Final = 0.0005
#: The phases that a refusal of each operation may name. What a run binds as ordinary inputs, it binds when it runs.
_PHASES: Final[Mapping[type[Step], frozenset[Phase]]] = {
    Load: LOAD,
    Bind: frozenset({Phase.BIND}),
    Run: frozenset({Phase.BIND, Phase.RUN}),
    Finish: frozenset({Phase.BIND, Phase.RUN}),
    Release: frozenset({Phase.BIND, Phase.RUN}),
    Unload: frozenset({*LOAD, Phase.BIND}),
}
#: The phases that lie ahead of a session once an operation has succeeded.
_AHEAD: Final[Mapping[type[Step], frozenset[Phase]]] = {
    Load: frozenset({Phase.BIND, Phase.RUN}),
    Bind: frozenset({Phase.RUN}),
}
_Item = TypeVar("_Item")


@dataclass(slots=True)
class _Session:
    """A session as the script knows it."""

    name: str
    model: bytes
    initializers: Mapping[str, Placement]
    is_loaded: bool = True
    #: Phases in which a refusal must still come that a step allowed but did not get.
    owed: frozenset[Phase] = frozenset()


@dataclass(slots=True)
class _Binding:
    """What is bound when a run starts; a run without a binding has bound nothing."""

    name: str = ""
    session: str = ""
    mutable: Mapping[str, Placement] = field(default_factory=dict)
    outputs: Mapping[str, Placement] = field(default_factory=dict)
    addresses: Mapping[str, int] = field(default_factory=dict)
    is_bound: bool = True

    def read_only(self) -> list[str]:
        """Storages that the runtime could not write, though it took them as if it could."""
        places = [*self.mutable.values(), *self.outputs.values()]
        return [place.storage.name for place in places if not place.file.writable]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A run in flight: what asked for it, the number of its request, and whether it was alone then."""

    step: Start
    number: int
    is_first: bool


class ScriptRun:
    """One play of a script.

    Args:
        case: the case.
        child: the child, described already.
        memory: the case's storages in memory.
        step_timeout: seconds for each answer.
        case_timeout: seconds for all of them.

    Attributes:
        evidence: what was seen so far.
        phase_observed: the operation that refused first, or "".
        observer: what the memory holds and must hold.
    """

    def __init__(self, case: Case, child: Child, memory: Memory, *, step_timeout: float, case_timeout: float) -> None:
        self.case = case
        self.evidence = Evidence()
        self.phase_observed = ""
        self.observer = Observer(memory)
        self._child = child
        self._step_timeout, self._case_timeout = step_timeout, case_timeout
        self._deadline = time.monotonic() + case_timeout
        #: What the latest step sent, and what came back.
        self._sent = self._answered = ""
        #: None once the load or bind was rightly refused.
        self._sessions: dict[str, _Session | None] = {}
        self._bindings: dict[str, _Binding | None] = {}
        self._run_number = 0
        self._flights: dict[str, _Flight] = {}

    def play(self) -> None:
        """Play every step, and end what the script leaves open; returns if all is as it must be.

        Raises:
            CaseEnded: it is not.
            ChildGone, ChildTimeout, ProtocolError: the child did not live up to the protocol.
            HarnessError: the case cannot be played.
        """
        for index, step in enumerate(self.case.script):
            is_moot = self._is_moot(step)
            allowed = frozenset[Phase]() if is_moot else self._allowed(index, step)
            record = StepRecord(index, type(step).__name__.lower(), tuple(sorted(phase.value for phase in allowed)))
            self.evidence.steps.append(record)
            if is_moot:
                record.answer = "skipped"
                if isinstance(step, Bind):
                    self._bindings[step.binding] = None
                continue
            if isinstance(step, Write):
                record.answer = "ok"
                places = self.observer.memory.placements
                self.observer.copy_elements(_known(places, step.storage), _known(places, step.source))
                continue
            try:
                self._step(step, record, allowed)
            except ChildGone as gone:
                record.answer = "crash"
                self._judge_crash(step, gone)
                raise
            except (ChildTimeout, ProtocolError) as end:
                record.answer = "timeout" if isinstance(end, ChildTimeout) else "garbage"
                self._timeout()  # which says so if it was the case's time that was over
                raise
        for name, session in self._sessions.items():
            if session is not None and session.owed:
                raise CaseEnded(
                    Status.FAIL,
                    f"session {name!r} was not refused; it must be, in phase {wording.phases(session.owed)}",
                    "a session was never refused that must be",
                )
        self._clean_up()

    def details(self) -> str:
        """What the latest step sent, and what came back unless the reason has it already, one a line."""
        lines = [f"sent: {self._sent}"] if self._sent else []
        lines += [f"came back: {self._answered}"] if self._answered else []
        return "\n".join(lines)

    # Which refusals are right

    def _is_moot(self, step: Step) -> bool:
        """Whether the step needs a session or a binding that was rightly refused."""
        if isinstance(step, Load | Write):
            return False
        if isinstance(step, Finish):
            return step.run not in self._flights
        if isinstance(step, Release | Run | Start) and step.binding and self._bindings.get(step.binding, step) is None:
            return True
        return not isinstance(step, Release) and self._sessions.get(step.session, step) is None

    def _allowed(self, index: int, step: Step) -> frozenset[Phase]:
        """The phases in which this step may be refused.

        Those of the step itself, those that an earlier step left open, and those of later steps that need this one: a
        run whose overflow is known when the model is loaded may be refused there.
        """
        allowed = step.expect.rejected_in | self._owed(step)
        if isinstance(step, Finish) and step.may_be_refused:
            allowed |= _PHASES[Finish]
        for later in self.case.script[index + 1 :]:
            if isinstance(step, Load):
                needs = isinstance(later, Bind | Run) and later.session == step.session
            else:
                needs = isinstance(step, Bind) and isinstance(later, Run) and later.binding == step.binding
            if needs:
                allowed |= later.expect.rejected_in & _PHASES[type(step)]
        return allowed

    def _owed(self, step: Step) -> frozenset[Phase]:
        session = self._sessions.get(step.session) if isinstance(step, Bind | Run) else None
        return frozenset() if session is None else session.owed

    # Steps

    def _step(self, step: Request, record: StepRecord, allowed: frozenset[Phase]) -> None:
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
            self._after_rejection(step, record, allowed, answer)
        elif answer.succeeded:
            self._after_success(step, record, answer)
        elif isinstance(step, Start):
            return  # what comes of it, the step says that finishes it
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
                binding = _known(self._bindings, step.binding)
                answer = self._call("release", binding=binding.name)
                binding.is_bound = not answer.succeeded
                return answer
            case Unload():
                session = _known(self._sessions, step.session)
                answer = self._call("unload", session=session.name)
                session.is_loaded = not answer.succeeded
                return answer

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
        session = _Session(self._child.new_name("s"), model, self._places(step.initializers))
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
        name = self._child.new_name("b")
        # Known before the answer, so that a crash can be told from a write to read-only storage.
        binding = self._bindings[step.binding] = _Binding(name, step.session, mutable, outputs)
        answer = self._call(
            "bind",
            [*mutable.values(), *outputs.values()],
            session=_known(self._sessions, step.session).name,
            binding=name,
            mutable=forms_of(mutable),
            outputs=forms_of(outputs),
        )
        binding.is_bound = answer.succeeded
        if answer.succeeded:
            binding.addresses = {value: int(address) for value, address in answer.body["addresses"].items()}
            self.observer.bases |= check_mapping({**mutable, **outputs}, binding.addresses)
        return answer

    def _run(self, step: Run) -> Answer:
        """Run as often as the step says; stops at the first answer of another kind than the first."""
        feeds = self._places(step.feeds)
        first = answer = self._run_once(step, feeds)
        for _ in range(1, step.times):
            answer = self._run_once(step, feeds)
            if answer.kind != first.kind:
                break
        return answer

    def _run_once(self, step: Run, feeds: Mapping[str, Placement]) -> Answer:
        self._run_number = self._send_run(step, feeds)
        return self._child.wait(self._run_number, timeout=self._timeout())

    def _send_run(self, step: Run | Start, feeds: Mapping[str, Placement]) -> int:
        return self._child.send(
            "run",
            timeout=self._timeout(),
            session=_known(self._sessions, step.session).name,
            binding=self._bound(step).name,
            feeds=forms_of(feeds),
            files=files_of(feeds.values()),
        )

    # Runs in flight

    def _start(self, step: Start) -> Answer:
        """Ask for a run, and wait until it is in flight. Its last answer is left for the step that finishes it."""
        is_first = not self._flights
        bound = self._bound(step)
        watched = [place.file.bytes[place.offset : place.offset + _WATCHED] for place in bound.mutable.values()]
        before = [data.copy() for data in watched]
        number = self._send_run(step, self._places(step.feeds))
        self.observer.unsettled |= {place.file.name for place in (*bound.mutable.values(), *bound.outputs.values())}
        if not self._child.has_started(number, timeout=self._timeout()):
            raise ChildTimeout(f"a run did not start within {self._step_timeout:g} s")
        # Behind the first run another one may wait, or be refused, so that it writes nothing that could be seen.
        while is_first and all(map(np.array_equal, before, watched)):
            self._timeout()
            if self._child.has_ended(number, timeout=_LOOK):
                break
        self._flights[step.run] = _Flight(step, number, is_first)
        return Answer("started", {})

    def _check_overlap(self, record: StepRecord) -> None:
        """End the case, without a verdict, if a run that should be in flight was done before the latest answer came.

        A run that failed is judged when the script finishes it.
        """
        answers = [self._child.answer_to(flight.number) for flight in self._flights.values() if flight.is_first]
        if not any(answer is not None and answer.succeeded for answer in answers):
            return
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

    def _after_rejection(self, step: Request, record: StepRecord, allowed: frozenset[Phase], answer: Answer) -> None:
        record.phase, record.requirement = answer.body["phase"], answer.body.get("requirement") or ""
        self.phase_observed = self.phase_observed or record.operation
        named = LOAD if record.phase == "load" else frozenset({Phase(record.phase)})
        if not named & _PHASES[type(step)]:
            raise CaseEnded(
                Status.FAIL,
                f"{title(record)} was {answer}, which is not the phase of the operation",
                f"{wording.a(record.operation)} was refused in a phase that is not its own",
            )
        if not allowed & _PHASES[type(step)]:
            right = f"a refusal is right only in phase {wording.phases(allowed)}" if allowed else "it must succeed"
            demand = "refused too early" if allowed else "refused that must succeed"
            raise CaseEnded(
                Status.FAIL,
                f"{title(record)} was {answer}; {right}",
                f"{wording.a(record.operation)} was {demand}: {wording.masked(answer.body['message'])}",
            )
        run = self._land(step) if isinstance(step, Finish) else step
        if isinstance(run, Run | Start):
            mutable, histories = self._bound(run).mutable, self._histories(run)
            if self._is_overtaken(run):
                self.observer.expect_all(mutable, histories)
            else:
                self.observer.expect_prefix(record, mutable, histories)
        self.observer.check_untouched(record, f"after the refusal of {title(record)},")
        if isinstance(step, Load):
            self._sessions[step.session] = None
        elif isinstance(step, Bind):
            self._bindings[step.binding] = None
        if isinstance(step, Bind | Run):
            _known(self._sessions, step.session).owed = frozenset()

    def _after_success(self, step: Request, record: StepRecord, answer: Answer) -> None:
        demanded = self._owed(step)
        if step.expect.is_rejection:
            demanded |= step.expect.rejected_in
        ahead = demanded & _AHEAD.get(type(step), frozenset())
        if demanded and not ahead:
            raise CaseEnded(
                Status.FAIL,
                f"{title(record)} succeeded; it must be refused in phase {wording.phases(demanded)}",
                f"{wording.a(record.operation)} succeeded that must be refused",
            )
        if isinstance(step, Load | Bind):
            _known(self._sessions, step.session).owed = ahead
        when = f"after {title(record)},"
        run = self._land(step) if isinstance(step, Finish) else step
        if isinstance(run, Run | Start):
            expected, is_readable = self._expected(run, record), not self._is_overtaken(run)
            self.observer.check_run(record, expected, self._view(run, answer), when, is_readable=is_readable)
            return
        self.observer.check_untouched(record, when)

    def _judge_crash(self, step: Request, gone: ChildGone) -> None:
        """A write to memory that is mapped read-only ends a native runtime: that is a verdict, and no accident."""
        bound = self._bindings.get(step.binding) if isinstance(step, Bind | Run | Start) and step.binding else None
        read_only = bound.read_only() if bound is not None else []
        if gone.signal in ("SIGSEGV", "SIGBUS") and read_only:
            raise CaseEnded(
                Status.FAIL,
                f"read-only storage {read_only[0]!r} was accepted and written to ({gone.signal})",
                "read-only storage was accepted and written to",
            ) from gone

    # What a run must leave behind

    def _bound(self, step: Run | Start) -> _Binding:
        return _known(self._bindings, step.binding) if step.binding else _Binding()

    def _oracle(self, step: Run | Start) -> OracleResult:
        session = _known(self._sessions, step.session)
        places = {**session.initializers, **self._places(step.feeds), **self._bound(step).mutable}
        return run_model(session.model, {name: self.observer.elements(place) for name, place in places.items()})

    def _histories(self, step: Run | Start) -> Mapping[str, tuple[Contents, ...]]:
        """What a refused run may leave in each class: any prefix of its updates.

        A fault that a runtime can know before it runs leaves everything as it was.
        """
        try:
            result = self._oracle(step)
        except OracleRefusal as refusal:
            return refusal.classes
        except Exception:
            return {}  # inputs that no operator takes end the oracle anyhow; then nothing may have changed
        return result.classes if step.expect.rejected_in == RUN else {}

    def _expected(self, step: Run | Start, record: StepRecord) -> OracleResult:
        try:
            return self._oracle(step)
        except OracleRefusal as refusal:
            raise HarnessError(f"the case wants {title(record)} to succeed, the oracle refuses it: {refusal}") from None

    def _view(self, step: Run | Start, answer: Answer) -> RunView:
        bound = self._bound(step)
        return RunView(answer.body["outputs"], bound.mutable, bound.outputs, bound.addresses, self._read)

    def _read(self, output: str, offset: int, nbytes: int) -> bytes:
        with Memory([Storage("into", _UINT8, (nbytes,))]) as memory:
            into = memory.placements["into"]
            answer = self._call(
                "read",
                [into],
                run=self._run_number,
                output=output,
                offset=str(offset),
                nbytes=str(nbytes),
                into=form_of(into),
            )
            if not answer.succeeded:
                raise CaseEnded(
                    Status.FAIL,
                    f"reading output {output!r} was answered with {answer}",
                    f"reading an output was answered with {wording.masked(str(answer))}",
                )
            return into.file.bytes[into.offset : into.end].tobytes()

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
        answer = self._call(operation, (), **fields)
        if not answer.succeeded:
            raise CaseEnded(
                Status.FAIL,
                f"after the last step, {operation} was answered with {answer}",
                f"{wording.a(operation)} was answered with {wording.masked(str(answer))}",
            )

    def _places(self, names: Mapping[str, str]) -> dict[str, Placement]:
        return {value: _known(self.observer.memory.placements, storage) for value, storage in names.items()}


def _known(items: Mapping[str, _Item | None] | Mapping[str, _Item], name: str) -> _Item:
    item = items.get(name)
    if item is None:
        raise HarnessError(f"the script names {name!r}, which there is not")
    return item
