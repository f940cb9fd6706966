"""The kernels of the encoder, compiled by numba: bit for bit what NumPy computes. Importing this imports numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np

from mutcache.quantization.floats import Bytes, Floats
from mutcache.quantization.packing import pack

import numba  # isort: skip  # last, for it is slow and may be missing

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    """Compiled without fast math: nothing is reordered, fused or flushed."""
    return cast("Function", numba.njit(nogil=True, error_model="numpy")(function))


class CompiledKernels:
    """See Kernels."""

    overwrites: Final = False
    chunk: Final = 1 << 18  # what NumPy still does once a group has its price by the call

    def largest(self, x: Floats) -> Floats:
        """See Kernels."""
        found: Floats = _largest(x.view(np.uint32)).view(np.float32)
        return found

    def extremes(self, x: Floats) -> tuple[Floats, Floats]:
        """See Kernels."""
        low, high = _extremes(x.view(np.int32))
        return low.view(np.float32), high.view(np.float32)

    def integer_codes(
        self, x: Floats, correction: Floats, reciprocal: Floats, zero_point: Floats, limits: tuple[int, int], bits: int
    ) -> Bytes:
        """See Kernels."""
        low, high = map(np.float32, limits)
        return pack(_integer_codes(x, correction, reciprocal, zero_point, low, high), bits)

    def float_codes(self, x: Floats, reciprocal: Floats, bits: int) -> Bytes:
        """See Kernels."""
        return _e4m3_codes(x, reciprocal) if bits == 8 else pack(_e2m1_codes(x, reciprocal), 4)


@_compiled
def _largest(bits: Any) -> Any:
    groups, size = bits.shape
    found = np.empty((groups, 1), np.uint32)
    for group in range(groups):
        largest = np.uint32(0)
        for index in range(size):
            largest = max(largest, bits[group, index] & np.uint32(0x7FFFFFFF))
        found[group, 0] = largest
    return found


@_compiled
def _extremes(bits: Any) -> Any:
    """By integers that order as the values do: -NaN, -infinity, ..., infinity, NaN."""
    groups, size = bits.shape
    low, high = np.empty((groups, 1), np.int32), np.empty((groups, 1), np.int32)
    for group in range(groups):
        least, greatest = np.int32(0x7FFFFFFF), np.int32(-0x80000000)
        for index in range(size):
            value = bits[group, index]
            value ^= (value >> np.int32(31)) & np.int32(0x7FFFFFFF)
            least = min(least, value)
            greatest = max(greatest, value)
        low[group, 0] = least ^ ((least >> np.int32(31)) & np.int32(0x7FFFFFFF))
        high[group, 0] = greatest ^ ((greatest >> np.int32(31)) & np.int32(0x7FFFFFFF))
    return low, high


@_compiled
def _integer_codes(x: Any, correction: Any, reciprocal: Any, zero_point: Any, low: Any, high: Any) -> Any:
    groups, size = x.shape
    codes = np.empty((groups, size), np.uint8)
    for group in range(groups):
        shift, factor, offset = correction[group, 0], reciprocal[group, 0], zero_point[group, 0]
        for index in range(size):
            value = np.rint((x[group, index] - shift) * factor) + offset
            codes[group, index] = np.uint8(np.int32(min(max(value, low), high)))
    return codes


@_compiled
def _e4m3_codes(x: Any, reciprocal: Any) -> Any:
    """As ``floats.e4m3_codes``, by the bits."""
    groups, size = x.shape
    codes = np.empty((groups, size), np.uint8)
    for group in range(groups):
        factor = reciprocal[group, 0]
        for index in range(size):
            value = x[group, index] * factor
            magnitude = min(abs(value), np.float32(448))
            bits = np.float32(magnitude).view(np.uint32)
            rounded = (bits + np.uint32(0x7FFFF) + ((bits >> np.uint32(20)) & np.uint32(1))) >> np.uint32(20)
            steps = np.float32(magnitude + np.float32(1 << 14)).view(np.uint32) & np.uint32(15)
            code = steps if magnitude < np.float32(2.0**-6) else rounded - np.uint32(960)
            sign = np.float32(value).view(np.uint32) >> np.uint32(24) & np.uint32(128)
            codes[group, index] = np.uint8(code | sign) if factor > 0 else np.uint8(0)
    return codes


@_compiled
def _e2m1_codes(x: Any, reciprocal: Any) -> Any:
    """As ``floats.e2m1_codes``, by the midpoints."""
    groups, size = x.shape
    codes = np.empty((groups, size), np.uint8)
    for group in range(groups):
        factor = reciprocal[group, 0]
        for index in range(size):
            value = x[group, index] * factor
            magnitude = abs(value)
            code = np.uint32(magnitude > np.float32(0.25)) + np.uint32(magnitude >= np.float32(0.75))
            code += np.uint32(magnitude > np.float32(1.25)) + np.uint32(magnitude >= np.float32(1.75))
            code += np.uint32(magnitude > np.float32(2.5)) + np.uint32(magnitude >= np.float32(3.5))
            code += np.uint32(magnitude > np.float32(5))
            sign = np.float32(value).view(np.uint32) >> np.uint32(28) & np.uint32(8)
            codes[group, index] = np.uint8(code | sign) if factor > 0 else np.uint8(0)
    return codes
