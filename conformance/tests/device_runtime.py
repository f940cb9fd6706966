"""Runtimes with caches on a device, and with faults there; the docstring of each is its idea.

There is no device. Its memory is that of files which are written and read as a whole, and of which a process has only
those pages resident that an update touches: so its bytes are no memory of the process, as a device's are not.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from hooked_runtime import Array, HookedBinding, HookedSession, Outputs, Sound, Storages, Tables

from mutcache_conformance.adapter import (
    DEVICE_MEMORY,
    Description,
    DeviceMemory,
    HostPageTable,
    HostStorage,
    NotApplicable,
    OutputPage,
    OutputTable,
    OutputValue,
    Unsupported,
)

DEVICE: Final = "toy:0"
#: Addresses of the device's own begin here, where a process has none.
SPACE: Final = 1 << 60
#: Bytes of a storage that are carried.
LIMIT: Final = 256 << 20
#: What a run takes for itself.
WORKSPACE: Final = 1 << 16


class Image:
    """Storage of the host's, and the memory of the device that stands for it.

    Args:
        storage: the storage, of one byte at least.
    """

    def __init__(self, storage: HostStorage) -> None:
        self.start, self.nbytes = storage.address, storage.nbytes
        flat = replace(storage, dtype=2, shape=(storage.nbytes,), strides=(1,))
        self._host: Array = flat.array()
        self._file = os.memfd_create("device")
        self._offset = storage.address % mmap.PAGESIZE  # aligned as on the host
        os.ftruncate(self._file, self._offset + self.nbytes)
        self._bytes = np.frombuffer(mmap.mmap(self._file, self._offset + self.nbytes), np.uint8)

    def __del__(self) -> None:
        os.close(self._file)

    @property
    def address(self) -> int:
        """Where the process sees the memory of the device."""
        return int(self._bytes.ctypes.data) + self._offset

    def send(self) -> None:
        """Bring what the host holds to the device."""
        os.pwrite(self._file, self._host.data, self._offset)

    def fetch(self) -> None:
        """Bring what the device holds to the host."""
        os.preadv(self._file, [self._host.data], self._offset)

    def stands_for(self, address: int | None) -> bool:
        """Whether an address is within the memory of the device."""
        return address is not None and self.address <= address < self.address + self.nbytes

    def lent(self, storage: HostStorage) -> HostStorage:
        """The storage, on the device."""
        return replace(storage, address=self.address)


@dataclass(eq=False)
class Held:
    """A binding, once there is one, and the images of what is bound."""

    binding: HookedBinding | None
    images: list[Image]


class OnDevice(Sound):
    """The reference with caches on a device, to which it carries them before each run, and back after it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.held: list[Held] = []
        self.allocated = self.peak = 0

    def describe(self) -> Description:
        about = super().describe()
        more = {DEVICE_MEMORY} if self.tells_memory else set()
        return replace(about, device=DEVICE, capabilities=about.capabilities | more, concurrent_runs=False)

    #: Whether it declares that it tells what it holds of the device's memory.
    tells_memory = True

    # Memory of the device

    def device_memory(self, *, reset: bool) -> DeviceMemory:
        told = DeviceMemory(self.allocated, self.peak)
        self.peak = self.allocated if reset else self.peak
        return told

    def allocate(self, nbytes: int) -> None:
        """Hold so much more."""
        self.allocated += nbytes
        self.peak = max(self.peak, self.allocated)

    # Carrying

    def image_of(self, storage: HostStorage) -> Image:
        """The image of a storage; of one that is bound already, the one that there is."""
        for image in self.images():
            if (image.start, image.nbytes) == (storage.address, storage.nbytes):
                return image
            if storage.address < image.start + image.nbytes and image.start < storage.address + storage.nbytes:
                raise NotApplicable("storage of which a part is on the device already")
        return Image(storage)

    def images(self) -> Iterator[Image]:
        """The images of all that is bound."""
        for held in self.held:
            yield from held.images

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        return self.on_bind_tables(session, mutable, outputs, {})

    def on_bind_tables(
        self, session: HookedSession, mutable: Storages, outputs: Storages, tables: Tables
    ) -> HookedBinding:
        held = Held(None, [])
        self.held.append(held)
        try:
            used = {name: self.carried(storage, held) for name, storage in mutable.items()}
            starts = {image.start: image for image in held.images}
            targets = {
                name: starts[storage.address].lent(storage) if storage.address in starts else storage
                for name, storage in outputs.items()
            }
            lent = {name: self.carried_table(table, held) for name, table in tables.items()}
            inner = session.inner.bind_tables(used, targets, lent)
        except BaseException:
            self.held.remove(held)
            raise
        held.binding = HookedBinding(session, mutable, outputs, inner)
        return held.binding

    def carried(self, storage: HostStorage, held: Held) -> HostStorage:
        """A storage on the device."""
        if not storage.writable or storage.origin != "caller":
            raise NotApplicable("storage of this kind in the memory of the device")
        if storage.nbytes > LIMIT:
            raise Unsupported("caches that are too large to be carried")
        if not storage.nbytes:
            return storage
        held.images.append(self.image_of(storage))
        return held.images[-1].lent(storage)

    def carried_table(self, table: HostPageTable, held: Held) -> HostPageTable:
        """A page table whose payloads are on the device."""
        pages = [replace(page, payload=self.carried(page.payload, held)) for page in table.pages]
        return replace(table, pages=tuple(pages))

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        images = [image for held in self.held if held.binding is binding for image in held.images]
        for image in images:
            image.send()
        self.allocate(WORKSPACE)
        try:
            outputs = binding.inner.run(feeds)
        finally:
            self.allocate(-WORKSPACE)
            for image in images:
                image.fetch()
        return {name: self.shown(output) for name, output in outputs.items()}

    def on_tables(self, binding: HookedBinding) -> Mapping[str, OutputTable]:
        return {name: self.shown_table(table) for name, table in binding.inner.tables().items()}

    def on_release(self, binding: HookedBinding) -> None:
        binding.inner.release()
        self.held = [held for held in self.held if held.binding is not binding]

    def on_unload(self, session: HookedSession) -> None:
        session.inner.unload()
        self.held = [held for held in self.held if held.binding is None or held.binding.session is not session]

    # Showing

    def shown(self, output: OutputValue | OutputTable) -> OutputValue | OutputTable:
        """An output as the harness sees it."""
        if isinstance(output, OutputTable):
            return self.shown_table(output)
        image = next((image for image in self.images() if image.stands_for(output.address)), None)
        return output if image is None else replace(output, address=image.start, read=self.reader(output, image))

    def shown_table(self, table: OutputTable) -> OutputTable:
        """A page table as the harness sees it."""
        return replace(table, pages=tuple(map(self.shown_page, table.pages)))

    def shown_page(self, page: OutputPage) -> OutputPage:
        """A page as the harness sees it; one that a run has made is somewhere on the device."""
        image = next((image for image in self.images() if image.stands_for(page.address)), None)
        if image is None:
            return replace(page, address=None if page.address is None else SPACE + page.address)
        return replace(page, address=image.start, read=self.reader(page, image))

    def reader(self, shown: OutputValue | OutputPage, image: Image) -> Callable[[int, int], bytes]:
        """Reads what is on the device, which the caller may have changed meanwhile."""

        def read(offset: int, nbytes: int) -> bytes:
            image.send()
            return shown.read(offset, nbytes)

        return read


