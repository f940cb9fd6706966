"""A runtime that only touches memory where it is told to, for the tests of the host."""

# ruff: noqa: ARG002 - it takes little of what it is given

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

from mutcache_conformance.adapter import (
    Adapter,
    AdapterBinding,
    AdapterSession,
    Description,
    HostPage,
    HostPageTable,
    HostStorage,
    OutputPage,
    OutputTable,
    OutputValue,
    Unsupported,
)


class ProbeBinding(AdapterBinding):
    """Gives the bound storage out as ``updated``; ``read_at`` and ``write_at`` are offsets from its address."""

    def __init__(self, cache: HostStorage) -> None:
        self.cache = cache

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        if "read_at" in feeds:
            ctypes.string_at(self.cache.address + int(feeds["read_at"].array()), 1)
        if "write_at" in feeds:
            ctypes.memset(self.cache.address + int(feeds["write_at"].array()), 0, 1)
        return {"updated": OutputValue.of(self.cache.array())}

    def release(self) -> None:
        pass


class ProbeTable(AdapterBinding):
    """Gives the bound page table out as ``updated``, as it was lent."""

    def __init__(self, table: HostPageTable) -> None:
        self.table = table

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputTable]:
        return {"updated": self.tables()[self.table.name]}

    def tables(self) -> Mapping[str, OutputTable]:
        pages = [
            OutputPage(page.quantized_type, page.dims, page.nbytes, page.payload.address, reader(page), page.key)
            for page in self.table.pages
        ]
        return {self.table.name: OutputTable(self.table.container, tuple(pages))}

    def release(self) -> None:
        pass


def reader(page: HostPage) -> Callable[[int, int], bytes]:
    """Reads the payload of a page as it is now."""
    return lambda offset, nbytes: ctypes.string_at(page.payload.address + offset, nbytes)


class ProbeSession(AdapterSession):
    """Takes any storage."""

    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        return ProbeBinding(mutable["cache"])

    def bind_tables(
        self,
        mutable: Mapping[str, HostStorage],
        outputs: Mapping[str, HostStorage],
        tables: Mapping[str, HostPageTable],
    ) -> AdapterBinding:
        if tables["cache"].budget is not None:
            raise Unsupported(f"a budget of {tables['cache'].budget} bytes")
        return ProbeTable(tables["cache"])

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        raise Unsupported("a run without a binding")

    def unload(self) -> None:
        pass


class Probe(Adapter):
    """Takes any model."""

    def describe(self) -> Description:
        return Description("probe", "1", "probe", "1")

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        return ProbeSession()
