"""Runtimes that do something wrong with page tables. Each has one fault; its docstring is the idea."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from hooked_pages import Paged, Update, move, operand, tables_of, update_node
from hooked_runtime import HookedBinding, HookedSession, Outputs, Storages, Tables, lying_in

from mutcache.paging import Page, PageTable
from mutcache.proto.onnx_ml import ModelProto
from mutcache.quantization import decode, encode
from mutcache_conformance.adapter import OutputTable


class AllocatesForUpdates(Paged):
    """Writes an updated page to new memory, and lets the old one be."""

    def on_update(self, update: Update) -> None:
        if update.was is not None:
            move(update.table, update.page_id)


class MovesOnGrowth(Paged):
    """Moves the other payloads when a page is added, as an arena that grows does."""

    def on_table(self, table: PageTable, before: Mapping[int, Page]) -> None:
        if len(table) > len(before):
            for page_id in before:
                move(table, page_id)


class CopiesOnChange(Paged):
    """Gives a page whose type changes new memory, even if the new type needs as much as the old one."""

    def on_update(self, update: Update) -> None:
        if update.was is not None and update.was.quantized_type != update.page.quantized_type:
            move(update.table, update.page_id)


class LeaksIntoNewPages(Paged):
    """Leaves in the unwritten rows of a new page what its memory held before."""

    def on_update(self, update: Update) -> None:
        if update.was is None:
            update.overwrite(update.end, update.size, 1.5)


class WritesNeighbour(Paged):
    """Writes one row more than it is given, where there is one."""

    def on_update(self, update: Update) -> None:
        if update.end < update.size:
            update.overwrite(update.end, update.end + 1, 0.5)


class EncodesWholePages(Paged):
    """Decodes the whole page for an update, and encodes all of it again."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        for table in tables_of(binding).values():
            for page in table.values():
                declaration = table.declaration(page.quantized_type)
                page.payload[...] = encode(decode(page.payload, declaration, page.dims), declaration)
        return super().on_run(binding, feeds)


class ForgetsOldRows(Paged):
    """Gives a page another type without its old rows."""

    def on_update(self, update: Update) -> None:
        if update.was is not None and update.was.payload.nbytes != update.page.payload.nbytes:
            update.overwrite(0, update.position, 0.0)
            update.overwrite(update.end, update.size, 0.0)


class ConvertsInPlace(Paged):
    """Writes a page that gets a smaller type to the memory that it had."""

    def on_update(self, update: Update) -> None:
        page, was = update.page, update.was
        if was is not None and was.payload.nbytes > page.payload.nbytes:
            target = was.payload[: page.payload.nbytes]
            target[...] = page.payload
            update.table.put(update.page_id, Page(page.quantized_type, page.dims, target))


class SpoilsReplacedPayloads(Paged):
    """Clears the memory that a page had before it got a type of another size."""

    def on_update(self, update: Update) -> None:
        if update.was is not None and update.was.payload.nbytes != update.page.payload.nbytes:
            update.was.payload[...] = 0


class TellsFalseAddresses(Paged):
    """Tells of payloads that it has made an address at which nothing is."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = super().on_run(binding, feeds)
        own = {page.payload.address for table in binding.lent.values() for page in table.pages}
        return {
            name: _moved(output, own) if isinstance(output, OutputTable) else output for name, output in outputs.items()
        }


def _moved(table: OutputTable, own: set[int]) -> OutputTable:
    pages = [page if page.address in own else replace(page, address=64) for page in table.pages]
    return replace(table, pages=tuple(pages))


class DiesWhenAsked(Paged):
    """Dies when it is asked for its page tables."""

    def on_tables(self, binding: HookedBinding) -> Mapping[str, OutputTable]:  # noqa: ARG002 - it does not get that far
        os._exit(3)


class ShowsACopy(Paged):
    """Has the right payloads, and shows a copy of the table that it made after the update."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = super().on_run(binding, feeds)
        return {
            name: _copied(output) if isinstance(output, OutputTable) else output for name, output in outputs.items()
        }


