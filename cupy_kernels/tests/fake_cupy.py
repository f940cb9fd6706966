"""A CuPy without a GPU: the part of the package that ``mutcache_cupy`` uses, as strict as the real one or stricter.

Memory is that of the host shim, which runs the kernels that are launched. Like a device it does nothing before somebody
waits: what is launched on a stream is done when the stream is synchronized, in its order, and what a capture records is
done when its graph is launched. Memory that was freed meanwhile is kept only until then: CuPy's pool gives it to nobody
but later work of the same stream.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self

import numpy as np

from mutcache_cupy.host import HostDevice

Array = np.ndarray[Any, np.dtype[Any]]

#: What real functions take, as their documentation has it: ``test_cupy_device`` compares it with an installed CuPy.
SIGNATURES: Final = {
    "asarray": "asarray(a, dtype=None, order=None, *, copy=None, blocking=False)",
    "empty": "empty(shape, dtype=float, order='C')",
    "RawModule": "RawModule(str code=None, *, str path=None, ",
    "RawModule.get_function": "RawModule.get_function(self, str name)",
    "RawKernel.__call__": "RawKernel.__call__(self, grid, block, args, **kwargs)",
    "ndarray": "__init__(shape, dtype=float, memptr=None, strides=None, order='C')",
    "cuda.Event": "Event(block=False, disable_timing=False, interprocess=False)",
    "cuda.Event.record": "Event.record(self, stream=None)",
    "cuda.Event.synchronize": "Event.synchronize(self)",
    "cuda.MemoryPool": "MemoryPool(allocator=None)",
    "cuda.MemoryPool.free_all_blocks": "MemoryPool.free_all_blocks(self, stream=None)",
    "cuda.MemoryPool.free_bytes": "MemoryPool.free_bytes(self) -> size_t",
    "cuda.MemoryPool.malloc": "MemoryPool.malloc(self, size_t size) -> MemoryPointer",
    "cuda.MemoryPool.used_bytes": "MemoryPool.used_bytes(self) -> size_t",
    "cuda.Graph.launch": "Graph.launch(self, stream=None)",
    "cuda.Stream": "Stream(null=False, non_blocking=False, ptds=False, priority=None)",
    "cuda.Stream.begin_capture": "_BaseStream.begin_capture(self, mode=None)",
    "cuda.Stream.end_capture": "_BaseStream.end_capture(self)",
    "cuda.Stream.synchronize": "_BaseStream.synchronize(self)",
    "cuda.get_current_stream": "get_current_stream(int device_id=-1)",
    "cuda.get_elapsed_time": "get_elapsed_time(start_event, end_event)",
    "cuda.runtime.driverGetVersion": "driverGetVersion() -> int",
    "cuda.runtime.getDeviceCount": "getDeviceCount() -> int",
    "cuda.runtime.getDeviceProperties": "getDeviceProperties(int device)",
    "cuda.runtime.memGetInfo": "memGetInfo()",
    "cuda.runtime.memcpyAsync": "memcpyAsync(intptr_t dst, intptr_t src, size_t size, int kind, intptr_t stream)",
    "cuda.runtime.pointerGetAttributes": "pointerGetAttributes(intptr_t ptr) -> PointerAttributes",
    "cuda.runtime.memsetAsync": "memsetAsync(intptr_t ptr, int value, size_t size, intptr_t stream)",
    "cuda.runtime.runtimeGetVersion": "runtimeGetVersion() -> int",
    "cuda.set_allocator": "set_allocator(allocator=None)",
    "cuda.using_allocator": "using_allocator(allocator=None)",
    "get_default_memory_pool": "get_default_memory_pool()",
}
_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 1, 2, 3
_NOT_REGISTERED, _DEVICE_MEMORY = 0, 2


class FakeError(RuntimeError):
    """What the real package answers with an error of CUDA, or with one of Python."""


class FakeCupy(SimpleNamespace):
    """The package: put it in the place of ``cupy`` in ``sys.modules``.

    Args:
        capability: compute capability of its device.
        driver: the CUDA version of its driver.
        count: how many devices there are; all memory is on the first.
    """

    def __init__(self, capability: str = "90", driver: int = 13000, count: int = 1) -> None:
        self.__version__ = "14.2.0"
        self.capability = capability
        self.shim = HostDevice()
        self.null = Stream(self, null=True)
        self.current = self.null
        self.streams: dict[int, Stream] = {0: self.null}
        self.pointers = itertools.count(16, 16)
        self.launched: list[str] = []  # kernels that have run
        self.pool = Pool(self)
        self.allocator: Callable[[int], Pointer] = self.pool.malloc
        properties = {"name": b"Fake GPU", "multiProcessorCount": 1, "totalGlobalMem": 1 << 30}
        self.cuda = SimpleNamespace(
            Device=lambda: Device(self),
            Event=lambda: Event(self),
            Stream=lambda *, non_blocking: Stream(self, non_blocking=non_blocking),
            get_current_stream=lambda: self.current,
            get_elapsed_time=lambda start, end: end.stamp(start),
            MemoryPool=lambda: Pool(self),
            set_allocator=self._set_allocator,
            using_allocator=self._using_allocator,
            runtime=SimpleNamespace(
                driverGetVersion=lambda: driver,
                runtimeGetVersion=lambda: 13000,
                getDeviceCount=lambda: count,
                getDeviceProperties=lambda number: [properties][number],
                memGetInfo=lambda: (1 << 29, 1 << 30),
                memcpyAsync=self._memcpy,
                memsetAsync=self._memset,
                pointerGetAttributes=self._attributes,
                memoryTypeDevice=_DEVICE_MEMORY,
                memoryTypeManaged=_DEVICE_MEMORY + 1,
                memcpyHostToDevice=_HOST_TO_DEVICE,
                memcpyDeviceToHost=_DEVICE_TO_HOST,
                memcpyDeviceToDevice=_DEVICE_TO_DEVICE,
            ),
        )
        self.get_default_memory_pool = lambda: self.pool
        self.ndarray = ndarray
        self.RawModule = lambda *, path: RawModule(self, path=path)

    def empty(self, shape: int, dtype: type) -> ndarray:
        """Memory that nobody has written."""
        assert dtype is np.uint8
        return ndarray((shape,), np.dtype(dtype), self.allocator(shape))

    def asarray(self, a: Array) -> ndarray:
        """A copy of a host array."""
        assert type(a) is np.ndarray
        assert a.dtype == np.uint8
        made = self.empty(a.size, np.uint8)
        if a.nbytes:
            self._memcpy(made.data.ptr, a.ctypes.data, a.nbytes, _HOST_TO_DEVICE, self.current.ptr)
        return made

    def _set_allocator(self, allocator: Callable[[int], Pointer] | None = None) -> None:
        self.allocator = allocator or self.malloc

    @contextmanager
    def _using_allocator(self, allocator: Callable[[int], Pointer]) -> Iterator[None]:
        before, self.allocator = self.allocator, allocator
        try:
            yield
        finally:
            self.allocator = before

    def malloc(self, nbytes: int) -> Pointer:
        """Memory that is in no pool: CUDA waits for everything before it frees it."""
        found = self.allocate(nbytes)
        weakref.finalize(found, lambda _: self.current.synchronize(), found.memory).atexit = False
        return found

    def allocate(self, nbytes: int) -> Pointer:
        """Memory that is gone as soon as nobody has it."""
        buffer = self.shim.empty(nbytes)
        return Pointer(self, buffer, self.shim.address(buffer) if nbytes else 0)

    def _memcpy(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        assert size > 0
        target = self.streams[stream]
        if kind == _HOST_TO_DEVICE:  # memory of the host that is not pinned is read at once
            content = ctypes.string_at(src, size)
            target.do(lambda: self._move(dst, content))
        elif kind == _DEVICE_TO_HOST:
            target.synchronize()
            ctypes.memmove(dst, self._content(src, size), size)
        else:
            assert kind == _DEVICE_TO_DEVICE
            target.do(lambda: self._move(dst, self._content(src, size)))

    def _memset(self, ptr: int, value: int, size: int, stream: int) -> None:
        assert size > 0
        self.streams[stream].do(lambda: self._move(ptr, bytes([value]) * size))

    def _move(self, target: int, content: bytes) -> None:
        self._require(target, len(content))
        ctypes.memmove(target, content, len(content))

    def _content(self, address: int, size: int) -> bytes:
        self._require(address, size)
        return ctypes.string_at(address, size)

    def _attributes(self, ptr: int) -> SimpleNamespace:
        is_ours = self.shim.owns(ptr, 1)
        return SimpleNamespace(device=0 if is_ours else -2, type=_DEVICE_MEMORY if is_ours else _NOT_REGISTERED)

    def _require(self, address: int, size: int) -> None:
        if not self.shim.owns(address, size):
            raise FakeError(f"cudaErrorInvalidValue: {size} bytes at {address:#x} are not allocated")


class Device:
    """A device, and the current one inside a ``with``."""

    def __init__(self, package: FakeCupy) -> None:
        self.id = 0
        self.compute_capability = package.capability

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Stream:
    """Work that is done when somebody waits for it."""

    def __init__(self, package: FakeCupy, null: bool = False, non_blocking: bool = False) -> None:
        self._package = package
        self._before: list[Stream] = []
        self._work: list[Callable[[], object]] = []
        self._captured: list[Callable[[], object]] | None = None
        self.freed: list[Array] = []  # memory that what was launched before it was freed may still use
        self.ptr = 0 if null else next(package.pointers)
        self.is_non_blocking = non_blocking
        if not null:
            package.streams[self.ptr] = self

    def __enter__(self) -> Self:
        self._before.append(self._package.current)
        self._package.current = self
        return self

    def __exit__(self, *_: object) -> None:
        self._package.current = self._before.pop()

    def do(self, work: Callable[[], object]) -> None:
        """Do something in the order of the stream."""
        (self._work if self._captured is None else self._captured).append(work)

    def synchronize(self) -> None:
        """Do all of it."""
        if self._captured is not None:
            raise FakeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")
        work, self._work = self._work, []
        for one in work:
            one()
        self.freed.clear()

    def begin_capture(self) -> None:
        """Record what is launched from now on."""
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self._captured = []

    def end_capture(self) -> Graph:
        """What was launched."""
        captured, self._captured = self._captured, None
        assert captured, "a graph of nothing"
        return Graph(captured)


class Graph:
    """Recorded work."""

    def __init__(self, work: list[Callable[[], object]]) -> None:
        self._work = work

    def launch(self, stream: Stream) -> None:
        """Do it on a stream."""
        for one in self._work:
            stream.do(one)


class Event:
    """A place in a stream. Its time is the number of kernels that had run then: no test depends on a clock."""

    def __init__(self, package: FakeCupy) -> None:
        self._package = package
        self._stream: Stream | None = None
        self._time: int | None = None

    def record(self) -> None:
        """Put it into the current stream."""
        self._stream = self._package.current
        self._stream.do(self._reach)

    def _reach(self) -> None:
        self._time = len(self._package.launched)

    def synchronize(self) -> None:
        """Wait until the stream has come to it."""
        assert self._stream is not None
        self._stream.synchronize()

    def stamp(self, start: Event) -> float:
        """Milliseconds since ``start``."""
        if self._time is None or start._time is None:
            raise FakeError("cudaErrorNotReady: device not ready")
        return (self._time - start._time + 1) * 1e-3


class Pool:
    """Memory that is given again after it was freed, in the order of the stream that it was allocated for."""

    def __init__(self, package: FakeCupy) -> None:
        self._package = package
        self._used: dict[int, int] = {}

    def malloc(self, size: int) -> Pointer:
        """Memory of the pool, in blocks of 512 bytes."""
        found = self._package.allocate(size)
        self._used[id(found)] = -(-size // 512) * 512
        weakref.finalize(found, self._free, id(found), found.memory, self._package.current).atexit = False
        return found

    def _free(self, number: int, memory: Array, stream: Stream) -> None:
        del self._used[number]
        stream.freed.append(memory)

    def used_bytes(self) -> int:
        """All that is in use."""
        return sum(list(self._used.values()))

    def free_bytes(self) -> int:
        """All that was freed: nothing is kept."""
        return 0

    def free_all_blocks(self) -> None:
        """Keep nothing."""


class Pointer:
    """A place in memory, which it keeps."""

    def __init__(self, package: FakeCupy, memory: Array, ptr: int) -> None:
        self.package = package
        self.memory = memory
        self.ptr = ptr

    def __add__(self, offset: int) -> Pointer:
        assert self.ptr != 0 or offset == 0
        return Part(self, offset)


class Part(Pointer):
    """A place behind another one, which it keeps."""

    def __init__(self, whole: Pointer, offset: int) -> None:
        super().__init__(whole.package, whole.memory, whole.ptr + offset)
        self._whole = whole


class ndarray:  # noqa: N801 - the name that it has in CuPy
    """An array on the device."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], memptr: Pointer, strides: tuple[int, ...] | None = None
    ) -> None:
        assert isinstance(shape, tuple)
        assert isinstance(dtype, np.dtype)
        self.shape, self.dtype, self.data = shape, dtype, memptr
        self.ndim, self.size = len(shape), int(np.prod(shape))
        self.nbytes = self.size * dtype.itemsize
        self.strides = np.empty(shape, dtype).strides if strides is None else strides
        self.device = SimpleNamespace(id=0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        is_dense = self.strides == np.empty(self.shape, self.dtype).strides
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.data.ptr, False),
            "strides": None if is_dense else self.strides,
            "stream": 1,
            "version": 3,
        }

    def __array__(self, *_: object) -> Array:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __getitem__(self, part: slice) -> ndarray:
        assert self.dtype == np.uint8
        start, stop, step = part.indices(self.size)
        assert step == 1
        return ndarray((max(0, stop - start),), self.dtype, self.data + start)

    def get(self) -> Array:
        """A copy on the host."""
        assert self.strides == np.empty(self.shape, self.dtype).strides
        self.data.package.current.synchronize()
        content = ctypes.string_at(self.data.ptr, self.nbytes) if self.nbytes else b""
        return np.frombuffer(content, np.uint8).view(self.dtype).reshape(self.shape).copy()


