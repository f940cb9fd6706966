"""Plays the script of a case while the memory of the child is measured, and judges what was measured.

What a session takes is measured from before it is loaded, so that a second cache is found wherever it is set up; what a
run takes, from when it is asked for until it is answered. The child is measured when its answer has come, before the
harness reads outputs through it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from mutcache_conformance.case import Bind, Case, Load, Measure, Request, Run
from mutcache_conformance.child import Answer, Child, ChildGone
from mutcache_conformance.evidence import Kind, Observation, StepRecord
from mutcache_conformance.memory import PAGE, Memory
from mutcache_conformance.meter import Meter, Unmeasurable, Window, slope
from mutcache_conformance.script import ScriptRun
from mutcache_conformance.status import CaseEnded, Status
from mutcache_conformance.wording import title

_MIB: Final = 1 << 20
#: What MC-MEM-001 lets a run take.
WORKSPACE: Final = 8 * _MIB
#: The part of the difference between two caches by which sessions may differ. A copy makes it 1, a copy of one of two
#: caches 0.5. What is no copy and yet grows are tables of pages or blocks, far below 0.01, and the steps in which
#: allocators and huge pages grow: two of 2 MiB are 0.04 of the 96 MiB by which the caches of the suite differ.
SLOPE: Final = 0.05
#: Bytes that a run may leave behind. The least that shows at once is a page; half of one tells it from none, and over
#: the 300 runs that the line is fitted to it makes 600 KiB, ten times what a sound process wavers by.
PER_RUN: Final = PAGE // 2
#: Of the runs that are made again and again, the part that warms the process up, and how often memory is looked at.
_WARM_UP: Final = 0.25
_SAMPLES: Final = 64


@dataclass(slots=True)
class SessionFigures:
    """What one session took.

    Attributes:
        session: its name.
        cache_bytes: bytes of the caches that it binds.
        growth: bytes by which the peak grew from before its load to its last run.
        runs: bytes by which the peak grew in each run.
    """

    session: str
    cache_bytes: int = 0
    growth: int = 0
    runs: list[int] = field(default_factory=list)

    @property
    def later(self) -> int:
        """What the largest of the runs took, but for the first, which may set things up."""
        return max(self.runs[1:], default=0)


@dataclass(slots=True)
class Figures:
    """All that was measured in a case.

    Attributes:
        sessions: the sessions that are compared.
        slope: bytes taken more per byte of cache more; None if no sessions are compared.
        is_limited: whether a run was made while the child could not have more than the workspace.
        curve: resident bytes after so many runs.
        per_run: bytes that each run left behind; None if none was made several times.
    """

    sessions: list[SessionFigures] = field(default_factory=list)
    slope: float | None = None
    is_limited: bool = False
    curve: list[tuple[int, int]] = field(default_factory=list)
    per_run: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The figures as they stand in report.json."""
        return {**asdict(self), "curve": [list(point) for point in self.curve]}


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
        figures = self._by_session.get(getattr(step, "session", ""))
        if figures is None:
            return super()._send(step)
        if isinstance(step, Load):
            self._windows[step.session] = self._meter.open()
        elif isinstance(step, Bind):
            figures.cache_bytes = sum(place.nbytes for place in self._places(step.mutable).values())
        elif isinstance(step, Run):
            if step is self._last and not self._excess():
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
        beyond = f"{title(record)}, with no more than {WORKSPACE // _MIB} MiB of memory to be had,"
        cause = "a run fails when it cannot have more memory than the workspace"
        self.figures.is_limited = True
        try:
            with meter.limited(WORKSPACE):
                answer = super()._send(step)
        except ChildGone as gone:
            record.answer = "crash"
            raise CaseEnded(Status.FAIL, f"{beyond} ended the process: {gone}", cause) from gone
        if not answer.succeeded:
            record.answer = answer.kind
            raise CaseEnded(Status.FAIL, f"{beyond} was answered with {answer}", cause)
        within = f"within {WORKSPACE // _MIB} MiB"
        record.observations.append(Observation(Kind.MEMORY, "a run that cannot have more", within, within))
        return answer

    def _run(self, step: Run) -> Answer:
        """Run as often as the step says, looking at memory meanwhile."""
        if step.times == 1:
            return super()._run(step)
        assert self._meter is not None
        feeds = self._places(step.feeds)
        curve = self.figures.curve = []
        every = max(1, step.times // _SAMPLES)
        first = answer = self._run_once(step, feeds)
        for number in range(1, step.times):
            if number % every == 0:
                curve.append((number, self._meter.resident()))
            answer = self._run_once(step, feeds)
            if answer.kind != first.kind:
                break
        return answer

    # Judging

    def _excess(self) -> list[SessionFigures]:
        """The sessions of which a later run took more than the workspace."""
        return [one for one in self._by_session.values() if one.later > WORKSPACE]

    def _judge(self) -> None:
        """Record what was measured.

        Raises:
            CaseEnded: it is too much.
        """
        self._sent = self._answered = ""  # the latest step has no part in it
        record = self.evidence.steps[-1]
        reasons = [*self._judge_sizes(record), *self._judge_repetition(record)]
        if reasons:
            reason, cause = reasons[0]
            raise CaseEnded(Status.FAIL, reason, cause)

    def _judge_sizes(self, record: StepRecord) -> list[tuple[str, str]]:
        sessions = self.figures.sessions = list(self._by_session.values())
        if not sessions:
            return []
        small, *_, large = sessions
        difference = large.cache_bytes - small.cache_bytes
        self.figures.slope = (large.growth - small.growth) / difference
        told = [f"{_mib(one.growth)} with a cache of {_mib(one.cache_bytes)}" for one in sessions]
        lines = [f"from load to the last run the process grew by {' and by '.join(told)}"]
        told = [f"{_mib(one.later)} with a cache of {_mib(one.cache_bytes)}" for one in sessions]
        lines += [f"in the largest of the later runs by {' and by '.join(told)}"]
        figures = "\n".join(lines)
        reasons = []
        grows = self.figures.slope
        if self._observe(record, "growth with the cache", "none", grows > SLOPE, f"{grows:.0%}"):
            words = f"memory grows with the cache, by more than {SLOPE:.0%} of what the cache does: it is copied"
            reasons.append((f"{words}\n{figures}", "memory grows with the cache"))
        most = max(one.later for one in sessions)
        within = f"within {WORKSPACE // _MIB} MiB"
        if self._observe(record, "workspace of a run", within, bool(self._excess()), _mib(most)):
            words = f"a run takes more than the {WORKSPACE // _MIB} MiB that it may have as a workspace"
            reasons.append((f"{words}\n{figures}", "a run takes more memory than the workspace"))
        return reasons

    def _judge_repetition(self, record: StepRecord) -> list[tuple[str, str]]:
        curve = self.figures.curve
        if not curve:
            return []
        warm = curve[int(len(curve) * _WARM_UP) :]
        per_run = self.figures.per_run = slope(warm)
        if self._observe(record, "growth with the number of runs", "none", per_run >= PER_RUN, f"{per_run:.0f} bytes"):
            words = f"memory grows with the number of runs, by more than {PER_RUN} bytes a run"
            (first, start), (last, end) = warm[0], warm[-1]
            figures = f"{_mib(start)} after {first} runs, {_mib(end)} after {last}: {per_run:.0f} bytes a run"
            return [(f"{words}\n{figures}", "memory grows with the number of runs")]
        return []

    @staticmethod
    def _observe(record: StepRecord, subject: str, expected: str, is_wrong: bool, found: str) -> bool:
        record.observations.append(Observation(Kind.MEMORY, subject, expected, found if is_wrong else expected))
        return is_wrong


def _mib(nbytes: float) -> str:
    return f"{nbytes / _MIB:.1f} MiB"
