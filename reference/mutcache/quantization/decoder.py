"""The decoder of groups, in float32: ``(code - zero_point) * scale + correction``, each operation rounded."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization.declaration import FLOATS, SIGNED, Declaration, Kind
from mutcache.quantization.floats import Array, Bytes, Floats, dtype_of, largest, rounded, widened
from mutcache.quantization.packing import unpack

#: Types of scales that are one byte.
_TABLES: Final = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E8M0)


def decode_groups(found: tuple[Bytes, ...], declaration: Declaration) -> Array:
    """The elements of groups, [groups, elements] of data_type, from their parts, each [groups, bytes of the part]."""
    codes = found[0]
    if declaration.kind is Kind.IDENTITY:
        elements = np.ascontiguousarray(unpack(codes, declaration.bits))
        return elements.view(dtype_of(declaration.data_type))
    with np.errstate(all="ignore"):  # overflow and NaN are part of the definition
        x = _code_values(codes, declaration.storage_type, declaration.bits)
        if declaration.kind is Kind.CAST:
            return rounded(x, declaration.data_type)
        if declaration.kind is Kind.LINEAR:
            if declaration.zero_point:
                x -= np.float32(declaration.zero_point)
            x *= np.float32(declaration.scale_float)
            return _rounded(x, None, declaration)
        terms = iter(found[1:])
        assert declaration.scale_type is not None
        scale = _term(next(terms), declaration.scale_type)
        if declaration.zero_point_type is not None:
            x -= _term(next(terms), declaration.zero_point_type)
        x *= scale
        is_finite = np.isfinite(scale)
        if declaration.correction_type is not None:
            correction = _term(next(terms), declaration.correction_type)
            x += correction
            is_finite &= np.isfinite(correction)
        return _rounded(x, None if is_finite.all() else is_finite, declaration)


def _rounded(x: Floats, is_finite: Array | None, declaration: Declaration) -> Array:
    """Float32 values as elements of data_type, clamped first where the terms of the group are finite."""
    limit = largest(declaration.data_type)
    np.clip(x, -limit, limit, out=x, where=True if is_finite is None else is_finite)
    return rounded(x, declaration.data_type)


def _term(column: Bytes, elem_type: int) -> Floats:
    """Scales, zero points or corrections as float32, [groups, 1]."""
    if elem_type in _TABLES:
        return widened(elem_type).take(column)
    return np.ascontiguousarray(column).view(dtype_of(elem_type)).astype(np.float32)


def _code_values(codes: Bytes, storage_type: int, bits: int) -> Floats:
    """The values of packed codes as float32, [groups, elements]."""
    if bits == 8 and storage_type not in FLOATS:
        integers = codes.view(np.int8) if storage_type in SIGNED else codes
        return integers.astype(np.float32)
    return _byte_values(storage_type, bits).take(codes, axis=0).reshape(len(codes), codes.shape[1] * 8 // bits)


@cache
def _byte_values(storage_type: int, bits: int) -> Floats:
    """The values of the codes in each byte: [256, codes in a byte]."""
    every = np.arange(256, dtype=np.uint8)[:, None]
    if storage_type == TensorProto.FLOAT8E4M3FN:
        return widened(storage_type)[:, None]
    codes = unpack(every, bits, signed=storage_type in SIGNED)
    if storage_type == TensorProto.FLOAT4E2M1:
        values = codes.view(dtype_of(storage_type)).astype(np.float32)
    else:
        values = (codes.view(np.int8) if storage_type in SIGNED else codes).astype(np.float32)
    values.flags.writeable = False
    return values
