"""Where the script of a case stands: which refusals are right, which must still come, which steps are moot.

It knows only the case and the answers that came, so that it judges a recorded conversation as it judges a live one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mutcache.requirements import Phase
from mutcache_conformance import wording
from mutcache_conformance.case import LOAD, Bind, Case, Finish, Load, Release, Run, Start, Step, Unload, Write
from mutcache_conformance.evidence import StepRecord

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


@dataclass(frozen=True, slots=True)
class Objection:
    """What is wrong with an answer: why, and the cause without names and numbers of the case."""

    reason: str
    cause: str


class Course:
    """The course of a script. Steps are to be taken in order.

    Args:
        case: the case.
    """

    def __init__(self, case: Case) -> None:
        self._script = case.script
        self._refused_sessions: set[str] = set()
        self._refused_bindings: set[str] = set()
        #: Phases in which a session must still be refused, since a step allowed it and did not do it.
        self._owed: dict[str, frozenset[Phase]] = {}
        self._flights: set[str] = set()

    def is_moot(self, step: Step) -> bool:
        """Whether the step needs a session or a binding that was rightly refused."""
        if isinstance(step, Load | Write):
            return False
        if isinstance(step, Finish):
            return step.run not in self._flights
        if isinstance(step, Release | Run | Start) and step.binding in self._refused_bindings:
            return True
        return not isinstance(step, Release) and step.session in self._refused_sessions

    def skip(self, step: Step) -> None:
        """Pass over a step that is moot."""
        if isinstance(step, Bind):
            self._refused_bindings.add(step.binding)

    def allowed(self, index: int) -> frozenset[Phase]:
        """The phases in which a step may be refused.

        Those of the step itself, those that an earlier step left open, and those of later steps that need this one: a
        run whose overflow is known when the model is loaded may be refused there.
        """
        step = self._script[index]
        allowed = step.expect.rejected_in | self._owed_to(step)
        if isinstance(step, Finish) and step.may_be_refused:
            allowed |= _PHASES[Finish]
        for later in self._script[index + 1 :]:
            if isinstance(step, Load):
                needs = isinstance(later, Bind | Run) and later.session == step.session
            else:
                needs = isinstance(step, Bind) and isinstance(later, Run) and later.binding == step.binding
            if needs:
                allowed |= later.expect.rejected_in & _PHASES[type(step)]
        return allowed

    def reject(self, record: StepRecord, answer: str = "rejected", message: str = "") -> Objection | None:
        """Take a refusal, whose phase stands in the record; returns what is wrong with it.

        Args:
            record: the record of the step.
            answer: the refusal in words.
            message: what the runtime says of it.
        """
        step = self._script[record.index]
        phases = _PHASES.get(type(step), frozenset())
        named = LOAD if record.phase == "load" else frozenset({Phase(record.phase)})
        if not named & phases:
            return Objection(
                f"{wording.title(record)} was {answer}, which is not the phase of the operation",
                f"{wording.a(record.operation)} was refused in a phase that is not its own",
            )
        allowed = self.allowed(record.index)
        if not allowed & phases:
            right = f"a refusal is right only in phase {wording.phases(allowed)}" if allowed else "it must succeed"
            demand = "refused too early" if allowed else "refused that must succeed"
            return Objection(
                f"{wording.title(record)} was {answer}; {right}",
                f"{wording.a(record.operation)} was {demand}: {wording.masked(message)}",
            )
        if isinstance(step, Load):
            self._refused_sessions.add(step.session)
        elif isinstance(step, Bind):
            self._refused_bindings.add(step.binding)
        elif isinstance(step, Finish):
            self._flights.discard(step.run)
        if isinstance(step, Bind | Run):
            self._owed.pop(step.session, None)
        return None

    def accept(self, record: StepRecord) -> Objection | None:
        """Take a success; returns what is wrong with it."""
        step = self._script[record.index]
        demanded = self._owed_to(step)
        if step.expect.is_rejection:
            demanded |= step.expect.rejected_in
        ahead = demanded & _AHEAD.get(type(step), frozenset())
        if demanded and not ahead:
            return Objection(
                f"{wording.title(record)} succeeded; it must be refused in phase {wording.phases(demanded)}",
                f"{wording.a(record.operation)} succeeded that must be refused",
            )
        if isinstance(step, Load):
            self._refused_sessions.discard(step.session)
        if isinstance(step, Bind):
            self._refused_bindings.discard(step.binding)
        if isinstance(step, Load | Bind):
            self._owed[step.session] = ahead
        elif isinstance(step, Start):
            self._flights.add(step.run)
        elif isinstance(step, Finish):
            self._flights.discard(step.run)
        return None

    def end(self) -> Objection | None:
        """What is wrong at the end of the script: a refusal that never came."""
        for name, phases in self._owed.items():
            if phases:
                return Objection(
                    f"session {name!r} was not refused; it must be, in phase {wording.phases(phases)}",
                    "a session was never refused that must be",
                )
        return None

    def _owed_to(self, step: Step) -> frozenset[Phase]:
        return self._owed.get(step.session, frozenset()) if isinstance(step, Bind | Run) else frozenset()
