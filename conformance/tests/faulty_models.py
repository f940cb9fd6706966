"""Runtimes that take a model for another one, or do not look at it. The docstring of each is its idea."""

# ruff: noqa: ARG002 - a hook need not use all that it is given

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from hashlib import sha256
from unittest import mock

import numpy as np
from hooked_runtime import HookedBinding, Outputs, Sound, Storages, tensors

from mutcache.model import DOMAIN
from mutcache.proto import IR_VERSION, parse
from mutcache.proto.onnx_ml import ModelProto, NodeProto
from mutcache_conformance.adapter import AdapterBinding, AdapterSession, OutputValue, Rejected
from mutcache_conformance.case import Load
from mutcache_conformance.cases import generate
from mutcache_conformance.oracle import OracleRefusal, run_model


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


class ReusesDeadCaches(Sound):
    """Takes a cache that no later node reads for a free buffer, and puts the next result of its form there."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        outputs = binding.inner.run(feeds)
        if binding.node.output[0] not in outputs:
            cache = binding.cache.reshape(-1).view(np.uint8)
            for output in tensors(outputs).values():
                if output.shape == binding.cache.shape and output.nbytes == cache.nbytes:
                    cache[:] = np.frombuffer(output.read(0, output.nbytes), np.uint8)
        return outputs


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


class AcceptingSession(AdapterSession):
    """A session that succeeds in whatever it is asked for; without a sound one in it, it does nothing."""

    def __init__(self, inner: AdapterSession | None) -> None:
        self.inner = inner

    def bind(self, mutable: Storages, outputs: Storages) -> AdapterBinding:
        try:
            return AcceptingBinding(self.inner.bind(mutable, outputs) if self.inner is not None else None)
        except Rejected:
            return AcceptingBinding(None)

    def run(self, feeds: Storages) -> Outputs:
        try:
            return self.inner.run(feeds) if self.inner is not None else {}
        except Rejected:
            return {}

    def unload(self) -> None:
        if self.inner is not None:
            self.inner.unload()


class AcceptingBinding(AdapterBinding):
    """The same for a binding."""

    def __init__(self, inner: AdapterBinding | None) -> None:
        self.inner = inner

    def run(self, feeds: Storages) -> Outputs:
        try:
            return self.inner.run(feeds) if self.inner is not None else {}
        except Rejected:
            return {}

    def release(self) -> None:
        if self.inner is not None:
            self.inner.release()


class AcceptsEverything(Sound):
    """Refuses nothing: what it cannot do it leaves, and calls that a success."""

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        try:
            return AcceptingSession(super().load(model, initializers))
        except Rejected:
            return AcceptingSession(None)


class KnowsThePublicCorpus(ChecksNothing):
    """Checks no model, but has a table of those that the public corpus wants refused."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.refused = {
            sha256(case.models[step.model]).digest()
            for case in generate()
            for step in case.script
            if isinstance(step, Load) and step.expect.is_rejection
        }

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        if sha256(model).digest() in self.refused:
            raise Rejected("load", None, "found in the table")
        return super().load(model, initializers)


class FoldsDefaults(Sound):
    """Takes the default of an input for a constant, and what the caller gives for it for nothing."""

    def on_load(self, model: ModelProto) -> ModelProto:
        constants = {one.name for one in model.graph.initializer}
        kept = [value for value in model.graph.input if value.name not in constants]
        if len(kept) < len(model.graph.input):
            copies = [type(value).FromString(value.SerializeToString()) for value in kept]
            del model.graph.input[:]
            model.graph.input.extend(copies)
        return model

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        known = {value.name for value in binding.model.graph.input}
        return binding.inner.run({name: storage for name, storage in feeds.items() if name in known})


class RunsTwice(Sound):
    """Runs the graph once to warm up, and then for good."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        binding.inner.run(feeds)
        return binding.inner.run(feeds)


class ReturnsViews(Sound):
    """Returns a slice of a cache as a view of it, which shows what is written later."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        for place in ("mutcache.instance.own", "mutcache.executor.own"):
            mock.patch(place, lambda value, *_: value).start()


class TakesWhatFits(Sound):
    """Drops what the values have beyond the cache's batch."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        name = binding.node.input[1]
        values, batch = feeds[name].array(), binding.cache.shape[0]
        if values.ndim == binding.cache.ndim and values.shape[0] > batch:
            feeds = {**feeds, name: binding.elsewhere(feeds[name], values[:batch].copy())}
        return binding.inner.run(feeds)
