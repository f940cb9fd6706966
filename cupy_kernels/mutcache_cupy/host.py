"""The CPU in a device's place: the kernels' own sources, compiled by a C++ compiler with the host shim.

Every access of a kernel is checked first: that it is aligned, lies in memory that this module allocated, and meets no
access of another thread of the launch. A device would end with an error there, or write what depends on luck.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from mutcache.storage import storage_of
from mutcache_cupy.device import Array, DeviceUnavailable
from mutcache_cupy.device_view import DeviceView, Place
from mutcache_cupy.records import Record
from mutcache_cupy.sources import FOLDER, UNITS, cached, digest

#: No fusing and no reordering: float32 operations are rounded one by one, as the device's are told to.
OPTIONS: Final = (
    "-std=c++17",
    "-O1",
    "-ffp-contract=off",
    "-fno-fast-math",
    "-fno-strict-aliasing",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
)
#: What the compiler calls functions of host_runtime.cc for: accesses, and behaviour that is undefined.
_CHECKS: Final = "-fsanitize=thread,alignment,bounds,shift,signed-integer-overflow,integer-divide-by-zero,bool,enum"
_RUNTIME: Final = "host_runtime.cc"
_ALIGNMENT: Final = 256
#: A launch has the library to itself, whichever device it is of: its state is the library's.
_LAUNCH: Final = threading.Lock()


class KernelFault(RuntimeError):  # noqa: N818 - CUDA's word
    """A kernel did what a device refuses, or what depends on the order of its threads; the launch has ended there."""


class HostDevice:
    """The CPU as a device. Blocks run one after the other, their threads in turns.

    Args:
        block: threads of a block, a multiple of 32. Fewer than on a device: a thread costs some microseconds here.
        blocks: blocks along x at most. Few, so that threads take several items.
        order: 0 for blocks and threads in their order, else the seed of another one.
        library: other kernels than those of this package, built by :func:`build`.

    Raises:
        DeviceUnavailable: there is no C++ compiler.
    """

    name = "host shim"
    id = 0

    def __init__(self, block: int = 64, blocks: int = 4, order: int = 0, library: Path | None = None) -> None:
        self.blocks = blocks
        self._block = block
        self._order = order
        self._library = _load(library or _library())
        self._owned: dict[int, int] = {}  # start and end of the memory that kernels may use

    def empty(self, nbytes: int) -> Array:
        """Uninitialized bytes."""
        raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % _ALIGNMENT
        address = raw.ctypes.data + start
        self._own(raw, address, address + nbytes)
        return raw[start : start + nbytes]

    def upload(self, array: Array | Record) -> Array:
        """A copy of the bytes."""
        target = self.empty(array.nbytes)
        target[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return target

    def write(self, target: Any, array: Array) -> None:
        """Copy the elements."""
        _bytes_of(target)[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def view(
        self,
        buffer: Any,
        offset: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        *,
        writable: bool = True,
    ) -> DeviceView:
        """An array over bytes of ``buffer`` that looks like one of a device; kernels may use all of ``buffer``."""
        self._own(buffer, *_range_of(buffer))
        address = self.address(buffer) + offset
        return DeviceView(buffer, address, dtype, shape, strides, Place(self.id), self.read, writable=writable)

    def adopt(self, array: Any) -> Any:
        """The array itself, if it is of this device."""
        if isinstance(array, DeviceView):  # nobody can change its header
            return array
        storage = storage_of(array)
        return self.view(array, 0, storage.dtype, storage.shape, storage.strides, writable=storage.writable)

    def read(self, address: int, nbytes: int) -> Array:
        """A copy of bytes."""
        return _bytes_at(address, nbytes).copy()

    def download(self, array: Any) -> Array:
        """A copy of the bytes."""
        return _bytes_of(array).copy()

    def fill(self, array: Any, byte: int) -> None:
        """Set all bytes."""
        _bytes_of(array)[...] = byte

    def copy(self, target: Any, source: Any) -> None:
        """Copy all bytes."""
        _bytes_of(target)[...] = _bytes_of(source)

    def address(self, array: Any) -> int:
        """The address of the first byte."""
        return storage_of(array).address

    def launch(self, kernel: str, grid: tuple[int, int], table: Any, status: Any) -> None:
        """Run a kernel to its end.

        Raises:
            KernelFault: it does what a device refuses; the message has the kernel, the thread and the address.
            ValueError: there is no such kernel.
        """
        try:
            entry = getattr(self._library, f"mutcache_{kernel}")
        except AttributeError:
            raise ValueError(f"there is no kernel {kernel!r}") from None
        bounds = np.array(sorted(self._owned.copy().items()), np.uintp)
        with _LAUNCH:
            fault = self._library.mutcache_host_launch(
                entry,
                *grid,
                self._block,
                ctypes.c_void_p(self.address(table)),
                ctypes.c_void_p(self.address(status)),
                bounds.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_size_t(len(bounds)),
                self._order,
            )
            told = fault.decode() if fault else ""
        if told:
            raise KernelFault(f"{kernel}: {told}")

    def owns(self, address: int, nbytes: int) -> bool:
        """Whether all of these bytes are memory of this device."""
        # A copy: the end of an array, which can come at any moment, changes it.
        return any(start <= address and address + nbytes <= stop for start, stop in self._owned.copy().items())

    def _own(self, owner: object, start: int, stop: int) -> None:
        """Let kernels use memory as long as ``owner`` lives, if they may not anyway."""
        if start < stop and not self.owns(start, stop - start):
            self._owned[start] = stop
            weakref.finalize(owner, self._owned.pop, start, None)

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def elapsed(self, action: Callable[[], None], before: Callable[[], object] = lambda: None) -> float:
        """Seconds by the clock; they say nothing about a device."""
        before()
        start = time.perf_counter()
        action()
        return time.perf_counter() - start

    def captured(self, action: Callable[[], None]) -> Callable[[], None]:
        """The action itself."""
        return action


def _range_of(array: Any) -> tuple[int, int]:
    found = storage_of(array).byte_range
    return found.start, found.stop


def _bytes_at(address: int, nbytes: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(address)) if nbytes else np.empty(0, np.uint8)


def _bytes_of(array: Any) -> Array:
    """The bytes of a contiguous array."""
    storage = storage_of(array)
    return _bytes_at(storage.address, storage.nbytes)


def compiler() -> str | None:
    """The C++ compiler: that of the variable CXX, else g++."""
    return shutil.which(os.environ.get("CXX", "g++"))


@cache
def _library() -> Path:
    """The kernels of this package, compiled once."""
    command = _compiler()
    version = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
    path = cached(f"{digest(_RUNTIME, *map(digest, UNITS), command, version, _CHECKS, *OPTIONS)}.so")
    if not path.exists():
        build([FOLDER / unit for unit in UNITS], path)
    return path


def build(units: Sequence[Path], path: Path) -> None:
    """Compile kernels, with checks, to a library for :class:`HostDevice`.

    Raises:
        DeviceUnavailable: there is no C++ compiler.
        RuntimeError: they do not compile; the message has the compiler's report.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:

        def run(*arguments: str) -> None:
            command = [_compiler(), *OPTIONS, *arguments]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{command[0]} does not compile the kernels:\n{done.stderr}")

        shim = ("-I", str(FOLDER), "-include", "host_shim.h", "-x", "c++")
        run(_CHECKS, *shim, "-c", *(str(unit) for unit in units))
        # The runtime has what the checks call, so that no sanitizer is linked.
        run("-shared", "-o", "library.so", *(f"{unit.stem}.o" for unit in units), str(FOLDER / _RUNTIME))
        os.replace(Path(folder) / "library.so", path)  # other processes may be compiling the same


@cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.mutcache_host_launch.restype = ctypes.c_char_p
    return library


def _compiler() -> str:
    found = compiler()
    if found is None:
        raise DeviceUnavailable("no C++ compiler: install g++, or name one in CXX")
    return found
