"""Pages and page tables: what a caller lends as a paged cache, and what of it a container accepts.

A table is bound and fed like an array. What aliases is the table: the object that a caller binds is the output, and
what becomes of its pages is seen in it. Payloads belong to it, those that runs make too (MC-PAGED-010).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mutcache.decode import decode_value
from mutcache.errors import BindError
from mutcache.model import Dim, MapType, Model, QuantizedTensorType, Value, page_type
from mutcache.page_memory import payload_bytes
from mutcache.page_types import Declarations, Problem, parse_declarations, type_problem
from mutcache.proto.onnx_ml import ModelProto
from mutcache.quantization import Declaration, decode, n_bytes, page_problems
from mutcache.requirements import Req
from mutcache.storage import (
    Array,
    ByteRange,
    first_unwritable,
    is_device_array,
    show_dims,
    storage_of,
)

#: Gets a number of bytes and returns a writable uint8 array of them, or None to refuse.
Allocator = Callable[[int], Any]

_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A quantized tensor: a payload and how it is encoded.

    Attributes:
        quantized_type: index into ``ModelProto.quantizations``.
        dims: the shape that it decodes to.
        payload: uint8 array [n_bytes], contiguous; of NumPy, or on the device of the session that it is for.
        n_bytes: the bytes that it is declared to have; None for those of the payload.
    """

    quantized_type: int
    dims: tuple[int, ...]
    payload: Any
    n_bytes: int | None = None


class PageTable(Mapping[int, Page]):
    """A sequence of pages, or a map from page ids to pages: a mapping from ids to pages either way.

    While a table is bound, runs create, change and replace its pages. Two tables are equal if they are the same one.

    Args:
        pages: a list for a sequence, a dictionary by page id for a map.
        model: the model that declares the quantizations and the container.
        value: the name of the graph input that the table is for.
        allocator: gets n_bytes and returns a writable contiguous uint8 array for a page that a run makes, where the
            pages of the session are; None, or a MemoryError, refuses it, and the update fails with MC-PAGED-012.
            Without one NumPy allocates, or the backend of the session.

    Attributes:
        value: the name of the graph input.
        is_map: whether the container is a map.
        elem_type: the element type that all pages decode to.
        dims: the declared shape of every page; None when even the rank is unknown.
        declarations: those of the model, in order; a page's ``quantized_type`` is an index into them. None stands for
            one that is for something else than pages.
        allocator: as given.

    Raises:
        BindError: the model has no such container input, or ``pages`` is not what it can hold (MC-BIND-007).
    """

    def __init__(
        self,
        pages: Sequence[Page] | Mapping[int, Page],
        *,
        model: ModelProto | Model,
        value: str,
        allocator: Allocator | None = None,
    ) -> None:
        proto = model.proto if isinstance(model, Model) else model
        if not isinstance(proto, ModelProto):
            raise BindError(
                f"a page table needs the model that it is for, got {type(model).__name__}",
                hint="mutcache.load or mutcache.from_onnx makes a ModelProto",
            )
        declared = next((decode_value(entry) for entry in proto.graph.input if entry.name == value), None)
        if declared is None or page_type(declared.type) is None:
            raise BindError(
                f"the model has no input {value!r} that is a sequence of or a map to quantized tensors",
                hint="name the container input that the table is for",
            )
        self._fill(pages, declared, parse_declarations(proto), allocator)

    @classmethod
    def of(cls, pages: object, declared: Value, declarations: Declarations) -> PageTable:
        """A table of these pages for a container that is declared as a value.

        Raises:
            BindError: MC-BIND-007: ``pages`` is nothing that the container can hold.
        """
        made = cls.__new__(cls)
        made._fill(pages, declared, declarations, None)
        return made

    def _fill(
        self,
        pages: object,
        declared: Value,
        declarations: Declarations,
        allocator: Allocator | None,
    ) -> None:
        self.is_map = isinstance(declared.type, MapType)
        self.declarations = declarations
        self.allocator = allocator
        self._pages = _by_id(pages, declared.name, is_map=self.is_map)
        self.assign(declared)

    def assign(self, declared: Value) -> None:
        """Make the table that of a container input: it is bound to one after the other."""
        element = page_type(declared.type)
        assert element is not None
        self._element = element
        self.value = declared.name
        self.elem_type = element.elem_type
        self.dims = element.dims
        #: The sizes that are declared, once symbols have values.
        self._known: tuple[int | None, ...] | None = None
        self.resolve({})

    def __getitem__(self, page_id: int) -> Page:
        return self._pages[page_id]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._pages))  # in one step, for another thread may add pages, and none removes one

    def __len__(self) -> int:
        return len(self._pages)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        kind = "map" if self.is_map else "sequence"
        return f"<PageTable {self.value!r}: {kind} of {len(self)} pages, {self.nbytes} bytes>"

    @property
    def nbytes(self) -> int:
        """The bytes of all payloads."""
        return sum(storage_of(page.payload).nbytes for page in list(self._pages.values()))

    @property
    def page_dims(self) -> tuple[int | None, ...] | None:
        """The shape of every page as far as it is known: that of the pages, or what the container declares."""
        first = next(iter(self._pages.values()), None)
        return self._known if first is None else first.dims

    def decode(self, page_id: int) -> Array:
        """A page as an array of the container's element type.

        Raises:
            KeyError: there is no such page.
            BindError: it is no page of the container (MC-PAGED-006, 007 or 014, MC-BIND-007).
        """
        page = self._pages[page_id]
        _refuse(_named(self, page_id, _page_problem(self, page_id, page, (self._element,), None)))
        return self.decode_sound(page)

    def decode_sound(self, page: Page) -> Array:
        """A page that was judged, decoded; ``decode`` judges it first."""
        return decode(payload_bytes(page.payload), self.declaration(page.quantized_type), page.dims)

    def adopted(self, adopt: Callable[[Any], Any]) -> PageTable:
        """A table with other arrays over the same payloads: what ``adopt`` makes of each."""
        made = PageTable.__new__(PageTable)
        made.__dict__.update(self.__dict__)
        made._pages = {
            page_id: Page(page.quantized_type, page.dims, adopt(page.payload), page.n_bytes)
            for page_id, page in self.items()
        }
        return made

    def require_sound(self, *, is_written: bool = False) -> None:
        """Judge the pages as a reader of the container does, or a writer.

        Raises:
            BindError: MC-PAGED-006, 007, 011 or 014, MC-BIND-007; MC-BIND-002 for a writer.
        """
        _refuse(_first_problem(self, (self._element,)) or (_unwritable(self) if is_written else None))

    def declaration(self, quantized_type: int) -> Declaration:
        """The declaration of a type that pages of the table have or may get."""
        found = self.declarations[quantized_type]
        assert found is not None  # every page was judged
        return found

    def copy(self) -> PageTable:
        """A table of its own with a copy of every payload, in the memory of the host.

        It has the same allocator, unless that is one for the memory of a device.

        Raises:
            BindError: a payload is on a device, in an array that cannot be read from the host.
        """
        made = self.adopted(lambda payload: np.array(payload_bytes(payload)))
        if any(is_device_array(page.payload) for page in self.values()):
            made.allocator = None
        return made

    def resolve(self, symbols: Mapping[str, int]) -> None:
        """Take note of the sizes that symbols have."""
        if self.dims is not None:
            self._known = tuple(symbols.get(dim) if isinstance(dim, str) else dim for dim in self.dims)

    def put(self, page_id: int, page: Page) -> None:
        """Enter a page under its id, in place of the page that has it. Only the runs of a binding may."""
        self._pages[page_id] = page


