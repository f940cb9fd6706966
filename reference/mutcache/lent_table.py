"""A page table that a caller lends to a binding: its lease, which grows with it, and the memory of new pages."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from mutcache.errors import BindError, RunError
from mutcache.leases import LEASES, Claim, Lease, Use
from mutcache.model import QuantizedTensorType, Value, page_type
from mutcache.page_memory import HOST_PAGES, PageMemory
from mutcache.paging import Page, PageTable
from mutcache.requirements import Req
from mutcache.storage import (
    Address,
    Array,
    ByteRange,
    Storage,
    address_of,
    is_mapped_writable,
    owner_of,
    pin,
    storage_of,
)


def table_claims(name: str, table: PageTable, pages: Mapping[int, Page]) -> Iterator[Claim]:
    """What a lease of a table with these pages covers: the table, be it empty, and every payload."""
    yield Claim(name, ByteRange("page tables", id(table), id(table) + 1), Use.MUTABLE)
    for page_id, page in pages.items():
        yield _claim(name, page_id, storage_of(page.payload))


def _claim(name: str, page_id: int, storage: Storage) -> Claim:
    return Claim(f"{name}[{page_id}]", storage.byte_range, Use.MUTABLE)


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A payload while it is bound: where it has to stay, and what keeps it there.

    ``view`` is a view of our own: whoever freezes or reshapes the caller's array does not change it.
    """

    view: Any
    claim: Claim
    address: Address
    bound: int
    owner: int | None
    pin: object

    @classmethod
    def of(cls, name: str, page_id: int, payload: Any, view: Any) -> _Held:
        owner, storage = owner_of(payload), storage_of(view)
        return cls(
            view,
            _claim(name, page_id, storage),
            address_of(payload),
            storage.address,
            None if owner is None else id(owner),
            pin(payload),
        )


def _spans(held: _Held, page_id: int) -> tuple[tuple[int, ...], ...]:
    """First byte, end and page of a payload, if it has bytes."""
    asked = held.claim.byte_range
    return () if asked.is_empty else ((asked.start, asked.stop, page_id),)


