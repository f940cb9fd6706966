"""Transfers: the input builders of the kernels. Each describes rows to move between values and a cache or page.

Addresses are numbers: what they point to is on the device of the launch. Positions and page ids are INT64 there, so
that a captured graph replays with new ones. Nothing is written for a transfer that is out of range; see
:mod:`mutcache_cupy.step`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization import Declaration, Kind, Layout, PageShapeError, group_size, page_problems, part_widths
from mutcache.quantization.declaration import SIGNED
from mutcache_cupy.records import (
    MAX_ITEMS,
    NO_TYPE,
    NO_VECTORS,
    PAGE,
    ROWS,
    SIZES,
    TYPES,
    VECTOR,
    Codec,
    Record,
    divisor,
    unit_of,
)

#: Lanes of a warp: a group of more vectors than that is encoded by one thread.
_WARP: Final = 32
_ELEMENT_NAMES: Final[Mapping[int, str]] = {
    TensorProto.FLOAT: "f32",
    TensorProto.FLOAT16: "f16",
    TensorProto.BFLOAT16: "bf16",
}


@dataclass(frozen=True)
class Transfer:
    """One row of the table that a launch works through.

    Attributes:
        rows: record of type ROWS; ``pages`` is filled in by the step, unless a table of pages on the device is used.
        page: record of type PAGE, or None where a table of pages on the device is used.
        source: record of type PAGE: the page that a re-encoding reads.
        kernel: the kernel for this transfer alone.
        written: the address range that is written to; empty ranges are (0, 0).
        read: the address range of what is moved, likewise.
    """

    rows: Record
    page: Record | None
    kernel: str
    written: tuple[int, int]
    read: tuple[int, int]
    source: Record | None = None

    @property
    def items(self) -> int:
        """How many threads it has work for."""
        return int(self.rows["items"])


def dense_update(
    *,
    cache: int,
    values: int,
    positions: int,
    shape: Sequence[int],
    length: int,
    itemsize: int,
    axis: int = -2,
    is_circular: bool = False,
    batch_axis: int | None = None,
) -> Transfer:
    """A CacheUpdate of a dense cache.

    Args:
        cache: address of the cache, contiguous.
        values: address of the values, contiguous.
        positions: address of the position, or of one for each index of ``batch_axis``.
        shape: dimensions of the cache.
        length: size of the values along ``axis``; their other dimensions are those of the cache.
        itemsize: bytes of an element.
        axis: the axis that is updated.
        is_circular: rows are counted modulo the capacity.
        batch_axis: the axis along which positions differ.

    Raises:
        ValueError: more than 2**31 - 1 items.
    """
    axis %= len(shape)
    capacity, outer = shape[axis], math.prod(shape[:axis])
    inner = math.prod(shape[axis + 1 :]) * itemsize
    rows = np.zeros((), ROWS)
    rows["values"], rows["positions"], rows["n_pages"], rows["starts"] = values, positions, 1, 1
    rows["capacity"], rows["length"], rows["is_circular"] = capacity, length, is_circular
    width, after, step, batch = inner, 1, 1, 1
    if batch_axis is not None:
        batch_axis %= len(shape)
        rows["starts"] = batch = shape[batch_axis]
        if batch_axis < axis:
            step = math.prod(shape[batch_axis + 1 : axis])
        else:
            after = math.prod(shape[axis + 1 : batch_axis + 1])
            width = math.prod(shape[batch_axis + 1 :]) * itemsize
    is_general = is_circular or batch_axis is not None
    unit = unit_of(16, cache, values, width if is_general else inner)
    items = outer * length * inner // unit
    _set_items(rows, items, length * inner // unit, inner // unit, (capacity - length) * inner // unit)
    rows["unit"], rows["is_general"] = unit, is_general
    rows["is_batch_outer"] = batch_axis is None or batch_axis < axis
    if items and is_general:
        rows["width"], rows["after"], rows["rows"] = divisor(width // unit), divisor(after), divisor(length)
        rows["step"], rows["batch"] = divisor(step), divisor(batch)
    page = np.zeros((), PAGE)
    page["payload"], page["codec"] = cache, Codec.IDENTITY
    written, read = (cache, cache + outer * capacity * inner), (values, values + outer * length * inner)
    return Transfer(rows, page, "dense_update", written, read)


def page_record(declaration: Declaration, dims: Sequence[int], payload: int, *, is_vector: bool) -> Record:
    """What kernels have to know of a page.

    Args:
        declaration: its declaration.
        dims: its dimensions.
        payload: address of its bytes on the device.
        is_vector: whether threads take VECTOR elements of it; see :func:`has_vectors`.

    Raises:
        PageShapeError: pages of ``dims`` cannot have this declaration (MC-PAGED-007).
        ValueError: ``is_vector``, and the page has no vectors.
    """
    if problems := page_problems(declaration, dims):
        raise PageShapeError("; ".join(problems))
    if is_vector and not has_vectors(declaration, math.prod(dims), 0, payload):
        raise ValueError(f"the page at {payload:#x} has no vectors of {VECTOR} elements: {declaration}")
    page = np.zeros((), PAGE)
    page["payload"], page["codec"], page["bits"] = payload, _codec_of(declaration), declaration.bits & 0xFF
    page["scale_type"] = page["aux_type"] = NO_TYPE
    page["lanes_log2"], page["is_signed"] = NO_VECTORS, declaration.storage_type in SIGNED
    size = group_size(declaration)
    if is_vector and declaration.kind is not Kind.PACKED_LINEAR:
        size = VECTOR  # groups without terms may be taken together
    page["block"], page["code_stride"] = size, size * declaration.bits // 8
    if is_vector:
        page["lanes_log2"] = (size // VECTOR).bit_length() - 1
    if declaration.kind is Kind.LINEAR:
        page["scale"], page["zero_point"] = declaration.scale_float, declaration.zero_point
    elif declaration.kind is Kind.PACKED_LINEAR:
        _set_terms(page, declaration, math.prod(dims) // size)
    page["unit"] = unit_of(16, payload, int(page["code_stride"]), VECTOR * declaration.bits // 8)
    return page


def absent_page() -> Record:
    """The record of a page that a table does not have."""
    page = np.zeros((), PAGE)
    page["codec"] = Codec.ABSENT
    return page


def has_vectors(declaration: Declaration, row: int, values: int, payload: int) -> bool:
    """Whether threads can take VECTOR elements at once.

    Args:
        declaration: how the page is encoded.
        row: elements of one row: what is written at one position without a gap.
        values: address of the elements.
        payload: address of the page.
    """
    if values % 16 or declaration.data_type not in _ELEMENT_NAMES:
        return False
    if declaration.kind is Kind.PACKED_LINEAR:
        lanes = declaration.block_size // VECTOR
        return declaration.block_size % VECTOR == 0 and lanes <= _WARP and lanes & (lanes - 1) == 0
    return row % VECTOR == 0 and (declaration.kind is not Kind.IDENTITY or payload % 16 == 0)


def encode_rows(
    declaration: Declaration,
    dims: Sequence[int],
    axis: int,
    *,
    payload: int,
    values: int,
    positions: int,
    length: int,
) -> Transfer:
    """An update of one page: rows ``positions[0]``, ... along ``axis`` get the encoded values.

    Args:
        declaration: how the page is encoded.
        dims: its dimensions.
        axis: along which rows lie, non-negative and not that of the groups.
        payload: address of its bytes.
        values: address of the values, contiguous, of the declaration's data_type.
        positions: address of the position.
        length: rows of values.

    Raises:
        PageShapeError: dims, axis and declaration do not agree (MC-PAGED-007).
        ValueError: more than 2**31 - 1 items, more rows than a page has, or identity elements of less than a byte.
    """
    return _page_rows(declaration, dims, axis, payload, values, positions, length, "encode")


def decode_rows(
    declaration: Declaration,
    dims: Sequence[int],
    axis: int,
    *,
    payload: int,
    values: int,
    length: int | None = None,
    positions: int = 0,
    values_rows: int | None = None,
) -> Transfer:
    """Rows of one page, decoded to ``values``.

    Args:
        declaration: how the page is encoded.
        dims: its dimensions.
        axis: along which rows lie.
        payload: address of its bytes.
        values: address of the first decoded element.
        length: rows to decode; None: all.
        positions: address of the first row, or 0 for row 0.
        values_rows: rows along ``axis`` of the array that ``values`` is part of; None: ``length``.

    Raises:
        PageShapeError: dims and declaration do not agree (MC-PAGED-007).
        ValueError: more than 2**31 - 1 items, more rows than a page has, or identity elements of less than a byte.
    """
    length = dims[axis] if length is None else length
    transfer = _page_rows(declaration, dims, axis, payload, values, positions, length, "decode")
    rows, gap = transfer.rows, (length if values_rows is None else values_rows) - length
    rows["values_gap"] = gap * int(rows["row_items"])
    outer = math.prod(dims[:axis])
    nbytes = math.prod(dims[axis + 1 :]) * _value_bits(declaration) // 8 * (outer * (length + gap) - gap)
    return Transfer(rows, transfer.page, transfer.kernel, (values, values + max(nbytes, 0)), transfer.written)


def encode_rows_of(
    declaration: Declaration,
    dims: Sequence[int],
    axis: int,
    *,
    pages: int,
    n_pages: int,
    page_id: int,
    values: int,
    positions: int,
    length: int,
) -> Transfer:
    """An update of a page that is named on the device, of a table of page records there.

    All pages of the table have these dims and vectors (:func:`has_vectors`), each its own declaration; ``declaration``
    is any of them. ``page_id`` is the address of the page's number. A device makes no pages: a page that is not there
    is refused.
    """
    transfer = _page_rows(declaration, dims, axis, 0, values, positions, length, "encode")
    row, outer = math.prod(dims[axis + 1 :]) // VECTOR, math.prod(dims[:axis])
    if not has_vectors(declaration, row * VECTOR, values, 0) or math.prod(dims[axis + 1 :]) % VECTOR:
        raise ValueError("a table of pages on the device needs pages that have vectors, and values aligned to 16 bytes")
    rows = transfer.rows
    rows["pages"], rows["n_pages"], rows["page_id"] = pages, n_pages, page_id
    # The codec is read on the device; an identity page is copied by items of the same elements.
    rows["element"], rows["unit"] = TYPES[declaration.data_type], VECTOR * SIZES[declaration.data_type]
    _set_items(rows, outer * length * row, length * row, row, (dims[axis] - length) * row)
    return Transfer(rows, None, "step", (0, 0), transfer.read)


def reencode(old: Declaration, new: Declaration, dims: Sequence[int], *, source: int, target: int) -> Transfer:
    """A page under another declaration, which must have the same data_type; the payloads must not overlap.

    Args:
        old: the declaration of the bytes at ``source``.
        new: the declaration of the bytes at ``target``.
        dims: dimensions of the page.
        source: address of the bytes to read.
        target: address of the bytes to write.

    Raises:
        PageShapeError: dims and declarations do not agree (MC-PAGED-007).
        ValueError: more than 2**31 - 1 items.
    """
    if old.data_type != new.data_type or old.data_type not in _ELEMENT_NAMES:
        raise ValueError(f"cannot re-encode elements of type {old.data_type} as {new.data_type}")
    total = math.prod(dims)
    is_vector = total % VECTOR == 0 and new.kind is not Kind.IDENTITY and has_vectors(new, total, 0, target)
    page = page_record(new, dims, target, is_vector=is_vector)
    size = VECTOR if is_vector else 1 if new.kind is Kind.IDENTITY else int(page["block"])
    rows = np.zeros((), ROWS)
    rows["n_pages"] = 1
    _set_items(rows, total // size, total // size, 0, 0)
    rows["element"] = TYPES[new.data_type]
    record = page_record(old, dims, source, is_vector=total % VECTOR == 0 and has_vectors(old, total, 0, source))
    written, read = (target, target + _nbytes(new, total)), (source, source + _nbytes(old, total))
    return Transfer(rows, page, "reencode", written, read, record)


def _page_rows(
    declaration: Declaration,
    dims: Sequence[int],
    axis: int,
    payload: int,
    values: int,
    positions: int,
    length: int,
    verb: str,
) -> Transfer:
    if problems := page_problems(declaration, dims, axis if verb == "encode" else None):
        raise PageShapeError("; ".join(problems))
    row, outer = math.prod(dims[axis + 1 :]), math.prod(dims[:axis])
    is_identity = declaration.kind is Kind.IDENTITY
    if is_identity and declaration.bits < 8:
        raise ValueError(f"no kernel packs elements of {declaration.bits} bits as they are")
    if not 0 <= length <= dims[axis]:
        raise ValueError(f"{length} rows do not fit into pages of {dims[axis]}")
    is_vector = has_vectors(declaration, row, values, payload)
    page = page_record(declaration, dims, payload, is_vector=is_vector)
    rows = np.zeros((), ROWS)
    rows["values"], rows["positions"], rows["n_pages"], rows["starts"] = values, positions, 1, positions != 0
    rows["capacity"], rows["length"] = dims[axis], length
    if is_identity:
        row_bytes = row * declaration.bits // 8
        unit = unit_of(16, payload, values, row_bytes)
        size, row_items, kernel = unit, row_bytes // unit, "dense_update" if verb == "encode" else "gather"
        rows["unit"] = unit
    else:
        size = VECTOR if is_vector else int(page["block"])
        row_items = row // size
        rows["element"] = TYPES[declaration.data_type]
        name = f"{verb}_{codec_name(declaration)}_{_ELEMENT_NAMES[declaration.data_type]}"
        kernel = name if is_vector else "step" if verb == "encode" else "gather"
    if not is_identity and outer * dims[axis] * row_items >= MAX_ITEMS:
        raise ValueError(f"the page has {outer * dims[axis] * row_items} items, more than {MAX_ITEMS - 1}")
    _set_items(rows, outer * length * row_items, length * row_items, row_items, (dims[axis] - length) * row_items)
    written = (payload, payload + _nbytes(declaration, math.prod(dims)))
    read = (values, values + outer * length * row * _value_bits(declaration) // 8)
    return Transfer(rows, page, kernel, written, read)


def _nbytes(declaration: Declaration, elements: int) -> int:
    """Bytes of a page."""
    return elements // group_size(declaration) * sum(part_widths(declaration))


def codec_name(declaration: Declaration) -> str:
    """What kernels of an encoded page are named after."""
    codec = _codec_of(declaration)
    if codec in (Codec.CAST, Codec.SCALED_E4M3, Codec.SCALED_E2M1):
        return "cast_e4m3" if codec is Codec.CAST else codec.name.lower()
    return f"{codec.name.lower()}_{declaration.bits}"


def _codec_of(declaration: Declaration) -> Codec:
    match declaration.kind:
        case Kind.IDENTITY:
            return Codec.IDENTITY
        case Kind.CAST:
            return Codec.CAST
        case Kind.LINEAR:
            return Codec.STATIC
    if declaration.storage_type == TensorProto.FLOAT8E4M3FN:
        return Codec.SCALED_E4M3
    if declaration.storage_type == TensorProto.FLOAT4E2M1:
        return Codec.SCALED_E2M1
    if declaration.symmetric:
        return Codec.SYMMETRIC
    return Codec.CORRECTION if declaration.correction_type is not None else Codec.ZERO_POINT


def _value_bits(declaration: Declaration) -> int:
    return declaration.bits if declaration.kind is Kind.IDENTITY else 8 * SIZES[declaration.data_type]


def _set_terms(page: Record, declaration: Declaration, groups: int) -> None:
    """Enter where scales, and zero points or corrections, lie."""
    widths = part_widths(declaration)
    if declaration.layout is Layout.INTERLEAVED:
        offsets = [sum(widths[:index]) for index in range(len(widths))]
        strides = [sum(widths)] * len(widths)
    else:
        offsets = [groups * sum(widths[:index]) for index in range(len(widths))]
        strides = list(widths)
    assert declaration.scale_type is not None
    page["code_stride"], page["scale_offset"], page["scale_stride"] = strides[0], offsets[1], strides[1]
    page["scale_type"] = TYPES[declaration.scale_type]
    if declaration.correction_type is not None:
        page["aux_type"] = TYPES[declaration.correction_type]
    if len(widths) > 2:
        page["aux_offset"], page["aux_stride"] = offsets[2], strides[2]
    payload = int(page["payload"])
    page["is_aligned"] = all(
        (payload + offset) % width == 0 and stride % width == 0
        for offset, stride, width in list(zip(offsets, strides, widths, strict=True))[1:]
    )


def _set_items(rows: Record, items: int, run: int, row: int, gap: int) -> None:
    if items >= MAX_ITEMS:
        raise ValueError(f"{items} items are more than {MAX_ITEMS - 1}, what one transfer can have")
    rows["items"], rows["row_items"], rows["page_gap"] = items, row if items else 0, gap
    if items:
        rows["run"] = divisor(run)
