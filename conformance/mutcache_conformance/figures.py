"""The figures of memory of a case, and what they amount to. Pure: the figures of a report are judged by it, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

from mutcache_conformance.evidence import Basis, Kind, Observation
from mutcache_conformance.memory import PAGE
from mutcache_conformance.meter import slope

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
#: What pages may take, in their own bytes, beside the workspace: MC-MEM-003 and 004.
PAGES: Final = 1.25
#: Of the runs that are made again and again, the part that warms the process up.
WARM_UP: Final = 0.25


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
class PageFigures:
    """What a session took that makes pages, or changes their types.

    Attributes:
        session: its name.
        page_bytes: bytes of the pages that its runs made, and of those of changed types as they were and as they are.
        growth: bytes by which the peak grew from before its load to its last run.
    """

    session: str
    page_bytes: int = 0
    growth: int = 0

    @property
    def limit(self) -> int:
        """What it may take."""
        return int(PAGES * self.page_bytes) + WORKSPACE


@dataclass(slots=True)
class Figures:
    """All that was measured in a case.

    Attributes:
        sessions: the sessions that are compared, that with the smallest cache first.
        slope: bytes taken more per byte of cache more; None if no sessions are compared.
        is_limited: whether a run was made while the child could not have more than the workspace.
        curve: resident bytes after so many runs.
        per_run: bytes that each run left behind; None if none was made several times.
        pages: the session of which pages are measured, if one is.
        device: the same of the memory of the runtime's device, as it reports it; None if it has none.
    """

    sessions: list[SessionFigures] = field(default_factory=list)
    slope: float | None = None
    is_limited: bool = False
    curve: list[tuple[int, int]] = field(default_factory=list)
    per_run: float | None = None
    pages: PageFigures | None = None
    device: Figures | None = None

    def parts(self) -> tuple[Figures, ...]:
        """These figures, and those of the device."""
        return (self,) if self.device is None else (self, self.device)

    def to_json(self) -> dict[str, Any]:
        """The figures as they stand in report.json."""
        made = asdict(self) | {"curve": [list(point) for point in self.curve]}
        del made["device"]
        return made if self.device is None else {**made, "device": self.device.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The figures that ``to_json`` wrote."""
        return cls(
            **{
                **data,
                "sessions": [SessionFigures(**session) for session in data["sessions"]],
                "curve": [(runs, resident) for runs, resident in data["curve"]],
                "pages": None if data["pages"] is None else PageFigures(**data["pages"]),
                "device": cls.from_json(data["device"]) if "device" in data else None,
            }
        )

    def warm(self) -> list[tuple[int, int]]:
        """The curve without the runs that warm the process up."""
        return self.curve[int(len(self.curve) * WARM_UP) :]

    def derived(self) -> dict[str, float | None]:
        """The members that follow from the others: ``slope`` and ``per_run``."""
        grows = None
        if self.sessions:
            small, *_, large = self.sessions
            grows = (large.growth - small.growth) / (large.cache_bytes - small.cache_bytes)
        return {"slope": grows, "per_run": slope(self.warm()) if self.curve else None}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that figures are held against.

    Attributes:
        subject: what it is about.
        expected: what it must be.
        found: what it is; equal to ``expected`` exactly when it holds.
        reason: what is wrong, with the figures; "" when it holds.
        cause: the same without figures.
        basis: who measured it.
    """

    subject: str
    expected: str
    found: str
    reason: str = ""
    cause: str = ""
    basis: Basis = Basis.OBSERVED

    @property
    def observation(self) -> Observation:
        """What is recorded of it."""
        return Observation(Kind.MEMORY, self.subject, self.expected, self.found, self.basis)


def findings(figures: Figures) -> Iterator[Finding]:
    """What the figures, ``slope`` and ``per_run`` among them, amount to; those of the device after the others."""
    yield from _findings(figures)
    for one in () if figures.device is None else _findings(figures.device):
        yield replace(
            one,
            subject=f"{one.subject} (device)",
            reason=one.reason and f"on the device, as the runtime reports it: {one.reason}",
            cause=one.cause and f"{one.cause} (of the device)",
            basis=Basis.REPORTED,
        )


def _findings(figures: Figures) -> Iterator[Finding]:
    if figures.sessions and figures.slope is not None:
        yield _growth(figures.sessions, figures.slope)
        yield _workspace(figures.sessions)
    if figures.curve and figures.per_run is not None:
        yield _repetition(figures, figures.per_run)
    if figures.pages is not None:
        yield _pages(figures.pages)


def excess(sessions: Sequence[SessionFigures]) -> list[SessionFigures]:
    """The sessions of which a later run took more than the workspace."""
    return [one for one in sessions if one.later > WORKSPACE]


def _growth(sessions: Sequence[SessionFigures], grows: float) -> Finding:
    if grows <= SLOPE:
        return Finding("growth with the cache", "none", "none")
    words = f"memory grows with the cache, by more than {SLOPE:.0%} of what the cache does: it is copied"
    return Finding(
        "growth with the cache", "none", f"{grows:.0%}", f"{words}\n{_told(sessions)}", "memory grows with the cache"
    )


def _workspace(sessions: Sequence[SessionFigures]) -> Finding:
    within = f"within {WORKSPACE // _MIB} MiB"
    if not excess(sessions):
        return Finding("workspace of a run", within, within)
    words = f"a run takes more than the {WORKSPACE // _MIB} MiB that it may have as a workspace"
    return Finding(
        "workspace of a run",
        within,
        mib(max(one.later for one in sessions)),
        f"{words}\n{_told(sessions)}",
        "a run takes more memory than the workspace",
    )


def _repetition(figures: Figures, per_run: float) -> Finding:
    subject = "growth with the number of runs"
    if per_run < PER_RUN:
        return Finding(subject, "none", "none")
    words = f"memory grows with the number of runs, by more than {PER_RUN} bytes a run"
    (first, start), *_, (last, end) = figures.warm()
    told = f"{mib(start)} after {first} runs, {mib(end)} after {last}: {per_run:.0f} bytes a run"
    cause = "memory grows with the number of runs"
    return Finding(subject, "none", f"{per_run:.0f} bytes", f"{words}\n{told}", cause)


def _pages(pages: PageFigures) -> Finding:
    within = f"within {PAGES} times their bytes and {WORKSPACE // _MIB} MiB"
    if pages.growth <= pages.limit:
        return Finding("memory of pages", within, within)
    words = f"pages take more than {PAGES} times their bytes and a workspace of {WORKSPACE // _MIB} MiB"
    told = f"from load to the last run memory grew by {mib(pages.growth)}, for pages of {mib(pages.page_bytes)}"
    return Finding("memory of pages", within, mib(pages.growth), f"{words}\n{told}", "pages take too much memory")


def _told(sessions: Sequence[SessionFigures]) -> str:
    growth = " and by ".join(f"{mib(one.growth)} with a cache of {mib(one.cache_bytes)}" for one in sessions)
    later = " and by ".join(f"{mib(one.later)} with a cache of {mib(one.cache_bytes)}" for one in sessions)
    return f"from load to the last run memory grew by {growth}\nin the largest of the later runs by {later}"


def mib(nbytes: float) -> str:
    """A number of bytes in MiB."""
    return f"{nbytes / _MIB:.1f} MiB"
