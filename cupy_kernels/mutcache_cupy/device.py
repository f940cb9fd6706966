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
    """A device, or the CPU in its place.

    Memory that it allocates is an array of its own kind, of uint8 and one dimension. Other methods take any array in
    its memory that is contiguous, of whatever library.

    Attributes:
        name: its name, for results.
        id: its number.
        blocks: how many blocks it takes to be busy.
    """

    name: str
    id: int
    blocks: int

    def empty(self, nbytes: int) -> Any:
        """Bytes on the device, aligned to 256.

        Raises:
            MemoryError: there are not so many left.
        """

    def upload(self, array: Array | Record) -> Any:
        """The bytes of a host array, on the device."""

    def write(self, target: Any, array: Array) -> None:
        """Copy the elements of a host array to an array of as many bytes; both are free when this returns."""

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
        """A device array, as users have them, over bytes of ``buffer``, which it keeps alive.

        Args:
            buffer: an array of this device.
            offset: the byte at which the element with all indices 0 is.
            dtype: element type, one of ml_dtypes too.
            shape: dimensions.
            strides: bytes per step of each dimension; None: row-major without gaps.
            writable: False says that nobody may write through this array.
        """

    def adopt(self, array: Any) -> Any:
        """An array of whatever library over the same memory, with a header that nobody can change.

        Raises:
            TypeError: the memory is not of this device.
        """

    def read(self, address: int, nbytes: int) -> Array:
        """A copy of bytes on the host, of what everything launched before leaves there."""

    def download(self, array: Any) -> Array:
        """The bytes of an array, likewise."""

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

    def elapsed(self, action: Callable[[], None], before: Callable[[], object] = lambda: None) -> float:
        """Seconds that what ``action`` launches takes on the device.

        ``before`` launches work that is not timed: while the device does it, ``action`` is launched, which can take the
        host longer than it takes the device.
        """

    def captured(self, action: Callable[[], None]) -> Callable[[], None]:
        """What ``action`` launches, to be launched again as a whole: a graph, where the device has them."""


class DeviceUnavailable(RuntimeError):  # noqa: N818 - a state of the machine, told in one line
    """There is no device to run on; the message says what is missing and what to do."""
