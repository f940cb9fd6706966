"""Runs a session's cache updates, and its pages, on a device: the ``backend`` of :class:`mutcache.Session`.

Values, positions and page ids may be on the device or on the host, from where they are uploaded. An update launches its
kernel on the device's current stream and waits for it, since its refusal is an error of the run that it belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from mutcache.errors import RunError
from mutcache.ops.dense import Attributes, CacheUpdate, Names
from mutcache.page_memory import HOST_PAGES
from mutcache.quantization import Declaration, Kind
from mutcache.requirements import Req
from mutcache.storage import Array, is_device_array, storage_of, to_host
from mutcache_cupy.device import Device
from mutcache_cupy.records import Status
from mutcache_cupy.step import MAX_TRANSFERS, Step
from mutcache_cupy.transfers import Transfer, decode_rows, dense_update, encode_rows, reencode

_BYTES: Final = np.dtype(np.uint8)
_DENSE: Final = {Status.NEGATIVE: Req.MC_DENSE_004, Status.OVERFLOW: Req.MC_DENSE_003}
_PAGED: Final = {
    Status.NEGATIVE: Req.MC_PAGED_005,
    Status.OVERFLOW: Req.MC_PAGED_005,
    Status.NO_PAGE: Req.MC_PAGED_004,
}


class KernelBackend:
    """Cache updates and pages by the kernels of this package.

    Args:
        memory: the device that the caches are on.

    Attributes:
        device: its name as an address space, ``cuda:N`` with its number.
        pages: the memory of pages.
    """

    def __init__(self, memory: Device) -> None:
        self.device = f"cuda:{memory.id}"
        self.pages = KernelPages(memory, self.device)
        self._memory = memory

    def cache_update(self, cache: Any, attributes: Attributes, names: Names) -> KernelUpdate:
        """A CacheUpdate of ``cache``, a device array."""
        return KernelUpdate(self._memory, cache, attributes, names)

    def adopt(self, array: Any) -> Any:
        """An array of whatever library as one of the device's, over the same memory."""
        return self._memory.adopt(array)

    def write(self, target: Any, values: Array) -> None:
        """Copy an array of the host to one of the device."""
        self._memory.write(target, values)


class KernelUpdate:
    """A CacheUpdate of one cache on a device."""

    def __init__(self, memory: Device, cache: Any, attributes: Attributes, names: Names) -> None:
        self._memory = memory
        self._cache = storage_of(cache)
        self._attributes = attributes
        self._names = names
        # Judges operands as the host's update does, with its messages; it has no memory of the cache's size.
        self._judge = CacheUpdate(_shadow(cache), attributes, names)

    def write(self, values: Any, position: Any) -> None:
        """Validate everything, then write.

        Args:
            values: on the host or the device.
            position: on the host or the device; INT64, ``[]`` or ``[batch]``.

        Raises:
            RunError: MC-DENSE-003, MC-DENSE-004 or MC-SHAPE-006. Not a byte has been written.
        """
        memory, cache, names = self._memory, self._cache, self._names
        self._judge.check(_shadow(values), to_host(position))
        shape, axis = storage_of(values).shape, self._attributes.axis % len(cache.shape)
        operands = [_on_device(memory, values), _on_device(memory, position)]
        addresses = [memory.address(operand) for operand in operands]
        transfer = dense_update(
            cache=cache.address,
            values=addresses[0],
            positions=addresses[1],
            shape=cache.shape,
            length=shape[axis],
            itemsize=cache.dtype.itemsize,
            axis=axis,
            is_circular=self._attributes.circular,
            batch_axis=self._attributes.batch_axis,
        )
        for status in _refused(memory, [transfer]):  # the positions that the device saw are not those that were judged
            raise RunError(
                f"{names.node}: the device refuses {names.position!r} ({status.name})",
                requirement=_requirement(status, _DENSE),
                hint="nothing was written",
                node=names.node,
            )


