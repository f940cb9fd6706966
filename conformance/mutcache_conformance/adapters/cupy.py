"""The adapter of the CUDA kernels: ``mutcache.Session`` with caches and pages in the memory of a device.

The harness lends host memory. All that is bound, and all that initializers are in, has an image on the device
(``device_images``); what is fed stays on the host, unless it has bytes of what is bound. So the session judges the
caller's storage by its images, as it would the caller's, and the harness sees what the adapter brings back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

import numpy as np

from mutcache.executor import Binding, Session
from mutcache.paging import Page, PageTable
from mutcache.proto import parse
from mutcache.proto.onnx_ml import ModelProto
from mutcache.storage import is_device_array, storage_of
from mutcache_conformance.adapter import (
    DEVICE_MEMORY,
    Adapter,
    AdapterBinding,
    AdapterSession,
    Description,
    DeviceMemory,
    HostPageTable,
    HostStorage,
    OutputPage,
    Outputs,
    OutputTable,
    OutputValue,
)
from mutcache_conformance.adapters.device_images import Images, Loan
from mutcache_conformance.adapters.device_memory import accounts
from mutcache_conformance.adapters.reference import OPTIONAL_TYPES, refusals
from mutcache_conformance.dtypes import number_of
from mutcache_cupy.backend import KernelBackend
from mutcache_cupy.device import Device

_BYTE = np.dtype(np.uint8)


class DeviceBudget:
    """Allocates payloads for pages, as ``reference.Budget`` does, on a device.

    Args:
        device: the device.
        nbytes: all that may be allocated; None is no limit.
    """

    def __init__(self, device: Device, nbytes: int | None) -> None:
        self._device = device
        self._left = nbytes

    def __call__(self, nbytes: int) -> Any:
        """A payload, or None if there is not enough left."""
        if self._left is not None:
            if nbytes > self._left:
                return None
            self._left -= nbytes
        memory = self._device.empty(nbytes)
        self._device.fill(memory, 0xA5)
        return self._device.view(memory, 0, _BYTE, (nbytes,))


class CupySession(AdapterSession):
    """A session with a backend.

    Args:
        images: the images of what is lent.
        model: the model.
        initializers: storage of the caller's for some of its initializers.

    Raises:
        Rejected: the session refuses the model, or the storage.
    """

    def __init__(self, images: Images, model: bytes, initializers: Mapping[str, HostStorage]) -> None:
        self.images = images
        self._loans = contextlib.ExitStack()
        backend = KernelBackend(images.device)
        with self.lending(initializers.values()), refusals("load"):
            self._model: ModelProto = parse(model)
            arrays = {name: images.view(storage) for name, storage in initializers.items()}
            self._session = Session(self._model, initializers=arrays, backend=backend)

    @contextlib.contextmanager
    def lending(self, storages: Any) -> Iterator[Loan]:
        """Lend storages to what is done meanwhile, and if it succeeds until the session is unloaded."""
        loan = self.images.lend(storages)
        try:
            with self.images.carried():
                yield loan
        except BaseException:
            loan.release()
            raise
        self._loans.callback(loan.release)

    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        """Bind device arrays."""
        return self.bind_tables(mutable, outputs, {})

    def bind_tables(
        self,
        mutable: Mapping[str, HostStorage],
        outputs: Mapping[str, HostStorage],
        tables: Mapping[str, HostPageTable],
    ) -> AdapterBinding:
        """Bind device arrays, and page tables whose payloads are such."""
        payloads = [page.payload for table in tables.values() for page in table.pages]
        view = self.images.view
        with self.lending((*mutable.values(), *outputs.values(), *payloads)) as loan, refusals("bind"):
            lent = {name: self._table(table, view) for name, table in tables.items()}
            arrays = {name: view(storage) for name, storage in mutable.items()}
            targets = {name: view(storage) for name, storage in outputs.items()}
            return CupyBinding(self, self._session.bind({**arrays, **lent}, targets), loan, lent)

    def values(self, feeds: Mapping[str, HostStorage], tables: Mapping[str, HostPageTable]) -> dict[str, Any]:
        """What is fed, as the session takes it."""
        arrays = {name: self.images.array(storage) for name, storage in feeds.items()}
        return arrays | {name: self._table(table, self.images.array) for name, table in tables.items()}

    def run(self, feeds: Mapping[str, HostStorage]) -> Outputs:
        """Run without a binding."""
        return self.run_tables(feeds, {})

    def run_tables(self, feeds: Mapping[str, HostStorage], tables: Mapping[str, HostPageTable]) -> Outputs:
        """Run without a binding, with page tables for inputs that are not modified."""
        with self.images.carried(), refusals():
            return self.outputs(self._session.run(self.values(feeds, tables)))

    def unload(self) -> None:
        """Close the session, and with it its bindings."""
        with refusals():
            self._session.close()
        self._loans.close()

    def outputs(self, values: Mapping[str, Any]) -> dict[str, OutputValue | OutputTable]:
        """What a run returned, as the harness sees it."""
        return {
            name: self.shown(value) if isinstance(value, PageTable) else self._output(value)
            for name, value in values.items()
        }

    def shown(self, table: PageTable) -> OutputTable:
        """A table as the harness sees it: a page of the caller's is where its storage is, another one on the device."""
        pages = []
        for page_id, page in table.items():
            output, key = self._output(page.payload), page_id if table.is_map else None
            address = output.address
            if address is None and output.nbytes:  # CuPy has no address of nothing
                address = storage_of(page.payload).address
            pages.append(OutputPage(page.quantized_type, page.dims, output.nbytes, address, output.read, key))
        return OutputTable("map" if table.is_map else "sequence", tuple(pages))

    def _table(self, lent: HostPageTable, array: Callable[[HostStorage], Any]) -> PageTable:
        pages = [Page(page.quantized_type, page.dims, array(page.payload), page.nbytes) for page in lent.pages]
        keys = [page.key for page in lent.pages]
        contents = dict(zip(keys, pages, strict=True)) if lent.container == "map" else pages
        allocator = DeviceBudget(self.images.device, lent.budget)
        return PageTable(contents, model=self._model, value=lent.name, allocator=allocator)  # type: ignore[arg-type]  # pages of a map have keys

    def _output(self, value: Any) -> OutputValue:
        """An array, with the address of the storage that it is the image of."""
        if not is_device_array(value):
            return OutputValue.of(value)
        storage, images = storage_of(value), self.images

        def read(offset: int, nbytes: int) -> bytes:
            held = storage_of(value)  # as long as this can be called, there is the memory of the array
            return images.read(held.address + offset, max(0, min(nbytes, held.nbytes - offset)))

        address = images.on_host(storage.address, storage.nbytes)
        return OutputValue(number_of(storage.dtype), storage.shape, storage.nbytes, address, read)


