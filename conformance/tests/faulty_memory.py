"""Runtimes that leave the right bytes in the right place, and take memory for it; the docstring of each is its idea."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections.abc import Iterator, Mapping

import numpy as np
from hooked_runtime import (
    Array,
    HookedBinding,
    HookedSession,
    Outputs,
    Sound,
    Storages,
    bind_copies,
    lying_in,
    tensors,
)

from mutcache.model import DOMAIN
from mutcache.proto.onnx_ml import ModelProto, NodeProto
from mutcache_conformance.adapter import HostStorage, OutputValue, Rejected


class HiddenCopy(Sound):
    """Keeps a copy of each cache while it runs, and gives its memory back before it answers."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        copies = [storage.array().copy() for storage in binding.mutable.values()]
        outputs = binding.inner.run(feeds)
        del copies
        return outputs


class CopiesInAndBack(Sound):
    """Copies each cache, updates the copy, copies all of it back, and returns the caller's storage."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        binding.inner.release()
        copies = {name: storage.array().copy() for name, storage in binding.mutable.items()}
        used = {name: lying_in(storage, copies[name]) for name, storage in binding.mutable.items()}
        inner = binding.session.inner.bind(used, {})
        try:
            return returned(binding.mutable, copies, inner.run(feeds))
        finally:
            inner.release()
            binding.inner = binding.session.inner.bind(binding.mutable, {})


def returned(mutable: Storages, copies: Mapping[str, Array], outputs: Outputs) -> Outputs:
    """The outputs, with the caller's storage, which gets the contents, in the place of copies."""
    callers = {}
    for name, copy in copies.items():
        mutable[name].array()[...] = copy
        callers[copy.ctypes.data] = OutputValue.of(mutable[name].array())
    return {name: callers.get(output.address or 0, output) for name, output in tensors(outputs).items()}


class SecondCache(Sound):
    """Sets up a second cache when storage is bound, works there, and copies it back after each run."""

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        return bind_copies(session, mutable, outputs, lambda _: True)

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        for name, copy in binding.private.items():
            copy[...] = binding.mutable[name].array()
        return returned(binding.mutable, binding.private, binding.inner.run(feeds))


class ArenaFromLoad(Sound):
    """Sets up an arena for all that it knows the size of when a model is loaded, caches among it."""

    def on_load(self, model: ModelProto) -> ModelProto:
        caches = [value.type.tensor_type.shape for value in model.graph.input if value.access]
        sizes = [math.prod(dim.dim_value for dim in shape.dim) for shape in caches]
        self.arena = np.ones(sum(sizes) + 1, np.float32)
        return model


class CopiesInChains(HiddenCopy):
    """Updates in place, unless a model updates a cache twice: then it copies it."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        updates = [node for node in binding.model.graph.node if node.domain == DOMAIN]
        return super().on_run(binding, feeds) if len(updates) > 1 else binding.inner.run(feeds)


class CopiesInSharedMemory(Sound):
    """Copies each cache to memory that is shared, as a runtime with helper processes does, and drops it."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        with contextlib.ExitStack() as stack:
            for storage in binding.mutable.values():
                stack.enter_context(copied(storage, shared_memory(storage.nbytes)))
            return binding.inner.run(feeds)


class KeepsSharedCopy(Sound):
    """Copies each cache to memory that is shared when a binding first runs, and keeps it until the end."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.stacks: dict[int, contextlib.ExitStack] = {}

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        if id(binding) not in self.stacks:
            stack = self.stacks[id(binding)] = contextlib.ExitStack()
            for storage in binding.mutable.values():
                stack.enter_context(copied(storage, shared_memory(storage.nbytes)))
        return binding.inner.run(feeds)

    def on_release(self, binding: HookedBinding) -> None:
        binding.inner.release()
        if id(binding) in self.stacks:
            self.stacks.pop(id(binding)).close()


class AdvisesAway(Sound):
    """Copies each cache to pages of its own, and tells the system at once that it does not need them."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        for storage in binding.mutable.values():
            with copied(storage, mmap.mmap(-1, storage.nbytes)) as pages:
                pages.madvise(mmap.MADV_DONTNEED)
        return binding.inner.run(feeds)


