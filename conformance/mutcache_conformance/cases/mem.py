"""MEM: what updates take of memory, measured; caches that only straight code updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from onnx import TensorProto as Stock

from mutcache.requirements import Req
from mutcache_conformance.case import RUN, Case, Storage
from mutcache_conformance.cases.draw import Draw, itemsize
from mutcache_conformance.cases.measured_scene import ROW_BYTES, repeated, sizes
from mutcache_conformance.cases.sketch import DTYPE, LENGTH, Sketch, chain, one_cache, two_caches
from mutcache_conformance.cases.update import Update

_SIZE: Final = (Req.MC_MEM_001, Req.MC_BIND_010)
_RUNS: Final = (Req.MC_MEM_002,)
WIDTH: Final = ROW_BYTES // itemsize(DTYPE)


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _updates(nonce)
    yield from _graphs(nonce)
    yield from _repeated(nonce)


def _updates(nonce: int) -> Iterator[Case]:
    """One update each."""
    heads = Update(Draw(nonce, "mem float16"), Stock.FLOAT16, (2, 1, 4, 32, 64))
    yield _one("mem-001/float16", "Rows of a FLOAT16 cache of keys and values, on every head.", heads)
    octets = Update(Draw(nonce, "mem axis 0"), Stock.INT8, (32, ROW_BYTES), axis=0)
    yield _one("mem-001/axis-0", "Rows of an INT8 cache along its first axis.", octets)
    batch = Update(Draw(nonce, "mem batch"), Stock.FLOAT, (4, 32, 64), batch_axis=0)
    yield _one("mem-001/batch", "Each row of a batch at a position of its own.", batch)
    circular = Update(Draw(nonce, "mem circular"), Stock.BFLOAT16, (1, 32, 512), mode="circular")
    yield _one("mem-001/circular", "Rows of a circular cache, around its end.", circular, past=1)
    static = Update(Draw(nonce, "mem static"), Stock.FLOAT, (1, 32, 256), static=True)
    title = "The model states the size of the cache, so that it is known when it is loaded."
    yield _one("mem-001/static", title, static)


def _one(what: str, title: str, update: Update, *, past: int = 0) -> Case:
    """The case of a model of one update, near the end of the cache or ``past`` rows further."""

    def sized(rows: int) -> Update:
        shape = list(update.shape)
        shape[update.axis] = rows
        return replace(update, shape=tuple(shape))

    def step(rows: int) -> Mapping[str, Storage]:
        last = rows - update.length + past
        batch = () if update.batch_axis is None else tuple(last - n for n in range(update.shape[update.batch_axis]))
        return sized(rows).step(batch or last)

    def cache(rows: int) -> Mapping[str, Storage]:
        return {update.draw.name("cache"): Storage("cache", update.dtype, sized(rows).shape)}

    return sizes(what, _SIZE, title, lambda rows: sized(rows).model(), cache, step)


def _graphs(nonce: int) -> Iterator[Case]:
    """Several nodes each."""
    yield _graph("mem-001/chain", "Two updates of one cache.", chain(nonce, "mem chain"), "cache", 2)

    graph = Sketch(nonce, "mem long chain", "cache").feed("values", "position_a", "position_b", "position_c")
    graph.unread_update("cache", "values", "position_a", "first").node("Identity", ["first"], "same").alias(0, 0)
    graph.unread_update("same", "values", "position_b", "second")
    graph.update("second", "values", "position_c", "third", root="cache")
    yield _graph("mem-001/long-chain", "Three updates, and an Identity among them.", graph, "cache", 3)

    graph = two_caches(nonce, "mem two caches")
    yield _graph("mem-001/two-caches", "An update of each of two caches.", graph, "cache_a cache_b", 2)

    graph = one_cache(nonce, "mem unread").unread_update("cache", "values", "position", "updated")
    graph.node("Neg", ["values"], "echo").output("echo", 2)
    yield _graph("mem-001/unread", "An update that nothing reads, beside an ordinary output.", graph, "cache", 1)


def _graph(what: str, title: str, graph: Sketch, caches: str, positions: int) -> Case:
    def mutable(rows: int) -> Mapping[str, Storage]:
        return {graph.draw.name(role): Storage(role, DTYPE, (rows, WIDTH)) for role in caches.split()}

    def step(rows: int) -> Mapping[str, Storage]:
        graph.shape = (rows, WIDTH)
        return graph.step([rows - LENGTH - number for number in range(positions)], tag="")

    return sizes(what, _SIZE, title, lambda _: graph.model(), mutable, step)


def _repeated(nonce: int) -> Iterator[Case]:
    graph = one_cache(nonce, "mem repeated").update("cache", "values", "position", "updated")
    model, caches, good = graph.model(), graph.mutable(), graph.step([2], tag="")
    twin = "mem-002/update"
    yield repeated(twin, _RUNS, "The same update, again and again.", model, caches, good, again=good)
    title, bad = "An update that is refused, again and again.", graph.step([6], tag="")
    requirements = (*_RUNS, Req.MC_DENSE_003)
    again = {name: replace(storage, name=f"{storage.name}_again") for name, storage in good.items()}
    yield repeated("mem-002/refused", requirements, title, model, caches, bad, refused=RUN, again=again, twin=twin)

    graph = chain(nonce, "mem repeated chain")
    title = "The same two updates of one cache, again and again."
    yield repeated("mem-002/chain", _RUNS, title, graph.model(), graph.mutable(), graph.step([1, 3], tag=""))

    graph = one_cache(nonce, "mem repeated output").update("cache", "values", "position", "updated")
    graph.node("ReduceSum", ["updated"], "total", keepdims=0).output("total", 0).node("Neg", ["updated"], "negated")
    graph.output("negated", 2)
    title = "An update, and ordinary outputs that are made anew in each run."
    yield repeated("mem-002/outputs", _RUNS, title, graph.model(), graph.mutable(), graph.step([5], tag=""))
