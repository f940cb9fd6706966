"""The memory of a device: what a runtime holds of it, and apart from that the memory of images of what it is lent."""

from __future__ import annotations

import mmap
import weakref
from typing import Any, Final, Protocol

import numpy as np

from mutcache_conformance.adapter import DeviceMemory
from mutcache_conformance.adapters.shared_memory import bytes_at
from mutcache_cupy import connect
from mutcache_cupy.device import Array, Device
from mutcache_cupy.host import HostDevice

#: Linux: do not count on memory being there for all of it. Python 3.11 has no name for it.
_MAP_NORESERVE: Final = 0x4000
#: Bytes of given-up images that the pool of a GPU may keep.
_KEPT: Final = 1 << 30


class Accounts(Protocol):
    """The memory of one device, in two accounts."""

    @property
    def device(self) -> Device:
        """The device; what it allocates is the runtime's."""

    def image(self, nbytes: int) -> Any:
        """Zeros on the device, which are not the runtime's; at least one byte.

        Raises:
            MemoryError: there is not so much memory.
        """

    def held(self, *, reset: bool) -> DeviceMemory:
        """What the runtime holds; ``reset`` counts the peak anew afterwards."""


def accounts(name: str) -> Accounts:
    """The accounts of the device that ``mutcache_cupy.connect`` names so.

    Raises:
        DeviceUnavailable: there is none.
        ValueError: there is no such kind of device.
    """
    return HostAccounts() if name == "host" else CupyAccounts(connect(name))


class HostAccounts:
    """The memory of the CPU in a device's place."""

    def __init__(self) -> None:
        self.device = _CountedHost()

    def image(self, nbytes: int) -> Array:
        """Memory that takes none until it is written, as holes of a file."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        try:
            memory = mmap.mmap(-1, nbytes, flags=flags)
        except OSError as error:
            raise MemoryError(f"{nbytes} bytes: {error}") from error
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        return np.frombuffer(memory, np.uint8)

    def held(self, *, reset: bool) -> DeviceMemory:
        """The bytes of all arrays that are alive."""
        device = self.device
        found = DeviceMemory(device.allocated, device.peak)
        if reset:
            device.peak = found.allocated
        return found


class _CountedHost(HostDevice):
    """Counts what it allocates, and touches no more of it than it must."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._live: dict[int, int] = {}

    @property
    def allocated(self) -> int:
        """The bytes of all arrays that are alive."""
        return sum(list(self._live.values()))

    def empty(self, nbytes: int) -> Array:
        """Uninitialized bytes."""
        array = super().empty(nbytes)
        owner = array if array.base is None else array.base  # what lives as long as any view
        self._live[id(owner)] = nbytes
        weakref.finalize(owner, self._live.pop, id(owner)).atexit = False
        self.peak = max(self.peak, self.allocated)
        return array

    def write(self, target: Any, array: Array) -> None:
        """Copy what differs: zeros that are written to memory of zeros take none."""
        given = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        address = self.address(target)
        held = bytes_at(address, address + given.nbytes)
        np.copyto(held, given, where=held != given)


class CupyAccounts:
    """The memory of a GPU: the runtime's is that of CuPy's default pool, images have a pool of their own.

    Args:
        device: a ``mutcache_cupy.cupy_device.CupyDevice``. Allocations of the process go through this object from now
            on.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self._cuda = device.cupy.cuda
        self._runtime = device.cupy.get_default_memory_pool()
        self._images = self._cuda.MemoryPool()
        self._peak = 0
        self._cuda.set_allocator(self._allocate)

    def _allocate(self, nbytes: int) -> Any:
        memory = self._runtime.malloc(nbytes)
        self._peak = max(self._peak, self._runtime.used_bytes())
        return memory

    def image(self, nbytes: int) -> Any:
        """Zeros of the pool of images."""
        if self._images.free_bytes() > _KEPT:
            self._images.free_all_blocks()
        with self._cuda.using_allocator(self._images.malloc):
            image = self.device.empty(nbytes)
        self.device.fill(image, 0)
        return image

    def held(self, *, reset: bool) -> DeviceMemory:
        """What is used of the default pool, in its blocks of 512 bytes."""
        used = int(self._runtime.used_bytes())
        found = DeviceMemory(used, max(self._peak, used))
        if reset:
            self._peak = used
        return found
