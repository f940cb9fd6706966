"""Runs cases against a runtime: one child for many cases, a new one when it is spent, valid twins first."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from mutcache_conformance import case_json
from mutcache_conformance.adapter import Description
from mutcache_conformance.case import Case
from mutcache_conformance.child import Child, ChildGone, ChildTimeout, otherwise
from mutcache_conformance.evidence import Evidence
from mutcache_conformance.failure import save_failure
from mutcache_conformance.judgement import (
    UnsoundEvidence,
    judge,
    judge_unplayed,
    may_still_fail,
    phase_expected,
    phase_observed,
)
from mutcache_conformance.measured import MeasuredScript
from mutcache_conformance.memory import HarnessError, Memory
from mutcache_conformance.protocol import ProtocolError
from mutcache_conformance.script import ACCIDENTS, NO_OVERLAP, ScriptRun, word_of
from mutcache_conformance.status import CaseEnded, CaseResult, Status
from mutcache_conformance.tables import payload_groups
from mutcache_conformance.wording import a, title

#: How often a child may be replaced because it crashed, hung or spoke garbage, before the rest is not run any more.
RESTARTS: Final = 100
#: How often it may be replaced because it hung: each time costs a whole timeout.
HANGS: Final = 20
#: How often a case is tried that needs things to overlap in time, which nothing but time can bring about.
_TRIES: Final = 5

#: Causes of results that the case itself has no part in.
TWIN: Final = "the valid twin did not pass"
_HARNESS: Final = "the harness could not do its part"


class RuntimeUnavailable(Exception):  # noqa: N818 - it says what is unavailable
    """The runtime cannot be started, or does not describe itself."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """How cases are run.

    Attributes:
        command: the command line that starts a child.
        options: what the adapter is told in ``describe``.
        start_timeout: seconds for a new child to import its runtime and describe itself.
        step_timeout: seconds for each answer of the child.
        case_timeout: seconds for all answers of a case.
        folder: the report folder; logs and failing cases go there.
        worker: name of this process among several that share the folder.
        restarts: how often a child that crashed, hung or spoke garbage is replaced.
        hangs: how often one that hung is.
    """

    command: Sequence[str]
    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)
    start_timeout: float = 120.0
    step_timeout: float = 30.0
    case_timeout: float = 120.0
    worker: str = "main"
    restarts: int = RESTARTS
    hangs: int = HANGS


class Runner:
    """Runs cases one after the other. A context manager that ends the child.

    Args:
        configuration: how.
        cases: every case by id, to find valid twins in.
        earlier: results that the same run had before it was interrupted; these cases are not played again.
    """

    def __init__(
        self, configuration: Configuration, cases: Mapping[str, Case], earlier: Mapping[str, CaseResult] | None = None
    ) -> None:
        self._configuration = configuration
        self._cases = cases
        self._earlier = earlier or {}
        self._results: dict[str, CaseResult] = dict(self._earlier)
        self._child: Child | None = None
        self._about: Description | None = None
        self._unavailable: RuntimeUnavailable | None = None
        # As they were when the run was interrupted, as far as this process had to do with it.
        ours = [result for result in self._earlier.values() if result.log.startswith(f"{configuration.worker}-")]
        self._children = max((int(result.log.rpartition("-")[2]) for result in ours), default=0)
        self._accidents = sum(map(_is_accident, ours))
        self._hangs = sum(result.status is Status.TIMEOUT for result in ours)
        #: Whether the child has played a case already.
        self._is_used = False
        #: Whether all that it has played are cases that showed it to keep no memory.
        self._is_clean = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    @property
    def about(self) -> Description | None:
        """Who is under test, if it has been started."""
        return self._about

    def describe(self) -> Description:
        """Who is under test; starts a child if there has been none.

        Raises:
            RuntimeUnavailable: it cannot be started.
        """
        return self._about if self._about is not None else self._ready_child()[1]

    def run(self, case: Case) -> CaseResult:
        """The result of a case; each is run once. Nothing more is run once the runtime cannot be started again.

        Raises:
            RuntimeUnavailable: the runtime cannot be started at all.
        """
        if case.id not in self._results:
            try:
                result = self._run(case)
            except RuntimeUnavailable as error:
                if self._about is None:
                    raise
                result = self.not_run(case, error)
            self._results[case.id] = result
        return self._results[case.id]

    def not_run(self, case: Case, error: RuntimeUnavailable) -> CaseResult:
        """The result of a case for which the runtime could not be started again."""
        return self._result(case, Status.NOT_RUN, f"the runtime could not be started again: {error}")

    def had(self, case: Case) -> bool:
        """Whether the result of a case is one from before the run was interrupted."""
        return case.id in self._earlier

    def harness_error(self, case: Case, reason: str) -> CaseResult:
        """The result of a case that something else than the runtime kept from being run."""
        return self._result(case, Status.HARNESS_ERROR, reason, _HARNESS)

    def _run(self, case: Case) -> CaseResult:
        unplayed = self._unplayed(case)
        if unplayed is not None and not (unplayed.cause == TWIN and may_still_fail(unplayed.status, self._twin(case))):
            return unplayed
        if self._accidents > self._configuration.restarts:
            return self._result(case, Status.NOT_RUN, f"the runtime was restarted {self._accidents - 1} times already")
        if self._hangs > self._configuration.hangs:
            return self._result(case, Status.NOT_RUN, f"the runtime hung {self._hangs} times already")
        if case.measure is not None and not self._is_clean:
            self._discard_child()
        result = self._play(case)
        while result.cause == NO_OVERLAP and result.attempts < _TRIES:
            result = dataclasses.replace(self._play(case), attempts=result.attempts + 1)
        if self._is_used and _is_of_an_earlier_case(result):
            self._discard_child()
            result = dataclasses.replace(self._play(case), attempts=2)
        self._is_used = True
        self._is_clean = self._is_clean and case.measure is not None
        self._hangs += result.status is Status.TIMEOUT
        self._accidents += _is_accident(result)
        if result.status.is_failure:
            # Whatever a failing case left behind must not fail others.
            self._discard_child()
            return result
        return unplayed or result

    def _twin(self, case: Case) -> Status | None:
        result = self._results.get(case.twin)
        return None if result is None else result.status

    def _play(self, case: Case) -> CaseResult:
        return run_case(case, *self._ready_child(), self._configuration, twin=self._cases.get(case.twin))

    def _unplayed(self, case: Case) -> CaseResult | None:
        """The result of a case that cannot pass, and so is not played; None if nothing stands in its way."""
        about = self.describe()
        status = judge_unplayed(case, about, None)
        if status is not None:
            missing = sorted(case.needs - about.capabilities)
            if missing:
                cause = "the runtime does not declare what the case needs"
                return self._result(case, status, f"the runtime does not declare {', '.join(missing)}", cause)
            if case.measure is not None and not about.tells_memory:
                reason = (
                    f"the memory of {about.device} cannot be measured from outside, and the runtime does not report it"
                )
                return self._result(case, status, reason)
            return self._result(case, status, "the host has no more than one run in flight")
        if not case.twin:
            return None
        twin = self._cases.get(case.twin)
        if twin is None:
            return self._result(case, Status.HARNESS_ERROR, f"there is no case {case.twin!r}, its valid twin", _HARNESS)
        of_twin = self.run(twin).status
        status = judge_unplayed(case, about, of_twin)
        if status is None:
            return None
        return self._result(case, status, f"its valid twin {twin.id} did not pass ({of_twin})", TWIN)

    def _result(self, case: Case, status: Status, reason: str, cause: str = "") -> CaseResult:
        return CaseResult(
            case=case.id,
            profile=case.profile,
            requirements=case.requirements,
            status=status,
            reason=reason,
            cause=cause,
            phase_expected=phase_expected(case),
            case_sha256=case_json.digest(case),
        )

    def _ready_child(self) -> tuple[Child, Description]:
        if self._child is not None and self._child.is_alive and self._about is not None:
            return self._child, self._about
        self._discard_child()
        if self._unavailable is not None:  # once is enough: every further try would take as long
            raise self._unavailable
        self._children += 1
        self._is_used = False
        self._is_clean = True
        log = self._configuration.folder / "logs" / f"{self._configuration.worker}-{self._children}"
        try:
            self._child = Child(self._configuration.command, log=log)
            about = self._child.describe(self._configuration.options, timeout=self._configuration.start_timeout)
        except (ChildGone, ChildTimeout, ProtocolError) as error:
            self._discard_child()
            self._unavailable = RuntimeUnavailable(str(error))
            raise self._unavailable from error
        if self._about is not None and self._about != about:
            self._discard_child()
            self._unavailable = RuntimeUnavailable(f"it describes itself otherwise: {otherwise(self._about, about)}")
            raise self._unavailable
        self._about = about
        return self._child, about

    def _discard_child(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


def run_case(
    case: Case, child: Child, about: Description, configuration: Configuration, *, twin: Case | None = None
) -> CaseResult:
    """Run one case against a child that has described itself as ``about``.

    A case that does not pass is saved in the report folder, together with its valid twin, which is not run here.
    """
    started = time.monotonic()
    child.conversation.clear()
    end, failure = CaseEnded(Status.PASS, ""), ""
    script: ScriptRun | None = None
    try:
        with Memory(case.storages, alignment=about.alignment, together=payload_groups(case)) as memory:
            script = (MeasuredScript if case.measure is not None else ScriptRun)(
                case,
                child,
                about,
                memory,
                step_timeout=configuration.step_timeout,
                case_timeout=configuration.case_timeout,
            )
            try:
                script.play()
            except CaseEnded as ended:
                end = ended
            except ACCIDENTS as accident:
                last = script.evidence.steps[-1]
                when = f"in {title(last)}" if last.index < len(case.script) else "after the last step"
                end = _accident(accident, when, last.operation)
            if end.status.is_failure:
                end.reason = "\n".join(filter(None, [end.reason, script.details()]))
            else:
                end = _conduct(script, child, about, configuration) or end
            if end.status.is_failure:
                try:
                    failure = save_failure(
                        case, twin, script.observer, end.reason, child.conversation, configuration.folder
                    )
                except OSError as error:
                    end.reason += f"\n(the case could not be saved: {error})"
        _check_judgement(case, script, end.status)
    except HarnessError as error:
        end = CaseEnded(Status.HARNESS_ERROR, str(error), _HARNESS)
    return CaseResult(
        case=case.id,
        profile=case.profile,
        requirements=case.requirements,
        status=end.status,
        reason=end.reason,
        cause=end.cause,
        phase_expected=phase_expected(case),
        phase_observed=phase_observed(script.evidence) if script is not None else "",
        evidence=script.evidence if script is not None else Evidence(),
        memory=_figures(script) if script is not None else None,
        duration=time.monotonic() - started,
        case_sha256=case_json.digest(case),
        log=child.log_name,
        failure=failure,
    )


def _check_judgement(case: Case, script: ScriptRun, status: Status) -> None:
    """What was recorded must say the same as what the play came to, or nobody could check the report.

    Raises:
        HarnessError: it does not.
    """
    if status is Status.NOT_RUN:  # the play has not begun
        return
    try:
        judged = judge(case, script.evidence, _figures(script))
    except UnsoundEvidence as error:
        raise HarnessError(f"the play came to {status}, and its evidence is unsound: {error}") from error
    if judged is not status:
        raise HarnessError(f"the play came to {status}, its evidence to {judged}")


def _figures(script: ScriptRun) -> dict[str, Any] | None:
    return script.figures.to_json() if isinstance(script, MeasuredScript) else None


def _accident(accident: Exception, when: str, operation: str) -> CaseEnded:
    """What an accident of the child is."""
    match accident:
        case ChildGone():
            how = f"by {accident.signal}" if accident.signal else "without an answer"
            return CaseEnded(Status.CRASH, f"{when}: {accident}", f"the runtime ended {how} in {a(operation)}")
        case ChildTimeout():
            return CaseEnded(Status.TIMEOUT, f"{when}: {accident}", f"{a(operation)} was not answered in time")
    reason = f"{when}: it does not speak the protocol: {accident}"
    return CaseEnded(Status.FAIL, reason, f"the answer to {a(operation)} does not follow the protocol")


def _conduct(script: ScriptRun, child: Child, about: Description, configuration: Configuration) -> CaseEnded | None:
    """What is wrong with a child after a case that was not failed.

    It is asked once more who it is: an answer too many, or its end, shows here and not in the next case.
    """
    try:
        again = child.describe(configuration.options, timeout=configuration.step_timeout)
    except ACCIDENTS as accident:
        script.note_after(word_of(accident))
        return _accident(accident, "after the last step", "describe")
    if again != about:
        script.note_after("error")
        return CaseEnded(
            Status.FAIL,
            f"after the last step: it describes itself otherwise: {otherwise(about, again)}",
            "the runtime describes itself in two ways",
        )
    return None


def _is_of_an_earlier_case(result: CaseResult) -> bool:
    """Whether it ended, or an answer too many came, before it could answer the first request."""
    return [step.answer for step in result.evidence.steps] in (["crash"], ["garbage"])


def _is_accident(result: CaseResult) -> bool:
    """Whether the child was of no more use after the case."""
    last = result.evidence.steps[-1].answer if result.evidence.steps else ""
    return result.status in (Status.CRASH, Status.TIMEOUT) or last == "garbage"
