"""Memory that the harness shares with the child: files, guard bytes, and where each storage of a case lies.

Every file is whole pages long and begins and ends with guard bytes, so that a storage has known bytes around it.
Storages that lie within one another share a file, and so have the addresses that their offsets say.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import math
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from mutcache_conformance.case import Storage
from mutcache_conformance.dtypes import dtype_of

PAGE: Final = 4096
#: Files larger than this are sparse: compared by their data extents, since reading a hole would allocate it.
SPARSE_BYTES: Final = 16 << 20
#: At least so many guard bytes follow the last storage of a file; a page precedes the first.
GUARD_BYTES: Final = 64
#: Bytes that no zero, no 0xFF and no short repetition imitates.
GUARD_PATTERN: Final = np.array([(181 * n + 89) % 251 + 2 for n in range(251)], np.uint8)
#: Linux 5.1; Python 3.11 has no name for it. No later mapping can be written, the harness's earlier one can.
_F_SEAL_FUTURE_WRITE: Final = 0x0010

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_numbers = itertools.count(1)


class HarnessError(Exception):
    """The harness could not do its part; it says nothing about the runtime."""


class MemoryFile:
    """Zeroed memory that can be passed as a descriptor and mapped by both sides.

    Args:
        nbytes: its size, a multiple of the page size.
        writable: False hands out a descriptor that cannot be mapped for writing, whatever the child's privileges.

    Raises:
        HarnessError: there is no memory for it.
    """

    def __init__(self, nbytes: int, *, writable: bool = True) -> None:
        if nbytes <= 0 or nbytes % PAGE:
            raise ValueError(f"a memory file of {nbytes} bytes is not whole pages")
        self.name = f"m{next(_numbers)}"
        self.nbytes = nbytes
        self.writable = writable
        self.is_sparse = nbytes > SPARSE_BYTES
        try:
            self._owned = _create(nbytes, reserve=not self.is_sparse)
        except OSError as error:
            raise HarnessError(f"no memory file of {nbytes} bytes: {os.strerror(error.errno or 0)}") from error
        try:
            self._map = mmap.mmap(self._owned, nbytes)
            self.bytes: Bytes = np.frombuffer(self._map, np.uint8)
            self.descriptor = self._seal()
        except OSError as error:
            os.close(self._owned)
            raise HarnessError(f"cannot map a memory file of {nbytes} bytes: {error}") from error

    def _seal(self) -> int:
        """The descriptor for the child. Sizes are fixed: a child that truncates the file cannot kill the harness."""
        seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
        if not self.writable:
            seals |= _F_SEAL_FUTURE_WRITE
        with contextlib.suppress(OSError):  # a file of a temporary folder knows no seals, an old kernel not this one
            fcntl.fcntl(self._owned, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_SEAL)
        if self.writable:
            return self._owned
        return os.open(f"/proc/self/fd/{self._owned}", os.O_RDONLY | os.O_CLOEXEC)

    def data_extents(self) -> Iterator[tuple[int, int]]:
        """The ranges ``[start, end)`` that hold data; the rest are holes, which read as zeros."""
        if not self.is_sparse:
            yield 0, self.nbytes
            return
        end = 0
        while end < self.nbytes:
            try:
                start = os.lseek(self._owned, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole is left
                    return
                raise
            end = os.lseek(self._owned, start, os.SEEK_HOLE)
            yield start, end

    def close(self) -> None:
        """Give up the harness's descriptors and mapping; the memory lives until the child gives up its own."""
        for descriptor in {self._owned, self.descriptor}:
            os.close(descriptor)
        del self.bytes
        with contextlib.suppress(BufferError):  # an array still looks at it: unmapped with that array
            self._map.close()