class CupyBinding(AdapterBinding):
    """A binding of device arrays, each in the place of host storage.

    Args:
        session: its session.
        binding: the binding.
        loan: what was lent to it.
        lent: the page tables that are bound, by the name of the input.
    """

    def __init__(self, session: CupySession, binding: Binding, loan: Loan, lent: Mapping[str, PageTable]) -> None:
        self._session = session
        self._binding = binding
        self._loan = loan
        self._lent = lent

    def run(self, feeds: Mapping[str, HostStorage]) -> Outputs:
        """Bring what the caller wrote to the device, run, and bring it back."""
        return self.run_tables(feeds, {})

    def run_tables(self, feeds: Mapping[str, HostStorage], tables: Mapping[str, HostPageTable]) -> Outputs:
        """Run so, with page tables for inputs that are not modified."""
        with self._session.images.carried(), refusals():
            return self._session.outputs(self._binding.run(self._session.values(feeds, tables)))

    def tables(self) -> Mapping[str, OutputTable]:
        """The page tables that are bound."""
        return {name: self._session.shown(table) for name, table in self._lent.items()}

    def release(self) -> None:
        """Release the binding."""
        with refusals():
            self._binding.release()
        self._loan.release()


class CupyAdapter(Adapter):
    """Caches on a device, updated by CUDA kernels.

    Args:
        options: ``device`` is ``cuda``, or ``host``: the kernels' sources on the CPU.

    Raises:
        DeviceUnavailable: there is no CuPy, no device or no compiler.
        ValueError: there is no such option or device.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        if unknown := sorted(options.keys() - {"device"}):
            raise ValueError(f"cupy has no option {unknown[0]!r}: it has device")
        self._accounts = accounts(options.get("device", "cuda"))
        self._images = Images(self._accounts.device, self._accounts.image)

    def describe(self) -> Description:
        """The device, and what the adapter does in the runtime's place."""
        try:
            version = metadata.version("mutcache")
        except metadata.PackageNotFoundError:
            version = "source tree"
        device = self._accounts.device
        return Description(
            runtime=f"mutcache CUDA kernels on {device.name}",
            runtime_version=version,
            adapter="cupy",
            adapter_version=version,
            capabilities=frozenset(
                {"page-budget", "control-flow", DEVICE_MEMORY, *(f"dtype:{name}" for name in OPTIONAL_TYPES)}
            ),
            checks=("the adapter carries what is bound to the device and back, and tells the host's addresses for it",),
            device=f"cuda:{device.id}",
        )

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        """Check and plan the model."""
        return CupySession(self._images, model, initializers)

    def device_memory(self, *, reset: bool) -> DeviceMemory:
        """What the runtime holds of the device's memory: all but the images of what it is lent."""
        return self._accounts.held(reset=reset)
