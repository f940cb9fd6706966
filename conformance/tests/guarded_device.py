"""The CPU in a device's place, with memory that is as out of reach as a device's: only what the device does touches it.

Its arrays are none of NumPy's, and their pages are inaccessible but while the device reads, writes or runs a kernel.
Whoever takes an address of the device for one of the process dies of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from mutcache_conformance.adapters.cupy import CupyAdapter
from mutcache_conformance.adapters.device_images import Images
from mutcache_cupy.device import Array
from mutcache_cupy.host import HostDevice
from mutcache_cupy.records import Record

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _protect(address: int, nbytes: int, protection: int) -> None:
    if _LIBC.mprotect(address, nbytes, protection):
        raise OSError(ctypes.get_errno(), "mprotect")


class GuardedDevice(HostDevice):
    """The device. Its memory is zeros when it is allocated."""

    def __init__(self) -> None:
        super().__init__()
        #: The bytes of all memory that is alive, by its address.
        self._live: dict[int, int] = {}

    def empty(self, nbytes: int) -> Any:
        """An array that NumPy knows nothing of."""
        memory = np.frombuffer(mmap.mmap(-1, max(1, nbytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        address = int(memory.ctypes.data)
        self._live[address] = memory.nbytes
        weakref.finalize(memory, self._live.pop, address)
        _protect(address, memory.nbytes, 0)
        return self.view(memory, 0, np.dtype(np.uint8), (nbytes,))

    @contextlib.contextmanager
    def _acting(self) -> Iterator[None]:
        for address, nbytes in list(self._live.items()):
            _protect(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)
        try:
            yield
        finally:
            for address, nbytes in list(self._live.items()):
                _protect(address, nbytes, 0)

    def upload(self, array: Array | Record) -> Any:
        """A copy of the bytes."""
        target = self.empty(array.nbytes)
        self.write(target, np.asarray(array))
        return target

    def write(self, target: Any, array: Array) -> None:
        """Copy the elements."""
        with self._acting():
            super().write(target, array)

    def read(self, address: int, nbytes: int) -> Array:
        """A copy of bytes."""
        with self._acting():
            return super().read(address, nbytes)

    def download(self, array: Any) -> Array:
        """A copy of the bytes."""
        with self._acting():
            return super().download(array)

    def fill(self, array: Any, byte: int) -> None:
        """Set all bytes."""
        with self._acting():
            super().fill(array, byte)

    def copy(self, target: Any, source: Any) -> None:
        """Copy all bytes."""
        with self._acting():
            super().copy(target, source)

    def launch(self, kernel: str, grid: tuple[int, int], table: Any, status: Any) -> None:
        """Run a kernel to its end."""
        with self._acting():
            super().launch(kernel, grid, table, status)


class GuardedAdapter(CupyAdapter):
    """The ``cupy`` runtime on such a device."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({**options, "device": "host"})
        device = GuardedDevice()
        self._images = Images(device, device.empty)
