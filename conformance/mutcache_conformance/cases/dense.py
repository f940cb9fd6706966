"""DENSE: what an update writes, what it leaves alone, and when it must refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import TensorProto

from mutcache.requirements import Req
from mutcache_conformance.case import RUN, Case
from mutcache_conformance.cases.builder import initializer
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.scene import NEVER, Scene
from mutcache_conformance.cases.sketch import Sketch, chain, two_caches
from mutcache_conformance.cases.steps import INT64_MAX, INT64_MIN, accepted, refused
from mutcache_conformance.cases.update import Update


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the area."""
    yield _seed_example(nonce)
    yield from _written_range(nonce)
    yield from _out_of_range(nonce)
    yield from _length_zero(nonce)
    yield from _chains(nonce)
    yield from _persistence(nonce)
    yield from _default_position(nonce)


def _seed_example(nonce: int) -> Case:
    draw = Draw(nonce, "seed-example")
    declared = (2, "batch", "heads", "max_length", "head_size")
    update = Update(draw, TensorProto.FLOAT16, (2, 1, 2, 16, 8), declared=declared)
    prompt = draw.integer("prompt", 3, 9)
    scene = Scene().load(update.model()).bind(update.cache())
    scene.run(update.step(0, length=prompt, tag="_prompt"))
    for token in range(3):
        scene.run(update.step(prompt + token, length=1, tag=f"_{token}"))
    scene.release().unload()
    return scene.case(
        "dense-001/seed-example",
        (Req.MC_DENSE_001, Req.MC_DENSE_002, Req.MC_DENSE_010, Req.MC_BIND_009),
        "The model example of the specification: a prompt and three tokens in one binding.",
    )


def _written_range(nonce: int) -> Iterator[Case]:
    written, others = Req.MC_DENSE_001, Req.MC_DENSE_002
    update = Update(Draw(nonce, "written-range"))
    start = update.draw.integer("start", 1, 4)
    yield accepted("dense-001/first-rows", (written,), "Rows at position 0.", update, (0, 3))
    yield accepted("dense-001/last-rows", (written,), "Rows that end at the capacity.", update, (5, 3))
    yield accepted("dense-001/whole-cache", (written,), "As many rows as the capacity.", update, (0, 8))
    yield accepted(
        "dense-001/again", (written,), "The same rows twice: the second wins.", update, (start, 3), (start, 3)
    )
    yield accepted("dense-002/middle", (others, written), "Rows before and after stay.", update, (start, 3))
    yield accepted(
        "dense-002/gap", (others,), "A position beyond the valid length leaves a gap.", update, (0, 2), (6, 1)
    )
    inner = replace(update, axis=-1)
    yield accepted("dense-002/innermost-axis", (others,), "Neighbours within each row stay.", inner, (start % 3, 2))
    odd = replace(update, dtype=TensorProto.INT8, shape=(3, 7, 5))
    yield accepted(
        "dense-002/odd-sizes", (others,), "Bytes beside unaligned rows stay.", odd, (start, 1), (start + 1, 2)
    )


