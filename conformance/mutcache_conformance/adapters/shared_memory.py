"""The memory that the harness shares with this process, as it is mapped here. Linux only."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

#: Larger mappings may be of sparse files, of which to read a hole is to allocate it.
SPARSE_BYTES: Final = 16 << 20

_MAPS: Final = Path("/proc/self/maps")
_SWAPS: Final = Path("/proc/swaps")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


@dataclass(frozen=True, slots=True)
class SharedMapping:
    """A shared mapping of a file, which no other one touches.

    Attributes:
        start: its first address, that of a memory page.
        stop: the address behind its last byte.
        writable: whether the process may write to it.
    """

    start: int
    stop: int
    writable: bool

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.stop - self.start

    def holds(self, address: int, nbytes: int) -> bool:
        """Whether a range lies in it, be it empty and at its end."""
        return self.start <= address and address + nbytes <= self.stop

    def data(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of a range of it that may hold anything but zeros, in order; the rest are holes of a file."""
        if self.nbytes <= SPARSE_BYTES or _can_swap():  # a page that was swapped out looks like a hole
            if start < stop:
                yield start, stop
            return
        first = start - start % mmap.PAGESIZE
        pages = -(-(stop - first) // mmap.PAGESIZE)
        resident = np.empty(pages, np.uint8)
        if _LIBC.mincore(first, pages * mmap.PAGESIZE, resident.ctypes.data):
            code = ctypes.get_errno()
            raise OSError(code, f"mincore: {os.strerror(code)}")
        page = 0
        for is_data, run in groupby((resident & 1).tolist()):
            begin, page = page, page + sum(1 for _ in run)
            if is_data:
                yield max(start, first + begin * mmap.PAGESIZE), min(stop, first + page * mmap.PAGESIZE)


def bytes_at(start: int, stop: int) -> Bytes:
    """The bytes of the process between two addresses, not copied."""
    return np.ctypeslib.as_array((ctypes.c_ubyte * (stop - start)).from_address(start))


def shared_mappings() -> list[SharedMapping]:
    """The shared mappings of files, in the order of their addresses."""
    found = []
    with _MAPS.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            bounds, permissions, _, _, inode = line.split(" ", 5)[:5]
            if permissions[3] == "s" and inode.strip() != "0":
                start, stop = (int(bound, 16) for bound in bounds.split("-"))
                found.append(SharedMapping(start, stop, "w" in permissions))
    return found


def _can_swap() -> bool:
    """Whether memory may be swapped out."""
    return not _SWAPS.exists() or len(_SWAPS.read_text(encoding="ascii").splitlines()) > 1
