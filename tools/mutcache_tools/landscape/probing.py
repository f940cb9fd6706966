"""Probes: scenes that are played in a process of their own, and what is concluded from what they return.

A scene may crash the process, or take all its memory for a while; that is part of what is observed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from mutcache.requirements import Req

#: Seconds that a scene may take.
_TIMEOUT: Final = 300.0
#: Capacity of the caches whose memory is measured: large beside anything else that a scene takes.
CACHE_BYTES: Final = 64 << 20
#: What a cache's worth of growth is at least, and what is no copy yet.
COPY, NO_COPY = 0.9 * CACHE_BYTES, 0.05 * CACHE_BYTES
#: Bytes that a run may take however big the cache is, as the suite has it.
WORKSPACE: Final = 8 << 20
#: Bytes that a process may grow by with each run, as the suite has it.
LEAK: Final = 2048


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of a runtime, and what it says of a requirement.

    Attributes:
        name: a word for it, unique in its runtime.
        requirements: what it bears on.
        status: ``pass``, ``fail``, ``crash``, ``unsupported`` or ``not-applicable``.
        done: what was done, in a sentence.
        seen: what was seen, in a sentence.
        basis: ``observed`` from outside, ``reported`` by the runtime, or ``memory``: judged by measured memory only.
        figures: the numbers behind it.
    """

    name: str
    requirements: tuple[Req, ...]
    status: str
    done: str
    seen: str
    basis: str = "observed"
    figures: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As it is committed."""
        return {**asdict(self), "requirements": [requirement.value for requirement in self.requirements]}


def play(module: str, scene: str, *arguments: str) -> dict[str, Any]:
    """What the function ``scene_SCENE`` of a module of probes returns, called in a new process.

    A process that ends by a signal makes ``{"signal": NAME, ...}``, with what the scene had noted before it.
    """
    with tempfile.TemporaryDirectory(prefix="mutcache-landscape-") as folder:
        notes = Path(folder) / "notes.json"
        command = [sys.executable, "-m", __name__, module, scene, *arguments]
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "MUTCACHE_NOTES": str(notes)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
        found: dict[str, Any] = json.loads(notes.read_text("utf-8")) if notes.is_file() else {}
        if done.returncode < 0:
            return {**found, "signal": signal.Signals(-done.returncode).name, "stderr": done.stderr[-2000:]}
        if done.returncode:
            raise RuntimeError(f"{module} {scene} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return {**found, "stderr": done.stderr[-2000:]}


def note(found: dict[str, Any]) -> None:
    """Write down what has been seen so far, for the case that the process does not get further."""
    Path(os.environ["MUTCACHE_NOTES"]).write_text(json.dumps(found), "utf-8")


class Peak:
    """The growth of this process while the context was open, in bytes."""

    growth = 0


@contextlib.contextmanager
def peak() -> Iterator[Peak]:
    """Measure by how much the process grows at most."""
    found = Peak()
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak is what is resident now
    before = _status("VmRSS")
    yield found
    found.growth = max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def resident() -> int:
    """Bytes of this process that are resident now."""
    return _status("VmRSS")


def mebibytes(count: float) -> str:
    """Bytes for people."""
    return f"{count / (1 << 20):.1f} MiB"


def _main(module: str, scene: str, *arguments: str) -> None:
    note(getattr(importlib.import_module(module), f"scene_{scene}")(*arguments))


if __name__ == "__main__":
    _main(*sys.argv[1:])
