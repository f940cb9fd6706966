"""A child's output streams as files of bounded size: their beginning and their end."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import threading
from pathlib import Path
from typing import IO, Final

#: Bytes of a stream that are kept from its beginning, and from its end; what lies between is read and dropped, so that
#: no child fills a disk.
HEAD_BYTES: Final = 64 << 10
TAIL_BYTES: Final = 192 << 10
#: Seconds for a stream to end once its process has.
_GRACE: Final = 2.0


class Log:
    """Reads a stream to its end in a thread of its own.

    Args:
        stream: the reading end of a pipe; it belongs to the log from now on.
        path: the file. It is made when something comes; its end is written when the stream has ended.
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream = stream
        self._path = path
        self._tail: collections.deque[bytes] = collections.deque()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        head = total = kept = 0
        file: IO[bytes] | None = None
        with contextlib.suppress(OSError, ValueError):  # the stream is closed under the thread when it never ends
            while data := os.read(self._stream.fileno(), 1 << 16):
                if file is None:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    file = self._path.open("wb")
                if first := data[: HEAD_BYTES - head]:
                    file.write(first)
                    file.flush()
                    head += len(first)
                total += len(data)
                self._tail.append(data)
                kept += len(data)
                while kept - len(self._tail[0]) >= TAIL_BYTES:
                    kept -= len(self._tail.popleft())
        if file is not None:
            with contextlib.suppress(OSError), file:
                self._finish(file, total - head)

    def _finish(self, file: IO[bytes], rest: int) -> None:
        """Write the end of a stream that has ``rest`` bytes more than the file."""
        shown = min(rest, TAIL_BYTES)
        if rest > shown:
            file.write(f"\n[{rest - shown} bytes are left out here]\n".encode())
        if shown:
            file.write(b"".join(self._tail)[-shown:])

    def last_line(self) -> str:
        """The last line that says something, shortened and made safe for a terminal; or ""."""
        self._thread.join(_GRACE / 10)
        # A copy, since the thread may still be reading.
        text = b"".join(tuple(self._tail)[-2:])[-8192:].decode(errors="replace")
        line = next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")
        return re.sub(r"[^\x20-\x7e]", "?", line)[:200]

    def close(self) -> None:
        """Wait for the end of the stream, but not long."""
        self._thread.join(_GRACE)
        if not self._thread.is_alive():
            self._stream.close()
