"""How much memory a process takes, seen from outside: its peak, and what of it is storage that it was lent. Linux only.

The kernel keeps the peak of a process's resident memory (``VmHWM``), and resets it on request. So no copy is missed,
however short its life: private or shared, anonymous or in a file, given back to the system or kept for later. Pages of
the lent files are known by their inode and left out, and by nothing else, since a copy may lie in shared memory too.
Counting only ``Private_*`` or ``Pss`` would miss such copies, and any that is gone when one looks.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: What is written to clear_refs to reset the peak.
_RESET_PEAK: Final = b"5"
#: Fields of a process's status that hold kilobytes.
_TOTAL, _PEAK, _SWAP, _DATA = "VmRSS", "VmHWM", "VmSwap", "VmData"


class Unmeasurable(Exception):  # noqa: N818 - it says what cannot be done
    """The memory of a process cannot be measured here."""


@dataclass(slots=True)
class Window:
    """A span of time in which memory is watched. By the number of each process:

    Attributes:
        resident: resident bytes when it began, those swapped out included.
        lent: bytes of lent files among them.
        peak: the most resident bytes since.
    """

    resident: Mapping[int, int]
    lent: Mapping[int, int]
    peak: dict[int, int] = field(default_factory=dict)


class Meter:
    """Measures a process and its descendants.

    Args:
        pid: the process.
        lent: descriptors of the files whose pages are not the process's own.

    Raises:
        Unmeasurable: not on this system, or not this process.
    """

    def __init__(self, pid: int, lent: Iterable[int] = ()) -> None:
        if sys.platform != "linux":
            raise Unmeasurable(f"memory is measured through Linux's /proc; this is {sys.platform}")
        self._pid = pid
        self._lent = {_identity(os.fstat(descriptor)) for descriptor in lent}
        self._windows: list[Window] = []
        try:
            self._reset()
            self._lent_bytes()
        except OSError as error:
            raise Unmeasurable(f"the memory of process {pid} cannot be measured: {error}") from error

    def open(self) -> Window:
        """Begin a window. Windows may lie within one another, or overlap."""
        self._note_peaks()
        self._reset()
        window = Window(self._resident(), self._lent_bytes())
        self._windows.append(window)
        return window

    def growth(self, window: Window) -> int:
        """Bytes by which the peak since the beginning of a window exceeds what was resident then.

        Pages of lent files that became resident do not count, those that became so and were unmapped since do. A
        process that appeared meanwhile counts whole; of one that ended nothing is known any more.
        """
        self._note_peaks()
        lent = self._lent_bytes()
        return sum(
            max(0, peak - window.resident.get(pid, 0) - max(0, lent.get(pid, 0) - window.lent.get(pid, 0)))
            for pid, peak in window.peak.items()
        )

    def resident(self) -> int:
        """Resident bytes now, lent ones and those swapped out included."""
        return sum(self._resident().values())

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

    def _note_peaks(self) -> None:
        """Keep the peaks of open windows, which a reset loses."""
        for pid, status in self._statuses().items():
            for window in self._windows:
                window.peak[pid] = max(window.peak.get(pid, 0), status[_PEAK])

    def _reset(self) -> None:
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                Path(f"/proc/{pid}/clear_refs").write_bytes(_RESET_PEAK)

    def _resident(self) -> dict[int, int]:
        return {pid: status[_TOTAL] + status.get(_SWAP, 0) for pid, status in self._statuses().items()}

    def _lent_bytes(self) -> dict[int, int]:
        """Bytes of lent files that are resident, or swapped out, by process."""
        return {pid: _bytes_of(pid, self._lent) for pid in self._processes()}

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


def slope(points: Iterable[tuple[float, float]]) -> float:
    """The slope of the line through points that has the least sum of squares; there are two different abscissas."""
    points = list(points)
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


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
    found, is_ours = 0, False
    try:
        with open(f"/proc/{pid}/smaps", "rb") as file:  # noqa: PTH123 - read line by line
            for line in file:
                name, *values = line.split(maxsplit=5)
                if not name.endswith(b":"):  # the head of a mapping: addresses, permissions, offset, device, inode
                    major, _, minor = values[2].partition(b":")
                    is_ours = (os.makedev(int(major, 16), int(minor, 16)), int(values[3])) in files
                elif is_ours and name in (b"Rss:", b"Swap:"):
                    found += int(values[0]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return found


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
