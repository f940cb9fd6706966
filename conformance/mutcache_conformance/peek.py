"""The memory of a process, read and changed from outside: nobody's word is taken for what it holds. Linux only."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType
from typing import Self


class ProcessMemory:
    """The memory of a process that this one may look into. A context manager that lets go of it.

    Args:
        pid: the process.

    Attributes:
        is_open: whether it can be looked into: not on this system, or not in this one's confinement, if not.
    """

    def __init__(self, pid: int) -> None:
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self._descriptor = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        self.is_open = self._descriptor >= 0

    def read(self, address: int, nbytes: int) -> bytes | None:
        """The bytes at an address, or None if not all of them are memory."""
        parts: list[bytes] = []
        left = nbytes
        while left:
            try:
                part = os.pread(self._descriptor, left, address + nbytes - left)
            except (OSError, OverflowError):
                return None
            if not part:
                return None
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def flip(self, address: int) -> bool:
        """Change every bit of one byte; whether that could be done."""
        byte = self.read(address, 1)
        if byte is None:
            return False
        try:
            return os.pwrite(self._descriptor, bytes([byte[0] ^ 0xFF]), address) == 1
        except OSError:
            return False

    def close(self) -> None:
        """Let go of it."""
        if self.is_open:
            self.is_open = False
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
