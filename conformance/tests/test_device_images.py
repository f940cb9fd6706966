"""Images on a device of what the harness lends: one place for every byte, holes that stay holes, stray writes seen."""

from __future__ import annotations

import math
import mmap
import os
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from mutcache.storage import storage_of
from mutcache_conformance.adapter import HostStorage
from mutcache_conformance.adapters.device_images import CHUNK, Images, StrayWrite
from mutcache_conformance.adapters.device_memory import HostAccounts
from mutcache_conformance.adapters.shared_memory import SPARSE_BYTES, SharedMapping, bytes_at, shared_mappings
from mutcache_conformance.dtypes import dtype_of
from mutcache_cupy.host import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

_PAGE = mmap.PAGESIZE


class Shared:
    """A memory file, mapped as a host has it."""

    def __init__(self, nbytes: int, protection: int = mmap.PROT_READ | mmap.PROT_WRITE) -> None:
        self.descriptor = os.memfd_create("shared")
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, nbytes)
        self.map = mmap.mmap(self.descriptor, nbytes, mmap.MAP_SHARED, protection)
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.address = int(self.bytes.ctypes.data)

    def storage(self, offset: int, shape: tuple[int, ...], dtype: int = TensorProto.UINT8, **how: Any) -> HostStorage:
        itemsize = dtype_of(dtype).itemsize
        strides = how.pop("strides", tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))))
        nbytes = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + itemsize
        return HostStorage("x", self.address + offset, 0 if 0 in shape else nbytes, dtype, shape, strides, **how)

    def set(self, offset: int, data: bytes) -> None:
        """Write through the file, as another process does."""
        os.pwrite(self.descriptor, data, offset)

    @property
    def allocated(self) -> int:
        """Bytes of the file that are no hole."""
        return os.fstat(self.descriptor).st_blocks * 512


@pytest.fixture
def shared() -> Shared:
    return Shared(4 * _PAGE)


@pytest.fixture
def images() -> Images:
    account = HostAccounts()
    return Images(account.device, account.image)


