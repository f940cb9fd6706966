"""Where the payloads of pages are, and what writes and reads them there: the host, or a device with kernels.

Everything was judged before: page, type, rows and values fit each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np

from mutcache.errors import BindError
from mutcache.quantization import Declaration, decode, encode_rows, reencode
from mutcache.requirements import Req
from mutcache.storage import Array, to_host


class PageMemory(Protocol):
    """The memory of pages.

    Attributes:
        device: the address space, as :class:`mutcache.storage.Storage` names it.
    """

    device: str

    def allocate(self, nbytes: int) -> Any:
        """A payload of zeros: uint8 [nbytes].

        Raises:
            MemoryError: there is not so much memory.
        """

    def adopt(self, payload: Any) -> Any:
        """A payload of the caller's as what the other methods take: over the same memory, with a header of our own."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy all bytes of a payload to another one of as many; they do not overlap."""

    def clear(self, payload: Any) -> None:
        """Set all bytes to zero."""

    def encode_rows(
        self, payload: Any, declaration: Declaration, dims: Sequence[int], axis: int, position: int, values: Any
    ) -> None:
        """Encode ``values`` into rows of a page; see :func:`mutcache.quantization.encode_rows`."""

    def reencode(self, payload: Any, old: Declaration, new: Declaration, dims: Sequence[int], target: Any) -> None:
        """Encode a page anew, into other memory; see :func:`mutcache.quantization.reencode`."""

    def gather(
        self, pages: Sequence[tuple[Any, Declaration]], dims: Sequence[int], axis: int, dtype: np.dtype[Any]
    ) -> Any:
        """Pages decoded and concatenated along ``axis``, in memory of its own.

        Args:
            pages: payloads, wherever they are, with their declarations.
            dims: the shape of every page.
            axis: non-negative.
            dtype: the element type.
        """


class HostPages:
    """Pages in the memory of the host, by the canonical codec."""

    device = "cpu"

    def allocate(self, nbytes: int) -> Array:
        """A payload of zeros."""
        return np.zeros(nbytes, np.uint8)

    def adopt(self, payload: Array) -> Array:
        """A view of our own: whoever freezes or reshapes the caller's array does not change it."""
        return np.asarray(payload).view()

    def copy(self, target: Array, source: Array) -> None:
        """Copy all bytes."""
        target[...] = source

    def clear(self, payload: Array) -> None:
        """Set all bytes to zero."""
        payload[...] = 0

    def encode_rows(
        self, payload: Array, declaration: Declaration, dims: Sequence[int], axis: int, position: int, values: Array
    ) -> None:
        """Encode rows."""
        encode_rows(payload, declaration, dims, axis, position, values)

    def reencode(self, payload: Array, old: Declaration, new: Declaration, dims: Sequence[int], target: Array) -> None:
        """Encode a page anew."""
        reencode(payload, old, new, dims, target)

    def gather(
        self, pages: Sequence[tuple[Any, Declaration]], dims: Sequence[int], axis: int, dtype: np.dtype[Any]
    ) -> Array:
        """Decode pages, be they on a device, one beside the other."""
        rows = dims[axis]
        result = np.empty((*dims[:axis], rows * len(pages), *dims[axis + 1 :]), dtype)
        for index, (payload, declaration) in enumerate(pages):
            target = result[(slice(None),) * axis + (slice(index * rows, (index + 1) * rows),)]
            target[...] = decode(payload_bytes(payload), declaration, dims)
        return result


#: The memory of the host.
HOST_PAGES: Final = HostPages()


def payload_bytes(payload: Any) -> Array:
    """A payload as bytes of the host, whatever its header says; a copy, if it is on a device.

    Raises:
        BindError: it is on a device, in an array that cannot be read from the host (MC-BIND-007).
    """
    try:
        found: Array = np.asarray(to_host(payload)).reshape(-1).view(np.uint8)
    except TypeError as error:
        raise BindError(
            f"a payload on a device cannot be read: {error}",
            requirement=Req.MC_BIND_007,
            hint="use an array of CuPy, or a view of the device's",
        ) from None
    return found
