"""Runtimes that take the wrong storage, or do not keep to what is bound. The docstring of each is its idea."""

# ruff: noqa: ARG002 - a hook need not use all that it is given

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from unittest import mock

import numpy as np
from faulty_writes import CopyAndCopyBack, SilentCopy
from hooked_runtime import HookedBinding, HookedSession, Outputs, Sound, Storages, bind_copies, tensors

from mutcache.errors import BindError
from mutcache.leases import LEASES, Claim, Lease, Use
from mutcache.model import DOMAIN
from mutcache.proto.onnx_ml import ValueInfoProto
from mutcache.storage import storage_of
from mutcache_conformance.adapter import AdapterSession, OutputValue, Rejected


class AcceptsReadOnly(Sound):
    """Takes read-only storage, and writes to a copy of it."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        return bind_copies(session, mutable, outputs, lambda storage: not storage.writable)


class AcceptsInitializers(Sound):
    """Does not remember that storage holds an initializer."""

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        return super().load(model, {})


class AcceptsStrided(Sound):
    """Takes storage with gaps through a copy."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        return bind_copies(session, mutable, outputs, lambda storage: not storage.array().flags.c_contiguous)

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = binding.inner.run(feeds)
        for name, array in binding.private.items():
            binding.mutable[name].array()[...] = array
        return outputs


class AcceptsOverlap(Sound):
    """Reads operands before it writes, and so takes those that lie in the cache."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return binding.inner.run(
            {name: binding.elsewhere(storage, storage.array().copy()) for name, storage in feeds.items()}
        )


class AcceptsFeeds(Sound):
    """Updates a cache that nobody lent it: any array that is fed will do."""

    def on_unbound_run(self, session: HookedSession, feeds: Storages) -> Outputs:
        mutable = {value.name for value in session.model.graph.input if value.access == ValueInfoProto.READ_WRITE}
        binding = session.bind({name: feeds[name] for name in mutable & feeds.keys()}, {})
        try:
            return binding.run({name: storage for name, storage in feeds.items() if name not in mutable})
        finally:
            binding.release()


class SharesLeases(Sound):
    """Every binding is the only one it knows of."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        with mock.patch("mutcache.executor.LEASES", type(LEASES)()):
            return super().on_bind(session, mutable, outputs)


class KeepsLeaseAfterFailure(Sound):
    """Forgets to release a binding after a run that was refused."""

    def on_release(self, binding: HookedBinding) -> None:
        if not binding.has_failed:
            binding.inner.release()


class IgnoresOutputs(Sound):
    """Takes any storage for the result, and leaves it alone."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        return super().on_bind(session, mutable, {})


class ComparesHandles(Sound):
    """Compares where storages begin, not which bytes they have."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        with mock.patch("mutcache.leases.first_overlap_within", equal_starts):
            return super().on_bind(session, mutable, outputs)


def equal_starts(claims: Iterable[Claim]) -> tuple[Claim, Claim] | None:
    """Two claims that begin at one address."""
    seen: dict[int, Claim] = {}
    for claim in claims:
        other = seen.setdefault(claim.byte_range.start, claim)
        if other is not claim:
            return other, claim
    return None


class TakesAnyType(Sound):
    """Takes storage for what the model declares, whatever type the caller says it has."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        types = {value.name: value.type.tensor_type.elem_type for value in session.model.graph.input}
        declared = {name: replace(storage, dtype=types[name]) for name, storage in mutable.items()}
        return super().on_bind(session, declared, outputs)


class NeedsMoreAlignment(Sound):
    """Needs storage at multiples of 128 bytes, and does not say so."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        for storage in mutable.values():
            if storage.address % 128:
                raise Rejected("bind", "MC-BIND-007", f"address {storage.address:#x} is no multiple of 128")
        return super().on_bind(session, mutable, outputs)


class MovesStorage(Sound):
    """Moves the cache to memory of its own after the first run."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        if not binding.private:
            outputs = binding.inner.run(feeds)
            binding.private.update({name: storage.array().copy() for name, storage in binding.mutable.items()})
            return outputs
        callers = {name: storage.array().copy() for name, storage in binding.mutable.items()}
        for name, storage in binding.mutable.items():
            storage.array()[...] = binding.private[name]
        outputs = binding.inner.run(feeds)
        for name, storage in binding.mutable.items():
            binding.private[name][...] = storage.array()
            storage.array()[...] = callers[name]
        roots = {node.output[0]: node.input[0] for node in binding.model.graph.node if node.domain == DOMAIN}
        moved = {name: binding.private[root] for name, root in roots.items() if root in binding.private}
        return {name: OutputValue.of(moved[name]) if name in moved else outputs[name] for name in outputs}


class CopiesInChains(SilentCopy):
    """Updates in place only what is updated once in a model; a chain of updates makes a copy."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        updates = [node for node in session.model.graph.node if node.domain == DOMAIN]
        is_chain = any(one.output[0] == other.input[0] for one in updates for other in updates)
        return bind_copies(session, mutable, outputs, lambda _: is_chain)


class LiesAboutAddresses(CopyAndCopyBack):
    """Updates a copy, writes it back, and gives the address of the caller's storage for it."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = super().on_run(binding, feeds)
        addresses = {binding.private[name].ctypes.data: storage.address for name, storage in binding.mutable.items()}
        return {
            name: replace(output, address=addresses.get(output.address or 0, output.address))
            for name, output in tensors(outputs).items()
        }


class ReadsCallersStorage(SilentCopy):
    """Updates a copy, and lets the harness read the caller's storage in place of it."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = super().on_run(binding, feeds)
        callers = {
            binding.private[name].ctypes.data: OutputValue.of(storage.array())
            for name, storage in binding.mutable.items()
        }
        return {name: callers.get(output.address or 0, output) for name, output in tensors(outputs).items()}


class SwapsOutputs(Sound):
    """Mixes the results of two caches up."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = binding.inner.run(feeds)
        results = [node.output[0] for node in binding.model.graph.node if node.domain == DOMAIN]
        if len(binding.mutable) < 2 or not set(results) <= outputs.keys():
            return outputs
        first, second = results
        return {**outputs, first: outputs[second], second: outputs[first]}


class KeepsHalfALease(Sound):
    """Leases one storage after the other, and forgets those that it has when one is refused."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.kept: list[Lease] = []

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        try:
            return super().on_bind(session, mutable, outputs)
        except Rejected:
            for name, storage in mutable.items():
                try:
                    claim = Claim(name, storage_of(storage.array()).byte_range, Use.MUTABLE)
                    self.kept.append(LEASES.acquire([claim]))
                except BindError:
                    break
            raise


class KeepsLeaseOfUnloaded(Sound):
    """Ends a session, but not the leases of its bindings."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.kept: list[HookedBinding] = []

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        binding = super().on_bind(session, mutable, outputs)
        self.kept.append(binding)
        return binding

    def on_unload(self, session: HookedSession) -> None:
        pass


class RunsReleased(Sound):
    """Runs a binding after its release as if nothing had happened."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        if "released" not in binding.private:
            return binding.inner.run(feeds)
        borrowed = binding.session.inner.bind(binding.mutable, {})
        try:
            return borrowed.run(feeds)
        finally:
            borrowed.release()

    def on_release(self, binding: HookedBinding) -> None:
        binding.inner.release()
        binding.private["released"] = np.array(True)
