"""Tensor types whose dimensions are sizes or unknown, and what two of them say together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from onnx import helper

from mutcache.model import Dim, TensorType
from mutcache.proto.onnx_ml import TensorProto

#: A size, or None when it is unknown.
Size = int | None

#: Elements that are packed, by bits.
_BITS: Final[Mapping[int, int]] = {
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.FLOAT4E2M1: 4,
    TensorProto.INT2: 2,
    TensorProto.UINT2: 2,
}


def byte_size(known: TensorType | None) -> int | None:
    """The bytes of a tensor, or None when its shape is unknown or its elements have no fixed width."""
    if known is None or known.elem_type in (0, TensorProto.STRING):
        return None
    count = elements(known)
    if count is None:
        return None
    try:
        bits = _BITS.get(known.elem_type) or 8 * helper.tensor_dtype_to_np_dtype(known.elem_type).itemsize
    except KeyError:  # no element type of this version
        return None
    return -(-count * bits // 8)


def elements(known: TensorType) -> int | None:
    """How many elements a tensor has, or None when its shape is unknown."""
    sizes = [dim for dim in known.dims or () if isinstance(dim, int)]
    return None if known.dims is None or len(sizes) < len(known.dims) else math.prod(sizes)


def with_sizes(known: TensorType | None, dims: Mapping[str, int]) -> TensorType | None:
    """The type with sizes in place of symbols; symbols that ``dims`` has not are unknown."""
    if known is None or known.dims is None:
        return known
    return TensorType(known.elem_type, tuple(_size(dim, dims) for dim in known.dims))


def _size(dim: Dim, dims: Mapping[str, int]) -> Size:
    size = dims.get(dim) if isinstance(dim, str) else dim
    return None if size is None or size < 0 else size  # a negative size is a way to say that nothing is known


def sharpen(known: TensorType | None, other: TensorType | None) -> TensorType | None:
    """``known``, with what ``other`` says where it says nothing."""
    if known is None or other is None:
        return known or other
    dims = known.dims
    if dims is None:
        dims = other.dims
    elif other.dims is not None and len(other.dims) == len(dims):
        dims = tuple(theirs if ours is None else ours for ours, theirs in zip(dims, other.dims, strict=True))
    return TensorType(known.elem_type or other.elem_type, dims)


def meet(one: TensorType | None, other: TensorType | None) -> TensorType | None:
    """What both say."""
    if one is None or other is None or one.elem_type != other.elem_type:
        return None
    if one.dims is None or other.dims is None or len(one.dims) != len(other.dims):
        return TensorType(one.elem_type, None)
    dims = tuple(ours if ours == theirs else None for ours, theirs in zip(one.dims, other.dims, strict=True))
    return TensorType(one.elem_type, dims)


def stacked(known: TensorType | None, count: Size, axis: int) -> TensorType | None:
    """What ``count`` values of one type are together, along a new axis."""
    if known is None or known.dims is None or not -len(known.dims) - 1 <= axis <= len(known.dims):
        return None
    at = axis % (len(known.dims) + 1)
    return TensorType(known.elem_type, (*known.dims[:at], count, *known.dims[at:]))
