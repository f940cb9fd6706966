"""Encoding and decoding of pages and of their rows, in chunks, so that no temporary outgrows the rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mutcache.errors import RunError
from mutcache.quantization.declaration import Declaration, type_name
from mutcache.quantization.decoder import decode_groups
from mutcache.quantization.encoder import encode_groups
from mutcache.quantization.floats import Array, Bytes, dtype_of
from mutcache.quantization.kernels import kernels
from mutcache.quantization.layout import PageShapeError, group_size, n_bytes, parts, require_dims, require_payload
from mutcache.requirements import Req


def encode(x: Array, declaration: Declaration) -> Bytes:
    """The canonical payload of a page.

    Args:
        x: the page, of the declaration's data_type, any strides.
        declaration: how to encode it.

    Returns:
        uint8 array [n_bytes].

    Raises:
        PageShapeError: dims or element type do not fit the declaration (MC-PAGED-007).
    """
    payload = np.zeros(n_bytes(declaration, x.shape), np.uint8)
    _require_type(x, declaration)
    _encode(_Run.of_page(payload, declaration, x.shape), x, declaration)
    return payload


def decode(payload: Bytes, declaration: Declaration, dims: Sequence[int]) -> Array:
    """The page of ``dims`` that a payload holds, as an array of the declaration's data_type.

    Raises:
        PageShapeError: dims or bytes do not fit the declaration (MC-PAGED-007).
    """
    require_payload(payload, declaration, dims, to_write=False)
    x = _empty(dims, declaration)
    _decode(_Run.of_page(payload, declaration, dims), x, declaration)
    return x


def encode_rows(
    payload: Bytes, declaration: Declaration, dims: Sequence[int], axis: int, position: int, values: Array
) -> None:
    """Encode ``values`` into the rows ``position``, ``position + 1``, ... of a page, touching only their bytes.

    Args:
        payload: the page's bytes, written in place.
        declaration: how they are encoded.
        dims: dims of the page.
        axis: the axis along which rows lie, non-negative; never that of the groups.
        position: the first row.
        values: of the declaration's data_type, shaped like the page but for the number of rows.

    Raises:
        PageShapeError: dims, axis, payload or values do not fit each other (MC-PAGED-007).
        RunError: rows outside the page (MC-PAGED-005). Nothing is written in either case.
    """
    require_payload(payload, declaration, dims, to_write=True)
    require_dims(declaration, dims, axis)
    _require_type(values, declaration)
    shape = tuple(values.shape)
    if len(shape) != len(dims) or (*shape[:axis], *shape[axis + 1 :]) != (*dims[:axis], *dims[axis + 1 :]):
        raise PageShapeError(
            f"values of shape {list(shape)} differ from the page's dims {list(dims)} in more than axis {axis}",
            values=shape,
            dims=tuple(dims),
        )
    rows = _rows(position, operator.index(position) + shape[axis], dims[axis])
    _encode(_Run.of_rows(payload, declaration, dims, axis, rows), values, declaration)


def decode_rows(
    payload: Bytes, declaration: Declaration, dims: Sequence[int], axis: int, start: int, stop: int
) -> Array:
    """The rows ``start`` to ``stop`` along ``axis`` of a page, decoded.

    Raises:
        PageShapeError: dims, axis or payload do not fit each other (MC-PAGED-007).
        RunError: rows outside the page (MC-PAGED-005).
    """
    require_payload(payload, declaration, dims, to_write=False)
    require_dims(declaration, dims, axis)
    rows = _rows(start, stop, dims[axis])
    x = _empty((*dims[:axis], rows.stop - rows.start, *dims[axis + 1 :]), declaration)
    _decode(_Run.of_rows(payload, declaration, dims, axis, rows), x, declaration)
    return x


def reencode(
    payload: Bytes, old: Declaration, new: Declaration, dims: Sequence[int], out: Bytes | None = None
) -> Bytes:
    """The payload of a page under another declaration: decoded by ``old``, encoded by ``new``, chunk by chunk.

    Args:
        payload: the page's bytes under ``old``; not written.
        old: the declaration that the page has.
        new: the declaration that it gets, of the same data_type.
        dims: dims of the page.
        out: where to write the bytes under ``new``; must not overlap ``payload``. None: a new array.

    Raises:
        PageShapeError: dims, bytes or element types do not fit each other, or the bytes overlap (MC-PAGED-007).
    """
    require_payload(payload, old, dims, to_write=False)
    if old.data_type != new.data_type:
        raise PageShapeError(
            f"the page decodes to {type_name(old.data_type)}, the new declaration to {type_name(new.data_type)}"
        )
    if out is None:
        out = np.zeros(n_bytes(new, dims), np.uint8)
    require_payload(out, new, dims, to_write=True)
    if np.may_share_memory(payload, out):  # exact for contiguous runs
        raise PageShapeError("the new bytes overlap those that they are made from", hint="write them elsewhere first")
    sources, targets = _Run.of_page(payload, old, dims), _Run.of_page(out, new, dims)
    common = math.lcm(sources.size, targets.size)  # a divisor of the last size, for both group sizes are
    step = common * max(1, kernels().chunk // common)
    total = math.prod(dims)
    for start in range(0, total, step):
        stop = min(total, start + step)
        x = decode_groups(sources.take(slice(0, 1), slice(start // sources.size, stop // sources.size)), old)
        groups = x.reshape(-1, targets.size)
        targets.put(slice(0, 1), slice(start // targets.size, stop // targets.size), encode_groups(groups, new))
    return out


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows of a page: ``outer`` runs of ``inner`` groups of ``size`` elements.

    ``parts`` are views of the payload, each [outer, inner, bytes of the part].
    """

    parts: tuple[Bytes, ...]
    outer: int
    inner: int
    size: int

    @classmethod
    def of_page(cls, payload: Bytes, declaration: Declaration, dims: Sequence[int]) -> _Run:
        size = group_size(declaration)
        groups = math.prod(dims) // size
        return cls(tuple(part[None] for part in parts(payload, declaration, groups)), 1, groups, size)

    @classmethod
    def of_rows(cls, payload: Bytes, declaration: Declaration, dims: Sequence[int], axis: int, rows: slice) -> _Run:
        size = group_size(declaration)
        outer = math.prod(dims[:axis])
        row = math.prod(dims[axis + 1 :]) // size  # groups in a row; the last axis has only groups of one element
        groups = math.prod(dims) // size
        views = tuple(
            part.reshape(outer, dims[axis] * row, part.shape[-1])[:, rows.start * row : rows.stop * row]
            for part in parts(payload, declaration, groups)
        )
        return cls(views, outer, (rows.stop - rows.start) * row, size)

    def chunks(self) -> Iterator[tuple[slice, slice]]:
        """Slices of runs and of groups in them, of about one chunk of elements together."""
        groups = max(1, kernels().chunk // self.size)
        if self.inner == 0:
            return
        if self.inner >= groups:
            for run in range(self.outer):
                for start in range(0, self.inner, groups):
                    yield slice(run, run + 1), slice(start, min(start + groups, self.inner))
        else:
            runs = groups // self.inner
            for run in range(0, self.outer, runs):
                yield slice(run, min(run + runs, self.outer)), slice(0, self.inner)

    def take(self, runs: slice, groups: slice) -> tuple[Bytes, ...]:
        """The parts of some groups, each [groups, bytes of the part]."""
        return tuple(part[runs, groups].reshape(-1, part.shape[-1]) for part in self.parts)

    def put(self, runs: slice, groups: slice, values: tuple[Bytes, ...]) -> None:
        """Write the parts of some groups, each [groups, bytes of the part]."""
        for part, value in zip(self.parts, values, strict=True):
            target = part[runs, groups]
            target[...] = value.reshape(target.shape)


def _encode(run: _Run, values: Array, declaration: Declaration) -> None:
    elements = values.reshape(run.outer, run.inner, run.size)
    for runs, groups in run.chunks():
        chunk = elements[runs, groups].reshape(-1, run.size)
        run.put(runs, groups, encode_groups(np.ascontiguousarray(chunk), declaration))


def _decode(run: _Run, target: Array, declaration: Declaration) -> None:
    elements = target.reshape(run.outer, run.inner, run.size)
    for runs, groups in run.chunks():
        chunk = elements[runs, groups]
        chunk[...] = decode_groups(run.take(runs, groups), declaration).reshape(chunk.shape)


def _empty(dims: Sequence[int], declaration: Declaration) -> Array:
    try:
        return np.empty(dims, dtype_of(declaration.data_type))
    except ValueError as error:  # too many dims, or too many bytes but for a dim of size 0
        raise PageShapeError(f"NumPy has no arrays of dims {list(dims)}: {error}", dims=tuple(dims)) from error


def _require_type(values: Array, declaration: Declaration) -> None:
    if values.dtype != dtype_of(declaration.data_type):
        raise PageShapeError(
            f"elements are {values.dtype}, the declaration decodes to {type_name(declaration.data_type)}",
            hint=f"pass an array of {dtype_of(declaration.data_type)}",
        )


def _rows(start: int, stop: int, size: int) -> slice:
    """The rows as a slice of Python numbers, for those of NumPy overflow."""
    start, stop = operator.index(start), operator.index(stop)
    if start < 0 or stop < start:
        raise RunError(
            f"rows {start} to {stop} do not run upwards from 0",
            requirement=Req.MC_PAGED_005,
            hint="positions are not negative",
        )
    if stop > size:
        raise RunError(
            f"position {start} + length {stop - start} > page size {size}",
            requirement=Req.MC_PAGED_005,
            hint="write the rest into the next page",
            position=start,
            length=stop - start,
            capacity=size,
        )
    return slice(start, stop)
