"""A small runtime, independent of the reference: models that are one linear CacheUpdate, in a few lines of NumPy.

It shows that the harness is tied to nothing but its protocol. Its subclasses each have one fault, and what the harness
says of them is what the tests look at.
"""

# ruff: noqa: ARG002 - a fault need not use all that it is given

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mutcache.proto import parse
from mutcache.proto.onnx_ml import ModelProto, ValueInfoProto
from mutcache_conformance.adapter import (
    Adapter,
    AdapterBinding,
    AdapterSession,
    Description,
    HostStorage,
    NotApplicable,
    OutputValue,
    Rejected,
    Unsupported,
)

Array = np.ndarray[Any, np.dtype[Any]]


class ToyBinding(AdapterBinding):
    """A bound cache."""

    def __init__(self, model: ModelProto, mutable: Mapping[str, HostStorage]) -> None:
        (self.node,) = model.graph.node
        self.storage = mutable[self.node.input[0]]
        self.cache = self.storage.array()
        self.is_released = False

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        if self.is_released:
            raise Rejected("run", None, "the binding was released")
        values, position = (feeds[name].array() for name in self.node.input[1:])
        self.update(values, int(position))
        return {self.node.output[0]: OutputValue.of(self.cache)}

    def update(self, values: Array, position: int) -> None:
        capacity = self.cache.shape[-2]
        if position < 0:
            raise Rejected("run", "MC-DENSE-004", f"position {position} is negative")
        if position + values.shape[-2] > capacity:
            raise Rejected("run", "MC-DENSE-003", f"{position} + {values.shape[-2]} > {capacity}")
        self.cache[..., position : position + values.shape[-2], :] = values

    def release(self) -> None:
        self.is_released = True


class ToySession(AdapterSession):
    """A model of one update."""

    binding: type[ToyBinding] = ToyBinding

    def __init__(self, model: ModelProto) -> None:
        self.model = model

    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        for storage in [*mutable.values(), *outputs.values()]:
            if not storage.writable:
                raise Rejected("bind", "MC-BIND-002", f"{storage.name} is read-only")
        return self.binding(self.model, mutable)

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        raise Rejected("run", "MC-BIND-001", f"{', '.join(feeds)}: bind the mutable ones")

    def unload(self) -> None:
        pass


class Toy(Adapter):
    """The sound one."""

    session: type[ToySession] = ToySession

    def describe(self) -> Description:
        return Description("toy", "1", "toy adapter", "1", frozenset({"dtype:DOUBLE"}), alignment=1)

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        del initializers
        proto = parse(model)
        if not any(value.access == ValueInfoProto.READ_WRITE for value in proto.graph.input):
            raise Rejected("check", "MC-ALIAS-010", "nothing to update")
        return self.session(proto)


def faulty(binding: type[ToyBinding] | None = None, session: type[ToySession] = ToySession) -> type[Adapter]:
    """A toy with another binding or session."""
    made = type("FaultySession", (session,), {"binding": binding}) if binding is not None else session
    return type("FaultyToy", (Toy,), {"session": made})


class _Copying(ToyBinding):
    def __init__(self, model: ModelProto, mutable: Mapping[str, HostStorage]) -> None:
        super().__init__(model, mutable)
        self.cache = self.cache.copy()


class _CopyingBack(ToyBinding):
    """Writes to the caller's storage as well, so that its contents are right; the output is another array."""

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        (name,) = super().run(feeds)
        return {name: OutputValue.of(self.cache.copy())}


class _LyingAboutAddresses(ToyBinding):
    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        (name,) = super().run(feeds)
        copy = OutputValue.of(self.cache.copy())
        return {name: OutputValue(copy.dtype, copy.shape, copy.nbytes, self.storage.address, copy.read)}


class _Stale(ToyBinding):
    """Its output is the storage by address, and shows what that held before the first run."""

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        copy = OutputValue.of(self.cache.copy())
        (name,) = super().run(feeds)
        return {name: OutputValue(copy.dtype, copy.shape, copy.nbytes, self.storage.address, copy.read)}


