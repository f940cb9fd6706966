"""Pages as test data: SequenceProto and MapProto with quantized tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mutcache.errors import BindError, DecodeError
from mutcache.model import Model
from mutcache.page_memory import payload_bytes
from mutcache.paging import Allocator, Page, PageTable
from mutcache.proto.onnx_data import MapProto, SequenceProto
from mutcache.proto.onnx_ml import ModelProto, QuantizedTensorProto, TensorProto
from mutcache.requirements import Req


def page_table_to_proto(table: PageTable, name: str = "") -> SequenceProto | MapProto:
    """The pages of a table: a SequenceProto with ``quantized_tensor_values``, or a MapProto of one.

    Keys are in ascending order. The payloads are copied.

    Raises:
        BindError: the table is not sound (MC-PAGED-006, 007, 011 or 014, MC-BIND-007).
    """
    if not isinstance(table, PageTable):
        raise BindError(f"expected a PageTable, got {type(table).__name__}")
    table.require_sound()
    proto = SequenceProto(name=name, elem_type=SequenceProto.QUANTIZED_TENSOR)
    page_ids = sorted(table)
    for page_id in page_ids:
        page = table[page_id]
        payload = payload_bytes(page.payload)
        proto.quantized_tensor_values.add(
            dims=page.dims,
            raw_data=payload.tobytes(),
            n_bytes=payload.nbytes,
            quantized_type=page.quantized_type,
        )
    if not table.is_map:
        return proto
    proto.name = ""
    return MapProto(name=name, key_type=TensorProto.INT64, keys=page_ids, values=proto)


def page_table_from_proto(
    proto: SequenceProto | MapProto,
    *,
    model: ModelProto | Model,
    value: str,
    allocator: Allocator | None = None,
) -> PageTable:
    """A table with copies of the pages, which can be bound; see :class:`PageTable` for the other arguments.

    Raises:
        DecodeError: the message has something else than pages, or a page without its type (MC-PAGED-006), with a
            quantization of its own, or with fewer or more bytes than it says (MC-PAGED-007).
        BindError: as :class:`PageTable`.
    """
    pages: Sequence[Page] | Mapping[int, Page]
    if isinstance(proto, MapProto):
        if proto.key_type != TensorProto.INT64 or proto.string_keys or len(set(proto.keys)) < len(proto.keys):
            raise DecodeError("the keys of the map are no distinct INT64", hint="page ids are INT64")
        found = _pages(proto.values)
        if len(found) != len(proto.keys):
            raise DecodeError(f"the map has {len(proto.keys)} keys and {len(found)} pages")
        pages = dict(zip(proto.keys, found, strict=True))
    elif isinstance(proto, SequenceProto):
        pages = _pages(proto)
    else:
        raise DecodeError(f"expected a SequenceProto or MapProto, got {type(proto).__name__}")
    return PageTable(pages, model=model, value=value, allocator=allocator)


def _pages(proto: SequenceProto) -> list[Page]:
    if proto.elem_type != SequenceProto.QUANTIZED_TENSOR:
        raise DecodeError(
            f"the elements of sequence {proto.name!r} are of type {proto.elem_type}, not QUANTIZED_TENSOR "
            f"({SequenceProto.QUANTIZED_TENSOR})",
            hint="set elem_type",
        )
    others = {field.name for field, _ in proto.ListFields()} - {"name", "elem_type", "quantized_tensor_values"}
    if others:
        raise DecodeError(f"sequence {proto.name!r} of pages has {', '.join(sorted(others))}, too")
    return [_page(index, page) for index, page in enumerate(proto.quantized_tensor_values)]


def _page(index: int, proto: QuantizedTensorProto) -> Page:
    if not proto.HasField("quantized_type"):
        raise DecodeError(
            f"page {index} does not say its quantized type",
            requirement=Req.MC_PAGED_006,
            hint="quantized_type is an index into ModelProto.quantizations",
        )
    if proto.HasField("quantization"):
        raise DecodeError(
            f"page {index} has a quantization of its own",
            requirement=Req.MC_PAGED_006,
            hint="pages refer to ModelProto.quantizations in version 1",
        )
    n_bytes = proto.n_bytes if proto.HasField("n_bytes") else len(proto.raw_data)
    if n_bytes != len(proto.raw_data):
        raise DecodeError(
            f"page {index} says n_bytes {n_bytes} and has {len(proto.raw_data)} bytes", requirement=Req.MC_PAGED_007
        )
    return Page(proto.quantized_type, tuple(proto.dims), np.frombuffer(bytearray(proto.raw_data), np.uint8))
