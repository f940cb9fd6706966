"""Images of memory: every byte that differs is found, and nothing else is."""

from __future__ import annotations

import os

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from mutcache_conformance.case import Storage
from mutcache_conformance.image import Image
from mutcache_conformance.memory import Memory, MemoryFile

INT8, INT16 = 3, 5
PAGES = 40  # more than two chunks of an image


@settings(max_examples=60, deadline=None)
@given(changes=st.dictionaries(st.integers(0, PAGES * 4096 - 1), st.integers(1, 255), max_size=5))
def test_the_first_difference_and_their_number(changes: dict[int, int]) -> None:
    file = MemoryFile(PAGES * 4096)
    try:
        file.bytes[:] = np.resize(np.arange(7, dtype=np.uint8), file.nbytes)  # zeros among the bytes
        image = Image(file)
        assert image.difference() is None
        for place, change in changes.items():
            file.bytes[place] ^= change
        difference = image.difference()
        if not changes:
            assert difference is None
        else:
            first = min(changes)
            assert difference is not None
            assert (difference.offset, difference.count) == (first, len(changes))
            assert difference.expected == first % 7
            assert difference.found == difference.expected ^ changes[first]
    finally:
        file.close()


@settings(max_examples=60, deadline=None)
@given(start=st.integers(0, 3 * 65536), length=st.integers(0, 70_000), data=st.data())
def test_what_is_written_is_what_is_read(start: int, length: int, data: st.DataObject) -> None:
    file = MemoryFile(PAGES * 8192)
    try:
        image = Image(file)
        written = np.frombuffer(data.draw(st.binary(min_size=1, max_size=9)), np.uint8)
        written = np.resize(written, min(length, file.nbytes - start))
        image.write(start, written)
        mirror = np.zeros(file.nbytes, np.uint8)
        mirror[start : start + len(written)] = written
        assert np.array_equal(image.read(0, file.nbytes), mirror)
        assert np.array_equal(image.read(start // 2, start + 10), mirror[start // 2 : start + 10])
        file.bytes[:] = mirror
        assert image.difference() is None
        assert Image(file).digest(0, file.nbytes) == image.digest(0, file.nbytes)
    finally:
        file.close()


def test_a_digest_speaks_of_its_range_only() -> None:
    file = MemoryFile(PAGES * 4096)
    try:
        image = Image(file)
        empty = image.digest(0, 100)
        file.bytes[100] = 1
        assert Image(file).digest(0, 100) == empty
        assert Image(file).digest(0, 101) != empty
        file.bytes[100], file.bytes[5] = 0, 1
        one = Image(file).digest(0, 100)
        file.bytes[5], file.bytes[6] = 0, 1
        assert len({empty, one, Image(file).digest(0, 100)}) == 3
    finally:
        file.close()


def test_elements_of_strided_storage() -> None:
    storage = Storage("x", INT16, (2, 3), np.arange(6, dtype=np.int16).tobytes(), strides=(2, 6))
    with Memory([storage]) as memory:
        place = memory.placements["x"]
        image = Image(place.file)
        assert image.elements(place).tolist() == [[0, 1, 2], [3, 4, 5]]
        image.write_elements(place, np.full((2, 3), 9, np.int16))
        difference = image.difference()
        assert difference is not None
        # Six elements of two bytes, of which the high ones are zero and stay so; the gaps are as they were.
        assert (difference.offset, difference.count) == (place.offset, 6)
        place.array_in(place.file.bytes)[...] = 9
        assert image.difference() is None


@pytest.mark.parametrize("at", [0, 1 << 31, (3 << 30) - 1])
def test_a_sparse_file_is_compared_without_being_filled(at: int) -> None:
    with Memory([Storage("x", INT8, (3 << 30,))]) as memory:
        place = memory.placements["x"]
        image = Image(place.file)
        assert image.difference() is None
        place.file.bytes[place.offset + at] = 5
        difference = image.difference()
        assert difference is not None
        assert (difference.offset, difference.count, difference.found) == (place.offset + at, 1, 5)
        image.write(place.offset + at, np.array([5], np.uint8))
        assert image.difference() is None
        image.write(place.offset + 77, np.array([1], np.uint8))
        missing = image.difference()
        assert missing is not None
        assert (missing.offset, missing.expected, missing.found) == (place.offset + 77, 1, 0)
        assert os.fstat(place.file.descriptor).st_blocks * 512 < 1 << 20
