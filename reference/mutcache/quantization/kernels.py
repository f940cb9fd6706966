"""The loops over all elements that the encoder is made of, in NumPy, and the choice to run compiled ones instead.

What is done once a group (terms, their rounding, what is not finite) is the encoder's and always NumPy; both kinds of
kernels are equal bit for bit.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from mutcache.errors import MutcacheError
from mutcache.quantization.floats import Bytes, Floats, e2m1_codes, e4m3_codes
from mutcache.quantization.packing import pack


class Kernels(Protocol):
    """Kernels over groups ``x`` [groups, size]; terms are [groups, 1]."""

    @property
    def overwrites(self) -> bool:
        """Whether the kernels that make codes use ``x`` for what comes between."""

    @property
    def chunk(self) -> int:
        """Elements to convert at once, so that temporaries stay in the cache of a core."""

    def largest(self, x: Floats) -> Floats:
        """The largest magnitude of each group, [groups, 1]; NaN or infinite if an element is."""

    def extremes(self, x: Floats) -> tuple[Floats, Floats]:
        """Minimum and maximum of each group, [groups, 1]; not finite, one of them at least, if an element is not."""

    def integer_codes(
        self, x: Floats, correction: Floats, reciprocal: Floats, zero_point: Floats, limits: tuple[int, int], bits: int
    ) -> Bytes:
        """``clamp(rint((x - correction) * reciprocal) + zero_point)`` of each element, packed."""

    def float_codes(self, x: Floats, reciprocal: Floats, bits: int) -> Bytes:
        """``x * reciprocal`` as E4M3 (8 bits) or E2M1 (4 bits) of each element, packed; +0 where reciprocal is 0."""


class _NumpyKernels:
    overwrites: Final = True
    chunk: Final = 1 << 15

    def largest(self, x: Floats) -> Floats:
        return _reduced(np.maximum, np.abs(x).view(np.uint32)).view(np.float32)  # bits order as magnitudes do, NaN last

    def extremes(self, x: Floats) -> tuple[Floats, Floats]:
        return _reduced(np.minimum, x), _reduced(np.maximum, x)

    def integer_codes(
        self, x: Floats, correction: Floats, reciprocal: Floats, zero_point: Floats, limits: tuple[int, int], bits: int
    ) -> Bytes:
        if correction.any():
            x -= correction
        x *= reciprocal
        np.rint(x, out=x)
        if zero_point.any():
            x += zero_point
        np.clip(x, *limits, out=x)
        return pack(x.astype(np.int32).astype(np.uint8), bits)

    def float_codes(self, x: Floats, reciprocal: Floats, bits: int) -> Bytes:
        x *= reciprocal
        x[(reciprocal == 0).ravel()] = 0  # the sign of a zero is kept only where there is a scale
        return e4m3_codes(x) if bits == 8 else pack(e2m1_codes(x), bits)


def _reduced(operation: np.ufunc, x: NDArray[Any]) -> NDArray[Any]:
    """The reduction of each group: several times as fast as along an axis, which is short."""
    return operation.reduceat(x.ravel(), np.arange(0, x.size, x.shape[1]))[:, None]


_NUMPY: Final = _NumpyKernels()
_current: Kernels = _NUMPY


def kernels() -> Kernels:
    """The kernels that encode now."""
    return _current


def use_numba(enabled: bool = True) -> None:
    """Encode with compiled kernels from now on, in the whole process, or with NumPy's again.

    The bytes are the same. Kernels are compiled when they first run, in about two seconds together.

    Raises:
        MutcacheError: numba is not installed.
    """
    global _current
    if not enabled:
        _current = _NUMPY
        return
    try:
        from mutcache.quantization.compiled import CompiledKernels
    except ImportError as error:
        raise MutcacheError("numba is not installed", hint="pip install 'mutcache[numba]'") from error
    _current = CompiledKernels()
