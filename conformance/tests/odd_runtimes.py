"""Runtimes that do things in their own way, and conform: the suite must pass them. The docstring of each is its way."""

# ruff: noqa: ARG002 - a hook need not use all that it is given

from __future__ import annotations

import mmap
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from hooked_runtime import HookedBinding, HookedSession, Outputs, Sound, Storages, Tables, tensors

from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Phase, Req
from mutcache_conformance.adapter import (
    AdapterBinding,
    AdapterSession,
    Description,
    HostPage,
    HostPageTable,
    OutputPage,
    OutputTable,
    OutputValue,
    Rejected,
)


class Slow(Sound):
    """Takes its time for everything."""

    def on_load(self, model: ModelProto) -> ModelProto:
        time.sleep(0.01)
        return model

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        time.sleep(0.01)
        return binding.inner.run(feeds)


class Noisy(Sound):
    """Floods both of its outputs, with lines that look like answers and bytes that are no text."""

    def on_load(self, model: ModelProto) -> ModelProto:
        shout()
        return model

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        shout()
        return binding.inner.run(feeds)

    def on_release(self, binding: HookedBinding) -> None:
        shout()
        binding.inner.release()


def shout() -> None:
    """Write more to both outputs than a pipe holds."""
    for stream in (sys.stdout, sys.stderr):
        stream.buffer.write(b'{"id": 1, "answer": "ok"}\n\xff\xfe\x00' + b"x" * 100_000)
        stream.flush()


class RefusesLate(Sound):
    """Refuses in the last phase that the requirement allows: much of it only when it runs."""

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        try:
            return super().load(model, initializers)
        except Rejected as refusal:
            if phases_of(refusal).isdisjoint({Phase.RUN}):
                raise
            return LateSession(refusal)

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        try:
            return super().on_bind(session, mutable, outputs)
        except Rejected as refusal:
            if phases_of(refusal).isdisjoint({Phase.RUN}):
                raise
            return HookedBinding(session, mutable, outputs, LateBinding(refusal))


#: Requirements of what a model declares, of what is bound and of what is fed: each is to be caught where it stands.
WHERE_IT_STANDS: Final = frozenset({Req.MC_PAGED_006, Req.MC_PAGED_007})


def phases_of(refusal: Rejected) -> frozenset[Phase]:
    """The phases in which what a refusal names may be caught."""
    if not refusal.requirement or Req(refusal.requirement) in WHERE_IT_STANDS:
        return frozenset()
    return frozenset(Req(refusal.requirement).entry.phases)


class LateSession(AdapterSession):
    """A session of a model that is to be refused when it runs."""

    def __init__(self, refusal: Rejected) -> None:
        self.refusal = refusal

    def bind(self, mutable: Storages, outputs: Storages) -> AdapterBinding:
        return LateBinding(self.refusal)

    def bind_tables(self, mutable: Storages, outputs: Storages, tables: Tables) -> AdapterBinding:
        return LateBinding(self.refusal, tables)

    def run(self, feeds: Storages) -> Outputs:
        raise Rejected("run", self.refusal.requirement, self.refusal.message)

    def unload(self) -> None:
        pass


class LateBinding(AdapterBinding):
    """A binding that refuses to run."""

    def __init__(self, refusal: Rejected, tables: Tables | None = None) -> None:
        self.refusal = refusal
        self.bound = tables or {}

    def run(self, feeds: Storages) -> Outputs:
        raise Rejected("run", self.refusal.requirement, self.refusal.message)

    def tables(self) -> Mapping[str, OutputTable]:
        return {name: as_it_lies(table) for name, table in self.bound.items()}

    def release(self) -> None:
        pass


def as_it_lies(table: HostPageTable) -> OutputTable:
    """A table of the caller's that no run has touched."""

    def show(page: HostPage) -> OutputPage:
        payload = page.payload

        def read(offset: int, nbytes: int) -> bytes:
            return payload.array()[offset : offset + nbytes].tobytes()

        return OutputPage(page.quantized_type, page.dims, page.nbytes, payload.address, read, page.key)

    return OutputTable(table.container, tuple(map(show, table.pages)))


