"""What the memory of a case must hold: an image of each file, kept up to date with what each step may write.

An image holds only chunks that are not all zeros, so that an image of many sparse gigabytes is small.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from mutcache_conformance.memory import Bytes, MemoryFile, Placement, row_major
from mutcache_conformance.overlay import Overlay

_CHUNK: Final = 1 << 16
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where memory is not what it must be.

    Attributes:
        offset: the first such byte of the file.
        count: how many there are.
        expected: what the first should be.
        found: what it is.
    """

    offset: int
    count: int
    expected: int
    found: int


class Image:
    """The bytes that a file must hold; made from those that it holds now."""

    def __init__(self, file: MemoryFile) -> None:
        self.file = file
        self._chunks: dict[int, Bytes] = {}
        for start, end in file.data_extents():
            self.write(start, file.bytes[start:end])

    def copy(self) -> Self:
        """What is expected now, to look at or to return to when other things are."""
        made = copy.copy(self)
        made._chunks = {number: chunk.copy() for number, chunk in self._chunks.items()}
        return made

    def write(self, offset: int, data: Bytes) -> None:
        """Expect ``data`` from byte ``offset`` on."""
        for number, first, piece in _pieces(offset, data):
            chunk = self._chunks.get(number)
            if chunk is None:
                if not piece.any():
                    continue
                chunk = self._chunks[number] = np.zeros(_CHUNK, np.uint8)
            chunk[first : first + len(piece)] = piece

    def read(self, start: int, end: int) -> Bytes:
        """The expected bytes of a range; zeros that nobody reads take no memory."""
        data = np.zeros(end - start, np.uint8)
        for number in self._numbers(start, end):
            low, high = max(start, number * _CHUNK), min(end, (number + 1) * _CHUNK)
            data[low - start : high - start] = self._chunks[number][low - number * _CHUNK : high - number * _CHUNK]
        return data

    def _numbers(self, start: int, end: int) -> Sequence[int]:
        """The chunks that hold data of a range."""
        first, last = start // _CHUNK, -(-end // _CHUNK)
        if last - first > len(self._chunks):
            return sorted(number for number in self._chunks if first <= number < last)
        return [number for number in range(first, last) if number in self._chunks]

    def elements(self, placement: Placement) -> Array:
        """The expected elements of a storage, as an array of its own."""
        data = self.read(placement.offset, placement.end)
        return placement.array_in(data, placement.offset)

    def write_elements(self, placement: Placement, elements: Array | Overlay) -> None:
        """Expect other elements of a storage; gaps between them stay. Only row-major storage takes an Overlay."""
        if isinstance(elements, Overlay):
            for at, element in elements.items():
                self.write(placement.offset + at, np.frombuffer(element, np.uint8))
            return
        if placement.strides == row_major(elements.shape, elements.itemsize):
            flat = np.ascontiguousarray(elements).reshape(-1)
            self.write(placement.offset, flat.view(np.uint8))
            return
        data = self.read(placement.offset, placement.end)
        placement.array_in(data, placement.offset)[...] = elements
        self.write(placement.offset, data)

    def digest(self, start: int, end: int) -> str:
        """A short digest of a range of the image; zeros count by their place alone."""
        digest = hashlib.sha256(f"{end - start}".encode())
        for number in self._numbers(start, end):
            low, high = max(start, number * _CHUNK), min(end, (number + 1) * _CHUNK)
            piece = self._chunks[number][low - number * _CHUNK : high - number * _CHUNK]
            if piece.any():
                digest.update(f"@{low - start}:".encode() + piece.tobytes())
        return digest.hexdigest()[:16]

    def difference(self) -> Difference | None:
        """How the file differs from its image; holes of a sparse file are zeros and are not touched."""
        first: Difference | None = None
        count = 0
        for start, end in self._ranges():
            for low in range(start, end, 1 << 24):
                high = min(end, low + (1 << 24))
                expected, found = self.read(low, high), self.file.bytes[low:high]
                if np.array_equal(expected, found):
                    continue
                places = np.flatnonzero(expected != found)
                count += len(places)
                if first is None:
                    at = int(places[0])
                    first = Difference(low + at, 0, int(expected[at]), int(found[at]))
        return None if first is None else Difference(first.offset, count, first.expected, first.found)

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """The ranges in which the file or its image hold data, in order and without overlap."""
        chunks = ((number * _CHUNK, min((number + 1) * _CHUNK, self.file.nbytes)) for number in self._chunks)
        end = 0
        for start, stop in sorted([*self.file.data_extents(), *chunks]):
            if stop > end:
                yield max(start, end), stop
                end = stop


def _pieces(offset: int, data: Bytes) -> Iterator[tuple[int, int, Bytes]]:
    """The parts of ``data`` by chunk: its number, the first byte in it, the bytes."""
    done = 0
    while done < len(data):
        number, first = divmod(offset + done, _CHUNK)
        piece = data[done : done + _CHUNK - first]
        yield number, first, piece
        done += len(piece)