class _OffByOne(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        super().update(values, position + 1)


class _Clamping(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        super().update(values, max(0, min(position, self.cache.shape[-2] - values.shape[-2])))


class _WritingBeforeChecking(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        rows = max(0, min(values.shape[-2], self.cache.shape[-2] - position))
        self.cache[..., position : position + rows, :] = values[..., :rows, :]
        super().update(values, position)


class _WritingPastTheEnd(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        super().update(values, position)
        ctypes.memset(self.storage.address + self.storage.nbytes + 2, 1, 1)


class _Raising(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        raise RuntimeError("no kernel")


class _Exhausting(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        bytearray(1 << 60)


class _Refusing(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        raise Rejected("run", None, "not today")


class _Hanging(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        print("asleep", flush=True)
        time.sleep(3600)


class _HangingOnOverflow(_Hanging):
    def update(self, values: Array, position: int) -> None:
        if position + values.shape[-2] > self.cache.shape[-2]:
            super().update(values, position)
        ToyBinding.update(self, values, position)


class _Aborting(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        print("the last words of a runtime", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
        threading.Event().wait()


class _Flooding(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.write("noise " * (1 << 19) + "\n")
        super().update(values, position)


class _Exiting(ToySession):
    def unload(self) -> None:
        os._exit(7)


class _AcceptingReadOnly(ToySession):
    """As a native runtime does: it takes the address, and the write ends it."""

    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        del outputs
        return _WritingBlindly(self.model, mutable)


class _WritingBlindly(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        ctypes.memmove(self.storage.address, self.storage.address, 1)
        super().update(values, position)


class Limited(Toy):
    """Loads nothing."""

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        raise Unsupported("operator CacheUpdate")


class Ignoring(Toy):
    """Lacks mutable inputs, and takes models that promise what needs them."""

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        proto = parse(model)
        if any(value.access == ValueInfoProto.READ_WRITE for value in proto.graph.input):
            raise Unsupported("mutable inputs")
        return self.session(proto)


class Inexpressive(Toy):
    """Has no means to bind."""

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        raise NotApplicable("binding storage")


class Refusing(Toy):
    """Refuses every model."""

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        raise Rejected("load", "MC-PROTO-002", "I like no model")


class Broken(Toy):
    """Cannot even say who it is."""

    def describe(self) -> Description:
        raise OSError("no licence")


class Concurrent(Toy):
    """Runs in several threads of its host."""

    def describe(self) -> Description:
        return Description("toy", "1", "toy adapter", "1", concurrent_runs=True, alignment=256)


class _Slow(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        time.sleep(0.2)
        super().update(values, position)


class SlowConcurrent(Concurrent):
    """Takes its time."""

    session = type("SlowSession", (ToySession,), {"binding": _Slow})


Copying = faulty(_Copying)
CopyingBack = faulty(_CopyingBack)
LyingAboutAddresses = faulty(_LyingAboutAddresses)
Stale = faulty(_Stale)
OffByOne = faulty(_OffByOne)
Clamping = faulty(_Clamping)
WritingBeforeChecking = faulty(_WritingBeforeChecking)
WritingPastTheEnd = faulty(_WritingPastTheEnd)
Raising = faulty(_Raising)
Exhausting = faulty(_Exhausting)
RefusingRuns = faulty(_Refusing)
Hanging = faulty(_Hanging)
HangingOnOverflow = faulty(_HangingOnOverflow)
Aborting = faulty(_Aborting)
Flooding = faulty(_Flooding)
Exiting = faulty(session=_Exiting)
AcceptingReadOnly = faulty(session=_AcceptingReadOnly)


class _AbortingOnNegative(_Aborting):
    def update(self, values: Array, position: int) -> None:
        if position < 0:
            super().update(values, position)
        ToyBinding.update(self, values, position)


class _WrongPhase(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        if position + values.shape[-2] > self.cache.shape[-2]:
            raise Rejected("load", None, "I should have seen that earlier")
        super().update(values, position)


class _Nameless(ToyBinding):
    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        (output,) = super().run(feeds).values()
        return {"other": output}


class _OtherType(ToyBinding):
    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        super().run(feeds)
        return {self.node.output[0]: OutputValue.of(self.cache.astype(np.float16))}


class _NotUnloading(ToySession):
    def unload(self) -> None:
        raise RuntimeError("busy")


class _Lax(ToyBinding):
    def update(self, values: Array, position: int) -> None:
        pass


AbortingOnNegative = faulty(_AbortingOnNegative)
WrongPhase = faulty(_WrongPhase)
Nameless = faulty(_Nameless)
OtherType = faulty(_OtherType)
NotUnloading = faulty(session=_NotUnloading)
LaxToy = faulty(_Lax)


class Optioned(Toy):
    """Fails with the fault that it is told."""

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        raise RuntimeError(f"fault is {self.options['fault']}")


class Busy(Toy):
    """Starts once: it needs what its first process keeps, as a device does that hangs."""

    session = type("AbortingSession", (ToySession,), {"binding": _Aborting})

    def describe(self) -> Description:
        try:
            Path(self.options["lock"]).touch(exist_ok=False)
        except FileExistsError:
            raise OSError("the device is busy") from None
        return super().describe()
