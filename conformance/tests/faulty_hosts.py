"""Runtimes whose process misbehaves. The docstring of each is its idea."""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

from hooked_runtime import HookedBinding, HookedSession, Outputs, Sound, Storages

from mutcache_conformance.adapter import Description, Rejected


class Hangs(Sound):
    """Waits for ever where it should refuse."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        try:
            return binding.inner.run(feeds)
        except Rejected:
            time.sleep(3600)
            raise


class Crashes(Sound):
    """Refuses by an access to memory that it does not have."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        try:
            return binding.inner.run(feeds)
        except Rejected:
            signal.raise_signal(signal.SIGSEGV)
            raise


class Exits(Sound):
    """Ends its process where it should refuse, after a word on stderr."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        try:
            return super().on_bind(session, mutable, outputs)
        except Rejected:
            print("assertion failed: storage.is_good()", file=sys.stderr, flush=True)
            os._exit(134)


class RaisesErrors(Sound):
    """Fails with an internal error where it should refuse."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        try:
            return binding.inner.run(feeds)
        except Rejected as refusal:
            raise IndexError("list index out of range") from refusal


class AnswersGarbage(Sound):
    """Writes what is not of the protocol to the harness's socket."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        for entry in Path("/proc/self/fd").iterdir():
            descriptor = int(entry.name)
            if entry.exists() and stat.S_ISSOCK(entry.stat().st_mode):
                with socket.socket(fileno=os.dup(descriptor)) as channel:
                    channel.sendall(b"debug: run\n")
        return binding.inner.run(feeds)


class OmitsOutputs(Sound):
    """Answers a run with the outputs that it thinks are wanted: none."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        binding.inner.run(feeds)
        return {}


class ChangesItsName(Sound):
    """Describes itself in another way each time it is started."""

    def describe(self) -> Description:
        return replace(super().describe(), runtime=f"a runtime started at {time.time_ns()}")