def _copied(table: OutputTable) -> OutputTable:
    copies = [page.read(0, page.nbytes) for page in table.pages]

    def reader(copy: bytes) -> object:
        return lambda offset, nbytes: copy[offset : offset + nbytes]

    pages = [replace(page, read=reader(copy)) for page, copy in zip(table.pages, copies, strict=True)]  # type: ignore[arg-type]  # a function of both
    return replace(table, pages=tuple(pages))


@dataclass(frozen=True)
class Asked:
    """What an update is asked for: the page, and the rows from ``position`` on of a page of ``size`` rows."""

    table: PageTable
    page_id: int
    position: int
    length: int
    size: int


class Elsewhere(Paged):
    """Updates another page, or other rows, than it is asked to."""

    def fed(self, binding: HookedBinding, feeds: Storages) -> Storages:
        """The feeds with what ``change`` makes of page and position."""
        node = update_node(binding)
        page_id, values, position = (operand(binding, feeds, index) for index in (1, 2, 3))
        table = tables_of(binding).get(node.input[0])
        if page_id is None or values is None or position is None or not table:
            return feeds
        size = next(iter(table.values())).dims[-2]
        asked = Asked(table, int(page_id), int(position), values.shape[-2], size)
        names = [node.input[index] for index in (1, 3)]
        changed = dict(zip(names, self.change(asked), strict=True))
        new = {name: binding.elsewhere(feeds[name], np.array(n, np.int64)) for name, n in changed.items()}
        return {**feeds, **new}

    @abstractmethod
    def change(self, asked: Asked) -> tuple[int, int]:
        """The page and the position that are fed."""


class ClampsPositions(Elsewhere):
    """Moves what does not fit into a page to where it fits."""

    def change(self, asked: Asked) -> tuple[int, int]:
        return asked.page_id, max(0, min(asked.position, asked.size - asked.length))


class CountsFromTheEnd(Elsewhere):
    """Takes a negative page for one counted from the end, as Python does."""

    def change(self, asked: Asked) -> tuple[int, int]:
        is_negative = -len(asked.table) <= asked.page_id < 0
        return asked.page_id + len(asked.table) * is_negative, asked.position


class ClosesGaps(Elsewhere):
    """Puts a page that would leave a gap at the end of the sequence."""

    def change(self, asked: Asked) -> tuple[int, int]:
        return asked.page_id if asked.table.is_map else min(asked.page_id, len(asked.table)), asked.position


class TruncatesPageIds(Elsewhere):
    """Takes the page in 32 bits."""

    def change(self, asked: Asked) -> tuple[int, int]:
        return int(np.int64(asked.page_id).astype(np.int32)), asked.position


class GathersOthers(Paged):
    """Gathers a page that the table has where it is asked for one that it does not have."""

    def fed(self, binding: HookedBinding, feeds: Storages) -> Storages:
        known = [page_id for table in tables_of(binding).values() for page_id in table]
        return self._present(binding.model, feeds, known)

    def on_unbound_tables(self, session: HookedSession, feeds: Storages, tables: Tables) -> Outputs:
        known = [
            number if page.key is None else page.key
            for table in tables.values()
            for number, page in enumerate(table.pages)
        ]
        return super().on_unbound_tables(session, self._present(session.model, feeds, known), tables)

    def _present(self, model: ModelProto, feeds: Storages, known: Sequence[int]) -> Storages:
        """The feeds, with known pages in the place of others that are to be gathered."""
        gathered = {node.input[1] for node in model.graph.node if node.op_type == "PagedCacheGather"}
        asked = {name: feeds[name].array() for name in gathered & feeds.keys() if known}
        # Kept, since a storage does not keep its memory.
        self._others = {name: np.where(np.isin(ids, known), ids, known[0]) for name, ids in asked.items()}
        return {**feeds, **{name: lying_in(feeds[name], ids) for name, ids in self._others.items()}}