class RawModule:
    """A compiled file."""

    def __init__(self, package: FakeCupy, *, path: str) -> None:
        assert type(path) is str
        self._package = package
        self._content = Path(path).read_bytes()
        assert self._content.startswith(b"\x7fELF"), "no binary of CUDA"

    def get_function(self, name: str) -> RawKernel:
        """One of its kernels."""
        if f".text.{name}\0".encode() not in self._content:
            raise FakeError(f"CUDA_ERROR_NOT_FOUND: named symbol not found: {name}")
        return RawKernel(self._package, name.removeprefix("mutcache_"))


class RawKernel:
    """A kernel; it runs on the host shim."""

    def __init__(self, package: FakeCupy, name: str) -> None:
        self._package = package
        self._name = name

    def __call__(self, grid: tuple[int, int, int], block: tuple[int, int, int], args: tuple[ndarray, ndarray]) -> None:
        x, y, z = grid
        assert 0 < x < 2**31
        assert 0 < y <= 65535
        assert (z, block) == (1, (256, 1, 1))
        assert all(type(size) is int for size in grid)
        assert all(type(argument) is ndarray for argument in args), "arguments are arrays of CuPy, or numbers"
        table, status = (argument.data.ptr for argument in args)

        def run() -> None:
            self._package.launched.append(self._name)
            self._package.shim.launch(self._name, (x, y), at(table), at(status))

        self._package.current.do(run)


def at(address: int) -> Array:
    """One byte of memory, by its address."""
    return np.ctypeslib.as_array((ctypes.c_ubyte * 1).from_address(address))
