"""The child process that hosts the runtime: started, spoken to, watched, and ended by the harness.

Nothing here waits without a limit, and nothing that the child does reaches the harness but its answers, its end, and
its two output streams, which are kept as logs.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mutcache_conformance import guard
from mutcache_conformance.adapter import Description
from mutcache_conformance.log import Log
from mutcache_conformance.memory import MemoryFile
from mutcache_conformance.peek import ProcessMemory
from mutcache_conformance.protocol import (
    SOCKET_VARIABLE,
    VERSION,
    Channel,
    ChannelClosed,
    Message,
    ProtocolError,
    excerpt,
)
from mutcache_conformance.schema import SchemaError, validate
from mutcache_conformance.wording import one_line, printable

#: Seconds between looks at whether the process still lives, while no answer comes.
_PULSE: Final = 0.1
#: Seconds for the process to end once it has been told to, or once its socket is closed.
_GRACE: Final = 2.0
#: Seconds for the guard to start the process, and to end everything.
_GUARD_TIMEOUT: Final = 20.0
#: Messages of the conversation, and characters of each, that are kept for a failing case.
_KEPT_MESSAGES: Final = 400
_KEPT_CHARACTERS: Final = 20_000
_COMMON_ANSWERS: Final = frozenset({"rejected", "unsupported", "not-applicable", "error"})


class ChildGone(Exception):  # noqa: N818 - an outcome, not a fault of the harness
    """The process has ended, or hung up.

    Attributes:
        signal: the signal that ended it, as ``SIGSEGV``, or "".
    """

    def __init__(self, message: str, signal_name: str = "") -> None:
        super().__init__(message)
        self.signal = signal_name


class ChildTimeout(Exception):  # noqa: N818 - an outcome, not a fault of the harness
    """No answer came in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The last answer to a request. ``kind`` is ok, done, rejected, unsupported, not-applicable or error."""

    kind: str
    body: Mapping[str, Any]

    @property
    def succeeded(self) -> bool:
        """Whether the operation was performed."""
        return self.kind in ("ok", "done")

    def __str__(self) -> str:
        if self.kind == "rejected":
            requirement = f"{self.body['requirement']}: " if self.body.get("requirement") else ""
            return f"rejected in phase {self.body['phase']} ({requirement}{printable(self.body['message'])})"
        return ": ".join([self.kind, *(printable(self.body[key]) for key in ("what", "message") if key in self.body)])


class Child:
    """One process that hosts the runtime under test, under a guard that ends it with the harness.

    Args:
        command: the command line.
        log: stem of the log files: ``.stdout.txt`` and ``.stderr.txt`` are appended; written only if anything comes.

    Raises:
        ChildGone: it cannot be started.

    Attributes:
        pid: the process's number.
        process: its memory, to look into.
        log_name: the last part of ``log``.
        conversation: the latest messages, as lines of ``> REQUEST`` and ``< ANSWER``.
    """

    def __init__(self, command: Sequence[str], *, log: Path) -> None:
        self._ids = itertools.count(1)
        self._names = itertools.count(1)
        self._pending: dict[int, str] = {}
        self._answers: dict[int, Answer] = {}
        self._started: set[int] = set()
        self._ended = False
        self.log_name = log.name
        self.conversation: collections.deque[str] = collections.deque(maxlen=_KEPT_MESSAGES)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._control, controlled = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._channel = Channel(ours)
        with theirs, controlled:
            self._guard = subprocess.Popen(
                # -I -S: no user's settings, no site-packages; half the time to start.
                [sys.executable, "-I", "-S", guard.__file__, str(controlled.fileno()), str(theirs.fileno()), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno(), controlled.fileno()],
                env=_environment(theirs.fileno(), is_our_python=command[0] == sys.executable),
                start_new_session=True,
            )
        assert self._guard.stdout is not None  # both are pipes
        assert self._guard.stderr is not None
        self._logs = [
            Log(self._guard.stdout, log.with_name(f"{log.name}.stdout.txt")),
            Log(self._guard.stderr, log.with_name(f"{log.name}.stderr.txt")),
        ]
        try:
            self.pid = self._started_pid(command[0])
        except BaseException:
            self.kill()
            raise
        self.process = ProcessMemory(self.pid)

    def _started_pid(self, name: str) -> int:
        self._control.settimeout(_GUARD_TIMEOUT)
        with contextlib.suppress(TimeoutError):
            word = self._control.makefile("r").readline().strip()
            if word.startswith("!"):
                raise ChildGone(f"cannot start {name!r}: {os.strerror(int(word[1:]))}")
            if word:
                return int(word)
        raise ChildGone(f"cannot start {name!r}: its guard does not answer")

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._guard.poll() is None

    def new_name(self, prefix: str) -> str:
        """A name that says nothing about the case: s1, b2, ..."""
        return f"{prefix}{next(self._names)}"

    def describe(self, options: Mapping[str, str], *, timeout: float) -> Description:
        """Who is under test.

        Raises:
            ChildGone, ChildTimeout: it does not answer.
            ProtocolError: it answers something else, an error for example.
        """
        answer = self.call("describe", timeout=timeout, protocol=VERSION, options=dict(options))
        if not answer.succeeded:
            raise ProtocolError(f"it answered describe with {answer}")
        if answer.body["protocol"] != VERSION:
            raise ProtocolError(f"it speaks version {answer.body['protocol']} of the protocol, not {VERSION}")
        body = answer.body
        names = {
            f"{of}{suffix}": one_line(body[of][key], 100)
            for of in ("runtime", "adapter")
            for key, suffix in (("name", ""), ("version", "_version"))
        }
        return Description(
            **names,
            capabilities=frozenset(body["capabilities"]),
            alignment=body["alignment"],
            concurrent_runs=body["concurrent_runs"],
            checks=tuple(one_line(check, 100) for check in body["checks"]),
            device=body.get("device", "cpu"),
        )

    def call(self, operation: str, *, timeout: float, files: Sequence[MemoryFile] = (), **fields: Any) -> Answer:
        """Send a request and wait for its last answer; raises as ``send`` and ``wait`` do."""
        return self.wait(self.send(operation, timeout=timeout, files=files, **fields), timeout=timeout)

    def send(self, operation: str, *, timeout: float, files: Sequence[MemoryFile] = (), **fields: Any) -> int:
        """Send a request and return its number.

        Raises:
            ChildGone: the child has ended.
            ChildTimeout: it does not read.
        """
        number = next(self._ids)
        request: Message = {"id": number, "op": operation, **fields}
        if operation in ("load", "bind", "run", "read"):
            request["files"] = [
                {"file": file.name, "nbytes": str(file.nbytes), "writable": file.writable} for file in files
            ]
        validate(request, "protocol", f"request-{operation}")
        self._pending[number] = operation
        self._note(">", request)
        try:
            self._channel.send(request, [file.descriptor for file in files], timeout=timeout)
        except TimeoutError:
            raise ChildTimeout(f"it did not read the {operation} request within {timeout:.3g} s") from None
        except ChannelClosed:
            raise self._gone() from None
        return number

    def has_started(self, number: int, *, timeout: float) -> bool:
        """Whether a run is under way, or over, after at most ``timeout`` seconds; raises as ``wait`` does."""
        deadline = time.monotonic() + timeout
        while number not in self._started and number not in self._answers:
            if not self._receive(deadline):
                return False
        return True

    def has_ended(self, number: int, *, timeout: float) -> bool:
        """Whether a request has its last answer after at most ``timeout`` seconds; raises as ``wait`` does."""
        deadline = time.monotonic() + timeout
        while number not in self._answers:
            if not self._receive(deadline):
                return False
        return True

    def answer_to(self, number: int) -> Answer | None:
        """The last answer to a request, if it came before the latest message that was taken in."""
        return self._answers.get(number)

    def wait(self, number: int, *, timeout: float) -> Answer:
        """The last answer to a request.

        Raises:
            ChildGone: the child ended first.
            ChildTimeout: none came in time.
            ProtocolError: what came is no answer to any open request.
        """
        deadline = time.monotonic() + timeout
        while number not in self._answers:
            if not self._receive(deadline):
                raise ChildTimeout(f"no answer to {self._pending[number]} within {timeout:.3g} s")
        return self._answers.pop(number)

    def _receive(self, deadline: float) -> bool:
        """Take one answer in; False when the deadline has passed."""
        while True:
            left = deadline - time.monotonic()
            try:
                message = self._channel.receive(timeout=max(0.0, min(left, _PULSE)))
            except ChannelClosed:
                raise self._gone() from None
            if message is not None:
                self._take(message)
                return True
            if left <= 0:
                return False
            if not self.is_alive and self._channel_is_dry():
                raise self._gone()

    def _channel_is_dry(self) -> bool:
        """Whether nothing is left to read; the process is dead, but one of its own children may hold the socket."""
        try:
            message = self._channel.receive(timeout=0)
        except ChannelClosed:
            return True
        if message is not None:
            self._take(message)
        return message is None

    def _take(self, message: Message) -> None:
        self._note("<", message)
        number = message.get("id")
        if not isinstance(number, int) or number not in self._pending:
            raise ProtocolError(f"an answer to no open request: {excerpt(json.dumps(message).encode())}")
        operation, kind = self._pending[number], str(message.get("answer"))
        try:
            validate(message, "protocol", _definition(operation, kind))
        except SchemaError as error:
            raise ProtocolError(
                f"the answer to {operation} does not follow the schema: {printable(str(error))}"
            ) from None
        if kind == "started":
            if number in self._started:
                raise ProtocolError("a run was answered 'started' twice")
            self._started.add(number)
            return
        self._started.discard(number)
        del self._pending[number]
        self._answers[number] = Answer(kind, message)

    def _note(self, direction: str, message: Message) -> None:
        self.conversation.append(f"{direction} {json.dumps(message)[:_KEPT_CHARACTERS]}")

    def _gone(self) -> ChildGone:
        """How the process ended. A process that only hung up is ended here."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(_GRACE)
        status = self._guard.poll()
        self.kill()
        if status is None:
            return ChildGone("it closed its socket")
        last = self.last_words()
        words = f"; its last words: {last}" if last else ""
        if status < 0:
            name = _signal_name(-status)
            guess = ", as the system does when memory runs out" if name == "SIGKILL" else ""
            return ChildGone(f"it was ended by {name}{guess}{words}", name)
        return ChildGone(f"it exited with status {status}{words}")

    def last_words(self) -> str:
        """The last line on stderr, or ""."""
        return self._logs[1].last_line()

    def stop(self, *, timeout: float = _GRACE) -> None:
        """End the process; politely, unless it is busy with a request."""
        if self.is_alive and not self._pending:
            with contextlib.suppress(ChildGone, ChildTimeout, ProtocolError):
                self.call("stop", timeout=timeout)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._guard.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """End the process and all that it started, whatever state they are in."""
        if self._ended:
            return
        self._ended = True
        if hasattr(self, "process"):  # it was started
            self.process.close()
        self._control.close()  # which tells the guard
        try:
            self._guard.wait(_GUARD_TIMEOUT)
        except subprocess.TimeoutExpired:  # something below it cannot be ended now, as in a system call that hangs
            self._guard.kill()
            self._guard.wait()
        self._channel.close()
        for log in self._logs:
            log.close()


def otherwise(before: Description, now: Description) -> str:
    """What a runtime says of itself now, where it said something else before."""
    old, new = before.to_json(), now.to_json()
    told = [
        f"{name.replace('_', ' ')} {printable(json.dumps(new[name]), 100)}, "
        f"was {printable(json.dumps(old[name]), 100)} before"
        for name in old
        if old[name] != new[name]
    ]
    return "; ".join(told)


def _definition(operation: str, kind: str) -> str:
    if kind in _COMMON_ANSWERS:
        return f"answer-{kind}"
    if operation == "run":
        return "answer-run-started" if kind == "started" else "answer-run-done"
    return f"answer-{operation}-ok" if operation in ("describe", "bind", "inspect", "memory") else "answer-ok"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _environment(descriptor: int, *, is_our_python: bool) -> dict[str, str]:
    """The child's environment: ours and the socket; for our own host also our import path, which pytest changes."""
    environment = {**os.environ, SOCKET_VARIABLE: str(descriptor)}
    if is_our_python:
        installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        path = [entry for entry in sys.path if entry and entry not in installed and Path(entry).is_dir()]
        environment["PYTHONPATH"] = os.pathsep.join(path)
    return environment
