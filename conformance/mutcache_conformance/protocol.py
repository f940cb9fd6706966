"""The wire protocol between the harness and the child that hosts the runtime: JSON lines on a UNIX socket.

``docs/protocol.rst`` describes it for those who implement it, ``schemas/protocol.json`` defines it. This module
has what both sides share: the channel that carries lines with descriptors beside them.
"""

from __future__ import annotations

import array
import collections
import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

#: Version of the protocol; a host answers ``describe`` with the version it speaks.
VERSION: Final = 1
#: The variable that names the descriptor of the child's end of the socket.
SOCKET_VARIABLE: Final = "MUTCACHE_SOCKET"
#: A longer line is no message.
MAX_LINE: Final = 4 << 20
#: No message has more arrays and objects within one another.
MAX_DEPTH: Final = 16
#: The kernel passes no more descriptors with one message.
MAX_DESCRIPTORS: Final = 253

Message = dict[str, Any]


class ProtocolError(Exception):
    """The other side does not speak the protocol."""


class ChannelClosed(Exception):  # noqa: N818 - the end of a conversation
    """The other side is gone."""


class Channel:
    """One end of the socket. Sending is safe from several threads; only one thread may receive."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._socket.setblocking(False)
        self._sending = threading.Lock()
        self._buffer = bytearray()
        self._lines: collections.deque[bytes] = collections.deque()
        #: Received descriptors that no message has taken yet, in the order of their messages.
        self.descriptors: collections.deque[int] = collections.deque()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def send(
        self, message: Mapping[str, Any], descriptors: Sequence[int] = (), *, timeout: float | None = None
    ) -> None:
        """Send one line, and the descriptors beside it.

        Raises:
            TimeoutError: the other side does not read.
            ChannelClosed: it is gone.
        """
        data = memoryview(json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n")
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._sending:
            while data:
                try:
                    data = data[self._socket.sendmsg([data], ancillary, socket.MSG_NOSIGNAL) :]
                    ancillary = []
                except BlockingIOError:
                    if not self._wait(select.POLLOUT, deadline):
                        raise TimeoutError from None
                except OSError as error:
                    raise ChannelClosed from error

    def receive(self, *, timeout: float | None = None, with_descriptors: bool = False) -> Message | None:
        """The next message, or None when none came in time.

        Args:
            timeout: seconds; None waits for ever, 0 takes what is there.
            with_descriptors: keep descriptors that come beside the lines; without it the kernel drops them.

        Raises:
            ChannelClosed: there is no next message.
            ProtocolError: what came is no message.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._lines:
            try:
                data = self._receive_bytes(with_descriptors)
            except BlockingIOError:
                if not self._wait(select.POLLIN, deadline):
                    return None
                continue
            except OSError as error:
                raise ChannelClosed from error
            if not data:
                raise ChannelClosed
            self._buffer += data
            *lines, rest = self._buffer.split(b"\n")
            self._lines.extend(bytes(line) for line in lines)
            self._buffer = rest
            if len(rest) > MAX_LINE:
                raise ProtocolError(f"more than {MAX_LINE} bytes without the end of a line")
        return _parse(self._lines.popleft())

    def _receive_bytes(self, with_descriptors: bool) -> bytes:
        if not with_descriptors:
            return self._socket.recv(1 << 16)
        room = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
        data, ancillary, _, _ = self._socket.recvmsg(1 << 16, room, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                received = array.array("i")
                received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
                self.descriptors.extend(received)
        return data

    def _wait(self, event: int, deadline: float | None) -> bool:
        """Whether the socket became ready before the deadline."""
        poll = select.poll()
        poll.register(self._socket, event)
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        return bool(poll.poll(None if left is None else left * 1000 + 1))

    def take_descriptors(self, count: int) -> list[int]:
        """The next ``count`` received descriptors; they belong to the caller then.

        Raises:
            ProtocolError: fewer came.
        """
        if count > len(self.descriptors):
            raise ProtocolError(f"the message speaks of {count} descriptors, {len(self.descriptors)} came with it")
        return [self.descriptors.popleft() for _ in range(count)]

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._socket.close()
        while self.descriptors:
            os.close(self.descriptors.popleft())


def _parse(line: bytes) -> Message:
    """The message that a line is, of strict JSON: not every reader of a report takes more than that."""
    try:
        message = json.loads(line.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant)
        if not _is_shallow(message, MAX_DEPTH):
            raise ValueError("it is nested too deeply")
        json.dumps(message, ensure_ascii=False).encode()  # escapes can hide halves of characters
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON in UTF-8 ({str(error)[:80]}): {excerpt(line)}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"no JSON object: {excerpt(line)}")
    return message


def _is_shallow(value: object, depth: int) -> bool:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_shallow(member, depth - 1) for member in members)


def _unique(pairs: list[tuple[str, Any]]) -> Message:
    message = dict(pairs)
    if len(message) != len(pairs):
        raise ValueError("a name comes twice in an object")
    return message


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def excerpt(line: bytes) -> str:
    """The beginning of a line, in characters that any terminal can show."""
    return ascii(line[:80].decode(errors="backslashreplace")) + (
        f" and {len(line) - 80} bytes more" if len(line) > 80 else ""
    )
