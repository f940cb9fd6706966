"""The channel, and the schema of what goes through it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mutcache_conformance.protocol import MAX_LINE, Channel, ChannelClosed, ProtocolError
from mutcache_conformance.schema import SchemaError, load, validate

STORAGE = {
    "file": "m1",
    "offset": "4160",
    "nbytes": "512",
    "dtype": 10,
    "shape": [2, 1, 2, 16, 4],
    "strides": ["256", "256", "128", "8", "2"],
    "device": "cpu",
    "alignment": 64,
    "writable": True,
    "origin": "caller",
}
FILES = [{"file": "m1", "nbytes": "12288", "writable": True}]
REQUESTS: dict[str, dict[str, Any]] = {
    "describe": {"protocol": 1, "options": {"device": "0"}},
    "load": {"session": "s1", "files": FILES, "model": STORAGE, "initializers": {"w": STORAGE}},
    "bind": {"session": "s1", "binding": "b1", "files": FILES, "mutable": {"cache": STORAGE}, "outputs": {}},
    "run": {"session": "s1", "binding": "", "files": FILES, "feeds": {"values": STORAGE}},
    "read": {"run": 4, "output": "y", "offset": "0", "nbytes": "512", "files": FILES, "into": STORAGE},
    "release": {"binding": "b1"},
    "unload": {"session": "s1"},
    "stop": {},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "answer-ok": {"answer": "ok"},
    "answer-bind-ok": {"answer": "ok", "addresses": {"cache": "18446744073709551615"}},
    "answer-run-started": {"answer": "started"},
    "answer-run-done": {
        "answer": "done",
        "outputs": {"y": {"dtype": 1, "shape": [], "nbytes": "4", "address": None}},
    },
    "answer-rejected": {"answer": "rejected", "phase": "check", "requirement": None, "message": ""},
    "answer-unsupported": {"answer": "unsupported", "what": "bfloat16"},
    "answer-not-applicable": {"answer": "not-applicable", "what": "binding"},
    "answer-error": {"answer": "error", "message": "out of memory"},
}


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = map(Channel, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_and_their_descriptors_arrive_in_order(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    pipes = [os.pipe() for _ in range(3)]
    ours.send({"id": 1}, [pipes[0][0]])
    ours.send({"id": 2})
    ours.send({"id": 3}, [pipes[1][0], pipes[2][0]])
    received: list[int] = []
    for number, count in ((1, 1), (2, 0), (3, 2)):
        assert theirs.receive(timeout=5, with_descriptors=True) == {"id": number}
        received += theirs.take_descriptors(count)
    for (_, end), descriptor in zip(pipes, received, strict=True):
        os.write(end, b"x%d" % end)
        assert os.read(descriptor, 9) == b"x%d" % end
    with pytest.raises(ProtocolError, match="1 descriptors, 0 came"):
        theirs.take_descriptors(1)
    for descriptor in [*received, *(end for pipe in pipes for end in pipe)]:
        os.close(descriptor)


def test_descriptors_that_nobody_wants_are_not_kept(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader, writer = os.pipe()
    theirs.send({"id": 1}, [reader, writer])
    os.close(reader)
    os.close(writer)
    assert ours.receive(timeout=5) == {"id": 1}
    assert not ours.descriptors
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_message_larger_than_the_socket_buffer(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    message = {"text": "x" * (1 << 20)}
    sender = threading.Thread(target=ours.send, args=(message,), kwargs={"timeout": 20})
    sender.start()
    assert theirs.receive(timeout=20) == message
    sender.join()


def test_a_reader_that_does_not_read(channels: tuple[Channel, Channel]) -> None:
    ours, _ = channels
    with pytest.raises(TimeoutError):
        ours.send({"text": "x" * (8 << 20)}, timeout=0.1)


def test_nothing_comes(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    assert ours.receive(timeout=0) is None
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.receive(timeout=5)
    with pytest.raises(ChannelClosed):
        ours.send({"id": 1}, timeout=5)


@pytest.mark.parametrize("line", [b"", b"{", b"\xff\xfe", b"1", b"[]", b'"text"', b"{} {}"])
def test_a_line_that_is_no_message(line: bytes) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.sendall(line + b"\n")
    with pytest.raises(ProtocolError, match=r"not JSON|no JSON object"):
        channel.receive(timeout=5)
    channel.close()
    theirs.close()


def test_the_longest_line_is_declared() -> None:
    assert MAX_LINE == 4 << 20  # as docs/protocol.rst says


@pytest.mark.parametrize("operation", REQUESTS)
def test_requests_follow_the_schema(operation: str) -> None:
    request = {"id": 7, "op": operation, **REQUESTS[operation]}
    validate(request, "protocol")
    validate(request, "protocol", f"request-{operation}")
    for name in request:
        with pytest.raises(SchemaError):
            validate({key: value for key, value in request.items() if key != name}, "protocol", f"request-{operation}")
    # Nothing may travel to the child beside what the protocol names: no case, no outcome.
    with pytest.raises(SchemaError):
        validate({**request, "case": "dense-001/x"}, "protocol", f"request-{operation}")


@pytest.mark.parametrize("definition", ANSWERS)
def test_answers_follow_the_schema(definition: str) -> None:
    answer = {"id": 7, **ANSWERS[definition]}
    validate(answer, "protocol", definition)
    with pytest.raises(SchemaError):
        validate({**answer, "id": "7"}, "protocol", definition)
    with pytest.raises(SchemaError):
        validate({**answer, "note": "by the way"}, "protocol", definition)


@pytest.mark.parametrize("number", ["-1", "0x10", "1.0", "", "01", 16])
def test_numbers_of_bytes_are_decimal_strings(number: object) -> None:
    with pytest.raises(SchemaError):
        validate({**STORAGE, "offset": number}, "protocol", "storage")


def test_every_definition_of_the_schema_is_used() -> None:
    text = str(load("protocol"))
    unused = {
        name
        for name in load("protocol")["$defs"]
        if f"'#/$defs/{name}'" not in text and name not in ("request", "answer")
    }
    assert unused == set()