class KernelPages:
    """Pages in the memory of a device: see :class:`mutcache.page_memory.PageMemory`.

    Args:
        memory: the device.
        device: its name as an address space.
    """

    def __init__(self, memory: Device, device: str) -> None:
        self.device = device
        self._memory = memory

    def allocate(self, nbytes: int) -> Any:
        """A payload of zeros."""
        payload = self._memory.view(self._memory.empty(nbytes), 0, _BYTES, (nbytes,))
        self._memory.fill(payload, 0)
        return payload

    def adopt(self, payload: Any) -> Any:
        """A payload of whatever library as an array of the device's."""
        return self._memory.adopt(payload)

    def copy(self, target: Any, source: Any) -> None:
        """Copy all bytes."""
        self._memory.copy(target, source)

    def clear(self, payload: Any) -> None:
        """Set all bytes to zero."""
        self._memory.fill(payload, 0)

    def encode_rows(
        self, payload: Any, declaration: Declaration, dims: Sequence[int], axis: int, position: int, values: Any
    ) -> None:
        """Encode rows, of values on the host or the device."""
        memory = self._memory
        if _is_packed(declaration):
            whole = memory.download(payload)
            HOST_PAGES.encode_rows(whole, declaration, dims, axis, position, to_host(values))
            memory.write(payload, whole)
            return
        operands = [_on_device(memory, values), memory.upload(np.array(position, np.int64))]
        addresses = [memory.address(operand) for operand in operands]
        length = storage_of(values).shape[axis]
        _launch(
            memory,
            encode_rows(
                declaration,
                dims,
                axis,
                payload=memory.address(payload),
                values=addresses[0],
                positions=addresses[1],
                length=length,
            ),
        )

    def reencode(self, payload: Any, old: Declaration, new: Declaration, dims: Sequence[int], target: Any) -> None:
        """Encode a page anew."""
        memory = self._memory
        if old.kind is new.kind is Kind.IDENTITY:  # of any element type
            memory.copy(target, payload)
            return
        source = memory.address(payload)
        _launch(memory, reencode(old, new, dims, source=source, target=memory.address(target)))

    def gather(
        self, pages: Sequence[tuple[Any, Declaration]], dims: Sequence[int], axis: int, dtype: np.dtype[Any]
    ) -> Any:
        """Decode pages on the device, where all of them are there; else on the host."""
        if not pages or not all(is_device_array(payload) and not _is_packed(known) for payload, known in pages):
            return HOST_PAGES.gather(pages, dims, axis, dtype)
        memory, rows = self._memory, dims[axis] * len(pages)
        shape = (*dims[:axis], rows, *dims[axis + 1 :])
        result = memory.view(memory.empty(math.prod(shape) * dtype.itemsize), 0, dtype, shape)
        step = math.prod(dims[axis:]) * dtype.itemsize  # from one page to the next
        start = memory.address(result)
        _launch(
            memory,
            *(
                decode_rows(
                    declaration,
                    dims,
                    axis,
                    payload=memory.address(payload),
                    values=start + index * step,
                    values_rows=rows,
                )
                for index, (payload, declaration) in enumerate(pages)
            ),
        )
        return result


def _is_packed(declaration: Declaration) -> bool:
    """Whether a page is elements as they are, several to a byte: NumPy has one in each, and packs them on the host."""
    return declaration.kind is Kind.IDENTITY and declaration.bits < 8


def _shadow(array: Any) -> Array:
    """An array of that shape and element type with no memory of its size."""
    storage = storage_of(array)
    return np.broadcast_to(np.empty((), storage.dtype), storage.shape)


def _on_device(memory: Device, array: Any) -> Any:
    """The array, or its bytes on the device."""
    return array if is_device_array(array) else memory.upload(array)


def _refused(memory: Device, transfers: Sequence[Transfer]) -> Iterator[Status]:
    """Launch transfers, wait, and give the statuses of those that were refused."""
    for some in (transfers[at : at + MAX_TRANSFERS] for at in range(0, len(transfers), MAX_TRANSFERS)):
        step = Step(memory, some)
        step.launch()
        yield from step.refused().values()


def _launch(memory: Device, *transfers: Transfer) -> None:
    """Launch transfers that were judged, and wait.

    Raises:
        RunError: MC-PAGED-004 or 005: the device sees something else than what was judged.
    """
    for status in _refused(memory, transfers):
        raise RunError(
            f"the device refuses rows of a page ({status.name})",
            requirement=_requirement(status, _PAGED),
            hint="nothing was written",
        )


def _requirement(status: Status, known: dict[Status, Req]) -> Req:
    return next(requirement for flag, requirement in known.items() if flag in status)