# Faults


class ShowsOldBytes(OnDevice):
    """Shows its outputs as they were after the run, whatever the caller writes to the storage then."""

    def reader(self, shown: OutputValue | OutputPage, image: Image) -> Callable[[int, int], bytes]:
        del image
        return shown.read


class ForgetsToCarryBack(OnDevice):
    """Updates the cache on the device, and leaves the storage that it was lent as it is."""

    def image_of(self, storage: HostStorage) -> Image:
        image = super().image_of(storage)
        image.fetch = lambda: None  # type: ignore[method-assign]  # which is the fault
        return image


class CopiesOnDevice(OnDevice):
    """Copies each cache on the device while it runs, and gives the memory back."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        nbytes = sum(storage.nbytes for storage in binding.mutable.values())
        self.allocate(nbytes)
        try:
            return super().on_run(binding, feeds)
        finally:
            self.allocate(-nbytes)


class LeaksOnDevice(OnDevice):
    """Forgets a page of the device's memory in each run."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        self.allocate(mmap.PAGESIZE)
        return super().on_run(binding, feeds)


class CopiesOnHost(OnDevice):
    """Has a copy of each cache in the memory of the process while it runs on the device."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        copies = [storage.array().copy() for storage in binding.mutable.values()]
        outputs = super().on_run(binding, feeds)
        del copies
        return outputs


class TellsNoMemory(OnDevice):
    """Cannot tell what it holds of the device's memory, and says so."""

    tells_memory = False


class RefusesToTell(OnDevice):
    """Says that it can tell what it holds of the device's memory, and does not."""

    def device_memory(self, *, reset: bool) -> DeviceMemory:
        del reset
        raise Unsupported("figures after all")


class TellsTheImpossible(OnDevice):
    """Holds more of the device's memory than it ever held."""

    def device_memory(self, *, reset: bool) -> DeviceMemory:
        del reset
        return DeviceMemory(2, 1)


class Nameless(OnDevice):
    """Has its caches on a device that it has no name for."""

    def describe(self) -> Description:
        return replace(super().describe(), device="")
