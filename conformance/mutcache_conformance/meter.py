"""How much memory a process takes, seen from outside: its peak, and what of it is storage that it was lent. Linux only.

What a runtime takes of a device's memory cannot be seen so; there is only what the runtime reports.

The kernel keeps the peak of a process's resident memory (``VmHWM``), and resets it on request. So no copy is missed,
however short its life: private or shared, anonymous or in a file, given back to the system or kept for later. Pages of
the lent files are known by their inode and left out, and by nothing else, since a copy may lie in shared memory too.
Counting only ``Private_*`` or ``Pss`` would miss such copies, and any that is gone when one looks.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mutcache_conformance.adapter import DeviceMemory

#: Fields of a process's status that hold kilobytes.
_TOTAL, _PEAK, _SWAP, _DATA = "VmRSS", "VmHWM", "VmSwap", "VmData"
#: A mapping of a file in smaps: addresses, permissions, offset, device, inode, name; and below it its fields.
_MAPPING: Final = re.compile(rb"^\S+ \S+ \S+ (\w+):(\w+) ([1-9]\d*) .*\n((?:\w+:.*\n)+)", re.MULTILINE)
_PAGES: Final = re.compile(rb"^(?:Rss|Swap): +(\d+) kB", re.MULTILINE)


class Unmeasurable(Exception):  # noqa: N818 - it says what cannot be done
    """The memory of a process cannot be measured here."""


@dataclass(slots=True)
class Window:
    """A span of time in which memory is watched.

    Attributes:
        resident: resident bytes when it began, those swapped out included, by the number of each process.
        lent: bytes of lent files among them.
        peak: the most resident bytes since.
    """

    resident: Mapping[int, int]
    lent: Mapping[int, int]
    peak: dict[int, int] = field(default_factory=dict)


class Gauge(ABC):
    """Watches memory of several holders, each with a number, in windows of time."""

    def __init__(self) -> None:
        self._windows: list[Window] = []

    def open(self) -> Window:
        """Begin a window. Windows may lie within one another, or overlap."""
        statuses = self._note_peaks()
        self._reset_peaks(statuses)
        window = Window(_resident(statuses), self._lent_bytes(statuses))
        self._windows.append(window)
        return window

    def growth(self, *windows: Window) -> list[int]:
        """Bytes by which the peak since the beginning of each window exceeds what was resident then.

        Pages of lent files that became resident do not count, those that became so and were unmapped since do. A
        process that appeared meanwhile counts whole; of one that ended only what was seen of it.
        """
        lent = self._lent_bytes(self._note_peaks())
        return [
            sum(
                max(0, peak - window.resident.get(pid, 0) - max(0, lent.get(pid, 0) - window.lent.get(pid, 0)))
                for pid, peak in window.peak.items()
            )
            for window in windows
        ]

    def resident(self) -> int:
        """Resident bytes now, lent ones and those swapped out included."""
        return sum(_resident(self._statuses()).values())

    def _note_peaks(self) -> dict[int, dict[str, int]]:
        """Keep the peaks of open windows, which a reset loses; returns the statuses."""
        statuses = self._statuses()
        for window in self._windows:
            for pid, status in statuses.items():
                window.peak[pid] = max(window.peak.get(pid, 0), status[_PEAK])
        return statuses

    @abstractmethod
    def _statuses(self) -> dict[int, dict[str, int]]:
        """What each holder says of its memory."""

    @abstractmethod
    def _reset_peaks(self, pids: Iterable[int]) -> None:
        """Count peaks anew from here on."""

    @abstractmethod
    def _lent_bytes(self, pids: Iterable[int]) -> dict[int, int]:
        """Bytes of lent storage among what is resident, or swapped out, by holder."""


class Meter(Gauge):
    """Measures a process and its descendants.

    Args:
        pid: the process.
        lent: descriptors of the files whose pages are not the process's own.

    Raises:
        Unmeasurable: not on this system, or not this process.
    """

    def __init__(self, pid: int, lent: Iterable[int] = ()) -> None:
        super().__init__()
        if sys.platform != "linux":
            raise Unmeasurable(f"memory is measured through Linux's /proc; this is {sys.platform}")
        self._pid = pid
        self._lent = {_identity(os.fstat(descriptor)) for descriptor in lent}
        try:
            _reset_peak(pid)
            _bytes_of(pid, self._lent)
        except OSError as error:
            raise Unmeasurable(f"the memory of process {pid} cannot be measured: {error}") from error
        if not _status(pid):
            raise Unmeasurable(f"the memory of process {pid} cannot be measured: it has ended")

    @contextlib.contextmanager
    def limited(self, nbytes: int) -> Iterator[None]:
        """Let no process have more than ``nbytes`` of private writable memory beyond what it has now.

        What counts is address space, touched or not: the limit is the kernel's RLIMIT_DATA.
        """
        before: dict[int, tuple[int, int]] = {}
        try:
            for pid, status in self._statuses().items():
                soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
                limit = status[_DATA] + nbytes
                if resource.RLIM_INFINITY in (soft, hard) or limit < soft:
                    resource.prlimit(pid, resource.RLIMIT_DATA, (limit, hard))
                    before[pid] = soft, hard
            yield
        finally:
            for pid, limits in before.items():
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_DATA, limits)

    def _reset_peaks(self, pids: Iterable[int]) -> None:
        for pid in pids:
            _reset_peak(pid)

    def _lent_bytes(self, pids: Iterable[int]) -> dict[int, int]:
        return {pid: _bytes_of(pid, self._lent) for pid in pids}

    def _statuses(self) -> dict[int, dict[str, int]]:
        statuses = {pid: _status(pid) for pid in self._processes()}
        return {pid: status for pid, status in statuses.items() if status}

    def _processes(self) -> list[int]:
        """The process and its descendants."""
        children: dict[int, list[int]] = {}
        for entry in os.scandir("/proc"):
            with contextlib.suppress(OSError):
                if entry.name.isdigit():
                    parent = int(Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[1])
                    children.setdefault(parent, []).append(int(entry.name))
        found = [self._pid]
        for pid in found:  # grows while it is walked
            found += children.get(pid, [])
        return found


class DeviceMeter(Gauge):
    """Measures what a runtime holds of a device's memory, by its own account; what it was lent is no part of that.

    Args:
        ask: asks the runtime; True counts the peak anew, after the one until then was told.
    """

    def __init__(self, ask: Callable[[bool], DeviceMemory]) -> None:
        super().__init__()
        self._ask = ask

    def _statuses(self) -> dict[int, dict[str, int]]:
        held = self._ask(False)
        return {0: {_TOTAL: held.allocated, _PEAK: held.peak}}

    def _reset_peaks(self, pids: Iterable[int]) -> None:  # noqa: ARG002 - there is one holder
        self._ask(True)

    def _lent_bytes(self, pids: Iterable[int]) -> dict[int, int]:  # noqa: ARG002 - nothing that is told is lent
        return {}


def slope(points: Iterable[tuple[float, float]]) -> float:
    """The slope of the line through points that has the least sum of squares; there are two different abscissas."""
    points = list(points)
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def _reset_peak(pid: int) -> None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        Path(f"/proc/{pid}/clear_refs").write_bytes(b"5")


def _resident(statuses: Mapping[int, Mapping[str, int]]) -> dict[int, int]:
    return {pid: status[_TOTAL] + status.get(_SWAP, 0) for pid, status in statuses.items()}


def _status(pid: int) -> dict[str, int]:
    """What a process's status says in kilobytes, as bytes; nothing if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    pairs = (line.partition(":")[::2] for line in lines if line.endswith(" kB"))
    status = {name: int(value.split()[0]) * 1024 for name, value in pairs}
    return status if _TOTAL in status else {}  # a zombie has none


def _bytes_of(pid: int, files: set[tuple[int, int]]) -> int:
    """Bytes of some files that are resident in a process, or swapped out of it."""
    try:
        mappings = _MAPPING.finditer(Path(f"/proc/{pid}/smaps").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = 0
    for major, minor, inode, fields in (mapping.groups() for mapping in mappings):
        if (os.makedev(int(major, 16), int(minor, 16)), int(inode)) in files:
            found += sum(int(kilobytes) * 1024 for kilobytes in _PAGES.findall(fields))
    return found


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
