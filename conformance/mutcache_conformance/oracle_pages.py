"""Page tables by functional semantics, written from the specification: an update makes a new table, nothing in place.

A page knows what its payload holds if the canonical encoder made what is new in it, and how each such element came to
be, so that what another encoder makes of it can be judged by the bound of its declaration.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from mutcache.proto.onnx_ml import ModelProto, QuantizationProto, TypeProto
from mutcache.requirements import Req
from mutcache_conformance.dtypes import dtype_of
from mutcache_conformance.oracle_codec import DATA_TYPES, Codec, Identity, bytes_of, codec_of
from mutcache_conformance.oracle_update import Array, OracleRefusal


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """How a page came to be in a run: ``values``, along ``axis`` from ``position`` on, over the page ``before``.

    If ``before`` has another type its rows were decoded and encoded first; None stands for zero bytes.
    """

    before: PageImage | None
    values: Array
    axis: int
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class PageImage:
    """One page.

    Attributes:
        quantized_type: index into ``ModelProto.quantizations``.
        dims: logical dimensions.
        payload: its bytes; after a run, with what the canonical encoder writes.
        key: of a map; None in sequences.
        identity: n >= 0 is the payload that page number n had before the run; what a run makes is negative and unique.
        write: the latest update of the page in this run.
    """

    quantized_type: int
    dims: tuple[int, ...]
    payload: bytes
    key: int | None = None
    identity: int = -1
    write: Write | None = field(default=None, repr=False)

    @property
    def is_fresh(self) -> bool:
        """Whether the run has encoded any element of the page."""
        if self.write is None:
            return False
        before = self.write.before
        if self.write.values.size or before is None:
            return bool(self.write.values.size)
        return before.quantized_type != self.quantized_type or before.is_fresh


@dataclass(frozen=True, slots=True)
class ContainerForm:
    """What a model says of a container: how pages decode, and which declarations they may have."""

    elem_type: int
    dims: tuple[int | None, ...]
    allowed: tuple[int, ...]
    quantizations: tuple[QuantizationProto, ...]

    @classmethod
    def of(cls, model: ModelProto, value: TypeProto) -> ContainerForm | None:
        """The form of a value, or None if it is no container of pages."""
        match value.WhichOneof("value"):
            case "sequence_type":
                element = value.sequence_type.elem_type
            case "map_type":
                element = value.map_type.value_type
            case _:
                return None
        if not element.HasField("quantized_tensor_type"):
            return None
        page = element.quantized_tensor_type
        dims = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in page.shape.dim)
        return cls(page.elem_type, dims, tuple(page.allowed_quantized_type), tuple(model.quantizations))


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """A container.

    Attributes:
        container: ``sequence`` or ``map``.
        pages: a sequence's in order of their ids, a map's by ascending keys.
        budget: bytes that the runtime may still allocate in this binding; what a replaced page had is not given back.
        form: what the model says of it; set when a run begins.
    """

    container: str
    pages: tuple[PageImage, ...]
    budget: int | None = None
    form: ContainerForm | None = field(default=None, repr=False)

    def copy(self) -> Pages:
        """The same contents, with an identity of their own."""
        return replace(self)

    def begin(self, form: ContainerForm) -> Pages:
        """The container at the beginning of a run."""
        pages = (replace(page, identity=number, write=None) for number, page in enumerate(self.pages))
        return replace(self, pages=tuple(pages), form=form)

    def find(self, page_id: int) -> PageImage | None:
        """The page of an id or key."""
        if self.container == "sequence":
            return self.pages[page_id] if 0 <= page_id < len(self.pages) else None
        return next((page for page in self.pages if page.key == page_id), None)


# Operators


_NUMBERS: Final = itertools.count(1)


def paged_update(
    cache: Pages,
    page_id: Array,
    values: Array,
    position: Array,
    quantized_type: Array | None = None,
    *,
    axis: int = -2,
) -> Pages:
    """A container with ``values`` encoded into rows of one page, which is created or converted first if need be.

    Raises:
        OracleRefusal: the operands do not agree, there is a gap, no type, an overflow, or no memory.
    """
    form = _form(cache)
    for scalar in (page_id, position, *([] if quantized_type is None else [quantized_type])):
        _refuse_unless(
            scalar.dtype == np.int64 and scalar.shape == (), Req.MC_PAGED_017, "an operand is no INT64 scalar"
        )
    number, start = page_id.item(), position.item()
    old = cache.find(number)
    _refuse_unless(number >= 0, Req.MC_PAGED_004, f"page {number} is negative")
    is_gap = cache.container == "sequence" and number > len(cache.pages)
    _refuse_unless(not is_gap, Req.MC_PAGED_004, f"page {number} of a sequence of {len(cache.pages)}")
    chosen = _chosen_type(form, old, None if quantized_type is None else quantized_type.item())
    dims = _page_dims(cache, old, values, axis)
    _check_operands(form, chosen, values, dims, axis)
    axis %= len(dims)
    _refuse_unless(start >= 0, Req.MC_PAGED_005, f"position {start} is negative")
    end, size = start + values.shape[axis], dims[axis]
    _refuse_unless(end <= size, Req.MC_PAGED_005, f"position {start} + length {end - start} > page size {size}")

    codec = codec_of(form.quantizations[chosen])
    nbytes = codec.nbytes(dims)
    budget, identity = cache.budget, -1 if old is None else old.identity
    if old is None or len(old.payload) != nbytes:
        _refuse_unless(budget is None or nbytes <= budget, Req.MC_PAGED_012, f"{nbytes} bytes > budget {budget}")
        budget = None if budget is None else budget - nbytes
        identity = -next(_NUMBERS)
    if old is None:
        base = bytes(nbytes)
    elif old.quantized_type == chosen:
        base = old.payload
    else:
        base = _reencoded(old.payload, codec_of(form.quantizations[old.quantized_type]), codec, dims)
    page = PageImage(
        quantized_type=chosen,
        dims=dims,
        payload=_written(base, codec, dims, values, axis, start),
        key=number if cache.container == "map" else None,
        identity=identity,
        write=Write(old, values.copy(), axis, start),
    )
    return replace(cache, pages=_placed(cache, old, page), budget=budget)


def _placed(cache: Pages, old: PageImage | None, page: PageImage) -> tuple[PageImage, ...]:
    if old is not None:
        return tuple(page if one is old else one for one in cache.pages)
    if cache.container == "sequence":
        return (*cache.pages, page)
    return tuple(sorted((*cache.pages, page), key=lambda one: one.key or 0))


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """What PagedCacheGather made of pages: ``values``, and the ``pages`` that stand along ``axis`` in it."""

    values: Array
    pages: tuple[PageImage, ...]
    axis: int
    form: ContainerForm


def paged_gather(cache: Pages, page_ids: Array, *, axis: int = -2) -> Gathered:
    """The decoded pages, one after the other along ``axis``.

    Raises:
        OracleRefusal: a page is absent, or the operands do not agree.
    """
    form = _form(cache)
    is_vector = page_ids.dtype == np.int64 and page_ids.ndim == 1
    _refuse_unless(is_vector, Req.MC_PAGED_017, "page_ids is no INT64 vector")
    pages = []
    for number in page_ids.tolist():
        page = cache.find(number)
        _refuse_unless(page is not None, Req.MC_PAGED_016, f"there is no page {number}")
        assert page is not None
        pages.append(page)
    if pages:
        values = np.concatenate([decoded(page, form) for page in pages], axis)
    else:
        dims = [dim or 0 for dim in form.dims]
        dims[axis] = 0
        values = np.zeros(dims, dtype_of(form.elem_type))
    return Gathered(values, tuple(pages), axis % values.ndim, form)


def decoded(page: PageImage, form: ContainerForm) -> Array:
    """The elements of a page."""
    codec = codec_of(form.quantizations[page.quantized_type])
    if isinstance(codec, Identity):
        return np.frombuffer(page.payload, dtype_of(codec.data_type)).reshape(page.dims)
    data = b"".join(bytes_of(value, codec.data_type) for value in elements(page.payload, codec, page.dims))
    return np.frombuffer(data, dtype_of(codec.data_type)).reshape(page.dims)


# Elements and their places


def elements(payload: bytes, codec: Codec, dims: Sequence[int]) -> list[float]:
    """The decoded elements of a page, in row-major order; what was decoded before is known."""
    groups = codec.groups(dims)
    values: list[float] = []
    for group in range(groups):
        values += _decoded_group(codec, joined(payload, codec.places(group, groups)))
    return values


@functools.lru_cache(maxsize=1 << 15)
def _decoded_group(codec: Codec, group: bytes) -> tuple[float, ...]:
    return tuple(codec.decode(group))


@functools.lru_cache(maxsize=64)
def _reencoded(payload: bytes, old: Codec, new: Codec, dims: tuple[int, ...]) -> bytes:
    """The payload of another codec; what stands in a large page again and again is encoded once."""
    if isinstance(old, Identity) and isinstance(new, Identity):
        return payload
    unit = math.lcm(old.size, new.size)
    groups, each = old.groups(dims), unit // old.size
    known: dict[bytes, list[bytes]] = {}
    made: list[bytes] = []
    for first in range(0, groups, each):
        data = [joined(payload, old.places(group, groups)) for group in range(first, first + each)]
        key = b"".join(data)
        if key not in known:
            values = [value for group in data for value in _decoded_group(old, group)]
            known[key] = [new.encode(values[at : at + new.size]) for at in range(0, unit, new.size)]
        made += known[key]
    if new.interleaved or len(new.parts) == 1:
        return b"".join(made)
    ends = [0, *itertools.accumulate(new.parts)]
    return b"".join(b"".join(one[start:end] for one in made) for start, end in itertools.pairwise(ends))


def encoded(values: Array, codec: Codec, dims: tuple[int, ...]) -> bytes:
    """The payload of a page of ``values``."""
    return _written(bytes(codec.nbytes(dims)), codec, dims, values, 0, 0)


def _written(base: bytes, codec: Codec, dims: tuple[int, ...], values: Array, axis: int, start: int) -> bytes:
    """The payload with rows encoded over those of ``base``."""
    places = cells(dims, Write(None, values, axis, start))
    result, groups = bytearray(base), codec.groups(dims)
    if isinstance(codec, Identity):
        data, size = values.tobytes(), codec.parts[0]
        for number, at in enumerate(places):
            result[at * size : (at + 1) * size] = data[number * size : (number + 1) * size]
        return bytes(result)
    members: dict[int, list[float]] = {}
    for at, value in zip(places, numbers(values, codec.data_type), strict=True):
        members.setdefault(at // codec.size, []).append(value)
    for group, elements_of in members.items():
        if len(elements_of) != codec.size:
            raise ValueError("an update of part of a group has no meaning")
        _place(result, codec.places(group, groups), codec.encode(elements_of))
    return bytes(result)


def cells(dims: tuple[int, ...], write: Write) -> list[int]:
    """The places, in row-major order of the page, of the elements of an update, in the order of its values."""
    rows = np.arange(write.position, write.position + write.values.shape[write.axis])
    places = np.arange(math.prod(dims)).reshape(dims)
    found: list[int] = np.take(places, rows, write.axis).reshape(-1).tolist()
    return found


def numbers(values: Array, data_type: int) -> list[float]:
    """The elements of an array of a decoded type, in row-major order."""
    kind = DATA_TYPES[data_type]
    data = values.tobytes()
    return [
        kind.decode(int.from_bytes(data[at : at + kind.nbytes], "little")) for at in range(0, len(data), kind.nbytes)
    ]


def joined(payload: bytes, places: Sequence[tuple[int, int]]) -> bytes:
    """The sections of a group, one after the other."""
    return b"".join(payload[start : start + length] for start, length in places)


def _place(payload: bytearray, places: Sequence[tuple[int, int]], data: bytes) -> None:
    done = 0
    for start, length in places:
        payload[start : start + length] = data[done : done + length]
        done += length


# Operands


def _form(cache: Pages) -> ContainerForm:
    if cache.form is None:
        raise ValueError("the run has not begun")
    return cache.form


def _refuse_unless(condition: bool, requirement: Req, message: str) -> None:
    if not condition:
        raise OracleRefusal(requirement, message)


def _chosen_type(form: ContainerForm, old: PageImage | None, wanted: int | None) -> int:
    if wanted is None and old is not None:
        return old.quantized_type
    if wanted is None:
        _refuse_unless(len(form.allowed) == 1, Req.MC_PAGED_015, "a new page has no type")
        return form.allowed[0]
    is_registered = 0 <= wanted < len(form.quantizations)
    _refuse_unless(is_registered, Req.MC_PAGED_006, f"type {wanted} of {len(form.quantizations)}")
    is_allowed = not form.allowed or wanted in form.allowed
    _refuse_unless(is_allowed, Req.MC_PAGED_006, f"type {wanted} is none of {list(form.allowed)}")
    return wanted


def _page_dims(cache: Pages, old: PageImage | None, values: Array, axis: int) -> tuple[int, ...]:
    """The dims of the page; what the container leaves open other pages tell, or the values."""
    form = _form(cache)
    if old is not None:
        return old.dims
    told = cache.pages[0].dims if cache.pages else values.shape
    _refuse_unless(len(told) == len(form.dims), Req.MC_PAGED_017, f"values of rank {values.ndim}")
    is_told = bool(cache.pages) or form.dims[axis] is not None
    _refuse_unless(is_told, Req.MC_PAGED_018, "nothing says how many rows the new page has")
    return tuple(other if dim is None else dim for dim, other in zip(form.dims, told, strict=True))


def _check_operands(form: ContainerForm, chosen: int, values: Array, dims: tuple[int, ...], axis: int) -> None:
    operands = Req.MC_PAGED_017
    _refuse_unless(values.dtype == dtype_of(form.elem_type), operands, f"values of type {values.dtype}")
    rank = len(dims)
    _refuse_unless(values.ndim == rank, operands, f"values of rank {values.ndim}, pages of rank {rank}")
    _refuse_unless(-rank <= axis < rank, operands, f"axis {axis}, rank {rank}")
    unlike = [n for n in range(rank) if n != axis % rank and values.shape[n] != dims[n]]
    _refuse_unless(not unlike, operands, f"values {values.shape}, pages {dims}, update along axis {axis}")
    codec = codec_of(form.quantizations[chosen])
    _refuse_unless(codec.data_type == form.elem_type, Req.MC_PAGED_007, f"type {chosen} decodes to another type")
    _refuse_unless(dims[-1] % codec.size == 0, Req.MC_PAGED_007, f"rows of {dims[-1]} are no groups of {codec.size}")
