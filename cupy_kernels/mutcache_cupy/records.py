"""The records that kernels read, byte for byte those of ``cuda/records.cuh``, and the numbers in them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from mutcache.proto.onnx_ml import TensorProto

Record = np.ndarray[Any, np.dtype[np.void]]

#: Elements that one thread takes at once on the vector paths.
VECTOR: Final = 16
#: ``lanes_log2`` of a page that has no vector path.
NO_VECTORS: Final = 255
#: Items of one transfer: the kernels' division is exact below it.
MAX_ITEMS: Final = 2**31


class Codec(enum.IntEnum):
    """How the bytes of a page stand for elements."""

    IDENTITY = 0
    CAST = 1
    STATIC = 2
    SYMMETRIC = 3
    ZERO_POINT = 4
    CORRECTION = 5
    SCALED_E4M3 = 6
    SCALED_E2M1 = 7
    ABSENT = 255


class Status(enum.IntFlag):
    """What a kernel found wrong with a transfer, of which it then wrote nothing."""

    NEGATIVE = 1
    OVERFLOW = 2
    NO_PAGE = 4


#: Numbers of the types of elements, scales and corrections.
TYPES: Final[Mapping[int, int]] = {
    TensorProto.FLOAT: 0,
    TensorProto.FLOAT16: 1,
    TensorProto.BFLOAT16: 2,
    TensorProto.FLOAT8E4M3FN: 3,
    TensorProto.FLOAT8E8M0: 4,
}
#: Bytes of an element of those types.
SIZES: Final[Mapping[int, int]] = {
    TensorProto.FLOAT: 4,
    TensorProto.FLOAT16: 2,
    TensorProto.BFLOAT16: 2,
    TensorProto.FLOAT8E4M3FN: 1,
    TensorProto.FLOAT8E8M0: 1,
}
NO_TYPE: Final = 255

DIVISOR: Final = np.dtype([("divisor", "<u4"), ("multiplier", "<u4"), ("shift", "<u4")])
PAGE: Final = np.dtype(
    [
        ("payload", "<u8"),
        ("scale_offset", "<i8"),
        ("aux_offset", "<i8"),
        ("code_stride", "<u4"),
        ("scale_stride", "<u4"),
        ("aux_stride", "<u4"),
        ("block", "<u4"),
        ("scale", "<f4"),
        ("zero_point", "<i4"),
        ("codec", "u1"),
        ("bits", "u1"),
        ("scale_type", "u1"),
        ("aux_type", "u1"),
        ("is_signed", "u1"),
        ("lanes_log2", "u1"),
        ("unit", "u1"),
        ("is_aligned", "u1"),
    ]
)
ROWS: Final = np.dtype(
    [
        ("values", "<u8"),
        ("pages", "<u8"),
        ("page_id", "<u8"),
        ("positions", "<u8"),
        ("n_pages", "<i8"),
        ("capacity", "<i8"),
        ("length", "<i8"),
        ("values_gap", "<i8"),
        ("page_gap", "<i8"),
        ("row_items", "<u4"),
        ("items", "<u4"),
        ("starts", "<u4"),
        ("element", "u1"),
        ("unit", "u1"),
        ("is_circular", "u1"),
        ("is_general", "u1"),
        ("run", DIVISOR),
        ("width", DIVISOR),
        ("after", DIVISOR),
        ("rows", DIVISOR),
        ("step", DIVISOR),
        ("batch", DIVISOR),
        ("is_batch_outer", "<u4"),
        ("reserved", "<u4"),
    ]
)
assert (DIVISOR.itemsize, PAGE.itemsize, ROWS.itemsize) == (12, 56, 168)  # as static_assert in records.cuh


def divisor(number: int) -> tuple[int, int, int]:
    """What a kernel multiplies and shifts with in place of dividing a number below 2**31 by ``number``.

    Raises:
        ValueError: ``number`` is not from 1 to 2**31 - 1.
    """
    if not 0 < number < MAX_ITEMS:
        raise ValueError(f"cannot divide by {number}: divisors go from 1 to {MAX_ITEMS - 1}")
    if number == 1:
        return 1, 0, 0
    shift = (number - 1).bit_length() - 1
    return number, -(-(1 << 32 + shift) // number), shift


def unit_of(limit: int, *numbers: int) -> int:
    """The largest power of two up to ``limit``, itself one, that divides all of ``numbers``."""
    joined = limit
    for number in numbers:
        joined |= number
    return joined & -joined
