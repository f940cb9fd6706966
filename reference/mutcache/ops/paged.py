"""PagedCacheUpdate and PagedCacheGather: write rows of pages in place, and read pages.

An update is judged as a whole before a byte is written or allocated; what can fail after that, an allocation, fails
before the table or a payload changes (MC-PAGED-012). Numbers are judged as Python integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from mutcache.errors import RunError
from mutcache.lent_table import LentTable
from mutcache.model import Node
from mutcache.ops.standard import Kernel
from mutcache.page_memory import PageMemory
from mutcache.page_types import type_problem
from mutcache.paging import Page, PageTable
from mutcache.proto.onnx_ml import NodeProto
from mutcache.quantization import Declaration, n_bytes, page_problems
from mutcache.requirements import Req
from mutcache.schemas import page_axis
from mutcache.storage import Array, dtype_of, show_dims, to_host

_INT64: Final = np.dtype(np.int64)


class Names(NamedTuple):
    """What messages call a node, its operands and its output; ``quantized_type`` is "" when it is left out."""

    node: str
    cache: str
    page_id: str
    values: str
    position: str
    quantized_type: str
    output: str


class PagedCacheUpdate:
    """A PagedCacheUpdate prepared for one table.

    Args:
        lent: the table.
        axis: the axis of the rows; may be negative.
        names: for messages.
    """

    def __init__(self, lent: LentTable, axis: int, names: Names) -> None:
        self._lent = lent
        self._table = lent.table
        self._memory = lent.memory
        self._axis = axis
        self._names = names
        #: Types that were judged and found right, by index and dims of the page: a decoder asks the same in every step.
        self._judged: dict[tuple[int, tuple[int, ...]], Declaration] = {}

    def write(self, page_id: Any, values: Any, position: Any, quantized_type: Any = None) -> None:
        """Judge everything, then write.

        All operands may be on the device of the pages.

        Args:
            page_id: INT64, ``[]``.
            values: of the element type and shape of a page, but for the number of rows.
            position: INT64, ``[]``: the first row.
            quantized_type: INT64, ``[]``: the type of the page after the update; None: as it is.

        Raises:
            RunError: MC-PAGED-004 (no such page), 005 (outside the page), 006 or 007 (type), 012 (no memory), 013
                (groups span rows), 015 (no type), 017 (operands do not agree), 018 (page size unknown); MC-BIND-009
                (the payload moved). The table and its payloads are as they were.
        """
        names = self._names
        number = self._number(page_id, names.page_id)
        start = self._number(position, names.position)
        page = self._find(number)
        wanted = self._wanted(number, page, quantized_type)
        dims, axis = self._judge_values(values, self._table.page_dims if page is None else page.dims)
        self._judge_rows(start, values.shape[axis], dims[axis])
        declaration = self._judge_type(wanted, dims, axis)
        if page is None:
            self._create(number, wanted, declaration, dims, axis, start, values)
            return
        payload = self._lent.payload(names.node, names.output, names.cache, number)
        if page.quantized_type == wanted:
            self._memory.encode_rows(payload, declaration, dims, axis, start, values)
        else:
            self._convert(number, page, payload, wanted, declaration, axis, start, values)

    def _create(
        self,
        page_id: int,
        wanted: int,
        declaration: Declaration,
        dims: tuple[int, ...],
        axis: int,
        start: int,
        values: Any,
    ) -> None:
        payload, view = self._lent.allocate(self._names.node, page_id, n_bytes(declaration, dims))
        self._fill(page_id, lambda: self._memory.encode_rows(view, declaration, dims, axis, start, values))
        self._lent.put(page_id, Page(wanted, dims, payload))

    def _convert(
        self,
        page_id: int,
        page: Page,
        payload: Any,
        wanted: int,
        new: Declaration,
        axis: int,
        start: int,
        values: Any,
    ) -> None:
        """Change the type of a page: in place if the bytes are as many, else in memory of its own."""
        memory, size = self._memory, n_bytes(new, page.dims)
        old = self._table.declaration(page.quantized_type)
        is_in_place = size == n_bytes(old, page.dims)
        # Where the layouts differ, a byte that is written may be one that is still to be read.
        target = page.payload
        if is_in_place:
            view = memory.allocate(size)
        else:
            target, view = self._lent.allocate(self._names.node, page_id, size)

        def fill() -> None:
            memory.reencode(payload, old, new, page.dims, view)
            memory.encode_rows(view, new, page.dims, axis, start, values)

        if is_in_place:
            fill()
            memory.copy(payload, view)
        else:
            self._fill(page_id, fill)
        self._lent.put(page_id, Page(wanted, page.dims, target))

    def _fill(self, page_id: int, fill: Callable[[], None]) -> None:
        """Fill memory that was allocated for a page; a failure gives it back."""
        try:
            fill()
        except BaseException:
            self._lent.discard(page_id)
            raise

    def _find(self, page_id: int) -> Page | None:
        """The page, or None if the update creates it."""
        table, names = self._table, self._names
        if page_id < 0:
            raise self._refuse(
                Req.MC_PAGED_004,
                f"{names.page_id!r} is {page_id}: a page id is never negative",
                "page ids count from 0; there is no wrap from the end",
                page_id=page_id,
            )
        if not table.is_map and page_id > len(table):
            raise self._refuse(
                Req.MC_PAGED_004,
                f"{names.page_id!r} is {page_id} > {len(table)}, the number of pages in {names.cache!r}",
                "a sequence grows by the page behind its last one: create the pages before it first",
                page_id=page_id,
                pages=len(table),
            )
        return table.get(page_id)

    def _wanted(self, page_id: int, page: Page | None, quantized_type: Any) -> int:
        """The type of the page after the update."""
        if quantized_type is not None:
            return self._number(quantized_type, self._names.quantized_type)
        if page is not None:
            return page.quantized_type
        allowed = {element.allowed for element in self._lent.elements if element.allowed}
        common = set.intersection(*map(set, allowed)) if allowed else set()
        if len(common) != 1:
            raise self._refuse(
                Req.MC_PAGED_015,
                f"page {page_id} of {self._names.cache!r} is missing and no quantized type says what to create"
                + (f" ({', '.join(map(str, sorted(common)))} are allowed)" if common else ""),
                "pass quantized_type, or let the container allow exactly one",
                page_id=page_id,
            )
        return common.pop()

    def _judge_values(self, values: Any, known: tuple[int | None, ...] | None) -> tuple[tuple[int, ...], int]:
        """The shape of the page, and the axis of its rows; ``known`` is what is known of the shape."""
        names = self._names
        rank = values.ndim if known is None else len(known)
        if not -rank <= self._axis < rank:
            raise self._refuse(
                Req.MC_PAGED_017,
                f"axis {self._axis} is out of range for pages of rank {rank}",
                f"axis lies between {-rank} and {rank - 1}" if rank else "a page has at least one dimension",
            )
        axis = self._axis % rank
        dtype = dtype_of(self._table.elem_type)
        sizes = known or (None,) * rank
        expected = (*sizes[:axis], None, *sizes[axis + 1 :])
        if (
            values.dtype != dtype
            or values.ndim != rank
            or any(size not in (None, given) for size, given in zip(expected, values.shape, strict=True))
        ):
            raise self._refuse(
                Req.MC_PAGED_017,
                f"{names.values!r} is {values.dtype}{show_dims(values.shape)}, does not fit pages of {dtype}"
                f"{show_dims(sizes)} along axis {axis}",
                f"the values need {dtype}{show_dims(expected)}; an update never converts or broadcasts",
                values=values.shape,
                page=known,
            )
        rows = sizes[axis]
        if rows is None:
            raise self._refuse(
                Req.MC_PAGED_018,
                f"the first page of {names.cache!r} cannot be created: nothing says its size along axis {axis}",
                "declare the page size in the type of the container",
            )
        return (*values.shape[:axis], rows, *values.shape[axis + 1 :]), axis

    def _judge_rows(self, start: int, length: int, capacity: int) -> None:
        names = self._names
        details = {"position": start, "length": length, "capacity": capacity}
        if start < 0:
            raise self._refuse(
                Req.MC_PAGED_005,
                f"{names.position!r} is {start}: a position is never negative",
                "positions count from the first row of the page",
                **details,
            )
        if start + length > capacity:
            raise self._refuse(
                Req.MC_PAGED_005,
                f"position {start} + length {length} of {names.values!r} > page size {capacity}",
                "write the rest into the next page",
                **details,
            )

    def _judge_type(self, wanted: int, dims: tuple[int, ...], axis: int) -> Declaration:
        judged = self._judged.get((wanted, dims))
        if judged is not None:
            return judged
        problem = type_problem(wanted, self._table.declarations, self._lent.elements)
        if problem is not None:
            raise self._refuse(problem.requirement, problem.message, problem.hint, quantized_type=wanted)
        declaration = self._table.declaration(wanted)
        for requirement, given in ((Req.MC_PAGED_007, None), (Req.MC_PAGED_013, axis)):
            if found := page_problems(declaration, dims, given):
                raise self._refuse(
                    requirement,
                    f"pages of {show_dims(dims)} cannot have quantized type {wanted}"
                    f"{'' if given is None else ' and be written row by row'}: {'; '.join(found)}",
                    "choose another type",
                    quantized_type=wanted,
                )
        self._judged[wanted, dims] = declaration
        return declaration

    def _number(self, value: Any, name: str) -> int:
        value = to_host(value)
        if value.dtype != _INT64 or value.ndim:
            raise self._refuse(
                Req.MC_PAGED_017,
                f"{name!r} must be an int64 scalar, got {value.dtype}{show_dims(value.shape)}",
                "squeeze it to a scalar" if value.size == 1 else "an update writes to one page, from one position",
            )
        return int(value)

    def _refuse(self, requirement: Req, problem: str, hint: str, **details: object) -> RunError:
        node = self._names.node
        return RunError(f"{node}: {problem}", requirement=requirement, hint=hint, node=node, **details)


def gather(node: Node, proto: NodeProto, memory: PageMemory) -> Kernel:
    """The kernel of a PagedCacheGather.

    Args:
        node: the node.
        proto: its message without references to attributes of a function.
        memory: where the pages of the session are.
    """
    axis = page_axis(proto)
    cache, ids = node.inputs

    def run(values: Mapping[str, Any]) -> list[Any]:
        return [_gather(node.label, values[cache], (cache, ids), values[ids], axis, memory)]

    return run


def _gather(label: str, table: PageTable, names: tuple[str, str], ids: Array, axis: int, memory: PageMemory) -> Any:
    """The pages ``ids``, decoded and concatenated along ``axis``; memory of its own."""

    def refuse(requirement: Req, problem: str, hint: str) -> RunError:
        return RunError(f"{label}: {problem}", requirement=requirement, hint=hint, node=label)

    cache, name = names
    if ids.dtype != _INT64 or ids.ndim != 1:
        raise refuse(
            Req.MC_PAGED_017,
            f"{name!r} must be an int64 vector, got {ids.dtype}{show_dims(ids.shape)}",
            "give one id per page, in order",
        )
    for index, page_id in enumerate(ids.tolist()):
        if page_id not in table:
            known = f"{len(table)} pages" if table else "no page"
            raise refuse(
                Req.MC_PAGED_016,
                f"{name!r}[{index}] is {page_id}, {cache!r} has {known} and not this one",
                "gather pages that an update has created",
            )
    dims = table.page_dims
    if dims is None or None in dims:
        raise refuse(
            Req.MC_PAGED_018,
            f"{cache!r} has no page, and nothing says what shape a page has",
            "declare the page size in the type of the container",
        )
    sizes = [size for size in dims if size is not None]
    if not -len(sizes) <= axis < len(sizes):
        raise refuse(
            Req.MC_PAGED_017,
            f"axis {axis} is out of range for pages of rank {len(sizes)}",
            f"axis lies between {-len(sizes)} and {len(sizes) - 1}" if sizes else "a page has at least one dimension",
        )
    pages = [(page.payload, table.declaration(page.quantized_type)) for page in map(table.__getitem__, ids.tolist())]
    return memory.gather(pages, sizes, axis % len(sizes), dtype_of(table.elem_type))


def sequence_length(node: Node) -> Kernel:
    """The kernel of a SequenceLength, of sequences of any kind."""
    (source,) = node.inputs
    return lambda values: [np.array(len(values[source]), np.int64)]


def identity(node: Node, kernel: Kernel) -> Kernel:
    """The kernel of an Identity without an alias, which passes a table on as a view of itself; else ``kernel``."""
    (source,) = node.inputs
    return lambda values: [values[source]] if isinstance(values[source], PageTable) else kernel(values)