def _by_id(pages: object, value: str, *, is_map: bool) -> dict[int, Page]:
    def refuse(problem: str, hint: str) -> BindError:
        return BindError(f"pages of {value!r}: {problem}", requirement=Req.MC_BIND_007, hint=hint, value=value)

    if isinstance(pages, PageTable) and pages.is_map == is_map:
        found = dict(pages.items())
    elif is_map:
        if not isinstance(pages, Mapping) or isinstance(pages, PageTable):
            raise refuse(f"declared a map, got {type(pages).__name__}", "pass a dictionary from page ids to pages")
        found = dict(pages)
    else:
        if not isinstance(pages, Sequence) or isinstance(pages, str | bytes):
            raise refuse(f"declared a sequence, got {type(pages).__name__}", "pass a list of pages")
        found = dict(enumerate(pages))
    for page_id, page in found.items():
        if type(page_id) is not int:
            raise refuse(f"{page_id!r} is no page id", "page ids are integers")
        if not isinstance(page, Page):
            raise refuse(f"page {page_id} is a {type(page).__name__}", "pass mutcache.Page objects")
        try:
            storage_of(page.payload)
        except TypeError as error:
            raise refuse(f"the payload of page {page_id}: {error}", "pass a uint8 array") from None
    return found


def _refuse(problem: Problem | None) -> None:
    if problem is not None:
        raise BindError(problem.message, requirement=problem.requirement, hint=problem.hint)


def table_problem(table: PageTable, names: Sequence[Value], *, is_written: bool) -> Problem | None:
    """The first thing that is wrong with a table, or None.

    Args:
        table: the table.
        names: the declarations of all names of the container, which are one storage.
        is_written: whether runs write to the table.
    """
    elements = [element for name in names if (element := page_type(name.type)) is not None]
    return _first_problem(table, elements) or (_unwritable(table) if is_written else None)


def _first_problem(table: PageTable, elements: Sequence[QuantizedTensorType]) -> Problem | None:
    """The first thing for which nobody can read the table."""
    dims: tuple[int, ...] | None = None
    for page_id, page in table.items():
        found = _page_problem(table, page_id, page, elements, dims)
        if found is not None:
            return _named(table, page_id, found)
        dims = page.dims
    return _overlap(table)