def _create(nbytes: int, *, reserve: bool) -> int:
    """A descriptor of anonymous memory: a memfd, or where there is none a nameless file of the temporary folder."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mutcache", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:  # which has no name that could be left behind
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, nbytes)
        if reserve:  # a shortage shows here, and not as SIGBUS when a page is touched
            os.posix_fallocate(descriptor, 0, nbytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A storage in memory.

    Attributes:
        storage: what it is.
        file: the file that it lies in.
        offset: its first byte in the file.
        nbytes: bytes from the first to the last element, gaps between them included.
        strides: bytes per step of each dimension.
        alignment: bytes; the offset is a multiple of it, but for a deliberate misalignment.
    """

    storage: Storage
    file: MemoryFile
    offset: int
    nbytes: int
    strides: tuple[int, ...]
    alignment: int

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.offset + self.nbytes

    def array_in(self, data: Bytes, start: int = 0) -> np.ndarray[Any, np.dtype[Any]]:
        """Its elements as a view of ``data``, which are the bytes of its file from byte ``start`` on."""
        dtype = dtype_of(self.storage.dtype)
        return np.ndarray(self.storage.shape, dtype, data, self.offset - start, self.strides)

    def element_at(self, byte: int) -> tuple[tuple[int, ...], int] | None:
        """Index of the element, and the byte in it, that byte ``byte`` of the range belongs to; None for a gap."""
        itemsize = dtype_of(self.storage.dtype).itemsize
        index = [0] * len(self.strides)
        rest = byte
        for axis in sorted(range(len(self.strides)), key=lambda axis: -self.strides[axis]):
            if self.strides[axis]:
                index[axis] = min(rest // self.strides[axis], self.storage.shape[axis] - 1)
                rest -= index[axis] * self.strides[axis]
        return (tuple(index), rest) if rest < itemsize else None


def row_major(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides, in bytes, of elements without gaps."""
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def extent_of(storage: Storage) -> tuple[int, tuple[int, ...]]:
    """Bytes from the first to the last element, and the strides."""
    try:
        itemsize = dtype_of(storage.dtype).itemsize
    except ValueError as error:
        raise HarnessError(f"storage {storage.name!r}: {error}") from None
    strides = storage.strides if storage.strides is not None else row_major(storage.shape, itemsize)
    if len(strides) != len(storage.shape) or min(strides, default=0) < 0:
        raise HarnessError(f"storage {storage.name!r}: strides {strides} do not suit shape {storage.shape}")
    if 0 in storage.shape:
        return 0, strides
    return sum((size - 1) * stride for size, stride in zip(storage.shape, strides, strict=True)) + itemsize, strides


@dataclass(slots=True)
class _Group:
    """A storage with memory of its own, and what lies in that.

    Attributes:
        root: the storage.
        members: it and the others, with how many bytes after its start they begin.
        start: where it starts in the file.
    """

    root: Storage
    members: list[tuple[Storage, int]] = field(default_factory=list)
    start: int = 0

    @property
    def first(self) -> int:
        """Where the first of the members begins, relative to the root's start."""
        return min(offset for _, offset in self.members)

    def range_from(self, position: int, least: int) -> tuple[int, int]:
        """Start and end, if no byte of it may lie before ``position``; ``least`` is the least alignment."""
        alignment = max(self.root.alignment, least)
        # An odd multiple: a runtime that needs more than it says does not get it by luck.
        start = -(-(position - self.first) // alignment) * alignment
        if start % (2 * alignment) == 0 and alignment < PAGE:
            start += alignment
        start += self.root.misalignment
        return start, start + max(offset + extent_of(storage)[0] for storage, offset in self.members)


class Memory:
    """The storages of one case in memory, filled and sealed. A context manager that gives the memory back.

    Args:
        storages: all storages, in any order.
        alignment: what the runtime asks for; storages that ask for less get this much.
        together: names of storages that share one file, with guard bytes between them; the others have one each.

    Raises:
        HarnessError: there is no memory, or the storages contradict one another.
    """

    def __init__(
        self, storages: Sequence[Storage], *, alignment: int = 1, together: Iterable[Sequence[str]] = ()
    ) -> None:
        self.files: list[MemoryFile] = []
        self.placements: dict[str, Placement] = {}
        self._alignment = alignment
        self._by_name = {storage.name: storage for storage in storages}
        groups: dict[str, _Group] = {}
        for storage in storages:
            root, offset = self._root_of(storage)
            groups.setdefault(root, _Group(self._by_name[root])).members.append((storage, offset))
        file_of = {name: number for number, names in enumerate(together) for name in names}
        files: dict[str | int, list[_Group]] = {}
        for root, group in groups.items():
            files.setdefault(file_of.get(root, root), []).append(group)
        try:
            for sharing in files.values():
                self._place(sharing)
        except BaseException:
            self.close()
            raise

    def add(self, storages: Sequence[Storage]) -> MemoryFile:
        """Place further storages, with memory of their own each, in one file.

        Raises:
            HarnessError: there is no memory for them.
        """
        self._by_name |= {storage.name: storage for storage in storages}
        self._place([_Group(storage, [(storage, 0)]) for storage in storages])
        return self.files[-1]

    def _root_of(self, storage: Storage) -> tuple[str, int]:
        """The storage with memory of its own that it lies in, and how many bytes after that one's start."""
        offset, seen = 0, {storage.name}
        while storage.within:
            offset += storage.offset + storage.misalignment
            if storage.within not in self._by_name or storage.within in seen:
                raise HarnessError(f"storage {storage.name!r} lies within {storage.within!r}, which is no other one")
            storage = self._by_name[storage.within]
            seen.add(storage.name)
        return storage.name, offset

    def _place(self, groups: Sequence[_Group]) -> None:
        """Make the file of some groups, one after the other in it."""
        position = PAGE
        ranges = []
        for group in groups:
            group.start, end = group.range_from(position, self._alignment)
            ranges.append((group.start + group.first, end))
            position = end + GUARD_BYTES
        nbytes = -(-position // PAGE) * PAGE
        members = [(group, storage, offset) for group in groups for storage, offset in group.members]
        file = MemoryFile(nbytes, writable=any(storage.writable for _, storage, _ in members))
        self.files.append(file)
        if file.is_sparse:
            ends = [0, *(end for _, end in ranges)]
            starts = [*(start for start, _ in ranges), nbytes]
            for end, start in zip(ends, starts, strict=True):
                _guard(file.bytes, end, start)
        else:
            _guard(file.bytes, 0, nbytes)
        # The memory of a root first, then what lies in it.
        for group, storage, offset in sorted(members, key=lambda member: member[1] is not member[0].root):
            span, strides = extent_of(storage)
            alignment = max(storage.alignment, self._alignment)
            placement = Placement(storage, file, group.start + offset, span, strides, alignment)
            self.placements[storage.name] = placement
            self._fill(placement)

    def _fill(self, placement: Placement) -> None:
        storage, file = placement.storage, placement.file
        if storage.content is None and file.is_sparse:
            return
        # Bytes, whatever they mean: not every type has a zero.
        dtype = np.dtype(f"V{dtype_of(storage.dtype).itemsize}")
        nbytes = math.prod(storage.shape) * dtype.itemsize
        content = bytes(nbytes) if storage.content is None else storage.content
        if len(content) != nbytes:
            raise HarnessError(f"storage {storage.name!r} of shape {storage.shape}: {len(content)} bytes given")
        target = np.ndarray(storage.shape, dtype, file.bytes, placement.offset, placement.strides)
        target[...] = np.frombuffer(content, dtype).reshape(storage.shape)

    def close(self) -> None:
        """Give the memory back."""
        self.placements.clear()
        for file in self.files:
            file.close()
        self.files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _guard(data: Bytes, start: int, end: int) -> None:
    data[start:end] = np.resize(GUARD_PATTERN, end - start)