def _out_of_range(nonce: int) -> Iterator[Case]:
    overflow, negative, exact = Req.MC_DENSE_003, Req.MC_DENSE_004, Req.MC_DENSE_005
    update = Update(Draw(nonce, "out-of-range"), length=3)
    draw = update.draw
    recovery = (draw.integer("recovery", 0, 5), 3)
    twin = "dense-003/ends-at-capacity"
    title = "An update that ends at the capacity, the last position that is right."
    yield accepted(twin, (overflow, negative, exact), title, update, (5, 3), recovery)
    many = draw.integer("many", 20, 10_000)
    # The size-1 twin: an update of one row is what a clamp hides best.
    row = "dense-003/last-row"
    yield accepted(row, (overflow,), "One row at capacity - 1.", update, (7, 1), recovery)
    yield refused(
        "dense-003/row-at-capacity", (overflow,), "One row at the capacity.", update, (8, 1), recovery, twin=row
    )
    wrong = {
        ("dense-003/by-one", overflow): (6, "position + length is capacity + 1."),
        ("dense-003/starts-at-capacity", overflow): (8, "No row fits."),
        ("dense-003/by-many", overflow): (many, "Far beyond the capacity."),
        ("dense-004/minus-one", negative): (-1, "Position -1 is not the last row."),
        ("dense-004/minus-length", negative): (-3, "Position -length is not the last rows."),
        ("dense-004/minus-capacity", negative): (-8, "Position -capacity is not the first row."),
        ("dense-004/int64-min", negative): (INT64_MIN, "The smallest INT64."),
        ("dense-005/int64-max", exact): (INT64_MAX, "The largest INT64."),
        ("dense-005/sum-is-int64-max", exact): (INT64_MAX - 3, "position + length is the largest INT64."),
        ("dense-005/sum-overflows", exact): (INT64_MAX - 2, "position + length is 2**63, negative when it wraps."),
        ("dense-005/two-to-the-32", exact): (2**32 + recovery[0], "In range when truncated to 32 bits."),
        ("dense-005/minus-two-to-the-32", exact): (-(2**32) + recovery[0], "Negative, in range when truncated."),
        ("dense-005/two-to-the-31", exact): (2**31, "Negative when truncated to 32 bits."),
    }
    for (what, requirement), (position, title) in wrong.items():
        also = () if requirement is not exact else ((negative,) if position < 0 else (overflow,))
        yield refused(what, (requirement, *also), title, update, (position, 3), recovery, twin=twin)
    whole = "dense-003/whole-cache"
    yield accepted(whole, (overflow,), "Exactly as many rows as the capacity.", update, (0, 8), recovery)
    for what, step, title in (
        ("longer-than-capacity", (0, 9), "One row more than the capacity."),
        ("whole-cache-shifted", (1, 8), "As many rows as the capacity, but not from the first row on."),
    ):
        yield refused(f"dense-003/{what}", (overflow,), title, update, step, recovery, twin=whole)

    grown, filled = Req.MC_DENSE_011, "dense-011/overwrite-when-full"
    steps = [(0, 6), (6, 2)]
    yield accepted(filled, (grown,), "A full cache takes an update of its last row.", update, *steps, (7, 1), recovery)
    yield refused(
        "dense-011/one-more-when-full",
        (grown, overflow),
        "A full cache takes no further row, and does not grow.",
        update,
        *steps,
        (8, 1),
        recovery,
        twin=filled,
        at=2,
    )


def _length_zero(nonce: int) -> Iterator[Case]:
    zero = Req.MC_DENSE_006
    update = Update(Draw(nonce, "length-zero"))
    twin = "dense-006/at-capacity"
    recovery = (update.draw.integer("recovery", 0, 5), 3)
    yield accepted("dense-006/at-zero", (zero,), "No rows at position 0.", update, (0, 0), recovery)
    yield accepted(twin, (zero,), "No rows at the capacity.", update, (8, 0), recovery)
    beyond, before = (Req.MC_DENSE_003, zero), (Req.MC_DENSE_004, zero)
    yield refused("dense-003/no-rows", beyond, "No rows, beyond the capacity.", update, (9, 0), recovery, twin=twin)
    yield refused("dense-004/no-rows", before, "No rows at -1.", update, (-1, 0), recovery, twin=twin)
    capacity = replace(update, shape=(2, 0, 4))
    yield accepted("dense-006/no-capacity", (zero,), "A cache of capacity 0 takes no rows.", capacity, (0, 0))
    batch = replace(update, shape=(0, 8, 4))
    yield accepted("dense-006/no-batch", (zero,), "Rows of an empty batch.", batch, (2, 3))
    width = replace(update, shape=(2, 8, 0))
    yield accepted("dense-006/no-width", (zero,), "Rows without elements.", width, (5, 3))
    twin = "dense-006/empty-ends-at-capacity"
    yield accepted(twin, (zero,), "An empty cache, within its capacity.", batch, (5, 3), (0, 3))
    title = "An empty cache still has a capacity."
    yield refused("dense-003/empty-cache", beyond, title, batch, (6, 3), (0, 3), twin=twin)