def _named(table: PageTable, page_id: int, problem: Problem | None) -> Problem | None:
    """The problem of a page, which says whose it is."""
    if problem is None:
        return None
    return Problem(problem.requirement, f"page {page_id} of {table.value!r}: {problem.message}", problem.hint)


def _page_problem(
    table: PageTable,
    page_id: int,
    page: Page,
    elements: Sequence[QuantizedTensorType],
    others: tuple[int, ...] | None,
) -> Problem | None:
    """What is wrong with one page; ``others`` is the shape of the pages before it."""
    if not 0 <= page_id <= _INT64_MAX:
        return Problem(Req.MC_PAGED_014, "its id is no non-negative INT64", "page ids count from 0")
    if type(page.quantized_type) is not int:
        return Problem(Req.MC_PAGED_006, f"quantized type {page.quantized_type!r} is no integer", "pass an index")
    if (found := type_problem(page.quantized_type, table.declarations, elements)) is not None:
        return found
    dims = page.dims
    if not isinstance(dims, tuple) or not all(type(dim) is int and 0 <= dim <= _INT64_MAX for dim in dims):
        return Problem(
            Req.MC_PAGED_007, f"dims {dims!r} are no tuple of INT64 sizes", "pass the shape of the decoded page"
        )
    if page.n_bytes is not None and type(page.n_bytes) is not int:
        return Problem(Req.MC_PAGED_007, f"n_bytes {page.n_bytes!r} is no integer", "pass the bytes of the payload")
    if others is not None and dims != others:
        return Problem(
            Req.MC_PAGED_007,
            f"dims {show_dims(dims)}, the pages before have {show_dims(others)}",
            "all pages of a container have one shape",
        )
    for element in elements:
        if (message := fixed_misfit(element.dims, dims)) != "":
            return Problem(Req.MC_PAGED_007, message, "give the page the shape that the container declares")
    declaration = table.declaration(page.quantized_type)
    if found_problems := page_problems(declaration, dims):
        return Problem(Req.MC_PAGED_007, "; ".join(found_problems), "choose dims that the layout can hold")
    return _payload_problem(page, n_bytes(declaration, dims))


def fixed_misfit(declared: tuple[Dim, ...] | None, dims: tuple[int, ...]) -> str:
    """Why ``dims`` are not what is declared, symbols apart, or ""."""
    if declared is None:
        return ""
    fits = len(declared) == len(dims) and all(
        not isinstance(dim, int) or dim < 0 or dim == size for dim, size in zip(declared, dims, strict=True)
    )
    return "" if fits else f"dims {show_dims(dims)}, the container declares {show_dims(declared)}"


def _payload_problem(page: Page, expected: int) -> Problem | None:
    storage = storage_of(page.payload)
    if storage.dtype != np.uint8 or len(storage.shape) != 1 or not storage.contiguous:
        return Problem(
            Req.MC_BIND_007,
            f"the payload is {storage.dtype}{show_dims(storage.shape)} with strides {storage.strides}",
            "pass one contiguous run of uint8; nothing is ever staged through a copy",
        )
    for what, found in (("payload has", storage.nbytes), ("n_bytes is", page.n_bytes)):
        if found is not None and found != expected:
            return Problem(
                Req.MC_PAGED_007,
                f"{what} {found}, quantized type {page.quantized_type} with dims {show_dims(page.dims)} needs "
                f"{expected} bytes",
                "the declaration determines the bytes of a page: mutcache.quantization.n_bytes",
            )
    return None


def _overlap(table: PageTable) -> Problem | None:
    """Two payloads that share a byte."""
    ranges = sorted(_ranges(table), key=lambda entry: entry[1])
    for (one, held), (other, asked) in pairwise(ranges):
        if held.overlaps(asked):
            first, second = sorted((one, other))
            return Problem(
                Req.MC_PAGED_011,
                f"pages {first} and {second} of {table.value!r} overlap: {held} and {asked}",
                "give every page a payload of its own",
            )
    return None


def _unwritable(table: PageTable) -> Problem | None:
    """A payload that may not be written."""
    hint = "bind payloads that you own and may write to"
    for page_id, page in table.items():
        if not storage_of(page.payload).writable:
            return Problem(
                Req.MC_BIND_002, f"page {page_id} of {table.value!r}: the payload is a read-only array", hint
            )
    ranges = {byte_range: page_id for page_id, byte_range in _ranges(table)}
    found = first_unwritable(ranges)
    if found is None:
        return None
    return Problem(Req.MC_BIND_002, f"page {ranges[found]} of {table.value!r}: {found} are mapped read-only", hint)


def _ranges(table: PageTable) -> Iterator[tuple[int, ByteRange]]:
    """The bytes of every payload that has any."""
    for page_id, page in table.items():
        byte_range = storage_of(page.payload).byte_range
        if not byte_range.is_empty:
            yield page_id, byte_range
