"""Measured memory: processes that take a known amount in every way there is, and one that takes none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from mutcache_conformance.adapter import DeviceMemory
from mutcache_conformance.memory import MemoryFile
from mutcache_conformance.meter import DeviceMeter, Meter, Unmeasurable, slope

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured through Linux's /proc")

MIB = 1 << 20
TAKEN = 32 * MIB
#: What a process that does next to nothing may take.
NOISE = MIB
#: Executes lines of Python, and answers each with "ok" or the name of the exception.
PROGRAM = """
import mmap, os, sys
for line in sys.stdin:
    try:
        exec(line)
    except Exception as error:
        print(type(error).__name__, flush=True)
    else:
        print("ok", flush=True)
"""
PRELUDE = """
taken, page = {taken}, mmap.PAGESIZE
def touch(pages): pages[::page] = bytes(len(pages) // page)
lent = mmap.mmap({descriptor}, taken)
""".strip().splitlines()


class Process:
    """A Python process that does what it is told. ``lent`` is a file that it has mapped."""

    def __init__(self) -> None:
        self.lent = MemoryFile(TAKEN)
        self.popen = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[self.lent.descriptor],
        )
        for line in PRELUDE:
            assert self.do(line.format(taken=TAKEN, descriptor=self.lent.descriptor)) == "ok"
        self.meter = Meter(self.popen.pid, [self.lent.descriptor])

    def do(self, line: str) -> str:
        """Execute a line, and return what became of it."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        print(line, file=self.popen.stdin, flush=True)
        return self.popen.stdout.readline().strip()

    def growth(self, line: str) -> int:
        """Bytes by which the peak grows while a line is executed."""
        window = self.meter.open()
        assert self.do(line) == "ok"
        [growth] = self.meter.growth(window)
        return growth


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    made.popen.communicate()
    made.lent.close()


@pytest.mark.parametrize("line", ["pass", "lent[0] = 1", "touch(lent)", "bytes(lent[:page])"])
def test_a_process_that_takes_nothing(process: Process, line: str) -> None:
    assert process.growth(line) <= NOISE


def test_lent_pages_that_were_unmapped_before_anybody_looked_count(process: Process) -> None:
    assert process.growth("touch(lent); lent.close()") >= TAKEN - NOISE


NEW = "mmap.mmap(-1, taken)"
PRIVATE = "mmap.mmap(-1, taken, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)"
FILE = "fd = os.memfd_create('copy'); os.ftruncate(fd, taken); pages = mmap.mmap(fd, taken); os.close(fd)"


@pytest.mark.parametrize(
    "line",
    [
        "kept = bytearray(taken)",
        "kept = bytearray(taken); del kept",
        f"pages = {PRIVATE}; touch(pages)",
        f"pages = {PRIVATE}; touch(pages); pages.close()",
        f"pages = {PRIVATE}; touch(pages); pages.madvise(mmap.MADV_DONTNEED)",
        f"pages = {NEW}; touch(pages)",
        f"pages = {NEW}; touch(pages); pages.close()",
        f"{FILE}; touch(pages)",
        f"{FILE}; touch(pages); pages.close()",
        f"touch(lent); {FILE}; touch(pages); pages.close()",
        f"touch(lent); {FILE}; touch(pages)",
    ],
)
def test_what_is_taken_is_seen_whatever_becomes_of_it(process: Process, line: str) -> None:
    assert TAKEN - NOISE <= process.growth(line) <= TAKEN + NOISE


def test_what_is_taken_twice_at_once_counts_twice(process: Process) -> None:
    assert process.growth("kept = [bytearray(taken) for _ in range(2)]") >= 2 * TAKEN - NOISE
    assert process.growth("del kept") <= NOISE


def test_what_is_taken_twice_in_turn_counts_once(process: Process) -> None:
    assert process.growth("for _ in range(3): bytearray(taken)") <= TAKEN + NOISE


def test_a_window_knows_only_its_own_time(process: Process) -> None:
    outer = process.meter.open()
    assert process.growth("kept = bytearray(taken)") >= TAKEN - NOISE
    assert process.growth("pass") <= NOISE
    assert process.growth("other = bytearray(taken); del other") >= TAKEN - NOISE
    assert process.growth("del kept") <= NOISE
    [growth] = process.meter.growth(outer)
    assert 2 * TAKEN - NOISE <= growth <= 2 * TAKEN + NOISE


def test_descendants_count(process: Process) -> None:
    line = (
        "import subprocess; child = subprocess.Popen([sys.executable, '-c', "
        "f'kept = bytearray({taken}); print(flush=True); input()'], stdin=-1, stdout=-1); child.stdout.readline()"
    )
    assert process.growth(line) >= TAKEN
    assert process.growth("pass") <= NOISE
    assert process.do("child.communicate()") == "ok"
    assert process.growth("pass") <= NOISE


def test_a_process_that_cannot_have_more(process: Process) -> None:
    ask = f"pages = {PRIVATE}"
    with process.meter.limited(TAKEN // 4):
        assert process.do("small = bytearray(taken // 8)") == "ok"
        assert process.do(ask) in ("OSError", "MemoryError")
        assert process.do("large = bytearray(taken)") == "MemoryError"
    assert process.do(ask) == "ok"
    with process.meter.limited(2 * TAKEN):
        assert process.do("large = bytearray(taken)") == "ok"


def test_resident_memory_follows_what_is_kept(process: Process) -> None:
    before = process.meter.resident()
    process.do("kept = bytearray(taken)")
    assert abs(process.meter.resident() - before - TAKEN) <= NOISE
    process.do("del kept")
    assert abs(process.meter.resident() - before) <= NOISE


def test_a_process_that_has_ended_cannot_be_measured() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(Unmeasurable, match=f"process {ended.pid} cannot be measured"):
        Meter(ended.pid)


def test_another_system_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Unmeasurable, match="this is darwin"):
        Meter(1)


class Device:
    """A device whose memory is counted by who allocates it."""

    def __init__(self, allocated: int) -> None:
        self.allocated = self.peak = allocated

    def allocate(self, nbytes: int) -> None:
        self.allocated += nbytes
        self.peak = max(self.peak, self.allocated)

    def tell(self, reset: bool) -> DeviceMemory:
        told = DeviceMemory(self.allocated, self.peak)
        self.peak = self.allocated if reset else self.peak
        return told


def test_memory_of_a_device_is_watched_as_that_of_a_process_is() -> None:
    device = Device(100)
    meter = DeviceMeter(device.tell)
    device.allocate(1000)
    device.allocate(-1000)  # before any window
    whole = meter.open()
    device.allocate(30)
    first = meter.open()
    device.allocate(8)
    device.allocate(-8)
    assert meter.growth(first, whole) == [8, 38]
    second = meter.open()  # which counts the peak anew
    device.allocate(-10)
    assert meter.growth(second, first, whole) == [0, 8, 38]
    device.allocate(15)
    assert meter.growth(second, first, whole) == [5, 8, 38]
    assert meter.resident() == 135


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(0, 5), (1, 5), (2, 5)], 0),
        ([(10, 1), (20, 21)], 2),
        ([(0, 0), (1, 3), (2, 3), (3, 6)], 1.8),
        ([(0, 1), (1, 0)], -1),
    ],
)
def test_the_slope_of_points(points: list[tuple[float, float]], expected: float) -> None:
    assert slope(points) == pytest.approx(expected)