def on_device(array: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of a device array, where the device has them: to look at, and to write to."""
    extent = storage_of(array).byte_range
    return bytes_at(extent.start, extent.stop)


def test_what_the_caller_wrote_goes_there_and_what_the_device_wrote_comes_back(images: Images, shared: Shared) -> None:
    storage = shared.storage(_PAGE + 64, (3, 5), TensorProto.FLOAT)
    images.lend([storage])
    shared.set(_PAGE + 64, np.arange(15, dtype=np.float32).tobytes())
    with images.carried():
        array = images.view(storage)
        assert array.get().tolist() == np.arange(15).reshape(3, 5).tolist()
        on_device(array)[:4] = np.frombuffer(np.float32(7).tobytes(), np.uint8)
        assert storage.array()[0, 0] == 0
    assert storage.array()[0, 0] == 7
    assert storage.array().reshape(-1)[1:].tolist() == list(range(1, 15))


def test_a_device_array_is_what_the_storage_is(images: Images, shared: Shared) -> None:
    storage = shared.storage(2 * _PAGE + 6, (2, 3), TensorProto.BFLOAT16, strides=(32, 4), writable=False)
    images.lend([storage])
    seen = storage_of(images.view(storage))
    assert (seen.shape, seen.strides, seen.writable) == ((2, 3), (32, 4), False)
    assert seen.dtype == storage.array().dtype
    assert seen.byte_range.stop - seen.byte_range.start == storage.nbytes
    assert seen.address % 256 == storage.address % 256
    assert seen.device == "cuda:0"


def test_storages_overlap_there_as_on_the_host(images: Images, shared: Shared) -> None:
    one, other, third = shared.storage(64, (256,)), shared.storage(200, (256,)), shared.storage(0, (4 * _PAGE,))
    first = images.lend([one])
    images.lend([other])
    images.lend([third])
    address = {name: storage_of(images.view(name)).address - name.address for name in (one, other, third)}
    assert len(set(address.values())) == 1
    first.release()
    assert storage_of(images.view(one)).address - one.address == address[one]


def test_a_write_beyond_a_storage_comes_back_too(images: Images, shared: Shared) -> None:
    storage = shared.storage(_PAGE, (16,))
    images.lend([storage])
    with images.carried():
        end = storage_of(images.view(storage)).address + 16
        bytes_at(end, end + 3)[:] = 9
        bytes_at(end - 17, end - 16)[:] = 8
    assert np.flatnonzero(shared.bytes).tolist() == [_PAGE - 1, _PAGE + 16, _PAGE + 17, _PAGE + 18]


def test_what_failed_comes_back_as_well(images: Images, shared: Shared) -> None:
    storage = shared.storage(0, (16,))
    images.lend([storage])

    def fail() -> None:
        with images.carried():
            on_device(images.view(storage))[3] = 5
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert shared.bytes[3] == 5


def test_reading_shows_what_was_poked_since(images: Images, shared: Shared) -> None:
    storage = shared.storage(100, (200,))
    images.lend([storage])
    address = storage_of(images.view(storage)).address
    assert images.on_host(address + 20, 10) == storage.address + 20
    shared.set(125, b"\x07")
    assert images.read(address + 20, 10) == bytes([0, 0, 0, 0, 0, 7, 0, 0, 0, 0])
    own = images.device.view(images.device.upload(np.full(5, 3, np.uint8)), 0, np.dtype(np.uint8), (5,))
    assert images.on_host(storage_of(own).address, 5) is None
    assert images.read(storage_of(own).address, 5) == bytes([3] * 5)


def test_feeds_stay_on_the_host_unless_they_have_a_byte_of_what_is_lent(images: Images, shared: Shared) -> None:
    loan = images.lend([shared.storage(128, (128,))])
    for offset, size, is_there in ((0, 128, False), (256, 64, False), (0, 129, True), (255, 8, True), (130, 0, False)):
        assert isinstance(images.array(shared.storage(offset, (size,))), np.ndarray) != is_there
    loan.release()
    assert isinstance(images.array(shared.storage(128, (128,))), np.ndarray)


@pytest.mark.parametrize("offset", [0, 77, 4 * _PAGE])
def test_storage_without_bytes(images: Images, shared: Shared, offset: int) -> None:
    storage = shared.storage(offset, (0, 4), TensorProto.FLOAT)
    loan = images.lend([storage])
    with images.carried():
        assert images.view(storage).get().shape == (0, 4)
    assert images.read(storage_of(images.view(storage)).address, 0) == b""
    loan.release()
    loan.release()


def test_an_image_lives_as_long_as_its_last_loan(shared: Shared) -> None:
    made: list[weakref.ref[Any]] = []
    account = HostAccounts()

    def allocate(nbytes: int) -> Any:
        image = account.image(nbytes)
        made.append(weakref.ref(image))
        return image

    images, storage = Images(account.device, allocate), shared.storage(0, (8,))
    first, second = images.lend([storage, storage]), images.lend([shared.storage(4, (8,))])
    first.release()
    images.view(storage)
    second.release()
    assert [image() for image in made] == [None]
    with pytest.raises(ValueError, match="is not lent"):
        images.view(storage)
    loan = images.lend([storage])
    assert [image() is None for image in made] == [True, False]
    assert loan.ranges == ((storage.address, storage.address + 8),)


def test_memory_that_is_not_shared_has_no_image(images: Images) -> None:
    own = np.zeros(64, np.uint8)
    storage = HostStorage("x", int(own.ctypes.data), 64, TensorProto.UINT8, (64,), (1,))
    with pytest.raises(ValueError, match="in no shared mapping"):
        images.lend([storage])


def test_a_refused_loan_leaves_nothing(shared: Shared) -> None:
    def allocate(nbytes: int) -> Any:
        raise MemoryError(nbytes)

    account = HostAccounts()
    images = Images(account.device, allocate)
    with pytest.raises(MemoryError):
        images.lend([shared.storage(0, (8,))])
    with images.carried():
        assert isinstance(images.array(shared.storage(0, (8,))), np.ndarray)


def test_read_only_memory_is_read_and_a_write_to_its_image_is_told(images: Images) -> None:
    sealed = Shared(_PAGE, mmap.PROT_READ)
    sealed.set(7, b"\x01")
    storage = sealed.storage(0, (16,), writable=False)
    images.lend([storage])
    with images.carried():
        assert images.view(storage).get().tolist() == [0] * 7 + [1] + [0] * 8
    with pytest.raises(StrayWrite, match=f"{storage.address + 2:#x}"), images.carried():
        on_device(images.view(storage))[2] = 1
    assert sealed.bytes[2] == 0


def test_holes_stay_holes_and_no_temporary_grows_with_the_cache(images: Images) -> None:
    nbytes = (3 << 30) + 5 * _PAGE
    sparse = Shared(nbytes)
    for offset in (0, CHUNK - 1, (2 << 30) + 12345, nbytes - 1):
        sparse.set(offset, b"\x11")
    before = sparse.allocated
    cache = sparse.storage(_PAGE, (nbytes - 2 * _PAGE,))
    row = sparse.storage((2 << 30) + 12000, (4096,))
    images.lend([cache])
    tracemalloc.start()
    try:
        with images.carried():
            assert np.flatnonzero(images.view(row).get()).tolist() == [345]
            assert sparse.allocated == before
            on_device(images.view(row))[:] = 5  # of two pages one was a hole
            address = storage_of(images.view(cache)).address + (1 << 30)
            bytes_at(address, address + 1)[:] = 6
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert sparse.allocated == before + 2 * _PAGE
    assert sparse.bytes[(1 << 30) + _PAGE] == 6
    assert set(row.array()) == {5}
    assert sparse.bytes[(2 << 30) + 11999] == 0


def test_the_data_of_a_sparse_mapping(shared: Shared) -> None:
    sparse = Shared(SPARSE_BYTES + 8 * _PAGE)
    for page in (2, 3, 6):
        sparse.set(page * _PAGE + 1, b"\x01")
    mapping = next(one for one in shared_mappings() if one.start == sparse.address)
    assert mapping == SharedMapping(sparse.address, sparse.address + SPARSE_BYTES + 8 * _PAGE, writable=True)

    def data(start: int, stop: int) -> list[tuple[int, int]]:
        found = mapping.data(sparse.address + start, sparse.address + stop)
        return [(low - sparse.address, high - sparse.address) for low, high in found]

    assert data(0, 8 * _PAGE) == [(2 * _PAGE, 4 * _PAGE), (6 * _PAGE, 7 * _PAGE)]
    assert data(2 * _PAGE + 7, 2 * _PAGE + 9) == [(2 * _PAGE + 7, 2 * _PAGE + 9)]
    assert data(3 * _PAGE + 7, 6 * _PAGE + 9) == [(3 * _PAGE + 7, 4 * _PAGE), (6 * _PAGE, 6 * _PAGE + 9)]
    assert data(4 * _PAGE, 4 * _PAGE) == []
    assert data(4 * _PAGE + 1, 5 * _PAGE) == []
    small = next(one for one in shared_mappings() if one.start == shared.address)
    assert list(small.data(small.start, small.stop)) == [(small.start, small.stop)]


_RANGE = st.tuples(st.integers(0, 600), st.integers(0, 200))


@settings(max_examples=60, deadline=None)
@given(
    lent=st.lists(_RANGE, min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.booleans(), _RANGE, st.integers(1, 255)), max_size=6),
)
def test_host_and_device_are_one_memory(
    lent: list[tuple[int, int]], steps: list[tuple[bool, tuple[int, int], int]]
) -> None:
    """Whoever writes, the caller between runs or the device in one: both see what one memory would hold."""
    account, shared = HostAccounts(), Shared(_PAGE)
    images, model = Images(account.device, account.image), bytearray(_PAGE)
    loans = [images.lend([shared.storage(offset, (size,))]) for offset, size in lent]
    whole = shared.storage(0, (_PAGE,))
    for is_by_device, (offset, size), value in steps:
        model[offset : offset + size] = bytes([value]) * size
        if is_by_device:
            with images.carried():
                on_device(images.view(shared.storage(offset, (size,))))[:] = value
        else:
            shared.set(offset, bytes([value]) * size)
        assert shared.bytes.tobytes() == bytes(model)
        assert images.read(storage_of(images.view(whole)).address, _PAGE) == bytes(model)
    for loan in loans:
        loan.release()
    assert shared.bytes.tobytes() == bytes(model)
