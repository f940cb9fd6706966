"""A host of the toy runtime that misbehaves in the way that its argument names, in the middle of an orderly case."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

from mutcache_conformance.host import Host
from mutcache_conformance.protocol import SOCKET_VARIABLE, Channel, ChannelClosed, Message


class UnrulyHost(Host):
    """Does something on the occasion of each request that it answers."""

    def __init__(self, sock: socket.socket, mode: str) -> None:
        super().__init__(Channel(sock), "toy_runtime:Toy")
        self.sock = sock
        self.mode = mode
        self.hoard: list[Any] = []

    def _answer(self, request: Message) -> None:
        operation = request["op"]
        if operation == "load":
            self.on_load()
        super()._answer(request)
        if operation == "run":
            self.after_run()
        if operation == "unload":
            self.after_unload(request)

    def on_load(self) -> None:
        match self.mode:
            case "slow":
                time.sleep(0.4)
            case "hoard-descriptors":
                soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), min(soft, 200)))
                with contextlib.suppress(OSError):
                    while True:
                        self.hoard.append(os.open("/dev/null", os.O_RDONLY))
            case "hoard-memory":
                resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))
                with contextlib.suppress(MemoryError):
                    while True:
                        self.hoard.append(bytearray(1 << 20))
            case "truncate":  # the harness's file, which both sides have mapped
                for descriptor in self._channel.descriptors:
                    with contextlib.suppress(OSError):
                        os.ftruncate(descriptor, 0)
            case "kill-harness":
                guard = os.getppid()
                harness = int(open(f"/proc/{guard}/stat").read().rpartition(")")[2].split()[1])  # noqa: PTH123, SIM115
                if os.environ.get("MUTCACHE_TEST_VICTIM") in (str(harness), "parent"):
                    os.kill(harness, signal.SIGKILL)

    def after_run(self) -> None:
        match self.mode:
            case "exit-after-run":
                os._exit(5)
            case "hang-after-run":
                time.sleep(600)
            case "garble-after-run":
                self.sock.sendall(b"{\n")
                time.sleep(600)

    def after_unload(self, request: Message) -> None:
        match self.mode:
            case "answer-twice":
                self._channel.send({"id": request["id"], "answer": "ok"})
            case "exit":
                os._exit(5)
            case "send-descriptors":
                socket.send_fds(self.sock, [b""], [0] * 50)
            case "rename":
                self._about = json.loads(json.dumps(self._about).replace("toy", "other"))


def main(mode: str) -> None:
    """Serve until the harness is gone."""
    with contextlib.suppress(ChannelClosed):
        UnrulyHost(socket.socket(fileno=int(os.environ.pop(SOCKET_VARIABLE))), mode).serve()


if __name__ == "__main__":
    main(sys.argv[1])
