"""What kernels run on: a GPU through CuPy, or the CPU through the host shim. Everything else sees only this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from mutcache_cupy.records import Record

Array = np.ndarray[Any, np.dtype[Any]]

#: Threads of a block.
BLOCK = 256


class Device(Protocol):
    """A device, or the CPU in its place. Arrays are the device's own, of uint8 and one dimension.

    Attributes:
        name: its name, for results.
        blocks: how many blocks it takes to be busy.
    """

    name: str
    blocks: int

    def empty(self, nbytes: int) -> Any:
        """Bytes on the device, aligned to 256."""

    def upload(self, array: Array | Record) -> Any:
        """The bytes of a host array, on the device."""

    def write(self, target: Any, array: Array) -> None:
        """Copy the bytes of a host array to an array of as many."""

    def view(
        self, buffer: Any, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Any:
        """A device array, as users have them, over bytes of ``buffer``."""

    def download(self, array: Any) -> Array:
        """The bytes of an array of the device, on the host, after everything that was launched."""

    def fill(self, array: Any, byte: int) -> None:
        """Set all bytes, in the order of launches."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy all bytes of ``source`` to ``target``, in the order of launches."""

    def address(self, array: Any) -> int:
        """The address of its first byte."""

    def launch(self, kernel: str, grid: tuple[int, int], table: Any, status: Any) -> None:
        """Launch a kernel on a table of ROWS records, with a status word for each."""

    def synchronize(self) -> None:
        """Wait for everything that was launched."""

    def elapsed(self, action: Callable[[], None]) -> float:
        """Seconds that what ``action`` launches takes on the device."""

    def captured(self, action: Callable[[], None]) -> Callable[[], None]:
        """What ``action`` launches, to be launched again as a whole: a graph, where the device has them."""


class DeviceUnavailable(RuntimeError):  # noqa: N818 - a state of the machine, told in one line
    """There is no device to run on; the message says what is missing and what to do."""
