"""CacheUpdate: writes ``values`` into a dense cache at ``position`` along ``axis``, in place.

Validation is separate from writing: nothing is written before every row of a call is known to fit (MC-DENSE-012),
and positions are judged as Python integers, so that no check can overflow (MC-DENSE-005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mutcache.errors import RunError
from mutcache.model import Node
from mutcache.requirements import Req
from mutcache.storage import Array, show_dims

_INT64 = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a CacheUpdate; axes may be negative. ``batch_axis`` is None for a scalar position."""

    axis: int = -2
    circular: bool = False
    batch_axis: int | None = None

    @classmethod
    def of(cls, node: Node) -> Attributes:
        """The attributes of a node that the checker accepted."""
        given: dict[str, Any] = {
            attribute.name: attribute.s if attribute.name == "mode" else attribute.i
            for attribute in node.proto.attribute
        }
        return cls(given.get("axis", -2), given.get("mode", b"linear") == b"circular", given.get("batch_axis"))


class CacheUpdate:
    """A CacheUpdate prepared for one cache.

    Calling it with ``values`` (the cache's element type and rank; equal dimensions but for ``axis``) and ``position``
    (INT64, ``[]`` or ``[batch]``) validates, writes, and returns the cache.

    Args:
        cache: contiguous and writable, rank >= 1.
        attributes: how to write.
        names: names of cache, values and position, for messages.
    """

    __slots__ = (
        "_axis",
        "_bits",
        "_cache",
        "_capacity",
        "_circular",
        "_dtype",
        "_length",
        "_names",
        "_position_shape",
        "_prefix",
        "_row_axis",
        "_values_shape",
        "_view",
    )

    def __init__(self, cache: Array, attributes: Attributes, names: tuple[str, str, str]) -> None:
        self._cache = cache
        self._names = names
        self._axis = attributes.axis % cache.ndim
        self._row_axis = attributes.batch_axis % cache.ndim if attributes.batch_axis is not None else None
        self._position_shape = () if self._row_axis is None else (cache.shape[self._row_axis],)
        self._circular = attributes.circular
        self._dtype = cache.dtype
        self._capacity: int = cache.shape[self._axis]
        self._bits = _bits_of(cache.dtype)
        self._view = np.asarray(cache) if self._bits is None else np.asarray(cache).view(self._bits)
        # What is written is a cache, or one row of its batch, which has one axis less.
        is_behind_rows = self._row_axis is not None and self._row_axis < self._axis
        self._prefix = (slice(None),) * (self._axis - is_behind_rows)
        # The shape of the last values that were found right, and their length: they seldom change.
        self._values_shape: tuple[int, ...] | None = None
        self._length = 0

    def __call__(self, values: Array, position: Array) -> Array:
        """Validate everything, then write; returns the cache.

        Raises:
            RunError: MC-DENSE-003 (overflow), MC-DENSE-004 (negative position), MC-SHAPE-006 (operands that do
                not agree). Not a byte has been written.
        """
        if values.shape != self._values_shape or (values.dtype is not self._dtype and values.dtype != self._dtype):
            self._check_values(values)
        if position.shape != self._position_shape or (position.dtype is not _INT64 and position.dtype != _INT64):
            self._refuse_position(position)
        if self._bits is not None:
            values = values.view(self._bits)
        if self._row_axis is not None:
            starts = position.tolist()
            for row, start in enumerate(starts):
                self._check_start(start, row)
            rows = zip(
                np.moveaxis(self._view, self._row_axis, 0), np.moveaxis(values, self._row_axis, 0), starts, strict=True
            )
            for target, source, start in rows:
                self._write(target, source, start)
            return self._cache
        start = position.item()
        stop = start + self._length
        if start >= 0 and stop <= self._capacity:  # what both modes accept and treat alike, without further calls
            self._view[*self._prefix, start:stop] = values
        else:
            self._check_start(start)
            self._write(self._view, values, start)
        return self._cache

    def _write(self, target: Array, values: Array, start: int) -> None:
        """Write ``values`` from ``start`` on; what passes the capacity (circular mode only) goes to the beginning."""
        prefix, length, capacity = self._prefix, self._length, self._capacity
        if not length:
            return
        start %= capacity
        before = min(length, capacity - start)
        target[*prefix, start : start + before] = values[*prefix, :before]
        target[*prefix, : length - before] = values[*prefix, before:]

    def _check_start(self, start: int, row: int | None = None) -> None:
        if start < 0 or (self._length if self._circular else start + self._length) > self._capacity:
            self._refuse(start, row)

    def _check_values(self, values: Array) -> None:
        dtype, shape, axis = self._dtype, self._view.shape, self._axis
        expected = (*shape[:axis], None, *shape[axis + 1 :])
        fits = values.ndim == len(shape) and values.shape == (
            *expected[:axis],
            values.shape[axis],
            *expected[axis + 1 :],
        )
        if values.dtype != dtype or not fits:
            raise RunError(
                f"{self._names[1]!r} is {values.dtype}{show_dims(values.shape)}, does not fit {self._names[0]!r}, "
                f"{dtype}{show_dims(shape)}, along axis {axis}",
                requirement=Req.MC_SHAPE_006,
                hint=f"the values need {dtype}{show_dims(expected)}; a CacheUpdate never converts or broadcasts",
                values=values.shape,
                cache=shape,
            )
        self._values_shape = values.shape
        self._length = values.shape[axis]

    def _refuse_position(self, position: Array) -> None:
        expected = self._position_shape
        raise RunError(
            f"{self._names[2]!r} must be int64{show_dims(expected)}, got {position.dtype}{show_dims(position.shape)}",
            requirement=Req.MC_SHAPE_006,
            hint="give one start per row of the batch axis" if expected else "squeeze it to a scalar",
            position=position.shape,
        )

    def _refuse(self, start: int, row: int | None) -> None:
        cache, values, position = self._names
        where = f"{position!r}" if row is None else f"{position!r}[{row}]"
        details: dict[str, object] = {"position": start, "length": self._length, "capacity": self._capacity}
        if row is not None:
            details["row"] = row
        if start < 0:
            raise RunError(
                f"{where} is {start}: a position is never negative",
                requirement=Req.MC_DENSE_004,
                hint="positions count from the first row; there is no wrap from the end",
                **details,
            )
        if self._circular:
            raise RunError(
                f"length {self._length} of {values!r} > capacity {self._capacity} of {cache!r}",
                requirement=Req.MC_DENSE_003,
                hint="a circular update writes each row at most once",
                **details,
            )
        raise RunError(
            f"{where}: position {start} + length {self._length} of {values!r} > capacity {self._capacity} of {cache!r}",
            requirement=Req.MC_DENSE_003,
            hint="the cache never grows: bind one of larger capacity, or write fewer rows",
            **details,
        )


def _bits_of(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The unsigned integers as which elements are moved, or None if they can be moved as they are.

    NumPy copies elements of its own types bit for bit; types registered from outside bring their own copy routines.
    """
    return None if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")
