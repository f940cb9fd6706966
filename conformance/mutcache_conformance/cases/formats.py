"""The declarations of page types that the cases use, and pages of numbers in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import PackedLinearUniformProto, QuantizationProto
from mutcache_conformance.dtypes import dtype_of
from mutcache_conformance.oracle_codec import codec_of
from mutcache_conformance.oracle_pages import encoded

SEQUENTIAL: Final = PackedLinearUniformProto.SEQUENTIAL
INTERLEAVED: Final = PackedLinearUniformProto.INTERLEAVED

#: Makes the declaration of a type for pages of so many axes that decode to an element type.
Format = Callable[[int, int], QuantizationProto]

_WIDTHS: Final[dict[int, int]] = {
    Stock.INT8: 8,
    Stock.UINT8: 8,
    Stock.INT4: 4,
    Stock.UINT4: 4,
    Stock.INT2: 2,
    Stock.UINT2: 2,
    Stock.FLOAT8E4M3FN: 8,
    Stock.FLOAT4E2M1: 4,
}


def packed(
    storage: int,
    block: int,
    scale: int = Stock.FLOAT16,
    *,
    zero_point: int = Stock.UNDEFINED,
    correction: int = Stock.UNDEFINED,
    layout: PackedLinearUniformProto.PackedLayout.ValueType = SEQUENTIAL,
) -> Format:
    """A packed_linear type; groups lie along the last axis."""

    def make(data_type: int, rank: int) -> QuantizationProto:
        declaration = PackedLinearUniformProto(
            storage_type=storage,
            bits=_WIDTHS[storage],
            symmetric=storage not in (Stock.UINT8, Stock.UINT4, Stock.UINT2),
            block_size=block,
            axis=rank - 1,
            scale_type=scale,
            layout=layout,
        )
        if zero_point:
            declaration.zero_point_type = zero_point
        if correction:
            declaration.correction_type = correction
        return QuantizationProto(data_type=data_type, packed_linear=declaration)

    return make


def linear(storage: int, scale: float, zero_point: int = 0) -> Format:
    """A linear type with a static scale."""

    def make(data_type: int, rank: int) -> QuantizationProto:
        made = QuantizationProto(data_type=data_type)
        made.linear.storage_type, made.linear.bits = storage, _WIDTHS[storage]
        made.linear.symmetric = not zero_point
        made.linear.scale_float, made.linear.zero_point = scale, zero_point
        made.linear.axis = rank - 1
        return made

    return make


def cast(data_type: int, rank: int) -> QuantizationProto:  # noqa: ARG001 - it has no groups
    """FP8 codes without a scale."""
    made = QuantizationProto(data_type=data_type)
    made.cast.storage_type = Stock.FLOAT8E4M3FN
    return made


def identity(data_type: int, rank: int) -> QuantizationProto:  # noqa: ARG001 - it has no groups
    """The elements themselves."""
    made = QuantizationProto(data_type=data_type)
    made.identity.SetInParent()
    return made


#: The types that most tables mix. INT4 and NVFP4-like pages of FLOAT16 have equal sizes, FP8 and static INT8 ones too.
FORMATS: Final[dict[str, Format]] = {
    "int4": packed(Stock.INT4, 32, layout=INTERLEAVED),
    "fp8": cast,
    "int2": packed(Stock.UINT2, 16, correction=Stock.FLOAT16),
    "int8": packed(Stock.INT8, 32),
    "scaled-fp8": packed(Stock.FLOAT8E4M3FN, 32, Stock.FLOAT),
    "mxfp4": packed(Stock.FLOAT4E2M1, 32, Stock.FLOAT8E8M0),
    "nvfp4": packed(Stock.FLOAT4E2M1, 16, Stock.FLOAT8E4M3FN, layout=INTERLEAVED),
    "static-int8": linear(Stock.INT8, 0.03125),
    "identity": identity,
}
#: Further types: other scales, zero points, corrections and layouts.
VARIANTS: Final[dict[str, Format]] = {
    "int8-interleaved": packed(Stock.INT8, 8, Stock.FLOAT, layout=INTERLEAVED),
    "int8-bfloat16-scale": packed(Stock.INT8, 16, Stock.BFLOAT16),
    "int4-float-scale": packed(Stock.INT4, 16, Stock.FLOAT),
    "int2-symmetric": packed(Stock.INT2, 32),
    "uint8-zero-point": packed(Stock.UINT8, 32, zero_point=Stock.UINT8),
    "uint8-correction": packed(Stock.UINT8, 16, Stock.FLOAT, correction=Stock.BFLOAT16),
    "uint4-zero-point": packed(Stock.UINT4, 32, zero_point=Stock.UINT8, layout=INTERLEAVED),
    "uint4-correction": packed(Stock.UINT4, 8, correction=Stock.FLOAT, layout=INTERLEAVED),
    "uint2-zero-point": packed(Stock.UINT2, 32, Stock.BFLOAT16, zero_point=Stock.UINT8),
    "uint2-interleaved": packed(Stock.UINT2, 16, correction=Stock.FLOAT16, layout=INTERLEAVED),
    "scaled-fp8-interleaved": packed(Stock.FLOAT8E4M3FN, 16, layout=INTERLEAVED),
    "mxfp8": packed(Stock.FLOAT8E4M3FN, 32, Stock.FLOAT8E8M0),
    "mxfp4-interleaved": packed(Stock.FLOAT4E2M1, 32, Stock.FLOAT8E8M0, layout=INTERLEAVED),
    "nvfp4-sequential": packed(Stock.FLOAT4E2M1, 16, Stock.FLOAT8E4M3FN),
    "fp4-float16-scale": packed(Stock.FLOAT4E2M1, 32),
    "static-uint8": linear(Stock.UINT8, 0.046875, 117),
    "static-int4": linear(Stock.INT4, 0.75),
    "static-uint2": linear(Stock.UINT2, 1.5, 2),
}


def nbytes(declaration: QuantizationProto, dims: tuple[int, ...]) -> int:
    """Bytes of a page."""
    return codec_of(declaration).nbytes(dims)


def payload(declaration: QuantizationProto, numbers: list[float], dims: tuple[int, ...]) -> bytes:
    """The payload of a page of these numbers, rounded to its element type."""
    values = np.array(numbers, np.float32).astype(dtype_of(declaration.data_type)).reshape(dims)
    return encoded(values, codec_of(declaration), dims)
