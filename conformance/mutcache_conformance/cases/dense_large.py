"""DENSE: caches of more bytes or elements than 32 bits count; sparse, so that only what is written takes memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import TensorProto

from mutcache.requirements import Req
from mutcache_conformance.case import RUN, Case, Storage
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.scene import NEVER, Scene
from mutcache_conformance.cases.update import Update


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    written = (Req.MC_DENSE_001, Req.MC_DENSE_002)
    for what, update, position, title in _places(nonce):
        model, cache = update.model(), _sparse(update)
        scene = Scene().load(model).bind(cache)
        for storage in _neighbours(update, cache, position):
            scene.own(storage)
        scene.run(update.step(position, tag="_1")).run(
            update.step(0 if isinstance(position, int) else (0, 0, 0), tag="_2")
        )
        yield scene.release().unload().case(f"dense-001/{what}", written, title)
    yield from _refused(nonce)


def _places(nonce: int) -> Iterator[tuple[str, Update, int | tuple[int, ...], str]]:
    """Caches, and a position whose bytes lie far behind their start."""
    row, rows = 1 << 13, 1 << 18
    halves = Update(Draw(nonce, "2 GiB of halves"), TensorProto.FLOAT16, (rows + 8, row // 2), length=2)
    yield "beyond-2-gib", halves, rows + 3, "Rows that begin more than 2**31 bytes behind the start of the cache."
    octets = Update(Draw(nonce, "2 Gi elements"), TensorProto.INT8, (rows + 8, row), length=2)
    yield "beyond-2-gi-elements", octets, rows + 3, "Rows whose first element has a number that 31 bits do not hold."
    long = Update(Draw(nonce, "4 GiB"), TensorProto.INT8, (2 * rows + 8, row), length=2)
    title = "Row times row size needs more than 32 bits, and without its high bits is a row near the start."
    yield "beyond-4-gib", long, 2 * rows + 3, title
    batch = Update(Draw(nonce, "3 GiB in a batch"), TensorProto.INT8, (3, rows // 2 + 8, row), length=1, batch_axis=0)
    title = "The last row of the batch lies more than 2**31 bytes behind the start, whatever its position."
    yield "batch-beyond-2-gib", batch, (5, rows // 2, 2), title


def _sparse(update: Update) -> dict[str, Storage]:
    """Storage of the cache that is never filled."""
    return {update.draw.name("cache"): Storage("cache", update.dtype, update.shape)}


def _neighbours(update: Update, cache: dict[str, Storage], position: int | tuple[int, ...]) -> Iterator[Storage]:
    """Rows with content, before and after the written ones and near the start of the cache."""
    [storage] = cache.values()
    row = update.shape[-1]
    width = row * (2 if update.dtype == TensorProto.FLOAT16 else 1)
    last = position if isinstance(position, int) else 2 * update.capacity + position[-1]
    for word, first in (("start", 0), ("far", last - 2)):
        rows = update.draw.storage(f"rows_{word}", update.dtype, (update.length + 4, row))
        yield replace(rows, within=storage.name, offset=first * width)


def _refused(nonce: int) -> Iterator[Case]:
    overflow = Req.MC_DENSE_003
    update = Update(Draw(nonce, "overflow of 2 GiB"), TensorProto.INT8, ((1 << 18) + 8, 1 << 13), length=2)
    capacity, cache = update.capacity, _sparse(update)

    def script(position: int, *, refused: bool) -> Scene:
        scene = Scene().load(update.model()).bind(cache)
        scene.run(update.step(position, tag="_1"), refused=RUN if refused else NEVER)
        return scene.run(update.step(capacity - 3, tag="_2")).release().unload()

    twin, title = "dense-003/2-gib-ends-at-capacity", "The last rows of a cache of more than 2 GiB."
    yield script(capacity - 2, refused=False).case(twin, (overflow,), title)
    title = "A row beyond the capacity of such a cache."
    yield script(capacity - 1, refused=True).case("dense-003/2-gib-by-one", (overflow,), title, twin=twin)
