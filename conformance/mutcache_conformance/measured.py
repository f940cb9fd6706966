"""Plays the script of a case while the memory of the child is measured, and judges what was measured.

What a session takes is measured from before it is loaded, so that a second cache is found wherever it is set up; what a
run takes, from when it is asked for until it is answered. The child is measured when its answer has come, before the
harness reads outputs through it. Where caches are on a device, the runtime is asked in the same places what it holds of
the device's memory, and that is judged in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mutcache_conformance.adapter import Description, DeviceMemory
from mutcache_conformance.case import Bind, Case, Load, Measure, Request, Run, Start
from mutcache_conformance.child import Answer, Child, ChildGone
from mutcache_conformance.evidence import Kind, Observation, StepRecord
from mutcache_conformance.figures import WORKSPACE, Figures, PageFigures, SessionFigures, excess, findings
from mutcache_conformance.judgement import cache_bytes
from mutcache_conformance.memory import Memory
from mutcache_conformance.meter import DeviceMeter, Gauge, Meter, Unmeasurable, Window
from mutcache_conformance.oracle import OracleResult
from mutcache_conformance.protocol import ProtocolError
from mutcache_conformance.script import ScriptRun
from mutcache_conformance.status import CaseEnded, Status
from mutcache_conformance.tables import page_bytes
from mutcache_conformance.wording import title

_MIB: Final = 1 << 20
#: How often memory is looked at while runs are made again and again.
_SAMPLES: Final = 64


@dataclass(slots=True)
class _Side:
    """Memory that is measured: the process's, or the device's.

    Attributes:
        gauge: what measures it.
        figures: what it came to.
        sessions: what each session took of it that is compared.
        windows: since when each session is measured.
    """

    gauge: Gauge
    figures: Figures
    sessions: dict[str, SessionFigures]
    windows: dict[str, Window] = field(default_factory=dict)

    def note_run(self, session: str, run: Window) -> None:
        """Take in what a run took."""
        figures = self.sessions[session]
        grown, in_session = self.gauge.growth(run, self.windows[session])
        figures.runs.append(grown)
        figures.growth = max(figures.growth, in_session)

    def note_pages(self, pages: PageFigures) -> None:
        """Take in what a session took in which pages are made."""
        pages.growth = max(pages.growth, *self.gauge.growth(self.windows[pages.session]))


class MeasuredScript(ScriptRun):
    """One play of a script, measured.

    Args:
        case: the case, which says what to measure.
        child: a child that has played no other case, or only such as showed it to keep no memory.
        about: what it said of itself.
        memory: the case's storages in memory.
        step_timeout: as for ScriptRun.
        case_timeout: as for ScriptRun.
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
        assert case.measure is not None  # who chose this class
        self._measure: Measure = case.measure
        self.figures = self._new_figures()
        if about.is_on_device:
            self.figures.device = self._new_figures()
        compared = [
            step for step in case.script if isinstance(step, Run) and step.session in self._measure.compare[-1:]
        ]
        self._last = compared[-1] if compared else None
        #: The process first, and then the device, if there is one.
        self._sides: list[_Side] = []

    def play(self) -> None:
        """Play every step, and judge what was measured; raises as ``ScriptRun.play``."""
        try:
            meter = Meter(self._child.pid, [file.descriptor for file in self.observer.memory.files])
        except Unmeasurable as reason:
            raise CaseEnded(Status.NOT_RUN, str(reason), "memory cannot be measured here") from None
        gauges = [meter, DeviceMeter(self._ask)]
        for gauge, figures in zip(gauges, self.figures.parts(), strict=False):
            sessions = {name: SessionFigures(name) for name in self._measure.compare}
            self._sides.append(_Side(gauge, figures, sessions))
        self._meter = meter
        super().play()
        self._judge()

    def _new_figures(self) -> Figures:
        return Figures(pages=PageFigures(self._measure.pages) if self._measure.pages else None)

    # Measuring

    def _ask(self, reset: bool) -> DeviceMemory:
        """What the runtime says that it holds of its device's memory.

        Raises:
            CaseEnded: it does not say, though it can.
            ProtocolError: that cannot be.
        """
        answer = self._call("memory", reset=reset)
        what = "memory of the device"
        self._must_succeed(answer, f"reading the {what}", what, f"reading the {what}")
        held = DeviceMemory(int(answer.body["allocated"]), int(answer.body["peak"]))
        if held.peak < held.allocated:
            raise ProtocolError(f"it holds {held.allocated} bytes of the device, and never held more than {held.peak}")
        return held

    def _open(self) -> list[Window]:
        """A window on each side; that on the process last, so that asking for others does not lie in it."""
        return [side.gauge.open() for side in reversed(self._sides)][::-1]

    def _send(self, step: Request) -> Answer:
        session = getattr(step, "session", "")
        is_compared, makes_pages = session in self._measure.compare, session and session == self._measure.pages
        if isinstance(step, Load) and (is_compared or makes_pages):
            for side, window in zip(self._sides, self._open(), strict=True):
                side.windows[session] = window
        if isinstance(step, Run) and makes_pages:
            answer = super()._send(step)
            for side in self._sides:
                if side.figures.pages is not None:
                    side.note_pages(side.figures.pages)
            return answer
        if isinstance(step, Bind) and is_compared:
            for side in self._sides:
                side.sessions[session].cache_bytes = cache_bytes(self.case, session)
        if isinstance(step, Run) and is_compared:
            if step is self._last and not excess(list(self._sides[0].sessions.values())):
                return self._limited(step)
            windows = self._open()
            answer = super()._send(step)
            for side, window in zip(self._sides, windows, strict=True):
                side.note_run(session, window)
            return answer
        return super()._send(step)

    def _limited(self, step: Run) -> Answer:
        """Run while the child cannot have more than the workspace."""
        record = self.evidence.steps[-1]
        within = f"within {WORKSPACE // _MIB} MiB"
        beyond = f"{title(record)}, with no more than {WORKSPACE // _MIB} MiB of memory to be had,"
        cause = "a run fails when it cannot have more memory than the workspace"
        self.figures.is_limited = True
        try:
            with self._meter.limited(WORKSPACE):
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
        for side in self._sides:
            side.figures.curve = []
        every = max(1, step.times // _SAMPLES)
        first = answer = self._run_once(step)
        for number in range(1, step.times):
            if number % every == 0:
                for side in self._sides:
                    side.figures.curve.append((number, side.gauge.resident()))
            answer = self._run_once(step)
            if answer.kind != first.kind:
                break
        return answer

    def _note(self, step: Run | Start, expected: OracleResult) -> None:
        """Count the bytes of the pages that a run had to make."""
        for figures in self.figures.parts():
            if figures.pages is not None and step.session == figures.pages.session:
                figures.pages.page_bytes += sum(page_bytes(expected.classes[root]) for root in self._bound(step).tables)

    # Judging

    def _judge(self) -> None:
        """Record what was measured.

        Raises:
            CaseEnded: it is too much.
        """
        self._sent = self._answered = ""  # the latest step has no part in it
        record = self.evidence.steps[-1]
        for side in self._sides:
            side.figures.sessions = list(side.sessions.values())
            derived = side.figures.derived()
            side.figures.slope, side.figures.per_run = derived["slope"], derived["per_run"]
        found = list(findings(self.figures))
        record.observations += [one.observation for one in found]
        wrong = next((one for one in found if one.reason), None)
        if wrong is not None:
            raise CaseEnded(Status.FAIL, wrong.reason, wrong.cause)

    @staticmethod
    def _observe(record: StepRecord, subject: str, expected: str, is_wrong: bool, found: str) -> bool:
        record.observations.append(Observation(Kind.MEMORY, subject, expected, found if is_wrong else expected))
        return is_wrong
