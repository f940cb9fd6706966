"""The reference with a hook after every update of a page table, for runtimes that do one thing otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from hooked_runtime import Array, HookedBinding, Sound, Storages

from mutcache.paging import Page, PageTable
from mutcache.proto.onnx_ml import NodeProto
from mutcache.quantization import Declaration, encode_rows
from mutcache_conformance.adapter import OutputTable, OutputValue, Rejected
from mutcache_conformance.adapters.reference import ReferenceBinding, shown


@dataclass(frozen=True)
class Update:
    """One PagedCacheUpdate that was done.

    Attributes:
        table: the table, as it is now.
        before: the pages that it had, by their ids.
        page_id: the page that was updated.
        position: its first row that was written.
        values: what was written.
        axis: along which axis.
    """

    table: PageTable
    before: Mapping[int, Page]
    page_id: int
    position: int
    values: Array
    axis: int

    @property
    def page(self) -> Page:
        """The page, as it is now."""
        return self.table[self.page_id]

    @property
    def was(self) -> Page | None:
        """The page, as it was; None if it was created."""
        return self.before.get(self.page_id)

    @property
    def declaration(self) -> Declaration:
        """How the page is encoded."""
        return self.table.declaration(self.page.quantized_type)

    @property
    def size(self) -> int:
        """How many rows a page has."""
        size: int = self.page.dims[self.axis]
        return size

    @property
    def end(self) -> int:
        """The first row behind those that were written."""
        end: int = self.position + self.values.shape[self.axis]
        return end

    def overwrite(self, start: int, stop: int, number: float) -> None:
        """Write the same number to rows of the page."""
        shape = list(self.page.dims)
        shape[self.axis] = stop - start
        rows = np.full(shape, number, self.values.dtype)
        encode_rows(self.page.payload, self.declaration, self.page.dims, self.axis, start, rows)


def move(table: PageTable, page_id: int) -> None:
    """Give a page other memory."""
    page = table[page_id]
    table.put(page_id, Page(page.quantized_type, page.dims, page.payload.copy()))


class Paged(Sound):
    """The reference with a hook after each update of a page table."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Mapping[str, OutputValue | OutputTable]:
        """Run, and do what the fault does after it."""
        tables = tables_of(binding)
        before = {name: dict(table) for name, table in tables.items()}
        try:
            outputs = dict(super().on_run(binding, self.fed(binding, feeds)))
        except Rejected:
            for table in tables.values():
                self.on_refusal(table)
            raise
        update = update_of(binding, feeds, before)
        if update is not None:
            self.on_update(update)
        for name, table in tables.items():
            self.on_table(table, before[name])
        if len(tables) == 1:
            shows = [name for name, output in outputs.items() if isinstance(output, OutputTable)]
            outputs |= dict.fromkeys(shows, shown(*tables.values()))
        return outputs

    def fed(self, binding: HookedBinding, feeds: Storages) -> Storages:  # noqa: ARG002 - some look at it
        """The feeds that the reference is given in place of ``feeds``."""
        return feeds

    def on_update(self, update: Update) -> None:
        """After a run whose first update is told by its feeds."""

    def on_table(self, table: PageTable, before: Mapping[int, Page]) -> None:
        """After a run, for each table and the pages that it had before."""

    def on_refusal(self, table: PageTable) -> None:
        """After a run that was refused."""


def tables_of(binding: HookedBinding) -> Mapping[str, PageTable]:
    """The page tables of a binding."""
    assert isinstance(binding.inner, ReferenceBinding)
    return binding.inner.lent


def update_node(binding: HookedBinding) -> NodeProto:
    """The first update of a page table in the model's graph; one without operands if there is none."""
    updates = (node for node in binding.model.graph.node if node.op_type == "PagedCacheUpdate")
    return next(updates, NodeProto(input=[""] * 5))


def operand(binding: HookedBinding, feeds: Storages, index: int) -> Array | None:
    """An operand of the first update; None if it is no feed."""
    name = update_node(binding).input[index]
    return feeds[name].array() if name in feeds else None


def update_of(binding: HookedBinding, feeds: Storages, before: Mapping[str, Mapping[int, Page]]) -> Update | None:
    """The first update, if its table is bound and its operands are feeds."""
    node = update_node(binding)
    page_id, values, position = (operand(binding, feeds, index) for index in (1, 2, 3))
    if page_id is None or values is None or position is None or node.input[0] not in before:
        return None
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), -2)
    table = tables_of(binding)[node.input[0]]
    return Update(table, before[node.input[0]], int(page_id), int(position), values, axis % values.ndim)
