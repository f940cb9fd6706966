"""Runs cases against a runtime: one child for many cases, a new one when it is spent, valid twins first."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from mutcache_conformance import case_json
from mutcache_conformance.adapter import Description
from mutcache_conformance.case import Case
from mutcache_conformance.child import Child, ChildGone, ChildTimeout
from mutcache_conformance.evidence import Evidence
from mutcache_conformance.failure import save_failure
from mutcache_conformance.memory import HarnessError, Memory
from mutcache_conformance.protocol import ProtocolError
from mutcache_conformance.script import ScriptRun
from mutcache_conformance.status import CaseEnded, CaseResult, Status

#: How often a child may be replaced because it crashed, hung or spoke garbage, before the rest is not run any more.
RESTARTS: Final = 200
#: Seconds for a new child to import its runtime and describe itself.
START_TIMEOUT: Final = 120.0


class RuntimeUnavailable(Exception):  # noqa: N818 - it says what is unavailable
    """The runtime cannot be started, or does not describe itself."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """How cases are run.

    Attributes:
        command: the command line that starts a child.
        options: what the adapter is told in ``describe``.
        step_timeout: seconds for each answer of the child.
        folder: the report folder; logs and failing cases go there.
        worker: name of this process among several that share the folder.
        restarts: how often a child that crashed, hung or spoke garbage is replaced.
    """

    command: Sequence[str]
    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)
    step_timeout: float = 30.0
    worker: str = "main"
    restarts: int = RESTARTS


class Runner:
    """Runs cases one after the other. A context manager that ends the child.

    Args:
        configuration: how.
        cases: every case by id, to find valid twins in.
    """

    def __init__(self, configuration: Configuration, cases: Mapping[str, Case]) -> None:
        self._configuration = configuration
        self._cases = cases
        self._results: dict[str, CaseResult] = {}
        self._child: Child | None = None
        self._about: Description | None = None
        self._unavailable: RuntimeUnavailable | None = None
        self._children = 0
        self._accidents = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def describe(self) -> Description:
        """Who is under test; starts a child if there has been none.

        Raises:
            RuntimeUnavailable: it cannot be started.
        """
        return self._about if self._about is not None else self._ready_child()[1]

    def run(self, case: Case) -> CaseResult:
        """The result of a case; each is run once.

        Raises:
            RuntimeUnavailable: the runtime cannot be started at all.
        """
        if case.id not in self._results:
            self._results[case.id] = self._run(case)
        return self._results[case.id]

    def harness_error(self, case: Case, reason: str) -> CaseResult:
        """The result of a case that something else than the runtime kept from being run."""
        return self._result(case, Status.HARNESS_ERROR, reason)

    def _run(self, case: Case) -> CaseResult:
        missing = sorted(case.needs - self.describe().capabilities)
        if missing:
            return self._result(case, Status.UNSUPPORTED, f"the runtime does not declare {', '.join(missing)}")
        if case.twin:
            verdict = self._judge_twin(case)
            if verdict is not None:
                return verdict
        if self._accidents > self._configuration.restarts:
            return self._result(case, Status.NOT_RUN, f"the runtime was restarted {self._accidents - 1} times already")
        result = run_case(case, *self._ready_child(), self._configuration)
        if result.status is Status.CRASH and not any(step.answer != "crash" for step in result.evidence.steps):
            # It was gone before it could read the first request: what ended it is not this case's doing.
            self._discard_child()
            result = dataclasses.replace(run_case(case, *self._ready_child(), self._configuration), attempts=2)
        if result.status in (Status.CRASH, Status.TIMEOUT):
            self._accidents += 1
        if result.status.is_failure:
            # Whatever a failing case left behind must not fail others.
            self._discard_child()
        return result

    def _judge_twin(self, case: Case) -> CaseResult | None:
        """Why the case cannot pass, if its valid twin did not."""
        twin = self._cases.get(case.twin)
        if twin is None:
            return self._result(case, Status.HARNESS_ERROR, f"there is no case {case.twin!r}, its valid twin")
        result = self.run(twin)
        if result.status is Status.PASS:
            return None
        status = Status.FAIL if result.status in (Status.CRASH, Status.TIMEOUT) else result.status
        return self._result(case, status, f"its valid twin {twin.id} did not pass ({result.status})")

    def _result(self, case: Case, status: Status, reason: str) -> CaseResult:
        return CaseResult(
            case=case.id,
            profile=case.profile,
            requirements=case.requirements,
            status=status,
            reason=reason,
            phase_expected=_phase_expected(case),
            case_sha256=case_json.digest(case),
        )

    def _ready_child(self) -> tuple[Child, Description]:
        if self._child is not None and self._child.is_alive and self._about is not None:
            return self._child, self._about
        self._discard_child()
        if self._unavailable is not None:  # once is enough: every further try would take as long
            raise self._unavailable
        self._children += 1
        log = self._configuration.folder / "logs" / f"{self._configuration.worker}-{self._children}"
        try:
            self._child = Child(self._configuration.command, log=log)
            about = self._child.describe(self._configuration.options, timeout=START_TIMEOUT)
        except (ChildGone, ChildTimeout, ProtocolError) as error:
            self._discard_child()
            self._unavailable = RuntimeUnavailable(str(error))
            raise self._unavailable from error
        if self._about is not None and self._about != about:
            self._unavailable = RuntimeUnavailable(f"it describes itself as {about} now, as {self._about} before")
            raise self._unavailable
        self._about = about
        return self._child, about

    def _discard_child(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


def run_case(case: Case, child: Child, about: Description, configuration: Configuration) -> CaseResult:
    """Run one case against a child that has described itself as ``about``.

    A case that does not pass is saved in the report folder. Its valid twin is not run here.
    """
    started = time.monotonic()
    status, reason, failure = Status.PASS, "", ""
    script: ScriptRun | None = None
    try:
        with Memory(case.storages, alignment=about.alignment) as memory:
            script = ScriptRun(case, child, memory, step_timeout=configuration.step_timeout)
            try:
                script.play()
            except CaseEnded as end:
                status, reason = end.status, end.reason
            except ChildGone as gone:
                status, reason = Status.CRASH, f"{_last_step(script)}: {gone}"
            except ChildTimeout as late:
                status, reason = Status.TIMEOUT, f"{_last_step(script)}: {late}"
            except ProtocolError as garbage:
                status, reason = Status.FAIL, f"{_last_step(script)}: it does not speak the protocol: {garbage}"
            if status.is_failure:
                failure = save_failure(case, script.observer, reason, configuration.folder)
    except HarnessError as error:
        status, reason = Status.HARNESS_ERROR, str(error)
    return CaseResult(
        case=case.id,
        profile=case.profile,
        requirements=case.requirements,
        status=status,
        reason=reason,
        phase_expected=_phase_expected(case),
        phase_observed=script.phase_observed if script is not None else "",
        evidence=script.evidence if script is not None else Evidence(),
        duration=time.monotonic() - started,
        case_sha256=case_json.digest(case),
        log=child.log_name,
        failure=failure,
    )


def _last_step(script: ScriptRun) -> str:
    steps = script.evidence.steps
    return f"in step {steps[-1].index + 1} ({steps[-1].operation})" if steps else "before the first step"


def _phase_expected(case: Case) -> tuple[str, ...]:
    """The phases of the first refusal that the script wants."""
    for step in case.script:
        if step.expect.is_rejection:
            return tuple(sorted(phase.value for phase in step.expect.rejected_in))
    return ()
