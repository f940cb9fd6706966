"""The adapter of the reference runtime: ``mutcache.Session`` on NumPy storage and page tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any, Final

import numpy as np

from mutcache.errors import MutcacheError
from mutcache.executor import Binding, Session
from mutcache.paging import Page, PageTable
from mutcache.proto import parse
from mutcache.proto.onnx_ml import ModelProto
from mutcache.schedule import NODE_ORDER, seed_of
from mutcache_conformance.adapter import (
    Adapter,
    AdapterBinding,
    AdapterSession,
    Array,
    Description,
    HostPageTable,
    HostStorage,
    OutputPage,
    Outputs,
    OutputTable,
    OutputValue,
    Rejected,
)

#: The element types of caches beyond the core.
OPTIONAL_TYPES: Final = (
    "UINT16",
    "INT16",
    "DOUBLE",
    "UINT32",
    "UINT64",
    "COMPLEX64",
    "COMPLEX128",
    "FLOAT8E4M3FN",
    "FLOAT8E4M3FNUZ",
    "FLOAT8E5M2",
    "FLOAT8E5M2FNUZ",
    "FLOAT8E8M0",
)


@contextlib.contextmanager
def refusals(phase: str = "") -> Iterator[None]:
    """Turn the reference's deliberate errors into refusals. A usage error, which breaks no rule, is one too.

    Args:
        phase: the phase of the operation, if it is not always that of the error.
    """
    try:
        yield
    except MutcacheError as error:
        requirement = error.requirement.value if error.requirement is not None else None
        raise Rejected(phase or error.phase.value, requirement, error.message) from error


class Budget:
    """Allocates payloads for pages, so many bytes and no more, and fills them with what zeroed memory never holds.

    Args:
        nbytes: all that may be allocated; None is no limit.
    """

    def __init__(self, nbytes: int | None) -> None:
        self._left = nbytes

    def __call__(self, nbytes: int) -> Array | None:
        """A payload, or None if there is not enough left."""
        if self._left is not None:
            if nbytes > self._left:
                return None
            self._left -= nbytes
        return np.full(nbytes, 0xA5, np.uint8)


def table_of(lent: HostPageTable, model: ModelProto) -> PageTable:
    """A caller's table as the reference has it.

    Raises:
        MutcacheError: it is none that the reference takes.
    """
    pages = [Page(page.quantized_type, page.dims, page.payload.array(), page.nbytes) for page in lent.pages]
    keys = [page.key for page in lent.pages]
    contents = dict(zip(keys, pages, strict=True)) if lent.container == "map" else pages
    return PageTable(contents, model=model, value=lent.name, allocator=Budget(lent.budget))  # type: ignore[arg-type]  # pages of a map have keys


def shown(table: PageTable) -> OutputTable:
    """A table of the reference as the harness sees it."""
    pages = [
        OutputPage(
            quantized_type=page.quantized_type,
            dims=page.dims,
            nbytes=page.payload.nbytes,
            address=page.payload.ctypes.data,
            read=_reader(page.payload),
            key=page_id if table.is_map else None,
        )
        for page_id, page in table.items()
    ]
    return OutputTable("map" if table.is_map else "sequence", tuple(pages))


def _reader(payload: Array) -> Callable[[int, int], bytes]:
    return lambda offset, nbytes: payload[offset : offset + nbytes].tobytes()


def _outputs(values: Mapping[str, Any]) -> dict[str, OutputValue | OutputTable]:
    return {
        name: shown(value) if isinstance(value, PageTable) else OutputValue.of(value) for name, value in values.items()
    }


class ReferenceBinding(AdapterBinding):
    """A binding of the reference.

    Args:
        session: its session.
        binding: the binding.
        lent: the page tables that are bound, by the name of the input.
    """

    def __init__(self, session: ReferenceSession, binding: Binding, lent: Mapping[str, PageTable]) -> None:
        self._session = session
        self._binding = binding
        self.lent = lent

    def run(self, feeds: Mapping[str, HostStorage]) -> Outputs:
        """Run the binding."""
        return self.run_tables(feeds, {})

    def run_tables(self, feeds: Mapping[str, HostStorage], tables: Mapping[str, HostPageTable]) -> Outputs:
        """Run the binding, with page tables for inputs that are not modified."""
        with refusals():
            return _outputs(self._binding.run(self._session.values(feeds, tables)))

    def tables(self) -> Mapping[str, OutputTable]:
        """The page tables that are bound."""
        return {name: shown(table) for name, table in self.lent.items()}

    def release(self) -> None:
        """Release the binding."""
        with refusals():
            self._binding.release()


class ReferenceSession(AdapterSession):
    """A session of the reference.

    Args:
        session: the session.
        model: its model.
    """

    def __init__(self, session: Session, model: ModelProto) -> None:
        self._session = session
        self._model = model

    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        """Bind NumPy views of the storage."""
        return self.bind_tables(mutable, outputs, {})

    def bind_tables(
        self,
        mutable: Mapping[str, HostStorage],
        outputs: Mapping[str, HostStorage],
        tables: Mapping[str, HostPageTable],
    ) -> AdapterBinding:
        """Bind page tables, whose payloads are NumPy views too."""
        with refusals("bind"):
            lent = {name: table_of(table, self._model) for name, table in tables.items()}
            arrays = {name: storage.array() for name, storage in outputs.items()}
            binding = self._session.bind({**self.values(mutable, {}), **lent}, arrays)
            return ReferenceBinding(self, binding, lent)

    def values(self, storages: Mapping[str, HostStorage], tables: Mapping[str, HostPageTable]) -> dict[str, Any]:
        """Storage and page tables as the reference takes them."""
        arrays = {name: storage.array() for name, storage in storages.items()}
        return arrays | {name: table_of(table, self._model) for name, table in tables.items()}

    def run(self, feeds: Mapping[str, HostStorage]) -> Outputs:
        """Run without a binding."""
        return self.run_tables(feeds, {})

    def run_tables(self, feeds: Mapping[str, HostStorage], tables: Mapping[str, HostPageTable]) -> Outputs:
        """Run without a binding, with page tables for inputs that are not modified."""
        with refusals():
            return _outputs(self._session.run(self.values(feeds, tables)))

    def unload(self) -> None:
        """Close the session."""
        with refusals():
            self._session.close()


class ReferenceAdapter(Adapter):
    """The reference runtime.

    Args:
        options: ``schedule`` is the order in which nodes run, ``node-order`` or ``random:SEED``.

    Raises:
        PlanError: there is no such schedule.
        ValueError: there is no such option.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        if unknown := sorted(options.keys() - {"schedule"}):
            raise ValueError(f"the reference has no option {unknown[0]!r}: it has schedule")
        self._schedule = options.get("schedule", NODE_ORDER)
        seed_of(self._schedule)

    def describe(self) -> Description:
        """The installed version, with every fixed-width element type."""
        try:
            version = metadata.version("mutcache")
        except metadata.PackageNotFoundError:
            version = "source tree"
        return Description(
            runtime="mutcache reference",
            runtime_version=version,
            adapter="reference",
            adapter_version=version,
            capabilities=frozenset({"page-budget", "control-flow", *(f"dtype:{name}" for name in OPTIONAL_TYPES)}),
            concurrent_runs=True,
        )

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        """Check and plan the model; storage for its initializers that the reference does not take is refused here."""
        with refusals("load"):
            arrays = {name: storage.array() for name, storage in initializers.items()}
            proto = parse(model)
            return ReferenceSession(Session(proto, initializers=arrays, schedule=self._schedule), proto)
