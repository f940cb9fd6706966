"""Runtimes that go wrong when two things are asked of them at once. The docstring of each is its idea."""

# ruff: noqa: ARG002 - a hook need not use all that it is given

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from faulty_memory import returned
from faulty_storage import SharesLeases
from hooked_runtime import HookedBinding, HookedSession, Outputs, Sound, Storages, lying_in

from mutcache_conformance.adapter import AdapterSession, Description, Rejected


class Watching(Sound):
    """Knows which bindings run."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.running: set[int] = set()
        self.done = threading.Condition()

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        with self.done:
            is_busy = id(binding) in self.running
            self.running.add(id(binding))
        if is_busy:
            return self.on_second_run(binding, feeds)
        try:
            return binding.inner.run(feeds)
        finally:
            with self.done:
                self.running.discard(id(binding))
                self.done.notify_all()

    def on_second_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        """A run of a binding that runs already."""
        return binding.inner.run(feeds)


class Interleaves(Watching):
    """Runs a binding again while it runs, from whatever the cache holds by then."""

    def on_second_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        copies = {name: storage.array().copy() for name, storage in binding.mutable.items()}
        used = {name: lying_in(storage, copies[name]) for name, storage in binding.mutable.items()}
        inner = binding.session.inner.bind(used, {})
        try:
            return returned(binding.mutable, copies, inner.run(feeds))
        finally:
            inner.release()


class MergesRuns(Watching):
    """Takes a second run of a binding that runs for the same run, and gives both callers its result."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.results: dict[int, Outputs] = {}

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        self.results[id(binding)] = super().on_run(binding, feeds)
        return self.results[id(binding)]

    def on_second_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        with self.done:
            self.done.wait_for(lambda: id(binding) not in self.running)
        return self.results[id(binding)]


class LooksAtIdleLeases(Watching, SharesLeases):
    """Takes the storage of a binding that runs: it looks only at those that wait for a run."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        sound = SharesLeases if self.running else Sound
        return sound.on_bind(self, session, mutable, outputs)


class LosesBesideFailure(Watching):
    """Takes a failure of one session for a failure of all, and runs none any more."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.has_failed = False

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        self.has_failed = False
        return super().load(model, initializers)

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        is_beside = bool(self.running)
        if self.has_failed:
            raise RuntimeError("another session has failed")
        try:
            return super().on_run(binding, feeds)
        except Exception:
            self.has_failed = is_beside
            raise


class RunsOneByOne(Sound):
    """Says that it can have several runs in flight, and has one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.lock = threading.Lock()

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        with self.lock:
            return binding.inner.run(feeds)

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        with self.lock:
            return super().on_bind(session, mutable, outputs)


class Alone(Sound):
    """Has a host that does one thing after the other, and says so."""

    def describe(self) -> Description:
        return replace(super().describe(), concurrent_runs=False)


class RefusesSecondRun(Watching):
    """Refuses a run of a binding that runs already."""

    def on_second_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        raise Rejected("run", "MC-BIND-011", "the binding is running")
