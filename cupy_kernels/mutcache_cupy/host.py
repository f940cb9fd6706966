"""The CPU in a device's place: the kernels' own sources, compiled by a C++ compiler with the host shim."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
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
    "-shared",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
)
_ALIGNMENT: Final = 256


class HostDevice:
    """The CPU as a device. Blocks run one after the other, their threads in turns.

    Args:
        block: threads of a block, a multiple of 32. Fewer than on a device: a thread costs some microseconds here.
        blocks: blocks along x at most. Few, so that threads take several items.

    Raises:
        DeviceUnavailable: there is no C++ compiler.
    """

    name = "host shim"
    id = 0

    def __init__(self, block: int = 64, blocks: int = 4) -> None:
        self.blocks = blocks
        self._block = block
        self._libraries = {unit: _library(unit) for unit in UNITS}
        self._kernels: dict[str, tuple[Any, Any]] = {}

    def empty(self, nbytes: int) -> Array:
        """Uninitialized bytes."""
        raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % _ALIGNMENT
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
        """An array over bytes of ``buffer`` that looks like one of a device."""
        address = self.address(buffer) + offset
        return DeviceView(buffer, address, dtype, shape, strides, Place(self.id), self.read, writable=writable)

    def adopt(self, array: Any) -> Any:
        """The array itself, if it is of this device."""
        if isinstance(array, DeviceView):
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

    def launch(self, kernel: str, grid: tuple[int, int], table: Array, status: Array) -> None:
        """Run a kernel to its end."""
        if kernel not in self._kernels:
            self._kernels[kernel] = self._find(kernel)
        library, entry = self._kernels[kernel]
        arguments = (ctypes.c_void_p(self.address(array)) for array in (table, status))
        library.mutcache_host_launch(entry, *grid, self._block, *arguments)

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def elapsed(self, action: Callable[[], None]) -> float:
        """Seconds by the clock; they say nothing about a device."""
        start = time.perf_counter()
        action()
        return time.perf_counter() - start

    def captured(self, action: Callable[[], None]) -> Callable[[], None]:
        """The action itself."""
        return action

    def _find(self, kernel: str) -> tuple[Any, Any]:
        for library in self._libraries.values():
            try:
                return library, getattr(library, f"mutcache_{kernel}")
            except AttributeError:
                continue
        raise ValueError(f"there is no kernel {kernel!r}")


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
def _library(unit: str) -> ctypes.CDLL:
    command = compiler()
    if command is None:
        raise DeviceUnavailable("no C++ compiler: install g++, or name one in CXX")
    version = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
    path = cached(f"{digest(unit, command, version, *OPTIONS)}.so")
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            built = Path(folder) / "library.so"
            source = FOLDER / unit
            arguments = [command, *OPTIONS, "-x", "c++", "-include", "host_shim.h", str(source), "-o", str(built)]
            done = subprocess.run(arguments, cwd=FOLDER, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{command} does not compile {unit}:\n{done.stderr}")
            os.replace(built, path)  # other processes may be compiling the same
    return ctypes.CDLL(str(path))
