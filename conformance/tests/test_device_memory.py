"""What a runtime holds of a device, told apart from the images of what it is lent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from mutcache.storage import storage_of
from mutcache_conformance.adapter import DeviceMemory
from mutcache_conformance.adapters.cupy import DeviceBudget
from mutcache_conformance.adapters.device_memory import CupyAccounts, HostAccounts, accounts
from mutcache_cupy.host import compiler

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
MIB = 1 << 20


@on_host
def test_what_is_alive_counts_and_the_most_that_was() -> None:
    account = HostAccounts()
    kept = account.device.empty(1000)
    dropped = account.device.upload(np.zeros(300, np.uint8))
    view = dropped[10:20].view(np.int16)
    del dropped
    assert account.held(reset=False) == DeviceMemory(1300, 1300)
    del view
    assert account.held(reset=True) == DeviceMemory(1000, 1300)
    assert account.held(reset=False) == DeviceMemory(1000, 1000)
    del kept
    assert account.held(reset=False) == DeviceMemory(0, 1000)


@on_host
def test_images_do_not_count_and_are_zero() -> None:
    account = HostAccounts()
    image = account.image(5 << 30)  # more than many a machine has
    assert image.nbytes == 5 << 30
    assert not image[:: 1 << 24].any()
    assert account.device.address(image) % 256 == 0
    assert account.held(reset=False) == DeviceMemory(0, 0)
    account.device.write(account.device.view(image, 7, np.dtype(np.uint8), (3,)), np.array([1, 2, 3], np.uint8))
    account.device.write(image[:0], np.empty(0, np.uint8))
    assert image[6:11].tolist() == [0, 1, 2, 3, 0]


@on_host
def test_a_budget_gives_memory_of_the_device_that_is_not_zero_and_no_more_than_it_has() -> None:
    account = HostAccounts()
    budget = DeviceBudget(account.device, 100)
    first = budget(60)
    assert storage_of(first).device == "cuda:0"
    assert first.get().tolist() == [0xA5] * 60
    assert budget(41) is None
    assert [storage_of(budget(size)).nbytes for size in (40, 0)] == [40, 0]
    assert budget(1) is None
    assert DeviceBudget(account.device, None)(1 << 20).nbytes == 1 << 20


def test_there_is_no_other_device() -> None:
    with pytest.raises(ValueError, match="'tpu'"):
        accounts("tpu")


class Memory:
    """A pointer of CuPy's, to be held as long as its memory."""

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self.pool, self.nbytes = pool, nbytes
        pool.used += nbytes

    def free(self) -> None:
        self.pool.used -= self.nbytes
        self.pool.kept += self.nbytes


class Pool:
    """A memory pool as CuPy has them."""

    def __init__(self) -> None:
        self.used = self.kept = 0

    def malloc(self, nbytes: int) -> Memory:
        return Memory(self, nbytes)

    def used_bytes(self) -> int:
        return self.used

    def free_bytes(self) -> int:
        return self.kept

    def free_all_blocks(self) -> None:
        self.kept = 0


class Cuda:
    """The allocators of the package ``cupy.cuda``."""

    MemoryPool = Pool

    def __init__(self) -> None:
        self.allocator: Callable[[int], Memory] = Pool().malloc

    def set_allocator(self, allocator: Callable[[int], Memory]) -> None:
        self.allocator = allocator

    @contextlib.contextmanager
    def using_allocator(self, allocator: Callable[[int], Memory]) -> Iterator[None]:
        before, self.allocator = self.allocator, allocator
        yield
        self.allocator = before


def test_on_a_gpu_images_come_from_a_pool_of_their_own() -> None:
    default, cuda, filled = Pool(), Cuda(), list[tuple[Memory, int]]()
    device = SimpleNamespace(
        cupy=SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: default),
        empty=lambda nbytes: cuda.allocator(nbytes),
        fill=lambda memory, byte: filled.append((memory, byte)),
    )
    account = CupyAccounts(device)
    kept, dropped = device.empty(512), device.empty(1024)
    image = account.image(3 << 30)
    assert filled == [(image, 0)]
    assert image.pool is not default
    dropped.free()
    assert account.held(reset=True) == DeviceMemory(512, 1536)
    assert account.held(reset=False) == DeviceMemory(512, 512)
    image.free()
    assert image.pool.kept == 3 << 30
    assert account.image(MIB).pool is image.pool
    assert image.pool.kept == 0  # no more stays there than the next images may want
    kept.free()
    assert account.held(reset=False) == DeviceMemory(0, 512)


def test_cupy_has_what_is_used_of_it() -> None:
    cupy = pytest.importorskip("cupy")
    for name in ("malloc", "used_bytes", "free_bytes", "free_all_blocks"):
        assert hasattr(cupy.cuda.MemoryPool, name)
    assert isinstance(cupy.get_default_memory_pool(), cupy.cuda.MemoryPool)
    assert {"set_allocator", "using_allocator"} <= set(dir(cupy.cuda))
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)
