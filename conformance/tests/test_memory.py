"""Memory that is shared with the child: where storages lie, what surrounds them, and what cannot be done to them."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutcache_conformance.case import Storage
from mutcache_conformance.memory import GUARD_PATTERN, PAGE, HarnessError, Memory, MemoryFile

FLOAT, INT8, E8M0, STRING = 1, 3, 24, 8


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def content(*shape: int) -> bytes:
    return np.arange(np.prod(shape), dtype=np.float32).tobytes()


@pytest.mark.parametrize("alignment", [1, 2, 64, 256, 4096])
@pytest.mark.parametrize("least", [1, 128])
def test_a_storage_has_its_alignment_and_no_more(alignment: int, least: int) -> None:
    with Memory([Storage("x", FLOAT, (3,), content(3), alignment=alignment)], alignment=least) as memory:
        place = memory.placements["x"]
        wanted = max(alignment, least)
        assert place.offset % wanted == 0
        assert wanted == PAGE or place.offset % (2 * wanted)
        assert place.offset >= PAGE
        assert place.file.nbytes - place.end >= 64
        assert place.alignment == wanted


def test_misalignment_is_kept() -> None:
    with Memory([Storage("x", FLOAT, (3,), content(3), misalignment=1)]) as memory:
        place = memory.placements["x"]
        assert place.offset % 64 == 1
        assert place.array_in(place.file.bytes).tolist() == [0, 1, 2]


def test_all_around_a_storage_lies_the_guard_pattern() -> None:
    with Memory([Storage("x", FLOAT, (5,), bytes(20))]) as memory:
        place = memory.placements["x"]
        around = np.delete(place.file.bytes, np.arange(place.offset, place.end))
        assert (around >= 2).all()  # neither zeros nor ones
        assert len(np.unique(around)) == len(GUARD_PATTERN)


def test_strided_storage_has_guard_bytes_in_its_gaps() -> None:
    with Memory([Storage("x", INT8, (2, 2), b"\1\2\3\4", strides=(8, 2))]) as memory:
        place = memory.placements["x"]
        assert place.nbytes == 8 + 2 + 1
        bytes_of_range = place.file.bytes[place.offset : place.end]
        assert bytes_of_range[[0, 2, 8, 10]].tolist() == [1, 2, 3, 4]
        assert place.element_at(8) == ((1, 0), 0)
        assert place.element_at(10) == ((1, 1), 0)
        assert [place.element_at(byte) for byte in (1, 3, 7, 9)] == [None] * 4


def test_column_major_storage() -> None:
    with Memory([Storage("x", FLOAT, (2, 3), content(2, 3), strides=(4, 8))]) as memory:
        place = memory.placements["x"]
        assert place.file.bytes[place.offset : place.end].view(np.float32).tolist() == [0, 3, 1, 4, 2, 5]
        assert place.element_at(13) == ((1, 1), 1)


def test_storages_within_one_another_share_memory() -> None:
    outer = Storage("outer", FLOAT, (4,), content(4))
    inner = Storage("inner", FLOAT, (2,), np.array([7, 8], np.float32).tobytes(), within="outer", offset=8)
    before = Storage("before", FLOAT, (2,), np.array([5, 6], np.float32).tobytes(), within="inner", offset=-12)
    with Memory([before, inner, outer]) as memory:
        places = memory.placements
        assert len(memory.files) == 1
        assert places["inner"].offset == places["outer"].offset + 8
        assert places["before"].offset == places["outer"].offset - 4
        assert places["outer"].array_in(places["outer"].file.bytes).tolist() == [6, 1, 7, 8]


def test_storage_without_content_is_zero_bytes_whatever_its_type() -> None:
    with Memory([Storage("x", E8M0, (3,))]) as memory:
        place = memory.placements["x"]
        assert place.file.bytes[place.offset : place.end].tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_empty_storage(shape: tuple[int, ...]) -> None:
    with Memory([Storage("x", FLOAT, shape, b"")]) as memory:
        assert memory.placements["x"].nbytes == 0


def test_read_only_memory_cannot_be_written_by_the_child_but_by_the_harness() -> None:
    with Memory([Storage("x", FLOAT, (2,), content(2), writable=False)]) as memory:
        file = memory.placements["x"].file
        # The child may be root, whom permissions would not stop.
        reopened = os.open(f"/proc/self/fd/{file.descriptor}", os.O_RDWR)
        for descriptor in (file.descriptor, reopened):
            with pytest.raises(PermissionError):
                mmap.mmap(descriptor, file.nbytes, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(reopened)
        file.bytes[0] ^= 0xFF
        assert mmap.mmap(file.descriptor, file.nbytes, prot=mmap.PROT_READ)[0] == file.bytes[0]


def test_memory_cannot_be_resized() -> None:
    with Memory([Storage("x", FLOAT, (2,), content(2))]) as memory:
        for nbytes in (0, 1 << 20):
            with pytest.raises(OSError, match="not permitted"):
                os.ftruncate(memory.placements["x"].file.descriptor, nbytes)


def test_a_file_is_writable_if_any_storage_in_it_is() -> None:
    outer = Storage("outer", FLOAT, (4,), content(4))
    inner = Storage("inner", FLOAT, (1,), content(1), within="outer", writable=False)
    with Memory([outer, inner]) as memory:
        assert memory.placements["inner"].file.writable


def test_a_sparse_storage_takes_no_memory() -> None:
    with Memory([Storage("x", INT8, (3 << 30,))]) as memory:
        place = memory.placements["x"]
        assert place.file.is_sparse
        assert os.fstat(place.file.descriptor).st_blocks * 512 < 1 << 20
        extents = list(place.file.data_extents())
        assert extents[0][0] == 0
        assert extents[-1][1] == place.file.nbytes
        place.file.bytes[place.offset + (1 << 31)] = 1
        assert any(start <= place.offset + (1 << 31) < end for start, end in place.file.data_extents())
        assert os.fstat(place.file.descriptor).st_blocks * 512 < 1 << 20


@pytest.mark.parametrize(
    ("storages", "words"),
    [
        ([Storage("x", FLOAT, (3,), b"abc")], "3 bytes given"),
        ([Storage("x", FLOAT, (3,), strides=(4, 4))], "do not suit"),
        ([Storage("x", FLOAT, (3,), strides=(-4,))], "do not suit"),
        ([Storage("x", FLOAT, (3,), within="y")], "no other one"),
        ([Storage("x", FLOAT, (3,), within="x")], "no other one"),
        ([Storage("x", FLOAT, (1,), within="y"), Storage("y", FLOAT, (1,), within="x")], "no other one"),
        ([Storage("x", STRING, (3,))], "no elements of a fixed number"),
    ],
)
def test_storages_that_cannot_be(storages: list[Storage], words: str) -> None:
    with pytest.raises(HarnessError, match=words):
        Memory(storages)


def test_a_shortage_is_an_error_of_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_memory)
    before = open_descriptors()
    with pytest.raises(HarnessError, match="no memory file of 12288 bytes: No space left"):
        Memory([Storage("x", FLOAT, (1500,))])
    assert open_descriptors() == before


def test_without_memfd_a_file_of_the_temporary_folder_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with Memory([Storage("x", FLOAT, (2,), content(2), writable=False)]) as memory:
        place = memory.placements["x"]
        assert place.array_in(place.file.bytes).tolist() == [0, 1]
        with pytest.raises(PermissionError):
            mmap.mmap(place.file.descriptor, place.file.nbytes)


def test_no_descriptor_is_left() -> None:
    before = open_descriptors()
    for writable in (True, False):
        with Memory([Storage("x", FLOAT, (2,), writable=writable), Storage("y", FLOAT, (2,))]):
            assert open_descriptors() > before
    assert open_descriptors() == before


@pytest.mark.parametrize("nbytes", [0, 100, -PAGE])
def test_a_memory_file_is_whole_pages(nbytes: int) -> None:
    with pytest.raises(ValueError, match="whole pages"):
        MemoryFile(nbytes)
