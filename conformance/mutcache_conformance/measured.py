"""Plays the script of a case while the memory of the child is measured, and judges what was measured.

What a session takes is measured from before it is loaded, so that a second cache is found wherever it is set up; what a
run takes, from when it is asked for until it is answered. The child is measured when its answer has come, before the
harness reads outputs through it.
"""

from __future__ import annotations

from typing import Final

from mutcache_conformance.case import Bind, Case, Load, Measure, Request, Run, Start
from mutcache_conformance.child import Answer, Child, ChildGone
from mutcache_conformance.evidence import Kind, Observation, StepRecord
from mutcache_conformance.figures import WORKSPACE, Figures, PageFigures, SessionFigures, excess, findings
from mutcache_conformance.memory import Memory
from mutcache_conformance.meter import Meter, Unmeasurable, Window
from mutcache_conformance.oracle import OracleResult
from mutcache_conformance.script import ScriptRun
from mutcache_conformance.status import CaseEnded, Status
from mutcache_conformance.tables import page_bytes
from mutcache_conformance.wording import title

_MIB: Final = 1 << 20
#: How often memory is looked at while runs are made again and again.
_SAMPLES: Final = 64


class MeasuredScript(ScriptRun):
    """One play of a script, measured.

    Args:
        case: the case, which says what to measure.
        child: a child that has played no other case, or only such as showed it to keep no memory.
        memory: the case's storages in memory.
        step_timeout: as for ScriptRun.
        case_timeout: as for ScriptRun.
    """

    def __init__(self, case: Case, child: Child, memory: Memory, *, step_timeout: float, case_timeout: float) -> None:
        super().__init__(case, child, memory, step_timeout=step_timeout, case_timeout=case_timeout)
        self.figures = Figures()
        assert case.measure is not None  # who chose this class
        self._measure: Measure = case.measure
        self._by_session = {name: SessionFigures(name) for name in self._measure.compare}
        self._windows: dict[str, Window] = {}
        if self._measure.pages:
            self.figures.pages = PageFigures(self._measure.pages)
        compared = [
            step for step in case.script if isinstance(step, Run) and step.session in self._measure.compare[-1:]
        ]
        self._last = compared[-1] if compared else None
        self._meter: Meter | None = None

    def play(self) -> None:
        """Play every step, and judge what was measured; raises as ``ScriptRun.play``."""
        try:
            self._meter = Meter(self._child.pid, [file.descriptor for file in self.observer.memory.files])
        except Unmeasurable as reason:
            raise CaseEnded(Status.NOT_RUN, str(reason), "memory cannot be measured here") from None
        super().play()
        self._judge()

    # Measuring

    def _send(self, step: Request) -> Answer:
        assert self._meter is not None  # play has made it
        session = getattr(step, "session", "")
        figures, pages = self._by_session.get(session), self.figures.pages
        if isinstance(step, Load) and (figures is not None or session == self._measure.pages):
            self._windows[session] = self._meter.open()
        if pages is not None and session == pages.session and isinstance(step, Run):
            answer = super()._send(step)
            pages.growth = max(pages.growth, *self._meter.growth(self._windows[session]))
            return answer
        if figures is None:
            return super()._send(step)
        if isinstance(step, Bind):
            tables = (self.observer.tables[name] for name in self._table_names(step.mutable).values())
            figures.cache_bytes = sum(place.nbytes for place in self._places(step.mutable).values())
            figures.cache_bytes += sum(table.nbytes for table in tables)
        elif isinstance(step, Run):
            if step is self._last and not excess(list(self._by_session.values())):
                return self._limited(step, self._meter)
            window = self._meter.open()
            answer = super()._send(step)
            grown, in_session = self._meter.growth(window, self._windows[step.session])
            figures.runs.append(grown)
            figures.growth = max(figures.growth, in_session)
            return answer
        return super()._send(step)

    def _limited(self, step: Run, meter: Meter) -> Answer:
        """Run while the child cannot have more than the workspace."""
        record = self.evidence.steps[-1]
        within = f"within {WORKSPACE // _MIB} MiB"
        beyond = f"{title(record)}, with no more than {WORKSPACE // _MIB} MiB of memory to be had,"
        cause = "a run fails when it cannot have more memory than the workspace"
        self.figures.is_limited = True
        try:
            with meter.limited(WORKSPACE):
                answer = super()._send(step)
        except ChildGone as gone:
            record.answer = "crash"
            self._observe(record, "a run that cannot have more", within, True, "the process ended")
            raise CaseEnded(Status.FAIL, f"{beyond} ended the process: {gone}", cause) from gone
        if not answer.succeeded:
            record.answer = "error"
            self._observe(record, "a run that cannot have more", within, True, answer.kind)
            raise CaseEnded(Status.FAIL, f"{beyond} was answered with {answer}", cause)
        self._observe(record, "a run that cannot have more", within, False, within)
        return answer

    def _run(self, step: Run) -> Answer:
        """Run as often as the step says, looking at memory meanwhile."""
        if step.times == 1:
            return super()._run(step)
        assert self._meter is not None
        curve = self.figures.curve = []
        every = max(1, step.times // _SAMPLES)
        first = answer = self._run_once(step)
        for number in range(1, step.times):
            if number % every == 0:
                curve.append((number, self._meter.resident()))
            answer = self._run_once(step)
            if answer.kind != first.kind:
                break
        return answer

    def _note(self, step: Run | Start, expected: OracleResult) -> None:
        """Count the bytes of the pages that a run had to make."""
        pages = self.figures.pages
        if pages is not None and step.session == pages.session:
            pages.page_bytes += sum(page_bytes(expected.classes[root]) for root in self._bound(step).tables)

    # Judging

    def _judge(self) -> None:
        """Record what was measured.

        Raises:
            CaseEnded: it is too much.
        """
        self._sent = self._answered = ""  # the latest step has no part in it
        record = self.evidence.steps[-1]
        self.figures.sessions = list(self._by_session.values())
        derived = self.figures.derived()
        self.figures.slope, self.figures.per_run = derived["slope"], derived["per_run"]
        found = list(findings(self.figures))
        record.observations += [Observation(Kind.MEMORY, one.subject, one.expected, one.found) for one in found]
        wrong = next((one for one in found if one.reason), None)
        if wrong is not None:
            raise CaseEnded(Status.FAIL, wrong.reason, wrong.cause)

    @staticmethod
    def _observe(record: StepRecord, subject: str, expected: str, is_wrong: bool, found: str) -> bool:
        record.observations.append(Observation(Kind.MEMORY, subject, expected, found if is_wrong else expected))
        return is_wrong
