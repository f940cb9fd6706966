"""Page tables that the harness lends: which pages they have now, and where each payload lies.

A page of the caller's lies in a storage of the case. A page that a run made lies in the runtime's memory; what it held
when it was last looked at is kept here. Everything is immutable: each step makes another table of the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from mutcache_conformance.case import Case, Page, PageTable
from mutcache_conformance.forms import form_of
from mutcache_conformance.memory import HarnessError, Placement
from mutcache_conformance.oracle_pages import PageImage, Pages
from mutcache_conformance.protocol import Message, ProtocolError


@dataclass(frozen=True, slots=True)
class HeldPage:
    """A page of a table.

    Attributes:
        quantized_type: index into ``ModelProto.quantizations``.
        dims: its logical dimensions.
        nbytes: the ``n_bytes`` that is declared.
        key: its key in a map; None in a sequence.
        place: the caller's storage that holds its payload; None if a run made it.
        address: where the payload is in the child, as far as that was told.
        content: what a payload that a run made held when it was last looked at.
    """

    quantized_type: int
    dims: tuple[int, ...]
    nbytes: int
    key: int | None = None
    place: Placement | None = None
    address: int | None = None
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A page table as it is now.

    Attributes:
        lent: the table of the case.
        pages: those of a sequence in order, those of a map by ascending keys.
        budget: bytes that the runtime may still allocate in the binding; None is no limit.
    """

    lent: PageTable
    pages: tuple[HeldPage, ...]
    budget: int | None

    @classmethod
    def of(cls, table: PageTable, places: Mapping[str, Placement]) -> HeldTable:
        """A table that no step has changed yet.

        Raises:
            HarnessError: it names a storage that there is not.
        """
        pages = [_held(page, places) for page in table.pages]
        if table.container == "map":
            pages.sort(key=lambda page: page.key or 0)
        return cls(table, tuple(pages), table.budget)

    def places(self) -> list[Placement]:
        """The caller's storages among its payloads."""
        return [page.place for page in self.pages if page.place is not None]

    def form(self) -> Message:
        """The table as messages describe it; every page lies in storage of the caller's."""
        budget = None if self.budget is None else str(self.budget)
        return {"container": self.lent.container, "pages": [_form_of(page) for page in self.pages], "budget": budget}

    def at(self, addresses: Sequence[int]) -> HeldTable:
        """The table with its pages at these addresses of the child."""
        pages = zip(self.pages, addresses, strict=True)
        return replace(self, pages=tuple(replace(page, address=address) for page, address in pages))

    def placed(self, places: Mapping[int, Placement]) -> HeldTable:
        """The table with storage of the caller's for some of its pages, by their numbers."""
        pages = [replace(page, place=places.get(number, page.place)) for number, page in enumerate(self.pages)]
        return replace(self, pages=tuple(pages))

    def images(self, read: Callable[[Placement], bytes]) -> Pages:
        """The table for the oracle. ``read`` gives the bytes of a storage."""
        pages = tuple(
            PageImage(
                page.quantized_type, page.dims, page.content if page.place is None else read(page.place), page.key
            )
            for page in self.pages
        )
        return Pages(self.lent.container, pages, self.budget)


def _held(page: Page, places: Mapping[str, Placement]) -> HeldPage:
    place = places.get(page.storage)
    if place is None:
        raise HarnessError(f"a page names storage {page.storage!r}, which there is not")
    nbytes = place.nbytes if page.nbytes is None else page.nbytes
    return HeldPage(page.quantized_type, page.dims, nbytes, page.key, place)


def _form_of(page: HeldPage) -> Message:
    assert page.place is not None  # those that runs made are given storage before the table is lent again
    return {
        **({} if page.key is None else {"key": str(page.key)}),
        "quantized_type": page.quantized_type,
        "dims": list(page.dims),
        "nbytes": str(page.nbytes),
        "payload": form_of(page.place),
    }


def payload_addresses(tables: Mapping[str, HeldTable], told: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Where a host says that it mapped the payloads of each table.

    Raises:
        ProtocolError: not of each, or of others.
    """
    if {name: len(addresses) for name, addresses in told.items()} != {
        name: len(table.pages) for name, table in tables.items()
    }:
        raise ProtocolError("bind was answered with addresses of other payloads than those of its tables")
    return {name: [int(address) for address in addresses] for name, addresses in told.items()}


def by_page(value: str, places: Iterable[Placement]) -> dict[str, Placement]:
    """Payloads by names of their own: ``cache[0]``, ``cache[1]``."""
    return {f"{value}[{number}]": place for number, place in enumerate(places)}


def payload_groups(case: Case) -> list[list[str]]:
    """The storages that lie in one file each: the payloads of a table, which may be more than a message has files."""
    writable = {storage.name for storage in case.storages if storage.writable and not storage.within}
    groups = []
    for table in case.tables:
        group = [page.storage for page in table.pages if page.storage in writable]
        groups.append(list(dict.fromkeys(group)))
        writable -= set(group)
    return groups


def page_bytes(history: Sequence[Pages]) -> int:
    """Bytes that the pages made by a run, and the old and the new pages of changed types, have together.

    Args:
        history: the container after 0, 1, ... updates.
    """
    total = 0
    for before, after in pairwise(history):
        old = {page.key if page.key is not None else number: page for number, page in enumerate(before.pages)}
        for number, page in enumerate(after.pages):
            was = old.get(page.key if page.key is not None else number)
            if was is None:
                total += len(page.payload)
            elif was.quantized_type != page.quantized_type:
                total += len(was.payload) + len(page.payload)
    return total
