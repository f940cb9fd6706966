"""``python -m mutcache_conformance.host module:Class``: the child process that hosts a Python adapter.

It speaks the protocol for the adapter. Each memory file is mapped once, however many storages lie in it, so that
storages overlap in addresses exactly as they do in the file; unmapped guard pages stand at both ends.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import importlib
import mmap
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mutcache_conformance.adapter import (
    Adapter,
    AdapterBinding,
    AdapterSession,
    HostPage,
    HostPageTable,
    HostStorage,
    NotApplicable,
    OutputPage,
    Outputs,
    OutputTable,
    OutputValue,
    Rejected,
    Unsupported,
)
from mutcache_conformance.protocol import SOCKET_VARIABLE, VERSION, Channel, ChannelClosed, Message, ProtocolError

_PAGE: Final = mmap.PAGESIZE
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def _map(address: int | None, nbytes: int, protection: int, flags: int, descriptor: int) -> int:
    mapped: int | None = _LIBC.mmap(address, nbytes, protection, flags, descriptor, 0)
    if mapped is None or mapped == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map {nbytes} bytes: {os.strerror(code)}")
    return mapped


@dataclass(slots=True)
class MappedFile:
    """A mapped file, and the sessions and requests that use it."""

    address: int
    nbytes: int
    users: set[str] = field(default_factory=set)


class Mappings:
    """The memory files that are mapped now, by name."""

    def __init__(self) -> None:
        self._files: dict[str, MappedFile] = {}

    def add(self, name: str, nbytes: int, writable: bool, descriptor: int, user: str) -> None:
        """Map a file for a session or request, if it is not mapped yet. Takes the descriptor over."""
        try:
            if name not in self._files:
                reserved = nbytes + 2 * _PAGE
                private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
                guard = _map(None, reserved, 0, private, -1)  # no access: the pages at both ends stay so
                protection = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
                try:
                    address = _map(guard + _PAGE, nbytes, protection, mmap.MAP_SHARED | _MAP_FIXED, descriptor)
                except OSError:
                    _LIBC.munmap(guard, reserved)
                    raise
                self._files[name] = MappedFile(address, nbytes)
            self._files[name].users.add(user)
        finally:
            os.close(descriptor)

    def address(self, name: str, offset: int, nbytes: int) -> int:
        """Where a range of a file is.

        Raises:
            ProtocolError: no such file is mapped, or it ends before the range does.
        """
        file = self._files.get(name)
        if file is None or offset + nbytes > file.nbytes:
            raise ProtocolError(f"no {nbytes} bytes at byte {offset} of file {name!r}")
        return file.address + offset

    def keep(self, name: str, user: str) -> None:
        """Keep a mapped file for one more user."""
        self._files[name].users.add(user)

    def forget(self, user: str) -> None:
        """Unmap what nobody else uses."""
        for name, file in list(self._files.items()):
            file.users.discard(user)
            if not file.users:
                del self._files[name]
                _LIBC.munmap(file.address - _PAGE, file.nbytes + 2 * _PAGE)


class Host:
    """Answers the harness's requests with an adapter's deeds."""

    def __init__(self, channel: Channel, target: str) -> None:
        self._channel = channel
        self._target = target
        self._adapter: Adapter | None = None
        self._about: Message = {}
        self._mappings = Mappings()
        self._sessions: dict[str, AdapterSession] = {}
        self._bindings: dict[str, tuple[str, AdapterBinding]] = {}
        #: Outputs by the number of their run, with the session and binding that they stay readable for.
        self._outputs: dict[int, tuple[tuple[str, str], Outputs]] = {}
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        self._operations: Final[Mapping[str, Callable[[Message], Message]]] = {
            "describe": self._describe,
            "load": self._load,
            "bind": self._bind,
            "run": self._run,
            "inspect": self._inspect,
            "read": self._read,
            "memory": self._memory,
            "release": self._release,
            "unload": self._unload,
            "stop": lambda _: {"answer": "ok"},
        }

    def serve(self) -> None:
        """Answer until the harness says stop or is gone."""
        while True:
            request = self._channel.receive(with_descriptors=True)
            if request is None or "id" not in request or request.get("op") not in self._operations:
                raise ProtocolError(f"no request: {request}")
            if request["op"] == "run" and self._threads is not None:
                # Descriptors are taken here, in the order of the messages, whatever the threads do.
                self._accept_files(request, request["session"])
                self._threads.submit(self._answer, request)
                continue
            self._answer(request)
            if request["op"] == "stop":
                return

    def _answer(self, request: Message) -> None:
        answer: Message
        try:
            answer = self._operations[request["op"]](request)
        except Rejected as refusal:
            answer = {
                "answer": "rejected",
                "phase": refusal.phase,
                "requirement": refusal.requirement,
                "message": refusal.message,
            }
        except Unsupported as lack:
            kind = "not-applicable" if isinstance(lack, NotApplicable) else "unsupported"
            answer = {"answer": kind, "what": lack.what}
        except Exception as error:
            traceback.print_exc()
            answer = {"answer": "error", "message": f"{type(error).__name__}: {error}".removesuffix(": ")}
        with contextlib.suppress(ChannelClosed):
            self._channel.send({"id": request["id"], **answer})

    # Operations

    def _describe(self, request: Message) -> Message:
        if self._adapter is not None:
            return self._about
        module, _, name = self._target.partition(":")
        adapter = getattr(importlib.import_module(module), name)(request["options"])
        about = adapter.describe()
        self._adapter = adapter
        if about.concurrent_runs and self._threads is None:
            self._threads = concurrent.futures.ThreadPoolExecutor(max_workers=8)
        self._about = {
            "answer": "ok",
            "protocol": VERSION,
            "runtime": {"name": about.runtime, "version": about.runtime_version},
            "adapter": {"name": about.adapter, "version": about.adapter_version},
            "capabilities": sorted(about.capabilities),
            "alignment": about.alignment,
            "concurrent_runs": about.concurrent_runs,
            "checks": list(about.checks),
            "device": about.device,
        }
        return self._about

    def _load(self, request: Message) -> Message:
        if self._adapter is None:
            raise ProtocolError("load before describe")
        session, initializers = request["session"], request["initializers"]
        with self._transient_files(request):
            storage = self._storage("", request["model"])
            model = ctypes.string_at(storage.address, storage.nbytes)
            self._sessions[session] = self._adapter.load(model, self._storages(initializers))
            for form in initializers.values():
                self._mappings.keep(form["file"], session)
        return {"answer": "ok"}

    def _bind(self, request: Message) -> Message:
        self._accept_files(request, request["session"])
        mutable, outputs = self._storages(request["mutable"]), self._storages(request["outputs"])
        session = self._session(request["session"])
        bound = {**mutable, **outputs}
        answer = {"answer": "ok", "addresses": {name: str(storage.address) for name, storage in bound.items()}}
        if "tables" in request:
            tables = self._tables(request["tables"])
            binding = session.bind_tables(mutable, outputs, tables)
            answer["payloads"] = {
                name: [str(page.payload.address) for page in table.pages] for name, table in tables.items()
            }
        else:
            binding = session.bind(mutable, outputs)
        self._bindings[request["binding"]] = request["session"], binding
        return answer

    def _run(self, request: Message) -> Message:
        owner = request["session"], request["binding"]
        if self._threads is None:
            self._accept_files(request, request["session"])
        self._forget_outputs(*owner)
        feeds = self._storages(request["feeds"])
        tables = self._tables(request["tables"]) if "tables" in request else None
        runner = self._binding(request["binding"]) if request["binding"] else self._session(request["session"])
        self._channel.send({"id": request["id"], "answer": "started"})
        outputs = runner.run(feeds) if tables is None else runner.run_tables(feeds, tables)
        self._outputs[request["id"]] = owner, outputs
        return {"answer": "done", "outputs": {name: _form_of(output) for name, output in outputs.items()}}

    def _inspect(self, request: Message) -> Message:
        name = request["binding"]
        tables = self._binding(name).tables()
        self._outputs[request["id"]] = (self._bindings[name][0], name), tables
        return {"answer": "ok", "tables": {value: _form_of(table) for value, table in tables.items()}}

    def _read(self, request: Message) -> Message:
        if request["run"] not in self._outputs:
            raise ProtocolError(f"run {request['run']} has no outputs (any more)")
        _, outputs = self._outputs[request["run"]]
        with self._transient_files(request):
            into = self._storage("", request["into"])
            source = outputs[request["output"]]
            if isinstance(source, OutputTable) != ("page" in request):
                raise ProtocolError("a page is read of a table, and of nothing else")
            part = source.pages[request["page"]] if isinstance(source, OutputTable) else source
            data = part.read(int(request["offset"]), int(request["nbytes"]))
            ctypes.memmove(into.address, data, min(len(data), into.nbytes))
        return {"answer": "ok"}

    def _memory(self, request: Message) -> Message:
        if self._adapter is None:
            raise ProtocolError("memory before describe")
        held = self._adapter.device_memory(reset=request["reset"])
        return {"answer": "ok", "allocated": str(held.allocated), "peak": str(held.peak)}

    def _release(self, request: Message) -> Message:
        name = request["binding"]
        self._binding(name).release()
        # It stays known until its session ends: what a released binding does is the runtime's to say.
        self._forget_outputs(self._bindings[name][0], name)
        return {"answer": "ok"}

    def _unload(self, request: Message) -> Message:
        name = request["session"]
        self._session(name).unload()
        del self._sessions[name]
        self._bindings = {key: value for key, value in self._bindings.items() if value[0] != name}
        self._forget_outputs(name)
        self._mappings.forget(name)
        return {"answer": "ok"}

    # What requests speak of

    def _accept_files(self, request: Message, user: str) -> None:
        files = request["files"]
        descriptors = self._channel.take_descriptors(len(files))
        for file, descriptor in zip(files, descriptors, strict=True):
            self._mappings.add(file["file"], int(file["nbytes"]), file["writable"], descriptor, user)

    @contextlib.contextmanager
    def _transient_files(self, request: Message) -> Iterator[None]:
        """The request's files, mapped no longer than it takes to answer it."""
        user = f"request {request['id']}"
        try:
            self._accept_files(request, user)
            yield
        finally:
            self._mappings.forget(user)

    def _storage(self, name: str, form: Mapping[str, Any]) -> HostStorage:
        nbytes = int(form["nbytes"])
        return HostStorage(
            name=name,
            address=self._mappings.address(form["file"], int(form["offset"]), nbytes),
            nbytes=nbytes,
            dtype=form["dtype"],
            shape=tuple(form["shape"]),
            strides=tuple(int(stride) for stride in form["strides"]),
            device=form["device"],
            alignment=form["alignment"],
            writable=form["writable"],
            origin=form["origin"],
        )

    def _storages(self, forms: Mapping[str, Mapping[str, Any]]) -> dict[str, HostStorage]:
        return {name: self._storage(name, form) for name, form in forms.items()}

    def _tables(self, forms: Mapping[str, Mapping[str, Any]]) -> dict[str, HostPageTable]:
        return {name: self._table(name, form) for name, form in forms.items()}

    def _table(self, name: str, form: Mapping[str, Any]) -> HostPageTable:
        pages = tuple(
            HostPage(
                quantized_type=page["quantized_type"],
                dims=tuple(page["dims"]),
                nbytes=int(page["nbytes"]),
                payload=self._storage(f"{name}[{page.get('key', index)}]", page["payload"]),
                key=int(page["key"]) if "key" in page else None,
            )
            for index, page in enumerate(form["pages"])
        )
        budget = None if form["budget"] is None else int(form["budget"])
        return HostPageTable(name, form["container"], pages, budget)

    def _session(self, name: str) -> AdapterSession:
        if name not in self._sessions:
            raise ProtocolError(f"no session {name!r}")
        return self._sessions[name]

    def _binding(self, name: str) -> AdapterBinding:
        if name not in self._bindings:
            raise ProtocolError(f"no binding {name!r}")
        return self._bindings[name][1]

    def _forget_outputs(self, session: str, binding: str | None = None) -> None:
        for run, (owner, _) in list(self._outputs.items()):
            if owner[0] == session and binding in (None, owner[1]):
                del self._outputs[run]


