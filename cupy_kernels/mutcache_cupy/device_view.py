"""Arrays on a device of any element type, over memory that somebody else owns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from mutcache.storage import storage_of

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """The device of an array, as arrays of CuPy have it."""

    id: int


class DeviceView:
    """An array in the memory of a device: what CuPy's arrays are, for element types that CuPy lacks too.

    Made by :meth:`mutcache_cupy.device.Device.view`. It has the CUDA array interface, and can be lent to a session.

    Args:
        owner: what keeps the memory alive.
        address: address of the element with all indices 0.
        dtype: element type, one of ml_dtypes too.
        shape: dimensions.
        strides: bytes per step of each dimension; None: row-major without gaps.
        place: the device.
        read: gives bytes of the device, by address and number.
        writable: False says that nobody may write through this array.

    Raises:
        TypeError: elements of this type are references to objects.
    """

    __slots__ = ("__weakref__", "_dtype", "_interface", "_owner", "_place", "_read", "_shape")

    def __init__(
        self,
        owner: object,
        address: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        place: Place,
        read: Callable[[int, int], Array],
        *,
        writable: bool = True,
    ) -> None:
        if dtype.hasobject:  # what a device holds are no references
            raise TypeError(f"a device has no elements of type {dtype}")
        self._owner = owner
        self._read = read
        self._place = place
        self._dtype = dtype
        self._shape = shape
        self._interface = {
            "shape": shape,
            "typestr": dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}",
            "data": (address, not writable),
            "strides": strides,
            "version": 3,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self._interface)

    @property
    def device(self) -> Place:
        """The device."""
        return self._place

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self._shape

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return storage_of(self).nbytes

    def get(self) -> Array:
        """A copy on the host, of what everything launched before leaves there."""
        storage = storage_of(self)
        low, high = storage.byte_range.start, storage.byte_range.stop
        found = self._read(low, high - low)
        view: Array = np.ndarray(
            storage.shape, storage.dtype, found.data, storage.address - low if high > low else 0, storage.strides
        )
        return view.copy()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a view of device memory cannot be copied or pickled: get() copies its elements to the host")

    def __repr__(self) -> str:
        return f"<DeviceView {self.dtype}{list(self.shape)} on device {self.device.id}>"
