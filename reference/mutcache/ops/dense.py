"""CacheUpdate: writes ``values`` into a dense cache at ``position`` along ``axis``, in place.

Validation is separate from writing: nothing is written before every row of a call is known to fit (MC-DENSE-012),
and positions are judged as Python integers, so that no check can overflow (MC-DENSE-005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from mutcache.errors import RunError
from mutcache.proto.onnx_ml import NodeProto
from mutcache.requirements import Req
from mutcache.storage import Array, show_dims

_INT64 = np.dtype(np.int64)
#: In an index: the axes before the one that is updated. (Typed as Any: NumPy's stubs know no index made of parts.)
_LEADING: Final[Any] = ...


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a CacheUpdate; axes may be negative. ``batch_axis`` is None for a scalar position."""

    axis: int = -2
    circular: bool = False
    batch_axis: int | None = None

    @classmethod
    def of(cls, proto: NodeProto) -> Attributes:
        """The attributes of a node that the checker accepted; none of them refers to one of a function."""
        given: dict[str, Any] = {
            attribute.name: attribute.s if attribute.name == "mode" else attribute.i for attribute in proto.attribute
        }
        return cls(given.get("axis", -2), given.get("mode", b"linear") == b"circular", given.get("batch_axis"))


class Names(NamedTuple):
    """What messages call a node and its operands."""

    node: str
    cache: str
    values: str
    position: str


class CacheUpdate:
    """A CacheUpdate prepared for one cache.

    Args:
        cache: contiguous and writable, rank >= 1; its memory stays where it is.
        attributes: how to write; the axes exist.
        names: for messages.
    """

    __slots__ = (
        "_axis",
        "_bits",
        "_capacity",
        "_circular",
        "_dtype",
        "_length",
        "_names",
        "_position_shape",
        "_row_axis",
        "_suffix",
        "_values_shape",
        "_view",
    )

    def __init__(self, cache: Array, attributes: Attributes, names: Names) -> None:
        self._names = names
        self._axis = attributes.axis % cache.ndim
        self._row_axis = attributes.batch_axis % cache.ndim if attributes.batch_axis is not None else None
        self._position_shape = () if self._row_axis is None else (cache.shape[self._row_axis],)
        self._circular = attributes.circular
        self._dtype = cache.dtype
        self._capacity: int = cache.shape[self._axis]
        self._bits = _bits_of(cache.dtype)
        # A view of our own: whoever sets the shape of the caller's array does not change it.
        self._view = np.asarray(cache).view(self._bits or cache.dtype)
        # The axes behind the one that is updated; where one row of a batch is written, its axis is gone.
        is_before_rows = self._row_axis is not None and self._axis < self._row_axis
        self._suffix = (slice(None),) * (cache.ndim - 1 - self._axis - is_before_rows)
        # The shape of the last values that were found right, and their length: they seldom change.
        self._values_shape: tuple[int, ...] | None = None
        self._length = 0

    def write(self, values: Array, position: Array) -> None:
        """Validate everything, then write.

        Args:
            values: of the cache's element type and rank, and of its dimensions but for the one that is updated.
            position: INT64, ``[]``; with ``batch_axis`` one start for each of its rows, ``[batch]``.

        Raises:
            RunError: MC-DENSE-003 (overflow), MC-DENSE-004 (negative position), MC-SHAPE-006 (operands that do
                not agree). Not a byte has been written.
        """
        if values.shape != self._values_shape or (values.dtype is not self._dtype and values.dtype != self._dtype):
            self._check_values(values)
        if position.dtype is not _INT64 and position.dtype != _INT64:
            self._refuse_position(position)
        if self._bits is not None:
            values = values.view(self._bits)
        if self._row_axis is not None:
            if position.shape != self._position_shape:
                self._refuse_position(position)
            starts = position.tolist()
            for row, start in enumerate(starts):
                self._check_start(start, row)
            rows = zip(
                np.moveaxis(self._view, self._row_axis, 0), np.moveaxis(values, self._row_axis, 0), starts, strict=True
            )
            for target, source, start in rows:
                self._write(target, source, start)
            return
        if position.ndim:
            self._refuse_position(position)
        start = position.item()
        stop = start + self._length
        if start >= 0 and stop <= self._capacity:  # what both modes accept and treat alike, without further calls
            self._view[_LEADING, start:stop, *self._suffix] = values
        else:
            self._check_start(start)
            self._write(self._view, values, start)

    def check(self, values: Array, position: Array) -> None:
        """Refuse what :meth:`write` would refuse, and write nothing."""
        self._check_values(values)
        if position.dtype != _INT64 or position.shape != self._position_shape:
            self._refuse_position(position)
        for row, start in enumerate(position.reshape(-1).tolist()):
            self._check_start(start, row if self._row_axis is not None else None)

    def _write(self, target: Array, values: Array, start: int) -> None:
        """Write ``values`` from ``start`` on; what passes the capacity (circular mode only) goes to the beginning."""
        suffix, length, capacity = self._suffix, self._length, self._capacity
        if not length:
            return
        start %= capacity
        before = min(length, capacity - start)
        target[_LEADING, start : start + before, *suffix] = values[_LEADING, :before, *suffix]
        target[_LEADING, : length - before, *suffix] = values[_LEADING, before:, *suffix]

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
            names = self._names
            raise RunError(
                f"{names.node}: {names.values!r} is {values.dtype}{show_dims(values.shape)}, does not fit "
                f"{names.cache!r}, {dtype}{show_dims(shape)}, along axis {axis}",
                requirement=Req.MC_SHAPE_006,
                hint=f"the values need {dtype}{show_dims(expected)}; a CacheUpdate never converts or broadcasts",
                node=names.node,
                values=values.shape,
                cache=shape,
            )
        self._values_shape = values.shape
        self._length = values.shape[axis]

    def _refuse_position(self, position: Array) -> None:
        expected, names = self._position_shape, self._names
        raise RunError(
            f"{names.node}: {names.position!r} must be int64{show_dims(expected)}, "
            f"got {position.dtype}{show_dims(position.shape)}",
            requirement=Req.MC_SHAPE_006,
            hint="give one start per row of the batch axis" if expected else "squeeze it to a scalar",
            node=names.node,
            position=position.shape,
        )

    def _refuse(self, start: int, row: int | None) -> None:
        node, cache, values, position = self._names
        where = f"{node}: {position!r}" if row is None else f"{node}: {position!r}[{row}]"
        details: dict[str, object] = {
            "node": node,
            "position": start,
            "length": self._length,
            "capacity": self._capacity,
        }
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
                f"{node}: length {self._length} of {values!r} > capacity {self._capacity} of {cache!r}",
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
