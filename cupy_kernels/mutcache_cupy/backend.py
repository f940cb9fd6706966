"""Runs a session's cache updates on a device: the ``backend`` of :class:`mutcache.Session`.

Values and positions are ordinary inputs on the host; an update uploads them, launches the kernel on the device's
current stream, and waits for it, since its refusal is an error of the run that it belongs to.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mutcache.errors import RunError
from mutcache.ops.dense import Attributes, CacheUpdate, Names
from mutcache.requirements import Req
from mutcache.storage import Array, is_device_array, storage_of, to_host
from mutcache_cupy.device import Device
from mutcache_cupy.records import Status
from mutcache_cupy.step import Step
from mutcache_cupy.transfers import dense_update

_REQUIREMENTS: Final = {Status.NEGATIVE: Req.MC_DENSE_004, Status.OVERFLOW: Req.MC_DENSE_003}


class KernelBackend:
    """Cache updates by the kernels of this package.

    Args:
        memory: the device that the caches are on.
        device: its name as an address space, ``cuda:N``.
    """

    def __init__(self, memory: Device, device: str) -> None:
        self.device = device
        self._memory = memory

    def cache_update(self, cache: Any, attributes: Attributes, names: Names) -> KernelUpdate:
        """A CacheUpdate of ``cache``, a device array."""
        return KernelUpdate(self._memory, self.device, cache, attributes, names)


class KernelUpdate:
    """A CacheUpdate of one cache on a device."""

    def __init__(self, memory: Device, device: str, cache: Any, attributes: Attributes, names: Names) -> None:
        self._memory = memory
        self._device = device
        self._cache = cache
        self._attributes = attributes
        self._names = names
        # Judges operands as the host's update does, with its messages; it has no memory of the cache's size.
        storage = storage_of(cache)
        self._judge = CacheUpdate(np.broadcast_to(np.empty((), storage.dtype), storage.shape), attributes, names)

    def write(self, values: Array, position: Array) -> None:
        """Validate everything, then write.

        Args:
            values: on the host, or another cache of the device.
            position: on the host; INT64, ``[]`` or ``[batch]``.

        Raises:
            RunError: MC-DENSE-003, MC-DENSE-004 or MC-SHAPE-006. Not a byte has been written.
        """
        memory, storage, operand = self._memory, storage_of(self._cache), storage_of(values)
        position = to_host(position) if is_device_array(position) else position
        self._judge.check(np.broadcast_to(np.empty((), operand.dtype), operand.shape), position)
        axis = self._attributes.axis % len(storage.shape)
        # Another cache is read where it is: caches have no gaps.
        uploaded = None if operand.device == self._device else memory.upload(values)
        positions = memory.upload(position)
        step = Step(
            memory,
            [
                dense_update(
                    cache=storage.address,
                    values=operand.address if uploaded is None else memory.address(uploaded),
                    positions=memory.address(positions),
                    shape=storage.shape,
                    length=operand.shape[axis],
                    itemsize=storage.dtype.itemsize,
                    axis=axis,
                    is_circular=self._attributes.circular,
                    batch_axis=self._attributes.batch_axis,
                )
            ],
        )
        step.launch()
        for status in step.refused().values():  # the positions that the device saw are not those that were judged
            requirement = next(known for flag, known in _REQUIREMENTS.items() if flag in status)
            raise RunError(
                f"{self._names.node}: the device refuses {self._names.position!r} ({status.name})",
                requirement=requirement,
                hint="nothing was written",
                node=self._names.node,
            )
