"""A host that breaks the protocol in the way that its argument names. It shares no code with the harness."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

OK = {
    "answer": "ok",
    "protocol": 1,
    "runtime": {"name": "garbage", "version": "1"},
    "adapter": {"name": "garbage", "version": "1"},
    "capabilities": [],
    "alignment": 1,
    "concurrent_runs": False,
    "checks": [],
}
LINES = {
    "text": b"hello",
    "empty": b"",
    "list": b"[1]",
    "deep": b"[" * 100_000,
    "nested": b'{"id":1,"answer":"ok","x":' + b"[" * 40 + b"]" * 40 + b"}",
    "latin-1": '{"id":1,"answer":"error","message":"zu groß"}'.encode("latin-1"),
    "utf-16": '{"id":1,"answer":"error","message":"x"}'.encode("utf-16"),
    "half-character": b'{"id":1,"answer":"error","message":"\\ud800"}',
    "not-a-number": b'{"id":NaN,"answer":"ok"}',
    "two-ids": b'{"id":1,"answer":"error","message":"x","id":1}',
    "huge-number": b'{"id":' + b"1" * 5000 + b"}",
    "true-id": b'{"id":true,"answer":"ok"}',
    "text-id": b'{"id":"1","answer":"ok"}',
    "no-id": b'{"answer":"ok"}',
    "unknown-answer": b'{"id":1,"answer":"perhaps"}',
    "colors": b'{"id":1,"answer":"error","message":"\\u001b[31mred\\u0007"}',
    "lines": json.dumps(
        {"id": 1, **OK, "runtime": {"name": "a\ndense  conformant", "version": "1\r\n\x1b"}, "checks": ["x\u2028y"]}
    ).encode(),
    "unknown-id": json.dumps({"id": 99, **OK}).encode(),
    "wrong-form": json.dumps({"id": 1, **OK, "alignment": 3}).encode(),
    "other-version": json.dumps({"id": 1, **OK, "protocol": 2}).encode(),
    "twice": json.dumps({"id": 1, **OK}).encode() + b"\n" + json.dumps({"id": 1, **OK}).encode(),
}


def main(mode: str, word: str = "") -> None:
    """Answer the first request, which is ``describe`` and has the number 1, badly."""
    channel = socket.socket(fileno=int(os.environ["MUTCACHE_SOCKET"]))
    reader = channel.makefile("rb")
    assert json.loads(reader.readline())["id"] == 1
    right = json.dumps({"id": 1, **OK}).encode() + b"\n"
    match mode:
        case "endless-line":
            for _ in range(100):
                channel.sendall(b"x" * (1 << 20))
        case "drip":
            while True:
                channel.sendall(b" ")
                time.sleep(0.01)
        case "half-a-line":
            channel.sendall(right[:-9])
            sys.exit(0)
        case "descriptors":
            socket.send_fds(channel, [right], [0, 1, 2] * 80)
        case "swapped":
            reader.readline()
            channel.sendall(b'{"id":2,"answer":"ok"}\n' + right)
        case "exit":
            print("no licence", file=sys.stderr)
            sys.exit(3)
        case "close-all":
            os.closerange(0, 1024)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "kill-parent":
            os.kill(os.getppid(), signal.SIGKILL)
        case "segfault" | "out-of-memory":
            os.kill(os.getpid(), signal.SIGSEGV if mode == "segfault" else signal.SIGKILL)
        case "orphan":
            if os.fork() == 0:  # holds the socket, and outlives its parent
                time.sleep(3600)
            os._exit(4)
        case "daemon":  # sheds its session, its environment and its parent, as a daemon does
            daemon = [sys.executable, "-c", "import time; time.sleep(3600)", word]
            if os.fork() == 0:
                subprocess.Popen(daemon, env={}, start_new_session=True, close_fds=False)
                os._exit(0)
            os.wait()
            channel.sendall(right)
        case _:
            channel.sendall(LINES.get(mode, b"") + b"\n" if mode in LINES else b"")
    time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
