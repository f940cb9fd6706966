"""BIND: ranges that overlap, and ranges that only touch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from onnx import TensorProto

from mutcache.requirements import Req
from mutcache_conformance.case import BIND, RUN, Case, Storage
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.ranges import SHAPE, float_update, within
from mutcache_conformance.cases.scene import NEVER, Scene
from mutcache_conformance.cases.sketch import chain, one_cache, two_caches
from mutcache_conformance.cases.update import Update


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _two_caches_overlap(nonce)
    yield from _feeds_overlap(nonce)
    yield from _output_overlaps(nonce)


def _two_caches_overlap(nonce: int) -> Iterator[Case]:
    pair = two_caches(nonce, "overlap", shape=SHAPE)
    both = pair.mutable()
    [(cache_a, storage_a), (cache_b, storage_b)] = both.items()
    apart = {name: replace(storage, name=f"apart_{storage.name}") for name, storage in both.items()}

    def script(second: Storage, *, refused: bool) -> Scene:
        scene = Scene().load(pair.model())
        scene.bind({cache_a: storage_a, cache_b: second}, "first")
        scene.run(pair.step((0, 5), tag="_1"), "first", refused=BIND | RUN if refused else NEVER).release("first")
        return scene.bind(apart, "second").run(pair.step((2, 3), tag="_2"), "second").release("second").unload()

    twin, requirement = "bind-004/adjacent-caches", (Req.MC_BIND_004,)
    title = "The second cache begins where the first one ends."
    yield script(within(storage_b, storage_a, 8), refused=False).case(twin, requirement, title)
    title = "One storage for two caches."
    yield script(storage_a, refused=True).case("bind-004/same-storage", requirement, title, twin=twin)
    for what, rows, title in (
        ("first-byte", 0, "Another storage that begins with the same byte."),
        ("last-row", 7, "The second cache begins with the last row of the first."),
        ("before", -7, "The second cache ends with the first row of the first."),
    ):
        scene = script(within(storage_b, storage_a, rows), refused=True)
        yield scene.case(f"bind-004/caches-share-{what}", requirement, title, twin=twin)


def _feeds_overlap(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_BIND_004,)

    def script(update: Update, first: Mapping[str, Storage], *, refused: bool) -> Scene:
        scene = Scene().load(update.model()).bind(update.cache()).run(first, refused=RUN if refused else NEVER)
        return scene.run(update.step(4, tag="_2")).release().unload()

    update = float_update(nonce, "values overlap")
    [storage] = update.cache().values()
    first, values = update.step(1, tag="_1"), update.draw.name("values")
    twin = "bind-004/values-adjacent"

    def inside(rows: int) -> dict[str, Storage]:
        return {**first, values: within(first[values], storage, rows)}

    title = "The values begin where the cache ends."
    yield script(update, inside(8), refused=False).case(twin, requirement, title)
    for what, rows, title in (
        ("inside", 3, "The values lie inside the cache, in rows that are not written."),
        ("in-place", 1, "The values lie where they are to be written."),
        ("beyond-the-end", 7, "The values begin in the last row of the cache and go beyond it."),
        ("before-the-start", -2, "The values end in the first row of the cache."),
    ):
        scene = script(update, inside(rows), refused=True)
        yield scene.case(f"bind-004/values-{what}", requirement, title, twin=twin)
    title = "The values are the cache itself, all of it, where it lies."
    whole = {**update.step(0, length=8, tag="_1"), values: storage}
    yield script(update, whole, refused=True).case("bind-004/values-are-the-cache", requirement, title, twin=twin)
    title = "Values without rows lie nowhere, whatever their address."
    none = update.step(3, length=0, tag="_1")
    none[values] = within(none[values], storage, 3)
    requirements = (*requirement, Req.MC_DENSE_006)
    yield script(update, none, refused=False).case("bind-004/no-values-inside", requirements, title)

    update = Update(Draw(nonce, "position overlaps"), TensorProto.INT64, (8, 32))
    [storage] = update.cache().values()
    first, position = update.step(1, tag="_1"), update.draw.name("position")
    twin, title = "bind-004/position-adjacent", "The position lies behind the cache."
    behind = {**first, position: within(first[position], storage, 8)}
    yield script(update, behind, refused=False).case(twin, requirement, title)
    element = {**first, position: within(first[position], storage, 7)}
    title = "The position is an element of the cache."
    yield script(update, element, refused=True).case("bind-004/position-inside", requirement, title, twin=twin)

    yield from _other_inputs_overlap(nonce)

    shared = chain(nonce, "shared feeds")
    feeds = shared.step((0, 5), tag="")
    name = shared.draw.name
    feeds[name("values_b")] = feeds[name("values_a")]
    scene = Scene().load(shared.model()).bind(shared.mutable()).run(feeds).release().unload()
    title = "One storage for two ordinary inputs, which nobody modifies."
    yield scene.case("bind-004/feeds-share-storage", requirement, title)


def _output_overlaps(nonce: int) -> Iterator[Case]:
    reader = one_cache(nonce, "output overlaps", shape=SHAPE).node("Neg", ["cache"], "negated").output("negated", 2)
    reader.update("cache", "values", "position", "updated")
    [(cache, storage)] = reader.mutable().items()
    negated = reader.draw.name("negated")
    buffer = replace(storage, name="buffer", content=None)

    def script(output: Storage, *, refused: bool) -> Scene:
        scene = Scene().load(reader.model())
        scene.bind({cache: storage}, "first", outputs={negated: output})
        scene.run(reader.step([1], tag="_1"), "first", refused=BIND | RUN if refused else NEVER).release("first")
        scene.bind({cache: storage}, "second").run(reader.step([4], tag="_2"), "second")
        return scene.release("second").unload()

    twin, requirement = "bind-004/output-adjacent", (Req.MC_BIND_004,)
    title = "The caller's buffer for an ordinary output begins where the cache ends."
    yield script(within(buffer, storage, 8), refused=False).case(twin, requirement, title)
    for what, rows, title in (
        ("begins-inside", 7, "The buffer begins in the last row of the cache."),
        ("ends-inside", -7, "The buffer ends in the first row of the cache."),
        ("is-the-cache", 0, "The buffer has the bytes of the cache."),
    ):
        scene = script(within(buffer, storage, rows), refused=True)
        yield scene.case(f"bind-004/output-{what}", requirement, title, twin=twin)


def _other_inputs_overlap(nonce: int) -> Iterator[Case]:
    """Inputs that no update takes."""
    requirement = (Req.MC_BIND_004,)
    graph = one_cache(nonce, "another input", shape=SHAPE).feed("extra").node("Neg", ["extra"], "negated")
    graph.output("negated", 2).update("cache", "values", "position", "updated")
    extra = graph.draw.name("extra")
    [storage] = graph.mutable().values()

    def script(rows: int, *, refused: bool) -> Scene:
        first = graph.step([1], tag="_1")
        first[extra] = within(first[extra], storage, rows)
        scene = Scene().load(graph.model()).bind(graph.mutable()).run(first, refused=RUN if refused else NEVER)
        return scene.run(graph.step([4], tag="_2")).release().unload()

    twin, title = "bind-004/other-input-adjacent", "An input that has nothing to do with the cache lies behind it."
    yield script(8, refused=False).case(twin, requirement, title)
    title = "It lies inside the cache: what it holds would depend on when it is read."
    yield script(2, refused=True).case("bind-004/other-input-inside", requirement, title, twin=twin)

    pair = two_caches(nonce, "values in the other", shape=SHAPE)
    both, first, values = pair.mutable(), pair.step((0, 5), tag="_1"), pair.draw.name("values_a")
    other = both[pair.draw.name("cache_b")]

    def fed(rows: int, *, refused: bool) -> Scene:
        feeds = {**first, values: within(first[values], other, rows)}
        scene = Scene().load(pair.model()).bind(both).run(feeds, refused=RUN if refused else NEVER)
        return scene.run(pair.step((2, 3), tag="_2")).release().unload()

    twin, title = "bind-004/values-beside-other-cache", "The values of one cache begin where another ends."
    yield fed(8, refused=False).case(twin, requirement, title)
    title = "The values of one cache lie in another."
    yield fed(1, refused=True).case("bind-004/values-in-other-cache", requirement, title, twin=twin)
