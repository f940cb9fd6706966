"""Images on a device of the memory that the harness shares.

The harness lends host memory, a runtime wants memory of its device. So every shared mapping that has lent storage in it
gets an image, all of it: storages that overlap on the host do so on the device, and no byte of the host has two places
there. Everything that is live is brought to the device before the runtime acts, and what the runtime made of it is
brought back afterwards, guard bytes and neighbours included: a stray write shows on the host as if it had been made
there. Both go chunk by chunk, and holes of a file stay holes.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from mutcache_conformance.adapter import HostStorage
from mutcache_conformance.adapters.shared_memory import SharedMapping, bytes_at, shared_mappings
from mutcache_conformance.dtypes import dtype_of
from mutcache_cupy.device import Device

#: Bytes that are carried at once. A run may take 8 MiB of the host's memory (MC-MEM-001); this takes three times it.
CHUNK: Final = 1 << 20

_BYTE: Final = np.dtype(np.uint8)


class StrayWrite(Exception):  # noqa: N818 - what happened, not what is wrong with the adapter
    """The runtime wrote to what nobody may write to."""


class Image:
    """The bytes of a shared mapping, on the device.

    Args:
        mapping: the bytes on the host.
        device: the device.
        buffer: as many bytes there, all zero.

    Attributes:
        mapping: as given.
        address: where its first byte is on the device.
    """

    def __init__(self, mapping: SharedMapping, device: Device, buffer: Any) -> None:
        self.mapping = mapping
        self.address = device.address(buffer)
        self._device = device
        self._buffer = buffer

    def view(self, storage: HostStorage) -> Any:
        """The device array that stands for a storage in the mapping."""
        offset = storage.address - self.mapping.start
        dtype, shape, strides = dtype_of(storage.dtype), storage.shape, storage.strides
        return self._device.view(self._buffer, offset, dtype, shape, strides, writable=storage.writable)

    def send(self, start: int, stop: int) -> None:
        """Bring the bytes between two addresses of the host to the device."""
        for low, high in _chunks(start, stop):
            for first, end in self.mapping.data(low, high):
                target = self._device.view(self._buffer, first - self.mapping.start, _BYTE, (end - first,))
                self._device.write(target, bytes_at(first, end))

    def fetch(self) -> None:
        """Bring what changed on the device back to the host.

        Raises:
            StrayWrite: the host cannot have it, for the mapping is read-only.
        """
        for low, high in _chunks(self.mapping.start, self.mapping.stop):
            found = self._device.read(self.address + low - self.mapping.start, high - low)
            held = np.zeros(high - low, np.uint8)
            for first, end in self.mapping.data(low, high):
                held[first - low : end - low] = bytes_at(first, end)
            differs = found != held
            if not differs.any():
                continue
            if not self.mapping.writable:
                at = low + int(differs.argmax())
                raise StrayWrite(f"read-only storage was written on the device: byte {at:#x} of the host")
            np.copyto(bytes_at(low, high), found, where=differs)  # no other byte is touched, of a hole too


def _chunks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    for low in range(start, stop, CHUNK):
        yield low, min(low + CHUNK, stop)


class Images:
    """The images of all storage that this process was lent and still uses.

    Args:
        device: the device.
        allocate: gives so many bytes of it, all zero.

    Attributes:
        device: as given.
        loans: what is lent now, in the order of lending.
    """

    def __init__(self, device: Device, allocate: Callable[[int], Any]) -> None:
        self.device = device
        self._allocate = allocate
        self._lock = threading.RLock()
        self._users: Counter[Image] = Counter()
        self.loans: dict[Loan, None] = {}

    def lend(self, storages: Iterable[HostStorage]) -> Loan:
        """Make or keep images of storages until the loan is released.

        Raises:
            ValueError: a storage does not lie in memory that is shared.
            MemoryError: the device has not so much memory.
        """
        with self._lock:
            storages = tuple(storages)
            made: list[Image] = []
            mapped: list[SharedMapping] | None = None
            for storage in storages:
                known = self._around(storage.address, storage.nbytes, (*self._users, *made))
                if known is None:
                    mapped = shared_mappings() if mapped is None else mapped
                    mapping = next((one for one in mapped if one.holds(storage.address, storage.nbytes)), None)
                    if mapping is None:
                        raise ValueError(f"{storage.nbytes} bytes at {storage.address:#x} are in no shared mapping")
                    known = Image(mapping, self.device, self._allocate(mapping.nbytes))
                made.append(known)
            loan = Loan(self, frozenset(made), tuple((one.address, one.address + one.nbytes) for one in storages))
            self._users.update(loan.images)
            self.loans[loan] = None
            return loan

    def end(self, loan: Loan) -> None:
        """Forget a loan, and the images that nobody else uses."""
        with self._lock:
            if loan in self.loans:
                del self.loans[loan]
                self._users -= Counter(loan.images)
                loan.images = frozenset()  # whoever still holds the loan does not hold the memory

    def view(self, storage: HostStorage) -> Any:
        """The device array that stands for a storage that is lent.

        Raises:
            ValueError: it is not lent.
        """
        with self._lock:
            image = self._around(storage.address, storage.nbytes, self._users)
        if image is None:
            raise ValueError(f"storage of {storage.name!r} is not lent")
        return image.view(storage)

    def array(self, storage: HostStorage) -> Any:
        """A storage that is not lent for longer than a run: on the device if it has bytes of one that is lent."""
        start, stop = storage.address, storage.address + storage.nbytes
        with self._lock:
            is_there = any(max(start, low) < min(stop, high) for loan in self.loans for low, high in loan.ranges)
            return self.view(storage) if is_there else storage.array()

    def on_host(self, address: int, nbytes: int) -> int | None:
        """Where on the host that is, what these bytes of the device are the image of; None if of nothing."""
        with self._lock:
            image = self._of(address, nbytes)
            return None if image is None else image.mapping.start + address - image.address

    def read(self, address: int, nbytes: int) -> bytes:
        """Bytes of the device; what the caller wrote to what they are the image of is brought there first."""
        with self._lock:
            image = self._of(address, nbytes)
            if image is not None:
                start = image.mapping.start + address - image.address
                image.send(start, start + nbytes)
            return self.device.read(address, nbytes).tobytes()

    @contextlib.contextmanager
    def carried(self) -> Iterator[None]:
        """While the runtime acts: what is on the host is brought to the device, and then back, whatever happens."""
        with self._lock:
            for image in self._users:
                image.send(image.mapping.start, image.mapping.stop)
            try:
                yield
            finally:
                for image in self._users:
                    image.fetch()

    def _of(self, address: int, nbytes: int) -> Image | None:
        """The image that has these bytes of the device."""
        return next((one for one in self._users if 0 <= address - one.address <= one.mapping.nbytes - nbytes), None)

    @staticmethod
    def _around(address: int, nbytes: int, images: Iterable[Image]) -> Image | None:
        return next((one for one in images if one.mapping.holds(address, nbytes)), None)


class Loan:
    """Storage that is lent, which keeps its images. Made by :meth:`Images.lend`.

    Args:
        owner: whose images they are.
        images: those that are kept, none once it is released.
        ranges: first address and end of each storage on the host.
    """

    def __init__(self, owner: Images, images: frozenset[Image], ranges: tuple[tuple[int, int], ...]) -> None:
        self._owner = owner
        self.images = images
        self.ranges = ranges

    def release(self) -> None:
        """Give the images up; a second call does nothing."""
        self._owner.end(self)
