"""Runtimes with one fault each: the reference, and something wrong with how it is used.

They show that the suite notices. Each is an adapter that a child process can host, as ``faulty_runtimes:Name``;
``FAULTS`` says by which requirement, in which case and with which words each is found out.
"""

# ruff: noqa: ARG002 - a hook need not use all that it is given

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final
from unittest import mock

import numpy as np
from hooked_runtime import HookedBinding, HookedSession, Outputs, Sound, Storages, bind_copies

from mutcache.model import DOMAIN
from mutcache.proto import IR_VERSION, parse
from mutcache.proto.onnx_ml import ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache.storage import LEASES
from mutcache_conformance.adapter import AdapterBinding, AdapterSession, OutputValue, Rejected
from mutcache_conformance.oracle import OracleRefusal, run_model

# Where the bytes go


class SilentCopy(Sound):
    """Updates a copy of the cache, and returns it."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        return bind_copies(session, mutable, outputs, lambda _: True)


class CopyAndCopyBack(SilentCopy):
    """Updates a copy of the cache, returns it, and writes it back: the contents are right."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = super().on_run(binding, feeds)
        for name, storage in binding.mutable.items():
            storage.array()[...] = binding.private[name]
        return outputs


class OffByOne(Sound):
    """Writes one row further than it should, where there is room."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return binding.inner.run(
            binding.moved(feeds, lambda start, length, capacity: start + (start >= 0 and start + length < capacity))
        )


class ZeroFills(Sound):
    """Clears the rows behind those that it writes."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = binding.inner.run(feeds)
        _, values, position = binding.node.input
        binding.cache[..., int(feeds[position].array()) + feeds[values].shape[-2] :, :] = 0
        return outputs


class CanonicalNaNs(Sound):
    """Moves floats through arithmetic, which gives every NaN the same payload."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        name = binding.node.input[1]
        array = feeds[name].array().copy()
        if array.dtype.kind == "f":
            array[np.isnan(array)] = np.nan
        return binding.inner.run({**feeds, name: binding.elsewhere(feeds[name], array)})


class NotAtomic(Sound):
    """Writes the rows of the batch one by one, and finds out in the middle that one does not fit."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        _, values, position = (feeds[name].array() if name in feeds else None for name in binding.node.input)
        try:
            return binding.inner.run(feeds)
        except Rejected:
            if values is not None and position is not None and position.ndim == 1:
                for row, start in enumerate(position.tolist()):
                    if not 0 <= start <= binding.cache.shape[-2] - values.shape[-2]:
                        break
                    binding.cache[row, start : start + values.shape[-2]] = values[row]
            raise


# Which positions are right


class ClampsOverflow(Sound):
    """Moves what does not fit to where it fits, as XLA's dynamic_update_slice does."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return binding.inner.run(
            binding.moved(feeds, lambda start, length, capacity: min(start, max(capacity - length, 0)))
        )


class WrapsNegative(Sound):
    """Takes negative positions from the end, as NumPy does."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return binding.inner.run(
            binding.moved(feeds, lambda start, _, capacity: start + capacity if -capacity <= start < 0 else start)
        )


