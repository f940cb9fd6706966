"""The canonical encoder of groups, in float32, every operation rounded to nearest even and none fused.

Each function takes groups of elements, shape [groups, elements], and returns their parts as bytes, each of shape
[groups, bytes of the part], in the order codes, scale, zero point, correction.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization.declaration import FLOATS, SIGNED, Declaration, Kind
from mutcache.quantization.floats import (
    FMAX,
    SCALE_NAN,
    Array,
    Bytes,
    Floats,
    cast_codes,
    exponent_scales,
    narrow,
    widen,
    widened,
)
from mutcache.quantization.kernels import kernels
from mutcache.quantization.packing import pack

Flags = NDArray[np.bool_]

_ZERO: Final = np.float32(0)


def encode_groups(values: Array, declaration: Declaration) -> tuple[Bytes, ...]:
    """The parts of groups of elements of the declaration's data_type; ``values`` is left as it is."""
    if declaration.kind is Kind.IDENTITY:
        return (pack(_raw(values), declaration.bits),)
    with np.errstate(all="ignore"):  # overflow, underflow and NaN are part of the definition
        if declaration.kind is Kind.CAST:
            return (cast_codes(values),)
        if declaration.kind is Kind.LINEAR:
            return (_linear(widen(values), declaration),)
        work = widen(values, copy=kernels().overwrites)
        if declaration.storage_type in FLOATS:
            return _float_storage(work, declaration)
        if declaration.symmetric:
            return _symmetric(work, declaration)
        if declaration.correction_type is not None:
            return _with_correction(work, declaration)
        return _with_zero_point(work, declaration)


def _raw(values: Array) -> Bytes:
    """The bytes of each element; of the narrow types those that hold one element each."""
    return values.view(np.uint8).reshape(len(values), -1)


def _linear(x: Floats, declaration: Declaration) -> Bytes:
    low = -(1 << declaration.bits - 1) if declaration.storage_type in SIGNED else 0
    high = low + (1 << declaration.bits) - 1
    x *= np.float32(1) / np.float32(declaration.scale_float)
    np.rint(x, out=x)
    x += np.float32(declaration.zero_point)
    np.clip(x, low, high, out=x)
    x[np.isnan(x)] = 0
    return pack(x.astype(np.int32).astype(np.uint8), declaration.bits)


def _symmetric(x: Floats, declaration: Declaration) -> tuple[Bytes, ...]:
    qmax = (1 << declaration.bits - 1) - 1
    x, amax, is_bad = _largest_magnitude(x)
    stored, reciprocal = _scale(amax / np.float32(qmax), declaration)
    zero = np.zeros_like(amax)
    codes = kernels().integer_codes(x, zero, reciprocal, zero, (-qmax, qmax), declaration.bits)
    return codes, _with_nan(stored, is_bad, declaration)


def _with_correction(x: Floats, declaration: Declaration) -> tuple[Bytes, ...]:
    assert declaration.correction_type is not None
    qmax = (1 << declaration.bits) - 1
    x, low, high, is_bad = _extremes(x)
    corrections = narrow(low, declaration.correction_type)
    corrections[corrections == 0] = 0  # never -0
    correction = corrections.astype(np.float32)
    spread = np.maximum(high - correction, np.float32(0))
    stored, reciprocal = _scale(spread / np.float32(qmax), declaration)
    zero = np.zeros_like(correction)
    codes = kernels().integer_codes(x, correction, reciprocal, zero, (0, qmax), declaration.bits)
    return codes, _with_nan(stored, is_bad, declaration), _as_bytes(corrections)


def _with_zero_point(x: Floats, declaration: Declaration) -> tuple[Bytes, ...]:
    qmax = (1 << declaration.bits) - 1
    x, low, high, is_bad = _extremes(x)
    np.minimum(low, 0, out=low)
    np.maximum(high, 0, out=high)
    stored, reciprocal = _scale((high - low) / np.float32(qmax), declaration)
    zero_point = np.clip(np.rint(-low * reciprocal), 0, qmax)
    zero = np.zeros_like(zero_point)
    codes = kernels().integer_codes(x, zero, reciprocal, zero_point, (0, qmax), declaration.bits)
    return codes, _with_nan(stored, is_bad, declaration), zero_point.astype(np.uint8)


def _float_storage(x: Floats, declaration: Declaration) -> tuple[Bytes, ...]:
    storage = declaration.storage_type
    x, amax, is_bad = _largest_magnitude(x)
    if declaration.scale_type == TensorProto.FLOAT8E8M0:
        stored: Array = exponent_scales(amax, storage)
        reciprocal = np.float32(1) / widened(TensorProto.FLOAT8E8M0)[stored]
    else:
        stored, reciprocal = _scale(amax / np.float32(FMAX[storage]), declaration)
    return kernels().float_codes(x, reciprocal, declaration.bits), _with_nan(stored, is_bad, declaration)


def _largest_magnitude(x: Floats) -> tuple[Floats, Floats, Flags]:
    """The groups, the largest magnitude of each, [groups, 1], and which were not finite: those are all 0 now."""
    amax = kernels().largest(x)
    is_bad = ~np.isfinite(amax)
    if is_bad.any():
        return np.where(is_bad, _ZERO, x), np.where(is_bad, _ZERO, amax), is_bad
    return x, amax, is_bad


def _extremes(x: Floats) -> tuple[Floats, Floats, Floats, Flags]:
    """The groups, minimum and maximum of each, [groups, 1], and which were not finite: those are all 0 now."""
    low, high = kernels().extremes(x)
    is_bad = ~(np.isfinite(low) & np.isfinite(high))
    if is_bad.any():
        return np.where(is_bad, _ZERO, x), np.where(is_bad, _ZERO, low), np.where(is_bad, _ZERO, high), is_bad
    return x, low, high, is_bad


def _scale(exact: Floats, declaration: Declaration) -> tuple[Array, Floats]:
    """The stored scale of each group, and its reciprocal; both 0 where the reciprocal is infinite."""
    assert declaration.scale_type is not None
    stored = narrow(exact, declaration.scale_type)
    reciprocal = np.float32(1) / widen(stored)
    is_zero = np.isinf(reciprocal)
    if is_zero.any():
        stored[is_zero] = reciprocal[is_zero] = 0
    return stored, reciprocal


def _with_nan(stored: Array, is_bad: Flags, declaration: Declaration) -> Bytes:
    """The bytes of the scales, NaN for the bad groups."""
    assert declaration.scale_type is not None
    scales = _as_bytes(stored)
    if is_bad.any():
        scales[is_bad.ravel()] = np.frombuffer(SCALE_NAN[declaration.scale_type], np.uint8)
    return scales


def _as_bytes(column: Array) -> Bytes:
    return column.view(np.uint8).reshape(len(column), -1)
