"""Declarations and elements that the checks on a device draw from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from mutcache.proto.onnx_ml import QuantizationProto, TensorProto
from mutcache.quantization import Declaration, parse_declaration
from mutcache_cupy.device import Array

DTYPES: Final[dict[int, np.dtype[Any]]] = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}
_SIGNED: Final = ((TensorProto.INT8, 8), (TensorProto.INT4, 4), (TensorProto.INT2, 2))
_UNSIGNED: Final = ((TensorProto.UINT8, 8), (TensorProto.UINT4, 4), (TensorProto.UINT2, 2))
_FLOATS: Final = {
    TensorProto.FLOAT8E4M3FN: (8, (*DTYPES, TensorProto.FLOAT8E8M0)),
    TensorProto.FLOAT4E2M1: (4, (*DTYPES, TensorProto.FLOAT8E8M0, TensorProto.FLOAT8E4M3FN)),
}


def packed(
    data: int,
    storage: int,
    bits: int,
    block: int,
    scale: int,
    *,
    zero_point: int = 0,
    correction: int = 0,
    layout: int = 0,
    rank: int = 2,
) -> Declaration:
    """A packed_linear declaration of pages of ``rank``."""
    proto = QuantizationProto(data_type=data)
    proto.packed_linear.storage_type = storage
    proto.packed_linear.bits = bits
    proto.packed_linear.symmetric = not (zero_point or correction)
    proto.packed_linear.block_size = block
    proto.packed_linear.axis = rank - 1
    proto.packed_linear.scale_type = scale
    proto.packed_linear.zero_point_type = zero_point
    proto.packed_linear.correction_type = correction
    proto.packed_linear.layout = layout  # type: ignore[assignment]  # the number of the member
    return parse_declaration(proto)


def static(data: int, storage: int, bits: int, scale: float, zero_point: int) -> Declaration:
    """A linear declaration."""
    proto = QuantizationProto(data_type=data)
    proto.linear.storage_type = storage
    proto.linear.bits = bits
    proto.linear.scale_float = scale
    proto.linear.zero_point = zero_point
    return parse_declaration(proto)


@cache
def cast(data: int) -> Declaration:
    """A cast to FLOAT8E4M3FN."""
    proto = QuantizationProto(data_type=data)
    proto.cast.storage_type = TensorProto.FLOAT8E4M3FN
    return parse_declaration(proto)


@cache
def identity(data: int) -> Declaration:
    """Elements as they are."""
    proto = QuantizationProto(data_type=data)
    proto.identity.SetInParent()
    return parse_declaration(proto)


def packed_declarations(data: int, block: int, layout: int, *, rank: int = 2) -> Iterator[Declaration]:
    """Every packed_linear declaration with this block size and layout."""
    for scale in DTYPES:
        for storage, bits in _SIGNED:
            yield packed(data, storage, bits, block, scale, layout=layout, rank=rank)
        for storage, bits in _UNSIGNED:
            zero_point = TensorProto.UINT8
            yield packed(data, storage, bits, block, scale, zero_point=zero_point, layout=layout, rank=rank)
            for correction in DTYPES:
                yield packed(data, storage, bits, block, scale, correction=correction, layout=layout, rank=rank)
    for storage, (bits, scales) in _FLOATS.items():
        for scale in scales:
            yield packed(data, storage, bits, block, scale, layout=layout, rank=rank)


def plain_declarations(data: int) -> Iterator[Declaration]:
    """Declarations without groups."""
    yield identity(data)
    yield cast(data)
    yield static(data, TensorProto.INT8, 8, 0.037, 3)
    yield static(data, TensorProto.UINT8, 8, 0.5, 200)
    yield static(data, TensorProto.INT4, 4, 0.037, -2)
    yield static(data, TensorProto.UINT4, 4, 1e30, 9)
    yield static(data, TensorProto.INT2, 2, 0.25, -1)
    yield static(data, TensorProto.UINT2, 2, 3e-39, 2)


def hostile(data: int, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Elements of every kind: random bit patterns (NaN, infinities and subnormal numbers), ties, and ordinary ones."""
    dtype, count = DTYPES[data], int(np.prod(shape))
    bits = rng.integers(0, 1 << 8 * dtype.itemsize, count, dtype=np.uint64).astype(f"u{dtype.itemsize}")
    x = bits.view(dtype).copy()
    third = count // 3
    x[third : 2 * third] = (rng.integers(-300, 300, third) * 0.5 ** rng.integers(0, 12, third)).astype(dtype)
    rest = count - 2 * third
    x[2 * third :] = (rng.standard_normal(rest) * 8 ** rng.standard_normal(rest)).astype(dtype)
    return x.reshape(shape)


def same(found: Array, expected: Array) -> bool:
    """Whether elements are equal bit for bit; of a NaN only that it is one."""
    bits = f"u{expected.dtype.itemsize}"
    are_equal = found.view(bits) == expected.view(bits)
    are_nan = np.isnan(found.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    return bool((are_equal | are_nan).all())
