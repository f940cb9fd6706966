"""The dense update, written from the specification: one element after the other, on bytes and unbounded integers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mutcache.requirements import Req
from mutcache_conformance.overlay import Overlay

Array = np.ndarray[Any, np.dtype[Any]]
#: What a value holds: an Array, or of a cache that is too large to hold an Overlay; of which kind, the caller knows.
Contents = Any
History = Mapping[str, tuple[Contents, ...]]


class OracleRefusal(Exception):  # noqa: N818 - a refusal is an outcome that the specification demands, not a fault
    """The run must be refused.

    Attributes:
        requirement: the requirement that the first failing update, in node order, would break.
        classes: as in OracleResult, up to the update that fails. An update of another storage that does not depend on
            the failing one may have been made before it or not at all, so memory may hold any entry of each history.
    """

    def __init__(self, requirement: Req, message: str, classes: History | None = None) -> None:
        super().__init__(f"{requirement.value}: {message}")
        self.requirement = requirement
        self.message = message
        self.classes: History = classes or {}


def updated_contents(cache: Contents, values: Array, position: Array, **attributes: Any) -> Contents:
    """What ``cache_update`` makes of an Array, for Overlays too."""
    if isinstance(cache, Overlay):
        return cache.over(_written(cache, values, position, **attributes))
    return cache_update(cache, values, position, **attributes)


def cache_update(
    cache: Array, values: Array, position: Array, *, axis: int = -2, mode: str = "linear", batch_axis: int | None = None
) -> Array:
    """A copy of ``cache`` with ``values`` written at ``position`` along ``axis``.

    Args:
        cache: any shape of rank >= 1; ``cache.shape[axis]`` is the capacity.
        values: of the dtype and shape of ``cache``, but for ``values.shape[axis]``, the length.
        position: INT64, of shape ``()``; with ``batch_axis`` of shape ``[cache.shape[batch_axis]]``.
        axis: where the rows lie, negative from the end.
        mode: ``linear``, or ``circular``: row indices are taken modulo the capacity.
        batch_axis: the axis whose entries each have their own position.

    Raises:
        OracleRefusal: an operand does not fit, the position is negative, or the rows do not fit in the capacity.
    """
    target = bytearray(cache.tobytes())
    for at, element in _written(cache, values, position, axis, mode, batch_axis).items():
        target[at : at + len(element)] = element
    return np.frombuffer(bytes(target), cache.dtype).reshape(cache.shape)


def _written(
    cache: Contents,
    values: Array,
    position: Array,
    axis: int = -2,
    mode: str = "linear",
    batch_axis: int | None = None,
) -> dict[int, bytes]:
    """The elements that an update writes, by their byte offset in row-major order; raises as ``cache_update`` does."""
    axis, batch_axis = _check_operands(cache, values, position, axis, batch_axis)
    capacity, length = cache.shape[axis], values.shape[axis]
    starts = [int(start) for start in position.reshape(-1)]
    for start in starts:
        _check_range(start, length, capacity, mode)

    size, source = cache.dtype.itemsize, values.tobytes()
    written: dict[int, bytes] = {}
    for number, index in enumerate(np.ndindex(*values.shape)):
        start = starts[0] if batch_axis is None else starts[index[batch_axis]]
        row = start + index[axis]
        place = [*index[:axis], row % capacity if mode == "circular" else row, *index[axis + 1 :]]
        written[_offset(place, cache.shape) * size] = source[number * size : (number + 1) * size]
    return written


def _check_operands(
    cache: Contents, values: Array, position: Array, axis: int, batch_axis: int | None
) -> tuple[int, int | None]:
    """The axes counted from the front.

    Raises:
        OracleRefusal: MC-SHAPE-006 or MC-SHAPE-001.
    """

    def refuse_unless(condition: bool, message: str, requirement: Req = Req.MC_SHAPE_006) -> None:
        if not condition:
            raise OracleRefusal(requirement, message)

    rank = cache.ndim
    refuse_unless(values.dtype == cache.dtype, f"{values.dtype} values, {cache.dtype} cache", Req.MC_SHAPE_006)
    refuse_unless(rank >= 1, "a cache of rank 0")
    refuse_unless(values.ndim == rank, f"values of rank {values.ndim}, cache of rank {rank}")
    refuse_unless(-rank <= axis < rank, f"axis {axis}, rank {rank}")
    axis %= rank
    unlike = [n for n in range(rank) if n != axis and values.shape[n] != cache.shape[n]]
    refuse_unless(not unlike, f"values {values.shape}, cache {cache.shape}, update along axis {axis}")
    refuse_unless(position.dtype == np.int64, f"position of type {position.dtype}")
    if batch_axis is None:
        refuse_unless(position.shape == (), f"position of shape {position.shape} without batch_axis")
    else:
        refuse_unless(-rank <= batch_axis < rank, f"batch_axis {batch_axis}, rank {rank}")
        batch_axis %= rank
        refuse_unless(batch_axis != axis, f"batch_axis and axis are both {axis}")
        batch = cache.shape[batch_axis]
        refuse_unless(position.shape == (batch,), f"position of shape {position.shape}, batch {batch}")
    return axis, batch_axis


def _check_range(start: int, length: int, capacity: int, mode: str) -> None:
    if start < 0:
        raise OracleRefusal(Req.MC_DENSE_004, f"position {start} is negative")
    if mode == "circular":
        if length > capacity:
            raise OracleRefusal(Req.MC_DENSE_003, f"length {length} > capacity {capacity}")
    elif start + length > capacity:
        raise OracleRefusal(Req.MC_DENSE_003, f"position {start} + length {length} > capacity {capacity}")


def _offset(index: Sequence[int], shape: Sequence[int]) -> int:
    """The place of an element in row-major order."""
    return sum(i * math.prod(shape[axis + 1 :]) for axis, i in enumerate(index))
