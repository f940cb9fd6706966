"""Commands that may hang or crash: run under a limit of time, with all that they start, and what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

#: Seconds that a killed process is waited for: one that hangs in a driver may never end.
_PATIENCE: Final = 5.0
_TAIL: Final = 2000


def supervise(command: Sequence[str], seconds: float) -> dict[str, Any]:
    """Run a command in a session of its own; when its time is over, kill it and what it has started.

    What this process can import, a Python that it starts can, too.

    Returns:
        ``exit``: its status, negative for a signal, or ``skipped``: that it did not end in time; ``seconds`` that it
        took; ``output``: the end of what it printed.
    """
    start = time.monotonic()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryFile() as output:
        started = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            found: dict[str, Any] = {"exit": started.wait(max(seconds, 1.0))}
        except subprocess.TimeoutExpired:
            found = {"skipped": f"not finished within {seconds:.0f} s"}
        finally:
            with contextlib.suppress(ProcessLookupError):  # also what it left running
                os.killpg(started.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(_PATIENCE)
        output.seek(0)
        seconds = round(time.monotonic() - start, 1)
        return found | {"seconds": seconds, "output": output.read().decode(errors="replace")[-_TAIL:]}


def write(path: Path, results: dict[str, Any]) -> None:
    """Write results whole, or not at all: whoever reads them meanwhile finds the ones before."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)


def read(path: Path) -> dict[str, Any]:
    """Results that were written, or none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def seldom(action: Callable[[], None], seconds: float = 1.0) -> Callable[[], None]:
    """An action that is not done again before ``seconds`` have passed."""
    due = 0.0

    def act() -> None:
        nonlocal due
        if time.monotonic() >= due:
            action()
            due = time.monotonic() + seconds

    return act