def shared_memory(nbytes: int) -> mmap.mmap:
    """Memory of an anonymous file."""
    descriptor = os.memfd_create("copy")
    os.ftruncate(descriptor, nbytes)
    pages = mmap.mmap(descriptor, nbytes)
    os.close(descriptor)
    return pages


@contextlib.contextmanager
def copied(storage: HostStorage, pages: mmap.mmap) -> Iterator[mmap.mmap]:
    """The pages with the contents of a cache."""
    copy = np.frombuffer(pages, np.uint8)
    copy[:] = storage.array().reshape(-1).view(np.uint8)
    del copy
    yield pages
    pages.close()


class CopiesOnce(HiddenCopy):
    """Copies each cache in the first run of a binding only."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        if binding.private:
            return binding.inner.run(feeds)
        binding.private["ran"] = np.array(True)
        return super().on_run(binding, feeds)


class CopiesInHelper(Sound):
    """Has a helper process for each binding, which holds a copy of the cache."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.helpers: dict[int, tuple[int, int]] = {}

    def on_bind(self, session: HookedSession, mutable: Storages, outputs: Storages) -> HookedBinding:
        binding = super().on_bind(session, mutable, outputs)
        (ready, tell), (wait, end) = os.pipe(), os.pipe()
        helper = os.fork()
        if helper == 0:
            os.close(end)
            copies = [storage.array().copy() for storage in mutable.values()]
            os.write(tell, bytes([len(copies)]))
            os.read(wait, 1)
            os._exit(0)
        os.read(ready, 1)
        for descriptor in (ready, tell, wait):
            os.close(descriptor)
        self.helpers[id(binding)] = helper, end
        return binding

    def on_release(self, binding: HookedBinding) -> None:
        binding.inner.release()
        helper, end = self.helpers.pop(id(binding))
        os.close(end)
        os.waitpid(helper, 0)


class LargeWorkspace(Sound):
    """Updates in place, with a workspace of 16 MiB however small the cache."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        with mmap.mmap(-1, 16 << 20) as workspace:
            workspace[:: mmap.PAGESIZE] = bytes(len(workspace) // mmap.PAGESIZE)
            return binding.inner.run(feeds)


class ReservesSecondCache(Sound):
    """Asks the system for a second cache in each run, and does not come to touch it."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        with contextlib.ExitStack() as stack:
            for storage in binding.mutable.values():
                stack.enter_context(mmap.mmap(-1, storage.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            return binding.inner.run(feeds)


class LeaksAPage(Sound):
    """Forgets a page in each run."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.forgotten: list[mmap.mmap] = []

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        self.forget()
        return binding.inner.run(feeds)

    def forget(self) -> None:
        """Touch a page and keep it."""
        self.forgotten.append(mmap.mmap(-1, mmap.PAGESIZE))
        self.forgotten[-1][0] = 1


class LeaksWhenRefused(LeaksAPage):
    """Forgets a page in each run that it refuses."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        try:
            return binding.inner.run(feeds)
        except Rejected:
            self.forget()
            raise


class CopiesInLoops(HiddenCopy):
    """Updates in place, unless a loop does it: then it copies the cache."""

    op_type = "Loop"

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        holds = any(has_node(node, self.op_type) for node in binding.model.graph.node)
        return super().on_run(binding, feeds) if holds else binding.inner.run(feeds)


class CopiesInBranches(CopiesInLoops):
    """Updates in place, unless a branch does it: then it copies the cache."""

    op_type = "If"


class CopiesForFunctions(HiddenCopy):
    """Hands a copy of the cache to a function, and copies back what the function makes of it."""

    def on_run(self, binding: HookedBinding, feeds: Storages) -> Outputs:
        return super().on_run(binding, feeds) if binding.model.functions else binding.inner.run(feeds)


def has_node(node: NodeProto, op_type: str) -> bool:
    """Whether the node is of this type, or holds one."""
    inner = (one for attribute in node.attribute for one in attribute.g.node)
    return node.op_type == op_type or any(has_node(one, op_type) for one in inner)
