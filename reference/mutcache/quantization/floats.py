"""Float storage: conversions between float32 and the narrow types of codes, scales and decoded elements.

All round to nearest even and saturate; none casts a NaN, for which libraries do not agree on the bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import helper

from mutcache.proto.onnx_ml import TensorProto

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Array = NDArray[Any]

#: Largest magnitude and exponent of it, of the float storage types.
FMAX: Final[Mapping[int, float]] = {TensorProto.FLOAT8E4M3FN: 448.0, TensorProto.FLOAT4E2M1: 6.0}
EMAX: Final[Mapping[int, int]] = {TensorProto.FLOAT8E4M3FN: 8, TensorProto.FLOAT4E2M1: 2}

#: The NaN of each type that a scale can have, little-endian.
SCALE_NAN: Final[Mapping[int, bytes]] = {
    TensorProto.FLOAT: b"\x00\x00\xc0\x7f",
    TensorProto.FLOAT16: b"\x00\x7e",
    TensorProto.BFLOAT16: b"\xc0\x7f",
    TensorProto.FLOAT8E4M3FN: b"\x7f",
    TensorProto.FLOAT8E8M0: b"\xff",
}
E4M3_NAN: Final = 0x7F


@cache
def dtype_of(elem_type: int) -> np.dtype[Any]:
    """The NumPy dtype of an element type."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))


@cache
def largest(elem_type: int) -> np.float32:
    """The largest finite value of a float type that a scale, a correction or a decoded element can have."""
    return np.float32(ml_dtypes.finfo(dtype_of(elem_type)).max)  # type: ignore[no-untyped-call]  # it has no types


def narrow(values: Floats, elem_type: int) -> Array:
    """Finite or infinite float32 values as FLOAT, FLOAT16, BFLOAT16 or E4M3; what is too large saturates.

    NaN stays NaN, with bits that depend on the library. Works in place where the type is FLOAT.
    """
    limit = largest(elem_type)
    np.clip(values, -limit, limit, out=values)
    return values if elem_type == TensorProto.FLOAT else values.astype(dtype_of(elem_type))


def rounded(values: Floats, elem_type: int) -> Array:
    """Float32 values within the finite range of FLOAT, FLOAT16 or BFLOAT16, rounded to it; the same array for FLOAT.

    NaN stays NaN, and an infinity infinite. For many values at once.
    """
    if elem_type == TensorProto.FLOAT16 and np.isfinite(values).all():
        codes = _nearest(values, 10, 15).astype(np.uint16)
        codes |= (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16) & np.uint16(1 << 15)
        return codes.view(np.float16)
    return values.astype(dtype_of(elem_type), copy=False)


@cache
def widened(elem_type: int) -> Floats:
    """The value of each byte of an 8-bit float type, as float32: [256]."""
    codes = np.arange(256, dtype=np.uint8)
    if elem_type == TensorProto.FLOAT8E8M0:
        bits = codes.astype(np.uint32) << 23
        bits[0] = 1 << 22  # 2**-127, a subnormal number of float32
        bits[255] = 0x7FC00000
        table = bits.view(np.float32)
    else:
        table = codes.view(dtype_of(elem_type)).astype(np.float32)
    table.flags.writeable = False
    return table


def widen(values: Array, *, copy: bool = True) -> Floats:
    """FLOAT, FLOAT16 or BFLOAT16 elements as float32: a new array, but for FLOAT where ``copy`` is false."""
    if values.dtype == np.float16:
        return _float16_values().take(values.view(np.uint16))  # twice as fast as astype
    return values.astype(np.float32, copy=copy)


@cache
def _float16_values() -> Floats:
    """The value of every bit pattern of float16: [65536]."""
    table = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    table.flags.writeable = False
    return table


def e4m3_codes(values: Floats) -> Bytes:
    """The nearest E4M3 of each finite or infinite value, ties to even, saturating at 448. Overwrites ``values``."""
    limit = FMAX[TensorProto.FLOAT8E4M3FN]
    np.clip(values, -limit, limit, out=values)
    codes = _nearest(values, 3, 7).astype(np.uint8)
    codes &= np.uint8(0x7F)  # of a NaN only the place is kept
    codes |= (values.view(np.uint32) >> np.uint32(24)).astype(np.uint8) & np.uint8(1 << 7)
    return codes


def _nearest(values: Floats, mantissa: int, bias: int) -> NDArray[np.uint32]:
    """The code of the magnitude of each finite value in a narrower type, ties to even, in the low-order bits.

    By the bits of float32, several times as fast as casts are. Of a normal number the upper bits of the mantissa are
    kept, from which rounding may carry into the exponent. Below the normal numbers codes count equal steps: adding the
    power of two at which float32 has that step leaves their number, rounded, in its low-order bits.
    """
    magnitude = values.view(np.uint32) & np.uint32(0x7FFFFFFF)
    dropped = np.uint32(23 - mantissa)
    codes = (magnitude >> dropped) & np.uint32(1)
    codes += magnitude
    codes += np.uint32((1 << 22 - mantissa) - 1)
    codes >>= dropped
    codes -= np.uint32((127 - bias) << mantissa)
    steps = magnitude.view(np.float32) + np.float32(2.0 ** (24 - bias - mantissa))
    is_subnormal = magnitude < np.float32(2.0 ** (1 - bias)).view(np.uint32)
    np.copyto(codes, steps.view(np.uint32), where=is_subnormal)
    return codes


def e2m1_codes(values: Floats) -> Bytes:
    """The nearest E2M1 of each finite or infinite value, ties to even, saturating at 6; one code a byte.

    Counts the midpoints between neighbouring magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 that a value has passed; at a
    midpoint itself the neighbour with the even code is the nearest.
    """
    magnitude = np.abs(values)
    codes = np.signbit(values).astype(np.uint8)
    codes <<= 3
    for midpoint in (0.25, 1.25, 2.5, 5.0):  # their lower neighbour is even
        codes += magnitude > midpoint
    for midpoint in (0.75, 1.75, 3.5):
        codes += magnitude >= midpoint
    return codes


def cast_codes(values: Array) -> Bytes:
    """The E4M3 of each element of a FLOAT, FLOAT16 or BFLOAT16 array: saturating, NaN of any sign as 0x7F."""
    if values.dtype.itemsize == 2:
        return _cast_table(values.dtype).take(values.view(np.uint16))
    return _cast(values.astype(np.float32))


def _cast(values: Floats) -> Bytes:
    missing = np.isnan(values)
    codes = e4m3_codes(values)
    codes[missing] = E4M3_NAN
    return codes


@cache
def _cast_table(dtype: np.dtype[Any]) -> Bytes:
    """The E4M3 code of every bit pattern of a 16-bit float type: [65536]."""
    table = _cast(np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32))
    table.flags.writeable = False
    return table


def exponent_scales(amax: Floats, storage_type: int) -> Bytes:
    """The E8M0 scale of groups with this largest finite magnitude: by the exponent field, never by a cast."""
    exponents = (amax.view(np.uint32) >> 23).astype(np.int32)
    exponents -= EMAX[storage_type]
    return np.clip(exponents, 0, 254).astype(np.uint8)
