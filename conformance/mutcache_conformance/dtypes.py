"""NumPy dtypes of the fixed-width element types, by their TensorProto.DataType number."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

#: A table, and not onnx.helper, so that a host starts without importing onnx.
_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
    14: np.dtype(np.complex64),
    15: np.dtype(np.complex128),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    24: np.dtype(ml_dtypes.float8_e8m0fnu),
}
_NUMBERS: Final = {dtype: number for number, dtype in _DTYPES.items()}


def dtype_of(number: int) -> np.dtype[Any]:
    """The NumPy dtype of a TensorProto.DataType.

    Raises:
        ValueError: elements of the type have no fixed width of whole bytes (strings, 4-bit types), or there is none.
    """
    try:
        return _DTYPES[number]
    except KeyError:
        raise ValueError(f"data type {number} has no elements of a fixed number of whole bytes") from None


def number_of(dtype: np.dtype[Any]) -> int:
    """The TensorProto.DataType of a NumPy dtype.

    Raises:
        ValueError: ONNX has no such type.
    """
    try:
        return _NUMBERS[dtype]
    except KeyError:
        raise ValueError(f"ONNX has no element type {dtype}") from None
