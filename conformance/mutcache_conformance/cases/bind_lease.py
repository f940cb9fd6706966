"""BIND: leases, from bind to release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mutcache.requirements import Req
from mutcache_conformance.case import BIND, RUN, Case, Storage
from mutcache_conformance.cases.ranges import ROW_BYTES, SHAPE, float_update, within
from mutcache_conformance.cases.scene import NEVER, Scene
from mutcache_conformance.cases.sketch import one_cache, two_caches


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _hand_over(nonce)
    yield from _lease(nonce)
    yield from _lease_of_output(nonce)
    yield from _other_lease_ends(nonce)
    yield from _refused_in_part(nonce)
    yield from _release(nonce)


def _hand_over(nonce: int) -> Iterator[Case]:
    requirements = (Req.MC_BIND_005, Req.MC_DENSE_010)
    update = float_update(nonce, "lease")
    [(cache, storage)] = update.cache().items()
    model, steps = update.model(), [update.step(position, tag=f"_{position}") for position in range(5)]
    scene = Scene().load(model).bind({cache: storage}, "prefill").run(steps[0], "prefill").release("prefill")
    scene.load(model, "decode").bind({cache: storage}, "step", session="decode").run(steps[3], "step", session="decode")
    scene.release("step").unload("decode").unload()
    title = "Released by one session, the storage is bound by another, which finds what the first one wrote."
    yield scene.case("bind-005/hand-over", requirements, title)

    scene = Scene().load(model).load(model, "other")
    for number, (step, session) in enumerate(zip(steps, ("session", "other") * 2, strict=False)):
        binding = f"binding_{number}"
        scene.bind({cache: storage}, binding, session=session).run(step, binding, session=session).release(binding)
    title = "Two sessions take turns with one storage; each finds what the other wrote since."
    yield scene.unload("other").unload().case("bind-005/back-and-forth", requirements, title)

    elsewhere = update.cache("elsewhere")
    scene = Scene().load(model).bind({cache: storage}, "first").run(steps[0], "first").release("first")
    scene.bind(elsewhere, "second").run(steps[3], "second").release("second")
    scene.bind({cache: storage}, "third").run(steps[4], "third").release("third").unload()
    title = "A session binds one storage, then another, then the first again; each run writes to what is bound."
    yield scene.case("bind-006/other-storage", (Req.MC_BIND_006, *requirements), title)


def _lease(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_BIND_005,)
    update = float_update(nonce, "lease")
    [(cache, storage)] = update.cache().items()
    model, steps = update.model(), [update.step(position, tag=f"_{position}") for position in range(5)]

    def script(second: Storage, session: str, *, refused: bool) -> Scene:
        """While the first binding lives, the second is made; at last ``storage`` is bound by the other session."""
        scene = Scene().load(model).load(model, "other").bind({cache: storage}, "first").run(steps[0], "first")
        scene.bind({cache: second}, "second", session=session, refused=BIND if refused else NEVER)
        scene.run(steps[1], "first")
        if not refused:
            scene.run(steps[2], "second", session=session).release("second")
        scene.release("first").bind({cache: storage}, "third", session="other")
        return scene.run(steps[4], "third", session="other").release("third").unload("other").unload()

    beside = replace(storage, name="second")
    for session, word in (("session", "same"), ("other", "other")):
        twin = f"bind-005/adjacent-{word}-session"
        title = f"The {word} session binds storage beside that of a living binding."
        yield script(within(beside, storage, 8), session, refused=False).case(twin, requirement, title)
        title = f"The {word} session binds the storage of a living binding."
        yield script(storage, session, refused=True).case(f"bind-005/{word}-session", requirement, title, twin=twin)
        title = f"The {word} session binds storage that shares a row with that of a living binding."
        scene = script(within(beside, storage, 7), session, refused=True)
        yield scene.case(f"bind-005/overlap-{word}-session", requirement, title, twin=twin)


def _lease_of_output(nonce: int) -> Iterator[Case]:
    """A second session binds storage to an ordinary output of its own, beside or in a bound cache."""
    requirement = (Req.MC_BIND_005,)
    graph = one_cache(nonce, "leased output", shape=SHAPE).node("Neg", ["cache"], "negated").output("negated", 2)
    graph.update("cache", "values", "position", "updated")
    [(cache, storage)] = graph.mutable().items()
    own, buffer = replace(storage, name="own"), replace(storage, name="buffer", content=None)
    model, steps = graph.model(), [graph.step([position], tag=f"_{position}") for position in (0, 2, 4)]

    def script(rows: int, *, refused: bool) -> Scene:
        outputs = {graph.draw.name("negated"): within(buffer, storage, rows)}
        scene = Scene().load(model).load(model, "other").bind({cache: storage}, "first").run(steps[0], "first")
        phases = BIND if refused else NEVER
        scene.bind({cache: own}, "second", session="other", outputs=outputs, refused=phases)
        if not refused:
            scene.run(steps[1], "second", session="other").release("second")
        scene.run(steps[2], "first").release("first").bind({cache: own}, "third", session="other")
        return scene.run(steps[0], "third", session="other").release("third").unload("other").unload()

    twin, title = "bind-005/output-beside", "An ordinary output of another session is bound beside a bound cache."
    yield script(8, refused=False).case(twin, requirement, title)
    title = "It is bound to storage that shares a row with that cache."
    yield script(7, refused=True).case("bind-005/output-overlaps", requirement, title, twin=twin)


def _other_lease_ends(nonce: int) -> Iterator[Case]:
    """Two sessions hold leases; when one ends, only its own storage is free."""
    requirements = (Req.MC_BIND_005, Req.MC_BIND_006)
    update = float_update(nonce, "leases end")
    [(cache, storage)] = update.cache().items()
    model, beside = update.model(), replace(storage, name="beside")
    steps = [update.step(position, tag=f"_{position}") for position in (0, 2, 4)]

    def script(*, ends: str, wanted: Storage, refused: bool) -> Scene:
        scene = Scene().load(model).load(model, "other").load(model, "third")
        scene.bind({cache: storage}, "first").run(steps[0], "first")
        scene.bind({cache: beside}, "second", session="other").run(steps[1], "second", session="other")
        if ends == "release":
            scene.release("second")
        else:
            scene.unload("other")
        scene.bind({cache: wanted}, "wanted", session="third", refused=BIND if refused else NEVER)
        if not refused:
            scene.run(steps[2], "wanted", session="third").release("wanted")
        scene.release("first").bind({cache: storage}, "last", session="third")
        return scene.run(steps[1], "last", session="third").release("last").unload("third").unload()

    for ends in ("release", "unload"):
        twin, title = f"bind-005/after-{ends}", f"After the {ends} of one of two sessions its storage is free."
        yield script(ends=ends, wanted=beside, refused=False).case(twin, requirements, title)
        title = f"After the {ends} of one of two sessions, the storage of the other is not."
        scene = script(ends=ends, wanted=storage, refused=True)
        yield scene.case(f"bind-005/after-other-{ends}", requirements, title, twin=twin)


def _refused_in_part(nonce: int) -> Iterator[Case]:
    """A binding of two caches, one of which is leased: its refusal leases nothing."""
    requirement = (Req.MC_BIND_005,)
    pair = two_caches(nonce, "refused in part", shape=SHAPE)
    model, both = pair.model(), pair.mutable()
    [(cache_a, storage_a), (cache_b, storage_b)] = both.items()
    free_a, free_b = replace(storage_a, name="free_a"), replace(storage_b, name="free_b")
    steps = [pair.step(positions, tag=f"_{number}") for number, positions in enumerate(((0, 4), (2, 2), (5, 1)))]

    def script(second: Storage, *, refused: bool) -> Scene:
        scene = Scene().load(model).load(model, "other").bind(both, "first").run(steps[0], "first")
        wanted = {cache_a: free_a, cache_b: second}
        scene.bind(wanted, "second", session="other", refused=BIND if refused else NEVER)
        if not refused:
            scene.run(steps[1], "second", session="other").release("second")
        scene.bind({cache_a: free_a, cache_b: free_b}, "third", session="other")
        scene.run(steps[2], "third", session="other").release("third").release("first")
        return scene.unload("other").unload()

    twin, title = "bind-005/both-free", "Another session binds two caches that are free."
    yield script(free_b, refused=False).case(twin, requirement, title)
    title = "One of them is leased; the refusal leaves the other one free."
    yield script(storage_b, refused=True).case("bind-005/one-of-two-leased", requirement, title, twin=twin)

    update = float_update(nonce, "empty lease")
    [(cache, storage)] = update.cache().items()
    none = replace(update, shape=(0, SHAPE[1]))
    empty = replace(none.cache("empty")[cache], within=storage.name, offset=3 * ROW_BYTES)
    scene = Scene().load(update.model()).load(update.model(), "other").bind({cache: storage}, "first")
    scene.bind({cache: empty}, "second", session="other")
    scene.run(none.step(0, length=0, tag="_1"), "second", session="other").run(update.step(2, tag="_2"), "first")
    title = "A cache without rows shares no byte with a bound one, whatever its address."
    requirements = (*requirement, Req.MC_DENSE_006)
    scene.release("second").release("first").unload("other").unload()
    yield scene.case("bind-005/empty-inside", requirements, title)


def _release(nonce: int) -> Iterator[Case]:
    release = Req.MC_BIND_006
    update = float_update(nonce, "release")
    cache, again = update.cache(), update.step(4, tag="_2")

    def after(position: int, *, refused: bool) -> Scene:
        """One run, release, and another binding of the same storage by another session."""
        scene = Scene().load(update.model()).load(update.model(), "other").bind(cache, "first")
        scene.run(update.step(position, tag="_1"), "first", refused=RUN if refused else NEVER).release("first")
        scene.bind(cache, "second", session="other").run(again, "second", session="other").release("second")
        return scene.unload("other").unload()

    twin = "bind-006/after-success"
    yield after(5, refused=False).case(twin, (release,), "Release after a run.")
    title = "Release after a run that was refused."
    yield after(6, refused=True).case("bind-006/after-failure", (release, Req.MC_DENSE_003), title, twin=twin)

    scene = Scene().load(update.model()).bind(cache, "first").release("first")
    scene.bind(cache, "second").run(again, "second").release("second").unload()
    yield scene.case("bind-006/without-a-run", (release,), "Release of a binding that never ran.")

    def late(*, released: bool) -> Scene:
        """A run of the first binding, before or after its release; then another binding."""
        scene = Scene().load(update.model()).bind(cache, "first")
        if released:
            scene.release("first").run(update.step(1, tag="_1"), "first", refused=RUN)
        else:
            scene.run(update.step(1, tag="_1"), "first").release("first")
        return scene.bind(cache, "second").run(again, "second").release("second").unload()

    twin, requirements = "bind-006/run-before-release", (release, Req.MC_BIND_001)
    yield late(released=False).case(twin, requirements, "A run, and then the release.")
    title = "A run after the release: the storage is the caller's again."
    yield late(released=True).case("bind-006/run-after-release", requirements, title, twin=twin)

    # The other session has storage beside it all the time, so that it lies at the same address for both.
    [(name, storage)] = cache.items()
    beside = {name: within(replace(storage, name="beside"), storage, 8)}
    scene = Scene().load(update.model()).load(update.model(), "other").bind(beside, "beside", session="other")
    scene.bind(cache, "first").run(update.step(1, tag="_1"), "first").unload()
    scene.bind(cache, "second", session="other").run(again, "second", session="other").release("second")
    scene.release("beside").unload("other")
    title = "A session that ends while its binding lives gives the storage back."
    yield scene.case("bind-006/unload-releases", (release, Req.MC_BIND_005), title)
