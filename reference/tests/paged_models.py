"""Models with paged caches, and declarations whose bytes can be told by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mutcache.model import DOMAIN, Dim
from mutcache.paging import Page, PageTable
from mutcache.proto.onnx_ml import ModelProto, NodeProto, QuantizationProto, TensorProto, ValueInfoProto
from mutcache.storage import Array
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor

FLOAT, FLOAT16, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
INT8, UINT8 = TensorProto.INT8, TensorProto.UINT8

#: Heads, rows and head size of the pages of these models.
PAGE = (2, 4, 8)


def identity(data_type: int = FLOAT) -> QuantizationProto:
    """A page is the bytes of its elements."""
    made = QuantizationProto(data_type=data_type)
    made.identity.SetInParent()
    return made


def static_int8(scale: float = 1.0, data_type: int = FLOAT) -> QuantizationProto:
    """A page is one byte an element: with scale 1 the element itself."""
    made = QuantizationProto(data_type=data_type)
    made.linear.storage_type = INT8
    made.linear.bits = 8
    made.linear.symmetric = True
    made.linear.scale_float = scale
    return made


def static_uint8(zero_point: int, data_type: int = FLOAT) -> QuantizationProto:
    """A page is one byte an element, the element plus ``zero_point``."""
    made = QuantizationProto(data_type=data_type)
    made.linear.storage_type = UINT8
    made.linear.bits = 8
    made.linear.scale_float = 1.0
    made.linear.zero_point = zero_point
    return made


def packed_int8(data_type: int = FLOAT, block: int = 8) -> QuantizationProto:
    """Groups of ``block`` codes with a FLOAT scale: all codes, then all scales."""
    made = QuantizationProto(data_type=data_type)
    packed = made.packed_linear
    packed.storage_type, packed.bits, packed.symmetric = INT8, 8, True
    packed.block_size, packed.axis, packed.scale_type = block, 2, FLOAT
    return made


#: The types of ``paged_model``: as they are, bytes, bytes off by 100, grouped bytes.
IDENTITY, INT8_PAGE, UINT8_PAGE, PACKED = 0, 1, 2, 3


def quantizations(data_type: int = FLOAT) -> list[QuantizationProto]:
    return [identity(data_type), static_int8(1.0, data_type), static_uint8(100, data_type), packed_int8(data_type)]


def container(
    name: str,
    elem_type: int = FLOAT,
    dims: Sequence[Dim] | None = PAGE,
    allowed: Iterable[int] = (),
    *,
    is_map: bool = False,
    mutable: bool = False,
    alias_of: str = "",
) -> ValueInfoProto:
    """A sequence of or map to quantized tensors."""
    plain = tensor(name, elem_type, dims, mutable=mutable, alias_of=alias_of)
    made = ValueInfoProto(name=name, access=plain.access, alias_of=plain.alias_of)
    if is_map:
        made.type.map_type.key_type = INT64
        element = made.type.map_type.value_type.quantized_tensor_type
    else:
        element = made.type.sequence_type.elem_type.quantized_tensor_type
    element.elem_type = elem_type
    element.allowed_quantized_type.extend(allowed)
    if dims is not None:
        element.shape.CopyFrom(plain.type.tensor_type.shape)
    return made


def paged_update(
    cache: str,
    output: str,
    page_id: str = "page_id",
    values: str = "values",
    position: str = "position",
    quantized_type: str | None = None,
    axis: int | None = None,
) -> NodeProto:
    inputs = [cache, page_id, values, position] + ([] if quantized_type is None else [quantized_type])
    return aliased(node("PagedCacheUpdate", inputs, [output], {} if axis is None else {"axis": axis}, domain=DOMAIN))


def gather(cache: str, output: str, ids: str = "ids", axis: int | None = None) -> NodeProto:
    return node("PagedCacheGather", [cache, ids], [output], {} if axis is None else {"axis": axis}, domain=DOMAIN)


def scalar(name: str) -> ValueInfoProto:
    return tensor(name, INT64, [])


def constant(name: str, value: int) -> TensorProto:
    return initializer(name, INT64, [], value.to_bytes(8, "little", signed=True))


def paged_model(
    *,
    elem_type: int = FLOAT,
    dims: Sequence[Dim] | None = PAGE,
    allowed: Iterable[int] = (),
    is_map: bool = False,
    typed: bool = True,
    types: Iterable[QuantizationProto] | None = None,
    values: Sequence[Dim] = (2, "rows", 8),
    axis: int | None = None,
) -> ModelProto:
    """One update, whose ``quantized_type`` is an input if it is ``typed``."""
    allowed = tuple(allowed)
    made = model(
        [
            container("cache", elem_type, dims, allowed, is_map=is_map, mutable=True),
            scalar("page_id"),
            tensor("values", elem_type, values),
            scalar("position"),
            *([scalar("quantized_type")] if typed else []),
        ],
        [paged_update("cache", "updated", quantized_type="quantized_type" if typed else None, axis=axis)],
        [container("updated", elem_type, dims, allowed, is_map=is_map, alias_of="cache")],
    )
    made.quantizations.extend(quantizations(elem_type) if types is None else types)
    return made


def gather_model(
    *,
    elem_type: int = FLOAT,
    dims: Sequence[Dim] | None = PAGE,
    allowed: Iterable[int] = (),
    is_map: bool = False,
    types: Iterable[QuantizationProto] | None = None,
    axis: int | None = None,
) -> ModelProto:
    """Reads pages of a READ_ONLY container, and its length if it is a sequence."""
    nodes = [gather("cache", "pages", axis=axis)]
    outputs = [tensor("pages", elem_type, [None] * (3 if dims is None else len(dims)))]
    if not is_map:
        nodes.append(node("SequenceLength", ["cache"], ["length"]))
        outputs.append(scalar("length"))
    made = model(
        [container("cache", elem_type, dims, allowed, is_map=is_map), tensor("ids", INT64, ["n"])], nodes, outputs
    )
    made.quantizations.extend(quantizations(elem_type) if types is None else types)
    return made


def identity_page(array: Array) -> Page:
    """A page of the type IDENTITY, with the bytes of ``array``."""
    return Page(IDENTITY, array.shape, np.frombuffer(array.tobytes(), np.uint8).copy())


def int8_page(array: Array) -> Page:
    """A page of the type INT8_PAGE."""
    return Page(INT8_PAGE, array.shape, array.astype(np.int8).view(np.uint8).reshape(-1).copy())


def rows(length: int, start: int = 1, dtype: Any = np.float32, dims: tuple[int, ...] = PAGE) -> Array:
    """Small whole numbers, which every type of these models holds exactly: [heads, length, head size]."""
    count = dims[0] * length * dims[2]
    numbers = (np.arange(count) + start) % 100
    return numbers.reshape(dims[0], length, dims[2]).astype(dtype)


def with_types(made: ModelProto, data_type: int = FLOAT) -> ModelProto:
    """The model with the four declarations."""
    made.quantizations.extend(quantizations(data_type))
    return made


#: The elements of a page that nothing has written.
ZERO = np.zeros(PAGE, np.float32)


def table(pages: Any = (), made: ModelProto | None = None, **options: Any) -> PageTable:
    """A table for the input ``cache`` of ``made``, or of the usual model."""
    return PageTable(
        pages if isinstance(pages, dict) else list(pages), model=made or paged_model(), value="cache", **options
    )
