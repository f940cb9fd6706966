"""A host that breaks the protocol in the way that its argument names. It shares no code with the harness."""

from __future__ import annotations

import json
import os
import socket
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


def main(mode: str) -> None:
    """Answer the first request, which is ``describe``, badly."""
    channel = socket.socket(fileno=int(os.environ["MUTCACHE_SOCKET"]))
    number = json.loads(channel.makefile("rb").readline())["id"]
    right = json.dumps({"id": number, **OK}).encode() + b"\n"
    match mode:
        case "text":
            channel.sendall(b"hello\n")
        case "list":
            channel.sendall(b"[1]\n")
        case "deep":
            channel.sendall(b"[" * 100_000 + b"\n")
        case "unknown-id":
            channel.sendall(json.dumps({"id": 99, **OK}).encode() + b"\n")
        case "wrong-form":
            channel.sendall(json.dumps({"id": number, **OK, "alignment": 3}).encode() + b"\n")
        case "other-version":
            channel.sendall(json.dumps({"id": number, **OK, "protocol": 2}).encode() + b"\n")
        case "endless-line":
            for _ in range(100):
                channel.sendall(b"x" * (1 << 20))
        case "twice":
            channel.sendall(right + right)
        case "exit":
            print("no licence", file=sys.stderr)
            sys.exit(3)
        case "hang-up":
            channel.close()
        case "orphan":
            if os.fork() == 0:  # holds the socket, and outlives its parent
                time.sleep(3600)
            os._exit(4)
        case "deaf":
            pass
    time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1])
