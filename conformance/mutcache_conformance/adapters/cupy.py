"""The adapter of the CUDA kernels: ``mutcache.Session`` with caches in the memory of a device.

The harness lends host memory. The adapter keeps an image of it on the device while it is bound: before a run it brings
what the caller wrote there, afterwards it brings the image back. What the harness sees of a cache is so read back
through the adapter; the report lists this among the adapter's own checks. Overlaps of host storages are overlaps of
their images.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Final

import numpy as np

from mutcache.executor import Binding, Session
from mutcache.proto import parse
from mutcache.storage import is_device_array, storage_of
from mutcache_conformance.adapter import (
    Adapter,
    AdapterBinding,
    AdapterSession,
    Description,
    HostStorage,
    NotApplicable,
    OutputValue,
    Unsupported,
)
from mutcache_conformance.adapters.reference import refusals
from mutcache_conformance.dtypes import dtype_of, number_of
from mutcache_cupy import connect
from mutcache_cupy.backend import KernelBackend
from mutcache_cupy.device import Device

#: Element types beyond the core that NumPy has itself, and CuPy therefore.
OPTIONAL_TYPES: Final = ("UINT16", "INT16", "DOUBLE", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128")
#: Bytes of a cache that the adapter carries to and fro.
LIMIT: Final = 256 << 20


@dataclass
class _Image:
    """Bytes of the host, and their image on the device."""

    start: int
    stop: int
    buffer: Any
    offset: int
    users: int = 0


@dataclass
class Images:
    """The images of all storages that are bound in this process."""

    device: Device
    live: list[_Image] = field(default_factory=list)
    #: Storage that stays on the host, by the number of the session: its initializers, and outputs of their own.
    on_host: dict[int, list[HostStorage]] = field(default_factory=dict)

    def lend(self, storages: Mapping[str, HostStorage]) -> dict[str, tuple[HostStorage, _Image, Any]]:
        """Device arrays in the place of ``storages``; each holds its image until it is dropped."""
        for storage in storages.values():
            if storage.nbytes > LIMIT:
                raise Unsupported("caches above 256 MiB, which are not carried to the device and back")
            if not storage.writable:
                raise NotApplicable("read-only storage: device arrays have no such state")
            if storage.origin != "caller":
                raise NotApplicable("initializers in the memory of the device")
        spans: list[list[int]] = []
        for start, stop in sorted((one.address, one.address + one.nbytes) for one in storages.values()):
            if spans and start < spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], stop)
            else:
                spans.append([start, stop])
        made = [self._image(start, stop) for start, stop in spans]
        lent = {}
        for name, storage in storages.items():
            stop = storage.address + storage.nbytes
            image = next(one for one in made if one.start <= storage.address and stop <= one.stop)
            image.users += 1
            offset = image.offset + storage.address - image.start
            array = self.device.view(image.buffer, offset, dtype_of(storage.dtype), storage.shape, storage.strides)
            lent[name] = storage, image, array
        return lent

    def keep(self, owner: int, storages: Iterable[HostStorage]) -> None:
        """Storage that a session has on the host, where none of it can overlap a cache on the device."""
        storages = list(storages)
        for storage in storages:
            for image in self.live:
                _require_apart(storage, image.start, image.stop)
        self.on_host.setdefault(owner, []).extend(storages)

    def drop(self, lent: Mapping[str, tuple[HostStorage, _Image, Any]]) -> None:
        """Forget images that nobody uses any more."""
        for _, image, _ in lent.values():
            image.users -= 1
        self.live = [image for image in self.live if image.users > 0]

    def _image(self, start: int, stop: int) -> _Image:
        for image in self.live:
            if image.start <= start and stop <= image.stop:
                return image
            if max(image.start, start) < min(image.stop, stop):
                raise NotApplicable("storage that is partly on the device already")
        for storage in (one for storages in self.on_host.values() for one in storages):
            _require_apart(storage, start, stop)
        offset = start % 256  # aligned as on the host
        image = _Image(start, stop, self.device.empty(offset + stop - start), offset)
        self.live.append(image)
        return image


def _require_apart(storage: HostStorage, start: int, stop: int) -> None:
    if max(storage.address, start) < min(storage.address + storage.nbytes, stop):
        raise NotApplicable(f"storage of {storage.name!r} on the host that overlaps a cache on the device")


def _bytes(image: _Image) -> Any:
    """The bytes on the host."""
    return np.ctypeslib.as_array((ctypes.c_ubyte * (image.stop - image.start)).from_address(image.start))


class CupyBinding(AdapterBinding):
    """A binding of device arrays, each in the place of host storage."""

    def __init__(self, images: Images, binding: Binding, lent: dict[str, tuple[HostStorage, _Image, Any]]) -> None:
        self._images = images
        self._binding = binding
        self._lent = lent

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        """Bring what the caller wrote to the device, run, and bring it back."""
        for feed in feeds.values():
            for storage, _, _ in self._lent.values():
                _require_apart(feed, storage.address, storage.address + storage.nbytes)
        self._send()
        try:
            with refusals():
                values = self._binding.run({name: storage.array() for name, storage in feeds.items()})
        finally:
            self._fetch()
        return {name: self._output(value) for name, value in values.items()}

    def release(self) -> None:
        """Release the binding."""
        with refusals():
            self._binding.release()
        self._images.drop(self._lent)
        self._lent = {}

    def _send(self) -> None:
        for image in self._distinct():
            self._images.device.write(image.buffer[image.offset :], _bytes(image))

    def _fetch(self) -> None:
        for image in self._distinct():
            found, target = self._images.device.download(image.buffer)[image.offset :], _bytes(image)
            changed = np.flatnonzero(found != target)
            target[changed] = found[changed]

    def _distinct(self) -> list[_Image]:
        return list({id(image): image for _, image, _ in self._lent.values() if image.start < image.stop}.values())

    def _output(self, value: Any) -> OutputValue:
        if not is_device_array(value):
            return OutputValue.of(value)
        storage = storage_of(value)
        lent = self._lent.values()
        host = next(host for host, _, array in lent if storage_of(array).byte_range == storage.byte_range)

        def read(offset: int, nbytes: int) -> bytes:
            self._send()
            flat = np.ascontiguousarray(value.get()).reshape(-1).view(np.uint8)
            return flat[offset : offset + nbytes].tobytes()

        return OutputValue(number_of(storage.dtype), storage.shape, storage.nbytes, host.address, read)


class CupySession(AdapterSession):
    """A session with a backend."""

    def __init__(self, images: Images, session: Session) -> None:
        self._images = images
        self._session = session
        self._bindings: list[CupyBinding] = []

    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        """Bind device arrays to mutable inputs and to the outputs that are names of them."""
        roots = self._session.plan.classes.root_of
        aliased = {f"output {name}": one for name, one in outputs.items() if roots.get(name) in mutable}
        lent = self._images.lend({**mutable, **aliased})
        try:
            self._images.keep(id(self), (one for name, one in outputs.items() if f"output {name}" not in aliased))
        except NotApplicable:
            self._images.drop(lent)
            raise
        arrays = {name: array for name, (_, _, array) in lent.items()}
        targets = {
            name: arrays[f"output {name}"] if f"output {name}" in arrays else storage.array()
            for name, storage in outputs.items()
        }
        try:
            with refusals():
                bound = self._session.bind({name: arrays[name] for name in mutable}, targets)
        except BaseException:
            self._images.drop(lent)
            raise
        binding = CupyBinding(self._images, bound, lent)
        self._bindings.append(binding)
        return binding

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        """Run without a binding."""
        with refusals():
            values = self._session.run({name: storage.array() for name, storage in feeds.items()})
        return {name: OutputValue.of(value) for name, value in values.items()}

    def unload(self) -> None:
        """Close the session, and with it its bindings."""
        with refusals():
            self._session.close()
        for binding in self._bindings:
            binding.release()
        self._images.on_host.pop(id(self), None)


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
        self._images = Images(connect(options.get("device", "cuda")))

    def describe(self) -> Description:
        """The device, and what the adapter does in the runtime's place."""
        try:
            version = metadata.version("mutcache")
        except metadata.PackageNotFoundError:
            version = "source tree"
        return Description(
            runtime=f"mutcache CUDA kernels on {self._images.device.name}",
            runtime_version=version,
            adapter="cupy",
            adapter_version=version,
            capabilities=frozenset(f"dtype:{name}" for name in OPTIONAL_TYPES),
            checks=("caches are on the device: their bytes and addresses are read back, and reported by the adapter",),
        )

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        """Check and plan the model."""
        device = self._images.device
        with refusals("load"):
            arrays = {name: storage.array() for name, storage in initializers.items()}
            backend = KernelBackend(device, f"cuda:{getattr(device, 'id', 0)}")
            session = CupySession(self._images, Session(parse(model), initializers=arrays, backend=backend))
        self._images.keep(id(session), initializers.values())
        return session
