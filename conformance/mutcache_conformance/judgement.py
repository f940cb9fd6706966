"""From evidence to a status: the one function that both a run of the suite and ``mutcache verify`` judge with.

It looks at the case, at what was recorded of each step, and at the figures of memory; at nothing that a live run
knows beside these. So a status can be computed again wherever the cases are, without the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mutcache_conformance.adapter import Description
from mutcache_conformance.case import Bind, Case, Finish, Load, Measure, Release, Run, Start, Step, Unload, Write
from mutcache_conformance.course import Course
from mutcache_conformance.evidence import Evidence, Kind, Observation, StepRecord
from mutcache_conformance.figures import Figures, findings
from mutcache_conformance.memory import extent_of
from mutcache_conformance.status import Status

#: Answers that end a case, and what they make of it.
_ENDINGS: Final[Mapping[str, Status]] = {
    "crash": Status.CRASH,
    "timeout": Status.TIMEOUT,
    "garbage": Status.FAIL,
    "error": Status.FAIL,
    "unsupported": Status.UNSUPPORTED,
    "not-applicable": Status.NOT_APPLICABLE,
    "no-overlap": Status.UNSUPPORTED,
}
#: How each operation is answered that succeeds.
_SUCCESSES: Final[Mapping[type[Step], str]] = {
    Load: "ok",
    Bind: "ok",
    Run: "done",
    Start: "started",
    Finish: "done",
    Release: "ok",
    Unload: "ok",
    Write: "ok",
}


class UnsoundEvidence(Exception):  # noqa: N818 - it says what is unsound
    """Evidence that no play of the case can have left; the message says where."""


def judge(case: Case, evidence: Evidence, memory: Mapping[str, Any] | None = None) -> Status | None:
    """The status that the evidence of a play of the case amounts to.

    Args:
        case: the case.
        evidence: what was recorded of it.
        memory: figures of memory, for a case that measures it.

    Returns:
        The status; None when the play was broken off for a reason outside the runtime, which no record tells: then
        nothing was shown.

    Raises:
        UnsoundEvidence: no play can have left it.
    """
    script = [record for record in evidence.steps if record.index < len(case.script)]
    after = evidence.steps[len(script) :]
    status = _judge_script(case, script)
    if after:
        if status not in (Status.PASS, Status.UNSUPPORTED, Status.NOT_APPLICABLE) or len(after) > 1:
            raise UnsoundEvidence(f"there is a step after the last one, and the case was over before it ({status})")
        return _ENDINGS.get(after[0].answer, Status.FAIL)
    if status is Status.PASS:
        _check_memory(case, evidence, memory)
    return status


def phase_expected(case: Case) -> tuple[str, ...]:
    """The phases of the first refusal that the script of a case wants; none for a positive case."""
    for step in case.script:
        if step.expect.is_rejection:
            return tuple(sorted(phase.value for phase in step.expect.rejected_in))
    return ()


def phase_observed(evidence: Evidence) -> str:
    """The operation that refused first, or ""."""
    return next((step.operation for step in evidence.steps if step.answer == "rejected"), "")


def _judge_script(case: Case, records: Sequence[StepRecord]) -> Status | None:
    course = Course(case)
    for index, record in enumerate(records):
        if index and not records[index - 1].answer:
            raise UnsoundEvidence(f"step {index} has no answer, and yet there are steps after it")
        status = _step(case, course, index, record)
        if status is not None:
            if record is not records[-1] and not _is_of_memory(status, record):
                raise UnsoundEvidence(f"step {index + 1} ended the case ({status}), and yet there are steps after it")
            return status
    if not records or not records[-1].answer:
        return None
    if len(records) < len(case.script):
        raise UnsoundEvidence(f"it ends after step {len(records)} of {len(case.script)}, where nothing ended the case")
    return Status.PASS if course.end() is None else Status.FAIL


def judge_unplayed(case: Case, about: Description, twin: Status | None) -> Status | None:
    """The status of a case that is not played, since it cannot pass; None when nothing stands in its way.

    Args:
        case: the case.
        about: the runtime under test.
        twin: the status of its valid twin, if it has one.
    """
    lacks_memory = case.measure is not None and not about.tells_memory
    if case.needs - about.capabilities or lacks_memory or (case.overlaps and not about.concurrent_runs):
        return Status.UNSUPPORTED
    if not case.twin or twin in (None, Status.PASS):
        return None
    return Status.FAIL if twin in (Status.CRASH, Status.TIMEOUT) else twin


def may_still_fail(unplayed: Status, twin: Status | None) -> bool:
    """Whether a case that cannot pass is played all the same, since it can fail.

    A runtime that could not be asked for the valid twin earns nothing by refusing the case; but if it accepts what must
    be refused, that is a failure of its own.
    """
    return unplayed in (Status.UNSUPPORTED, Status.NOT_APPLICABLE) and twin is unplayed


def _step(case: Case, course: Course, index: int, record: StepRecord) -> Status | None:
    """The status that a step ends the case with, or None."""
    step = case.script[index]
    where = f"step {index + 1}"
    if (record.index, record.operation) != (index, type(step).__name__.lower()):
        raise UnsoundEvidence(f"{where} is recorded as step {record.index + 1}, a {record.operation}")
    is_moot = course.is_moot(step)
    allowed = [] if is_moot else sorted(phase.value for phase in course.allowed(index))
    if list(record.allowed) != allowed:
        raise UnsoundEvidence(f"{where} may be refused in {allowed}; recorded is {list(record.allowed)}")
    if (record.answer == "skipped") != is_moot:
        raise UnsoundEvidence(f"{where} was answered with {record.answer!r}, and is {'' if is_moot else 'not '}moot")
    if is_moot:
        course.skip(step)
        return None
    if record.answer not in ("", "skipped", "rejected", _SUCCESSES[type(step)], *_ENDINGS):
        raise UnsoundEvidence(f"{where}, a {record.operation}, cannot be answered with {record.answer!r}")
    if isinstance(step, Write):
        if record.answer != "ok" or record.observations:
            raise UnsoundEvidence(f"{where} is the caller's own, which nobody answers, and nobody looks at")
        return None
    objection = None
    is_refusal = bool(record.phase)
    # A child that has refused may come to its end when it is asked what its page tables are now.
    if is_refusal != (record.answer == "rejected") and not (is_refusal and record.answer in _ENDINGS):
        raise UnsoundEvidence(f"{where} was answered with {record.answer!r} in phase {record.phase!r}")
    if is_refusal:
        objection = course.reject(record)
    elif record.answer == _SUCCESSES[type(step)]:
        objection = course.accept(record)
    if objection is not None or not all(observation.holds for observation in record.observations):
        return Status.FAIL
    if record.answer in _ENDINGS:
        return _ENDINGS[record.answer]
    if record.answer and record.answer != "started" and Kind.UNTOUCHED not in _kinds(record):
        raise UnsoundEvidence(f"{where} was answered, and nobody looked at memory after it")
    return None


def _is_of_memory(status: Status, record: StepRecord) -> bool:
    """Whether a step fails the case by nothing but what was measured, which is judged when all steps are over."""
    return status is Status.FAIL and all(one.holds or one.kind is Kind.MEMORY for one in record.observations)


def _kinds(record: StepRecord) -> frozenset[Kind]:
    return frozenset(observation.kind for observation in record.observations)


def _check_memory(case: Case, evidence: Evidence, memory: Mapping[str, Any] | None) -> None:
    """What was made of the figures must follow from them."""
    if case.measure is None:
        return
    if memory is None:
        raise UnsoundEvidence("memory was to be measured, and there are no figures")
    figures = Figures.from_json(memory)
    for part in figures.parts():
        _check_figures(case, case.measure, part)
    for finding in findings(figures):
        if finding.observation not in _of_memory(evidence):
            raise UnsoundEvidence(f"{finding.subject}: the figures make it {finding.found!r}, which is not recorded")


def _check_figures(case: Case, measure: Measure, figures: Figures) -> None:
    """Figures must be of what was to be measured, and follow from one another."""
    try:
        derived = figures.derived()
    except ZeroDivisionError:
        raise UnsoundEvidence("the figures of memory are of caches of one size, or of one number of runs") from None
    for name, value in derived.items():
        if getattr(figures, name) != value:
            raise UnsoundEvidence(
                f"the figures of memory make a {name} of {value}; recorded is {getattr(figures, name)}"
            )
    compared = {name: cache_bytes(case, name) for name in measure.compare}
    if {session.session: session.cache_bytes for session in figures.sessions} != compared:
        raise UnsoundEvidence("the figures of memory are not those of the sessions that were to be compared")
    if ("" if figures.pages is None else figures.pages.session) != measure.pages:
        raise UnsoundEvidence("the figures of pages are not those of the session of which they were to be measured")


def cache_bytes(case: Case, session: str) -> int:
    """Bytes of the caches that a session of a case binds."""
    storages = {storage.name: storage for storage in case.storages}
    tables = {table.name: table for table in case.tables}
    steps = [step for step in case.script if isinstance(step, Bind) and step.session == session]
    total = 0
    for name in steps[-1].mutable.values() if steps else ():
        if name in tables:
            pages = tables[name].pages
            total += sum(extent_of(storages[page.storage])[0] if page.nbytes is None else page.nbytes for page in pages)
        else:
            total += extent_of(storages[name])[0]
    return total


def _of_memory(evidence: Evidence) -> list[Observation]:
    return [one for step in evidence.steps for one in step.observations if one.kind is Kind.MEMORY]
