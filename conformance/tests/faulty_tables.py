"""Runtimes that take what they must refuse of a page table, or fail halfway. Each has one fault, its docstring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hooked_pages import Paged
from hooked_runtime import Array, HookedBinding, HookedSession, Storages, Tables, lying_in

from mutcache.paging import Page, PageTable
from mutcache.proto.onnx_ml import ModelProto
from mutcache_conformance.adapter import HostPage


class AllowsEveryType(Paged):
    """Gives pages every type that the model declares, whatever their container allows."""

    def on_load(self, model: ModelProto) -> ModelProto:
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
            match value.type.WhichOneof("value"):
                case "sequence_type":
                    del value.type.sequence_type.elem_type.quantized_tensor_type.allowed_quantized_type[:]
                case "map_type":
                    del value.type.map_type.value_type.quantized_tensor_type.allowed_quantized_type[:]
        return model


def rebound(
    session: HookedSession, mutable: Storages, outputs: Storages, tables: Tables, change: Callable[[HostPage], HostPage]
) -> HookedBinding:
    """A binding of the tables with other pages."""
    made = {
        name: replace(table, pages=tuple(change(page) for page in table.pages), budget=None)
        for name, table in tables.items()
    }
    return HookedBinding(session, mutable, outputs, session.inner.bind_tables(mutable, outputs, made))


class IgnoresBudgets(Paged):
    """Allocates as much as it likes, though it says that this can be limited."""

    def on_bind_tables(
        self, session: HookedSession, mutable: Storages, outputs: Storages, tables: Tables
    ) -> HookedBinding:
        return rebound(session, mutable, outputs, tables, lambda page: page)


class BelievesPayloads(Paged):
    """Takes the size of a page from its payload, whatever is declared of it."""

    def on_bind_tables(
        self, session: HookedSession, mutable: Storages, outputs: Storages, tables: Tables
    ) -> HookedBinding:
        return rebound(session, mutable, outputs, tables, lambda page: replace(page, nbytes=page.payload.nbytes))


class SeparatesPayloads(Paged):
    """Gives payloads that overlap memory of their own, and lets the table pass."""

    def on_bind_tables(
        self, session: HookedSession, mutable: Storages, outputs: Storages, tables: Tables
    ) -> HookedBinding:
        payloads = [page.payload for table in tables.values() for page in table.pages]
        ends = sorted((payload.address, payload.address + payload.nbytes) for payload in payloads)
        if all(end <= start for (_, end), (start, _) in pairwise(ends)):
            return super().on_bind_tables(session, mutable, outputs, tables)
        copies: list[Array] = []

        def copied(page: HostPage) -> HostPage:
            copies.append(page.payload.array().copy())
            return replace(page, payload=lying_in(page.payload, copies[-1]))

        binding = rebound(session, mutable, outputs, tables, copied)
        binding.private |= {str(number): copy for number, copy in enumerate(copies)}
        return binding


class HalfDone(Paged):
    """Enters a page into the table before it looks whether the rest of the update can be done."""

    def on_refusal(self, table: PageTable) -> None:
        page = table.get(0)
        if page is not None and not table.is_map:
            table.put(len(table), Page(page.quantized_type, page.dims, np.zeros_like(page.payload)))


class KeepsDecodedPages(Paged):
    """Keeps each page that it makes in float32 as well, for the next gather."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._decoded: list[Array] = []

    def on_table(self, table: PageTable, before: Mapping[int, Page]) -> None:
        for page_id, page in table.items():
            if page_id not in before or before[page_id].quantized_type != page.quantized_type:
                self._decoded.append(table.decode(page_id).astype(np.float32))