class RefusesEarly(Sound):
    """Names the first phase that the requirement allows: what is fed is bound before it runs."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return in_bind_phase(lambda: binding.inner.run(feeds))

    def on_unbound_run(self, session: HookedSession, feeds: Storages) -> Outputs:
        return in_bind_phase(lambda: session.inner.run(feeds))


def in_bind_phase(run: Callable[[], Outputs]) -> Outputs:
    """Run, and name the bind phase in a refusal that may come in both."""
    try:
        return run()
    except Rejected as refusal:
        if refusal.requirement == "MC-BIND-001":
            raise Rejected("bind", refusal.requirement, refusal.message) from refusal
        raise


class NamesNoRequirements(Sound):
    """Refuses without an ID, without words, and calls all that comes before binding loading."""

    def load(self, model: bytes, initializers: Storages) -> AdapterSession:
        try:
            return super().load(model, initializers)
        except Rejected as refusal:
            raise Rejected("load", None, "") from refusal

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        try:
            return super().on_bind(session, mutable, outputs)
        except Rejected as refusal:
            raise Rejected("bind", None, "") from refusal

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        try:
            return binding.inner.run(feeds)
        except Rejected as refusal:
            raise Rejected("run", None, "") from refusal


class Serializing(Sound):
    """Takes runs from several threads, and does one at a time."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.lock = threading.Lock()

    def describe(self) -> Description:
        return replace(super().describe(), concurrent_runs=True)

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        with self.lock:
            return binding.inner.run(feeds)


class RunsInThreads(Sound):
    """Runs each update in another thread than the one that it is asked in."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.pool = ThreadPoolExecutor(3)

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return self.pool.submit(binding.inner.run, feeds).result()


class LargeAlignment(Sound):
    """Needs storage at multiples of 256 bytes, and says so."""

    def describe(self) -> Description:
        return replace(super().describe(), alignment=256)

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        for storage in mutable.values():
            if storage.address % 256:
                raise Rejected("bind", "MC-BIND-007", f"address {storage.address:#x} is no multiple of 256")
        return super().on_bind(session, mutable, outputs)


class OwnAllocator(Sound):
    """Puts every output that is not the caller's storage on pages of its own, at an odd address."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        callers = {storage.address for storage in (*binding.mutable.values(), *binding.outputs.values())}
        outputs = binding.inner.run(feeds)
        own = {name: output for name, output in tensors(outputs).items() if output.address not in callers}
        return {**outputs, **{name: on_pages(output) for name, output in own.items()}}


def on_pages(output: OutputValue) -> OutputValue:
    """A copy of an output, one byte behind the start of a page."""
    pages = mmap.mmap(-1, output.nbytes + 1)
    pages[1:] = output.read(0, output.nbytes)
    return replace(output, address=None, read=lambda offset, nbytes: pages[1 + offset : 1 + offset + nbytes])


class ShowsNoAddresses(Sound):
    """Has an interface in which nobody sees an address."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return {name: without_addresses(output) for name, output in binding.inner.run(feeds).items()}

    def on_tables(self, binding: HookedBinding) -> Mapping[str, OutputTable]:
        return {name: hidden(table) for name, table in binding.inner.tables().items()}


def without_addresses(output: OutputValue | OutputTable) -> OutputValue | OutputTable:
    """An output, or the pages of one, without addresses."""
    return hidden(output) if isinstance(output, OutputTable) else replace(output, address=None)


def hidden(table: OutputTable) -> OutputTable:
    """A table that does not tell where its pages are."""
    return replace(table, pages=tuple(replace(page, address=None) for page in table.pages))


class HasHelpers(Sound):
    """Starts another process, which holds its stderr open and never ends by itself."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        program = "import time; print(flush=True); time.sleep(3600)"
        self.helper = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert self.helper.stdout is not None
        self.helper.stdout.readline()  # it is there now


class CoreTypesOnly(Sound):
    """Has the types that every runtime must have, and refuses models with others."""

    def describe(self) -> Description:
        return replace(super().describe(), capabilities=frozenset())


#: Runtimes whose refusals differ; every case is of interest.
REFUSING: Final = (RefusesLate, RefusesEarly, NamesNoRequirements)
#: Runtimes that differ in how they do things; a part of the cases shows it.
WORKING: Final = (
    Slow,
    Noisy,
    Serializing,
    RunsInThreads,
    LargeAlignment,
    OwnAllocator,
    ShowsNoAddresses,
    HasHelpers,
    CoreTypesOnly,
)