class LentTable:
    """A table in a binding.

    Args:
        table: the caller's table, which is sound and leased.
        name: the input that it is bound to.
        names: the declarations of all names of the container, that of the input among them.
        lease: the lease, which pages that runs make will join.
        memory: where the payloads are.

    Attributes:
        table: the table; ``array`` and ``view`` are names of it, as a dense cache has them.
        elements: what the names of the container declare of every page.
        memory: as given.

    Raises:
        BindError: another binding changed the table before the lease was taken (MC-BIND-005), or a payload is not where
            its array says (MC-BIND-007).
    """

    def __init__(
        self, table: PageTable, name: str, names: Sequence[Value], lease: Lease, memory: PageMemory = HOST_PAGES
    ) -> None:
        self.memory = memory
        self.table = self.array = self.view = table
        table.assign(next(value for value in names if value.name == name))
        self.elements: tuple[QuantizedTensorType, ...] = tuple(
            element for name in names if (element := page_type(name.type)) is not None
        )
        self._lease = lease
        self._held = {page_id: self._hold(page_id, page) for page_id, page in table.items()}
        if not LEASES.holds(lease, [held.claim for held in self._held.values()]):
            raise BindError(
                f"the pages of {name!r} changed while they were being bound: another binding has them, or they moved",
                requirement=Req.MC_BIND_005,
                hint="bind the table again",
            )
        # Where payloads lie, by address, with the page: they are disjoint, so that one look tells an overlap.
        self._spans = sorted(span for page_id, held in self._held.items() for span in _spans(held, page_id))
        self._fed: Callable[[], Iterable[Array]] = tuple
        #: Memory that was allocated for pages and is none of a page yet.
        self._made: dict[int, _Held] = {}
        self._owners: frozenset[int | None] | None = None

    def _hold(self, page_id: int, page: Page) -> _Held:
        try:
            return _Held.of(self.table.value, page_id, page.payload, self.memory.adopt(page.payload))
        except TypeError as error:
            raise BindError(
                f"page {page_id} of {self.table.value!r}: {error}",
                requirement=Req.MC_BIND_007,
                hint=f"allocate all payloads on {self.memory.device}; nothing is ever staged through a copy",
            ) from None

    def begin(self, symbols: Mapping[str, int], fed: Callable[[], Iterable[Array]]) -> None:
        """Start a run, in which symbols have these sizes and these arrays are supplied."""
        self.table.resolve(symbols)
        self._fed = fed

    def end(self) -> None:
        """Forget what was supplied to the run."""
        self._fed = tuple

    def is_apart(self, array: Array) -> bool:
        """Whether ``array``, of NumPy, owns its memory, and no payload lies in it: then it overlaps no payload."""
        if self.memory.device != "cpu":
            return True  # all payloads are on a device
        if self._owners is None:
            self._owners = frozenset(held.owner for held in self._held.values())
        return array.flags.owndata and None not in self._owners and id(array) not in self._owners

    def overlapping(self, array: Any) -> int | None:
        """The page with a byte of ``array`` in its payload, or None."""
        asked = storage_of(array).byte_range
        before = bisect_left(self._spans, (asked.stop,)) - 1
        if asked.is_empty or asked.device != self.memory.device or before < 0 or self._spans[before][1] <= asked.start:
            return None
        return self._spans[before][2]

    def verify(self, label: str, output: str, source: str) -> None:
        """Check that every payload is where it was bound or made.

        Raises:
            RunError: MC-BIND-009.
        """
        for page_id, held in self._held.items():
            if held.address.value != held.bound:
                self._refuse_moved(label, output, source, page_id, held)

    def payload(self, label: str, output: str, source: str, page_id: int) -> Any:
        """The bytes of a page that exists, writable, where they were bound or made.

        Raises:
            RunError: MC-BIND-009.
        """
        held = self._held[page_id]
        if held.address.value != held.bound:
            self._refuse_moved(label, output, source, page_id, held)
        return held.view

    def _refuse_moved(self, label: str, output: str, source: str, page_id: int, held: _Held) -> NoReturn:
        raise RunError(
            f"{label}: page {page_id} of {output!r} would be at {held.address.value or 0:#x}, that of {source!r} is at "
            f"{held.bound:#x}",
            requirement=Req.MC_BIND_009,
            hint="the payload was given other memory while it was bound",
            node=label,
        )

    def allocate(self, label: str, page_id: int, n_bytes: int) -> tuple[Any, Any]:
        """Zeroed memory for the payload of a page, which joins the lease: the array for the page, and ours over it.

        Raises:
            RunError: MC-PAGED-012: there is none.
        """
        allocator, memory = self.table.allocator, self.memory
        payload: Any = None
        cause: Exception | None = None
        try:
            payload = memory.allocate(n_bytes) if allocator is None else allocator(n_bytes)
        except Exception as error:  # an allocator is the caller's, and may raise what it likes
            cause = error

        def refuse(problem: str) -> NoReturn:
            raise RunError(
                f"{label}: no {n_bytes} bytes for page {page_id} of {self.table.value!r}: {problem}",
                requirement=Req.MC_PAGED_012,
                hint="the table is as it was; give the allocator more memory, or write to the pages that exist",
                node=label,
                page_id=page_id,
                n_bytes=n_bytes,
            ) from cause

        if payload is None:
            refuse("the allocator refuses" + (f" ({type(cause).__name__}: {cause})" if cause else ""))
        try:
            is_here = storage_of(payload).device == memory.device
            view = memory.adopt(payload) if is_here else payload
            storage = storage_of(view)
        except TypeError as error:
            refuse(f"what the allocator returned is no array: {error}")
        if storage.device != memory.device:
            refuse(f"the allocator returned memory on {storage.device}, the pages are on {memory.device}")
        payload = np.asarray(payload) if isinstance(payload, np.ndarray) else payload
        held = _Held.of(self.table.value, page_id, payload, view)
        if allocator is None:
            LEASES.enter(self._lease, held.claim)
            self._made[page_id] = held
            return payload, view
        if storage.dtype != np.uint8 or storage.shape != (n_bytes,) or not storage.contiguous:
            refuse(f"the allocator returned {storage.dtype} of shape {storage.shape}, strides {storage.strides}")
        if not storage.writable or not is_mapped_writable(storage.byte_range):
            refuse("the allocator returned read-only memory")
        if any(storage_of(array).byte_range.overlaps(storage.byte_range) for array in self._fed()):
            refuse("the allocator returned memory that an input of the run occupies")
        try:
            LEASES.add(self._lease, held.claim)
        except BindError as error:
            refuse(f"the allocator returned memory that is in use: {error.message}")
        self._made[page_id] = held
        try:
            memory.clear(view)
        except BaseException:
            self.discard(page_id)
            raise
        return payload, view

    def discard(self, page_id: int) -> None:
        """Give memory back that was allocated for a page and is not needed after all."""
        LEASES.drop(self._lease, self._made.pop(page_id).claim)

    def put(self, page_id: int, page: Page) -> None:
        """Enter a page whose payload is its own, or was allocated; one that it replaces returns to its owner."""
        before = self._held.get(page_id)
        if before is None or self.table[page_id].payload is not page.payload:
            self._held[page_id] = held = self._made.pop(page_id)
            for span in _spans(held, page_id):
                insort(self._spans, span)
            self._owners = None
            if before is not None:
                for span in _spans(before, page_id):
                    del self._spans[bisect_left(self._spans, span)]
                LEASES.drop(self._lease, before.claim)
        self.table.put(page_id, page)