def _form_of(output: OutputValue | OutputTable) -> Message:
    """An output as messages describe it."""
    if isinstance(output, OutputTable):
        return {"container": output.container, "pages": [_page_form_of(page) for page in output.pages]}
    return {
        "dtype": output.dtype,
        "shape": list(output.shape),
        "nbytes": str(output.nbytes),
        "address": None if output.address is None else str(output.address),
    }


def _page_form_of(page: OutputPage) -> Message:
    return {
        **({} if page.key is None else {"key": str(page.key)}),
        "quantized_type": page.quantized_type,
        "dims": list(page.dims),
        "nbytes": str(page.nbytes),
        "address": None if page.address is None else str(page.address),
    }


def main(arguments: list[str]) -> int:
    """Serve ``arguments[0]``, a ``module:Class``; returns the exit status."""
    if len(arguments) != 1 or not all(arguments[0].partition(":")) or SOCKET_VARIABLE not in os.environ:
        print(f"usage: {SOCKET_VARIABLE}=DESCRIPTOR python -m mutcache_conformance.host module:Class", file=sys.stderr)
        return 2
    descriptor = int(os.environ.pop(SOCKET_VARIABLE))
    os.set_inheritable(descriptor, False)
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        Host(channel, arguments[0]).serve()
    except ChannelClosed:
        return 0
    except ProtocolError as error:
        print(f"the harness broke the protocol: {error}", file=sys.stderr)
        return 3
    finally:
        channel.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