def _chains(nonce: int) -> Iterator[Case]:
    requirements = (Req.MC_DENSE_009,)
    first = Draw(nonce, "chain").integer("first", 0, 4)
    apart, overlap, backwards = (chain(nonce, f"chain {what}") for what in ("apart", "overlap", "backwards"))
    yield apart.case("dense-009/apart", requirements, "Two updates of different rows.", [0, 5])
    title = "The later update wins where both write."
    yield overlap.case("dense-009/overlap", requirements, title, [first, first + 1])
    yield backwards.case("dense-009/backwards", requirements, "The later update may stand before.", [5, 0])

    overflow, negative = Req.MC_DENSE_003, Req.MC_DENSE_004

    def failing(what: str, title: str, sketch: Sketch, *positions: int, twin: str = "") -> Case:
        """Two runs; the first is refused, unless the case is the ``twin`` of the others."""
        scene = Scene().load(sketch.model()).bind(sketch.mutable())
        scene.run(sketch.step(positions, tag="_1"), refused=RUN if twin else frozenset())
        scene.run(sketch.step((first, 5 - first), tag="_2")).release().unload()
        broken = () if not twin else (negative,) if min(positions) < 0 else (overflow,)
        return scene.case(what, (Req.MC_DENSE_012, *requirements, *broken), title, twin=twin)

    twin, sketch = "dense-012/chain", chain(nonce, "failing chain")
    yield failing(twin, "Both updates fit.", sketch, first, 5)
    title = "The first update may be there, whole or not at all."
    yield failing("dense-012/chain-second-overflows", title, sketch, first, 6, twin=twin)
    yield failing("dense-012/chain-second-negative", title, sketch, first, -1, twin=twin)
    yield failing("dense-012/chain-first-overflows", "Neither update is there.", sketch, 6, 5, twin=twin)

    three = Sketch(nonce, "chain of three", "cache")
    three.feed("values_a", "position_a", "values_b", "position_b", "values_c", "position_c")
    three.unread_update("cache", "values_a", "position_a", "a").unread_update("a", "values_b", "position_b", "b")
    three.update("b", "values_c", "position_c", "c", root="cache")

    def middle(what: str, title: str, *positions: int, twin: str = "") -> Case:
        scene = Scene().load(three.model()).bind(three.mutable())
        scene.run(three.step(positions, tag="_1"), refused=RUN if twin else NEVER)
        scene.run(three.step((first, 5 - first, 2), tag="_2")).release().unload()
        return scene.case(what, (Req.MC_DENSE_012, *requirements, *((overflow,) if twin else ())), title, twin=twin)

    twin = "dense-012/chain-of-three"
    yield middle(twin, "Three updates fit.", first, 5, 1)
    title = "The second of three does not fit: nothing of it is there, nor of the third."
    yield middle("dense-012/chain-of-three-second-overflows", title, first, 6, 1, twin=twin)
    title = "The third of three does not fit: none, one or both of the others are there."
    yield middle("dense-012/chain-of-three-third-overflows", title, first, 5, 6, twin=twin)

    twin, sketch = "dense-012/two-caches", two_caches(nonce, "failing pair")
    yield failing(twin, "Both caches are updated.", sketch, first, 5)
    title = "The other cache is updated, whole or not at all."
    yield failing("dense-012/two-caches-second-overflows", title, sketch, first, 6, twin=twin)
    yield failing("dense-012/two-caches-first-overflows", title, sketch, 6, 5, twin=twin)