class TruncatesPositions(Sound):
    """Keeps positions in 32 bits."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return binding.inner.run(binding.moved(feeds, lambda start, *_: (start + 2**31) % 2**32 - 2**31))


# Which storage is right


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


# What a model means


class FunctionalSession(AdapterSession):
    """A session of a runtime that does not know the annotations: every output is a new value."""

    def __init__(self, model: bytes) -> None:
        self.model = model

    def bind(self, mutable: Storages, outputs: Storages) -> AdapterBinding:
        return FunctionalBinding(self, mutable)

    def run(self, feeds: Storages) -> Outputs:
        try:
            result = run_model(self.model, {name: storage.array() for name, storage in feeds.items()})
        except OracleRefusal as refusal:
            raise Rejected("run", refusal.requirement, refusal.message) from refusal
        return {name: OutputValue.of(array) for name, array in result.outputs.items()}

    def unload(self) -> None:
        pass


class FunctionalBinding(AdapterBinding):
    """Values that are fed in every run."""

    def __init__(self, session: FunctionalSession, mutable: Storages) -> None:
        self.session = session
        self.mutable = mutable

    def run(self, feeds: Storages) -> Outputs:
        return self.session.run({**feeds, **self.mutable})

    def release(self) -> None:
        pass


class IgnoresAnnotations(Sound):
    """Loads any model, sees no annotation, and gives every output a buffer of its own."""

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        return FunctionalSession(model)


class IgnoresOldAnnotations(Sound):
    """The same for models that declare a version without annotations, as any runtime built on stock protobuf does."""

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        if parse(model).ir_version < IR_VERSION:
            return FunctionalSession(model)
        return super().load(model, initializers)


class ChecksNothing(Sound):
    """Runs what it can of any model."""

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        with mock.patch("mutcache.executor.check_model", return_value=[]):
            return super().load(model, initializers)


class DropsUnread(Sound):
    """Removes nodes whose results nobody reads."""

    def on_load(self, model: ModelProto) -> ModelProto:
        needed = {value.name for value in model.graph.output}
        kept: list[NodeProto] = []
        for node in reversed(model.graph.node):
            if needed & set(node.output):
                needed |= set(node.input)
                kept.insert(0, NodeProto.FromString(node.SerializeToString()))
        del model.graph.node[:]
        model.graph.node.extend(kept)
        return model


class WritesFirst(Sound):
    """Moves an update before the nodes that read the old contents, which then read the new ones."""

    def on_load(self, model: ModelProto) -> ModelProto:
        fed: MutableMapping[str, None] = dict.fromkeys(value.name for value in model.graph.input)
        nodes = [NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
        updates = [node for node in nodes if node.domain == DOMAIN and all(name in fed for name in node.input)]
        new_names = {node.input[0]: node.output[0] for node in updates}
        others = [node for node in nodes if node not in updates]
        for node in others:
            node.input[:] = [new_names.get(name, name) for name in node.input]
        del model.graph.node[:]
        model.graph.node.extend(updates + others)
        return model


class RejectsEverything(Sound):
    """Refuses every model, and so is right about each that is wrong."""

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        raise Rejected("load", None, "not today")


@dataclass(frozen=True)
class Fault:
    """How a faulty runtime is found out.

    Attributes:
        adapter: the runtime.
        requirement: the requirement that it breaks.
        case: a case that it fails, about that requirement.
        words: part of the reason given.
        passes: cases that have nothing to do with the fault.
    """

    adapter: type[Sound]
    requirement: Req
    case: str
    words: str
    passes: tuple[str, ...] = ("dense-001/seed-example", "bind-002/read-only", "alias-011/read-after")


SUCCEEDED: Final = "succeeded; it must be refused"

FAULTS: Final = (
    Fault(SilentCopy, Req.MC_BIND_010, "bind-010/chain", "(written by the run), found", ("proto-001/unannotated",)),
    Fault(CopyAndCopyBack, Req.MC_BIND_009, "bind-009/every-run", "the output is a copy", ("plan-004/unread",)),
    Fault(
        OffByOne,
        Req.MC_DENSE_001,
        "dense-001/first-rows",
        "expected",
        ("dense-001/last-rows", "plan-004/constant-operands"),
    ),
    Fault(ClampsOverflow, Req.MC_DENSE_003, "dense-003/by-one", SUCCEEDED),
    Fault(AcceptsReadOnly, Req.MC_BIND_002, "bind-002/read-only", SUCCEEDED, ("bind-008/elsewhere",)),
    Fault(IgnoresAnnotations, Req.MC_PLAN_001, "plan-001/intermediate", "expected", ("proto-001/unannotated",)),
    Fault(IgnoresOldAnnotations, Req.MC_PROTO_002, "proto-002/older", SUCCEEDED),
    Fault(ZeroFills, Req.MC_DENSE_002, "dense-002/middle", "unchanged by the run", ("dense-001/last-rows",)),
    Fault(WrapsNegative, Req.MC_DENSE_004, "dense-004/minus-length", SUCCEEDED),
    Fault(TruncatesPositions, Req.MC_DENSE_005, "dense-005/two-to-the-32", SUCCEEDED),
    Fault(CanonicalNaNs, Req.MC_DENSE_007, "dense-007/special-float", "expected", ("dense-007/int32",)),
    Fault(NotAtomic, Req.MC_DENSE_012, "dense-012/last-row-overflows", "after the refusal"),
    Fault(AcceptsFeeds, Req.MC_BIND_001, "bind-001/fed", SUCCEEDED),
    Fault(AcceptsInitializers, Req.MC_BIND_003, "bind-003/initializer", SUCCEEDED),
    Fault(AcceptsOverlap, Req.MC_BIND_004, "bind-004/values-inside", SUCCEEDED),
    Fault(SharesLeases, Req.MC_BIND_005, "bind-005/other-session", SUCCEEDED),
    Fault(KeepsLeaseAfterFailure, Req.MC_BIND_006, "bind-006/after-failure", "it must succeed"),
    Fault(AcceptsStrided, Req.MC_BIND_007, "bind-007/strided", SUCCEEDED),
    Fault(IgnoresOutputs, Req.MC_BIND_008, "bind-008/elsewhere", SUCCEEDED),
    Fault(ChecksNothing, Req.MC_ALIAS_011, "alias-011/read-after", SUCCEEDED, ("dense-001/seed-example",)),
    Fault(DropsUnread, Req.MC_PLAN_004, "plan-004/unread", "written by the run"),
    Fault(WritesFirst, Req.MC_PLAN_005, "plan-005/elementwise", "of output", ("dense-001/seed-example",)),
    Fault(WritesFirst, Req.MC_PLAN_006, "plan-006/slice", "of output", ("dense-001/seed-example",)),
    Fault(RejectsEverything, Req.MC_ALIAS_011, "alias-011/read-after", "its valid twin", ()),
)
