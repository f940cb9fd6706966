"""The reference with a hook at every step, for runtimes that do one thing otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mutcache.model import DOMAIN
from mutcache.proto import parse, serialize
from mutcache.proto.onnx_ml import ModelProto, NodeProto
from mutcache_conformance.adapter import (
    AdapterBinding,
    AdapterSession,
    Description,
    HostPageTable,
    HostStorage,
    OutputTable,
    OutputValue,
    Rejected,
)
from mutcache_conformance.adapters.reference import ReferenceAdapter

Array = np.ndarray[Any, np.dtype[Any]]
Storages = Mapping[str, HostStorage]
Tables = Mapping[str, HostPageTable]
Outputs = Mapping[str, OutputValue | OutputTable]


class Sound(ReferenceAdapter):
    """The reference with a hook at every step, and no fault."""

    def describe(self) -> Description:
        """The reference under this class's name."""
        return replace(super().describe(), runtime=type(self).__name__, adapter=type(self).__module__)

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        """Load what ``on_load`` makes of the model."""
        proto = self.on_load(parse(model))
        return HookedSession(self, proto, super().load(serialize(proto), initializers))

    def on_load(self, model: ModelProto) -> ModelProto:
        """The model that is loaded in place of ``model``."""
        return model

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        """A binding."""
        return HookedBinding(session, mutable, outputs, session.inner.bind(mutable, outputs))

    def on_bind_tables(
        self, session: HookedSession, mutable: Storages, outputs: Storages, tables: Tables
    ) -> HookedBinding:
        """A binding with page tables."""
        return HookedBinding(session, mutable, outputs, session.inner.bind_tables(mutable, outputs, tables))

    def on_tables(self, binding: HookedBinding) -> Mapping[str, OutputTable]:
        """The page tables of a binding."""
        return binding.inner.tables()

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        """A run of a binding."""
        return binding.inner.run(feeds)

    def on_release(self, binding: HookedBinding) -> None:
        """The release of a binding."""
        binding.inner.release()

    def on_unload(self, session: HookedSession) -> None:
        """The end of a session."""
        session.inner.unload()

    def on_unbound_run(self, session: HookedSession, feeds: Storages) -> Outputs:
        """A run without a binding."""
        return session.inner.run(feeds)

    def on_unbound_tables(self, session: HookedSession, feeds: Storages, tables: Tables) -> Outputs:
        """A run without a binding, with page tables that are only read."""
        return session.inner.run_tables(feeds, tables)


class HookedSession(AdapterSession):
    """A session of the reference that asks its adapter first."""

    def __init__(self, adapter: Sound, model: ModelProto, inner: AdapterSession) -> None:
        self.adapter = adapter
        self.model = model
        self.inner = inner

    def bind(self, mutable: Storages, outputs: Storages) -> AdapterBinding:
        return self.adapter.on_bind(self, mutable, outputs)

    def bind_tables(self, mutable: Storages, outputs: Storages, tables: Tables) -> AdapterBinding:
        binding = self.adapter.on_bind_tables(self, mutable, outputs, tables)
        binding.lent = tables
        return binding

    def run(self, feeds: Storages) -> Outputs:
        return self.adapter.on_unbound_run(self, feeds)

    def run_tables(self, feeds: Storages, tables: Tables) -> Outputs:
        return self.adapter.on_unbound_tables(self, feeds, tables)

    def unload(self) -> None:
        self.adapter.on_unload(self)


class HookedBinding(AdapterBinding):
    """A binding of the reference that asks its adapter first.

    Attributes:
        session: its session.
        mutable: the storage that the caller bound.
        outputs: the storage that the caller bound to outputs.
        lent: the page tables that the caller bound.
        inner: the binding of the reference, perhaps to other storage.
        private: memory of the runtime's own, by value name.
        has_failed: whether a run was refused.
    """

    def __init__(self, session: HookedSession, mutable: Storages, outputs: Storages, inner: AdapterBinding) -> None:
        self.session = session
        self.adapter = session.adapter
        self.model = session.model
        self.mutable = mutable
        self.outputs = outputs
        self.inner = inner
        self.lent: Tables = {}
        self.private: dict[str, Array] = {}
        self.has_failed = False

    @property
    def node(self) -> NodeProto:
        """The first update of the model."""
        return next(node for node in self.model.graph.node if node.domain == DOMAIN)

    @property
    def cache(self) -> Array:
        """The caller's storage for the first cache."""
        return self.mutable[self.node.input[0]].array()

    def run(self, feeds: Storages) -> Outputs:
        try:
            return self.adapter.on_run(self, feeds)
        except Rejected:
            self.has_failed = True
            raise

    def run_tables(self, feeds: Storages, tables: Tables) -> Outputs:
        return self.inner.run_tables(feeds, tables)

    def tables(self) -> Mapping[str, OutputTable]:
        return self.adapter.on_tables(self)

    def release(self) -> None:
        self.adapter.on_release(self)

    def moved(self, feeds: Storages, change: Callable[[int, int, int], int]) -> Storages:
        """Feeds with another position for the first update: ``change`` of position, length and capacity.

        Nothing changes when the position is no scalar feed, or the update has attributes.
        """
        _, values, position = self.node.input
        if self.node.attribute or not {values, position} <= feeds.keys() or feeds[position].shape:
            return feeds
        old = int(feeds[position].array())
        new = np.array(change(old, feeds[values].shape[-2], self.cache.shape[-2]), np.int64)
        return {**feeds, position: self.elsewhere(feeds[position], new)}

    def elsewhere(self, storage: HostStorage, array: Array) -> HostStorage:
        """The storage, with memory of the runtime's own."""
        self.private[storage.name] = array
        return lying_in(storage, array)


def bind_copies(
    session: HookedSession, mutable: Storages, outputs: Storages, choose: Callable[[HostStorage], bool]
) -> HookedBinding:
    """A binding in which the chosen storage is replaced by copies."""
    copies = {name: storage.array().copy() for name, storage in mutable.items() if choose(storage)}
    used = {name: lying_in(storage, copies[name]) if name in copies else storage for name, storage in mutable.items()}
    binding = HookedBinding(session, mutable, outputs, session.inner.bind(used, outputs))
    binding.private.update(copies)
    return binding


def tensors(outputs: Outputs) -> dict[str, OutputValue]:
    """The outputs that are no page tables."""
    return {name: output for name, output in outputs.items() if isinstance(output, OutputValue)}


def lying_in(storage: HostStorage, array: Array) -> HostStorage:
    """The storage, with the memory of a writable array."""
    address, nbytes, shape, strides = array.ctypes.data, array.nbytes, array.shape, array.strides
    return replace(storage, address=address, nbytes=nbytes, shape=shape, strides=strides, writable=True)