def _persistence(nonce: int) -> Iterator[Case]:
    update = Update(Draw(nonce, "persistence"), TensorProto.BFLOAT16)
    title = "Rows of three runs, each still there after the next."
    requirements = (Req.MC_DENSE_010, Req.MC_BIND_009)
    yield accepted("dense-010/three-runs", requirements, title, update, (0, 3), (3, 3), (6, 2))
    model, cache = update.model(), update.cache()
    scene = Scene().load(model).bind(cache, "first").run(update.step(0, tag="_1"), "first").release("first")
    scene.bind(cache, "second").run(update.step(3, tag="_2"), "second").release("second").unload()
    title = "Rows outlive a release and a new binding of the same storage."
    yield scene.case("dense-010/rebound", (Req.MC_DENSE_010, Req.MC_BIND_006), title)
    title = "Lengths that change from run to run in one session."
    steps = ((0, 5), (5, 1), (6, 2), (1, 1), (2, 4))
    yield accepted("dense-010/alternating-lengths", (Req.MC_DENSE_010,), title, update, *steps)
    yield from _caller_writes(nonce)
    yield from _other_capacity(nonce)


def _caller_writes(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_DENSE_010,)
    update = Update(Draw(nonce, "caller writes"), TensorProto.FLOAT16)
    draw, model, first, second = update.draw, update.model(), update.step(1, tag="_1"), update.step(4, tag="_2")
    [(cache, storage)] = update.cache().items()
    written = draw.storage("written", update.dtype, update.shape)
    scene = Scene().load(model).bind({cache: storage}).run(first).write(storage, written).run(second)
    title = "The caller writes to the cache between two runs of a binding: the second finds it."
    yield scene.release().unload().case("dense-010/caller-writes", requirement, title)
    scene = Scene().load(model).bind({cache: storage}).write(storage, written).run(first).release().unload()
    title = "The caller writes to the cache after it is bound, and before the first run."
    yield scene.case("dense-010/caller-writes-before-a-run", requirement, title)

    scene = Scene().load(model).bind({cache: storage}).run(first)
    for value in (draw.name("values"), draw.name("position")):
        scene.write(first[value], second[value])
    title = "Values and position lie where those of the run before lay, as in a loop that uses its buffers again."
    yield scene.run(first).release().unload().case("dense-010/operands-rewritten", requirement, title)


def _other_capacity(nonce: int) -> Iterator[Case]:
    """A session whose second binding has a cache of other capacity."""
    update = Update(Draw(nonce, "other capacity"))
    smaller = replace(update, shape=(2, 5, 4))
    [cache] = update.cache()

    def script(position: int, *, refused: bool) -> Scene:
        scene = Scene().load(update.model()).bind(update.cache(), "first").run(update.step(5, tag="_1"), "first")
        scene.release("first").bind({cache: replace(smaller.cache()[cache], name="smaller")}, "second")
        scene.run(update.step(position, tag="_2"), "second", refused=RUN if refused else NEVER)
        return scene.run(update.step(0, tag="_3"), "second").release("second").unload()

    twin, overflow = "dense-010/other-capacity", Req.MC_DENSE_003
    title = "The second binding of a session has a smaller cache."
    yield script(2, refused=False).case(twin, (Req.MC_DENSE_010, overflow), title)
    title = "A position that fitted in the cache that was bound before."
    yield script(3, refused=True).case("dense-003/smaller-second-binding", (overflow,), title, twin=twin)


def _default_position(nonce: int) -> Iterator[Case]:
    """A position with a default, which a run need not be given."""
    overflow = Req.MC_DENSE_003
    update = Update(Draw(nonce, "default position"), static=True)
    position = update.draw.name("position")

    def script(default: int, *, refused: bool) -> Scene:
        tensor = initializer(position, TensorProto.INT64, [], int64(default))
        model = update.program(0).edited(lambda model: model.graph.initializer.append(tensor)).model
        without = {name: storage for name, storage in update.step(0, tag="_1").items() if name != position}
        scene = Scene().load(model).bind(update.cache()).run(without, refused=RUN if refused else NEVER)
        return scene.run(update.step(2, tag="_2")).release().unload()

    twin, title = "dense-003/default-fits", "A run without a position uses its default, which ends at the capacity."
    yield script(5, refused=False).case(twin, (overflow, Req.MC_SHAPE_005), title)
    title = "The default overflows: only the runs that use it are refused."
    requirements = (overflow, Req.MC_SHAPE_005)
    yield script(6, refused=True).case("dense-003/default-overflows", requirements, title, twin=twin)
