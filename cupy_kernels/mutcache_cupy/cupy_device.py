"""A GPU, through CuPy: memory and streams are CuPy's, the kernels are compiled by NVRTC with options of our own.

Everything happens on the device that was current when the object was made, whichever is current later.
Launches go to the current stream of the calling thread (``with stream:``), and so do fills, copies and uploads. Reading
back waits for that stream alone: memory that another stream writes must be waited for by the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from mutcache.storage import storage_of
from mutcache_cupy.device import BLOCK, Array, DeviceUnavailable
from mutcache_cupy.device_view import DeviceView, Place
from mutcache_cupy.nvrtc import cubin_file, target, unit_of_kernel
from mutcache_cupy.records import Record

#: Blocks that a multiprocessor works on at once; more are queued.
_BLOCKS_PER_PROCESSOR = 8


def cupy() -> Any:
    """The package CuPy.

    Raises:
        DeviceUnavailable: it is not installed, or finds no device; the message says which, in one line.
    """
    try:
        import cupy as package
    except Exception as error:  # ImportError, or what a library that cannot be loaded makes it raise
        raise DeviceUnavailable(f"CuPy cannot be imported ({_one_line(error)}): pip install 'mutcache[cupy]'") from None
    try:
        count = package.cuda.runtime.getDeviceCount()
    except Exception as error:  # what CuPy raises where there is no driver depends on its version
        raise DeviceUnavailable(f"CuPy finds no CUDA device: {_one_line(error)}") from None
    if not count:
        raise DeviceUnavailable("CuPy finds no CUDA device: the driver lists none")
    return package


class CupyDevice:
    """CuPy's current device at the time of construction.

    Raises:
        DeviceUnavailable: there is no CuPy, no device or no NVRTC, or they do not fit each other.
    """

    def __init__(self) -> None:
        self.cupy = cupy()
        self._runtime = self.cupy.cuda.runtime
        self._current = self.cupy.cuda.Device()
        self.id = int(self._current.id)
        properties = self._runtime.getDeviceProperties(self.id)
        self.name = properties["name"].decode()
        self.architecture = target(self._current.compute_capability, self._runtime.driverGetVersion())
        self.processors = int(properties["multiProcessorCount"])
        self.blocks = self.processors * _BLOCKS_PER_PROCESSOR
        self._kinds = (self._runtime.memoryTypeDevice, self._runtime.memoryTypeManaged)
        self._modules: dict[str, Any] = {}
        self._kernels: dict[str, Any] = {}

    def empty(self, nbytes: int) -> Any:
        """Uninitialized bytes."""
        with self._current:
            return self.cupy.empty(nbytes, np.uint8)

    def upload(self, array: Array | Record) -> Any:
        """A copy of the bytes on the device."""
        with self._current:
            return self.cupy.asarray(np.ascontiguousarray(array).reshape(-1).view(np.uint8))

    def write(self, target: Any, array: Array) -> None:
        """Copy the elements to the device, and wait: the host array may be freed or changed afterwards."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._copy_bytes(self.address(target), flat.ctypes.data, flat.nbytes, self._runtime.memcpyHostToDevice)
        self.synchronize()

    def view(
        self,
        buffer: Any,
        offset: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        *,
        writable: bool = True,
    ) -> Any:
        """A cupy.ndarray over bytes of ``buffer``, where CuPy has arrays like that."""
        if writable and dtype.isbuiltin == 1 and isinstance(buffer, self.cupy.ndarray):
            pointer = buffer.data + offset if buffer.nbytes else buffer.data
            return self.cupy.ndarray(shape, dtype, pointer, strides)
        return self._view(buffer, self.address(buffer) + offset, dtype, shape, strides, writable=writable)

    def adopt(self, array: Any) -> Any:
        """A view of the array, whose pointer the driver has confirmed."""
        storage = storage_of(array)
        if storage.nbytes:
            start = storage.byte_range.start
            found = self._runtime.pointerGetAttributes(start)
            if found.device != self.id or found.type not in self._kinds:
                raise TypeError(f"{type(array).__name__} at {start:#x} is not in the memory of cuda:{self.id}")
        strides = storage.strides
        return self._view(array, storage.address, storage.dtype, storage.shape, strides, writable=storage.writable)

    def _view(
        self,
        owner: object,
        address: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        *,
        writable: bool,
    ) -> DeviceView:
        return DeviceView(owner, address, dtype, shape, strides, Place(self.id), self.read, writable=writable)

    def read(self, address: int, nbytes: int) -> Array:
        """A copy of bytes on the host."""
        found = np.empty(nbytes, np.uint8)
        self._copy_bytes(found.ctypes.data, address, nbytes, self._runtime.memcpyDeviceToHost)
        self.synchronize()
        return found

    def download(self, array: Any) -> Array:
        """A copy of the bytes on the host."""
        return self.read(self.address(array), storage_of(array).nbytes)

    def fill(self, array: Any, byte: int) -> None:
        """Set all bytes."""
        if nbytes := storage_of(array).nbytes:
            with self._current:
                self._runtime.memsetAsync(self.address(array), byte, nbytes, self._stream)

    def copy(self, target: Any, source: Any) -> None:
        """Copy all bytes on the device."""
        nbytes = storage_of(source).nbytes
        self._copy_bytes(self.address(target), self.address(source), nbytes, self._runtime.memcpyDeviceToDevice)

    def _copy_bytes(self, target: int, source: int, nbytes: int, kind: int) -> None:
        if nbytes:
            with self._current:
                self._runtime.memcpyAsync(target, source, nbytes, kind, self._stream)

    @property
    def _stream(self) -> int:
        """The pointer of the current stream of the device, which has to be the current one."""
        return int(self.cupy.cuda.get_current_stream().ptr)

    def address(self, array: Any) -> int:
        """The device pointer."""
        return storage_of(array).address

    def launch(self, kernel: str, grid: tuple[int, int], table: Any, status: Any) -> None:
        """Launch a kernel on the current stream."""
        with self._current:
            if kernel not in self._kernels:
                unit = unit_of_kernel(kernel)
                if unit not in self._modules:
                    self._modules[unit] = self.cupy.RawModule(path=str(cubin_file(unit, self.architecture)))
                self._kernels[kernel] = self._modules[unit].get_function(f"mutcache_{kernel}")
            self._kernels[kernel]((*grid, 1), (BLOCK, 1, 1), (table, status))

    def synchronize(self) -> None:
        """Wait for the current stream."""
        with self._current:
            self.cupy.cuda.get_current_stream().synchronize()

    def elapsed(self, action: Callable[[], None], before: Callable[[], object] = lambda: None) -> float:
        """Seconds between two events of the current stream around ``action``, which ``before`` keeps busy meanwhile."""
        first, last = (self.cupy.cuda.Event() for _ in range(2))
        before()
        first.record()
        action()
        last.record()
        last.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(first, last)) / 1e3

    def captured(self, action: Callable[[], None]) -> Callable[[], None]:
        """A CUDA graph of what ``action`` launches, which must have run once before, so that its kernels are loaded.

        The graph names memory by address: it must not outlive the step whose launch it captures.
        """
        stream = self.cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            action()
            graph = stream.end_capture()
        return lambda: graph.launch(self.cupy.cuda.get_current_stream())


def _one_line(error: Exception) -> str:
    """The first line that has words: CuPy's begin with a rule."""
    return next((line.strip() for line in str(error).splitlines() if re.search(r"\w", line)), type(error).__name__)
