"""BIND: what storage a runtime may modify, for how long, and where the results lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from onnx import TensorProto

from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache_conformance.case import BIND, RUN, Case, Storage
from mutcache_conformance.cases.builder import initializer, node, tensor
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.ranges import ROW_BYTES, SHAPE, float_update, within
from mutcache_conformance.cases.scene import NEVER, Program, Scene
from mutcache_conformance.cases.sketch import chain, two_caches
from mutcache_conformance.cases.update import Update


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the area."""
    yield from _opt_in(nonce)
    yield from _read_only(nonce)
    yield from _initializer(nonce)
    yield from _layout(nonce)
    yield from _outputs(nonce)


def _opt_in(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_BIND_001,)
    update = float_update(nonce, "opt in")
    twin, feeds, again = "bind-001/bound", update.step(1, tag="_1"), update.step(4, tag="_2")
    scene = Scene().load(update.model()).bind(update.cache()).run(feeds).run(again).release().unload()
    yield scene.case(twin, requirement, "The cache is bound as mutable.")
    scene = Scene().load(update.model()).run({**update.cache(), **feeds}, "", refused=BIND | RUN)
    scene.bind(update.cache()).run(again).release().unload()
    yield scene.case("bind-001/fed", requirement, "The cache is fed like an ordinary input.", twin=twin)

    scene = Scene().load(update.model()).run(feeds, "", refused=BIND | RUN).bind(update.cache()).run(again)
    title = "The cache is neither bound nor fed."
    yield scene.release().unload().case("bind-001/missing", requirement, title, twin=twin)
    scene = Scene().load(update.model()).bind(update.cache())
    scene.run({**update.cache("second"), **feeds}, refused=BIND | RUN).run(again).release().unload()
    title = "The cache is bound as mutable, and fed like an ordinary input as well."
    yield scene.case("bind-001/bound-and-fed", requirement, title, twin=twin)

    pair = two_caches(nonce, "opt in pair")
    both, feeds, again = pair.mutable(), pair.step((0, 4), tag="_1"), pair.step((3, 1), tag="_2")
    [(cache_a, storage_a), (cache_b, storage_b)] = both.items()
    twin = "bind-001/both-bound"
    scene = Scene().load(pair.model()).bind(both).run(feeds).run(again).release().unload()
    yield scene.case(twin, requirement, "Both caches are bound as mutable.")
    for what, more, title in (
        ("fed", {cache_b: storage_b}, "One cache is bound as mutable, the other fed like an ordinary input."),
        ("missing", {}, "One cache is bound as mutable, the other is not supplied at all."),
    ):
        scene = Scene().load(pair.model()).bind({cache_a: storage_a}, "half")
        scene.run({**feeds, **more}, "half", refused=BIND | RUN)
        scene.unload().load(pair.model(), "other").bind(both, session="other").run(again, session="other")
        yield scene.release().unload("other").case(f"bind-001/one-of-two-{what}", requirement, title, twin=twin)


def _bound_first(update: Update, first: Mapping[str, Storage], *, refused: bool) -> Scene:
    """``first`` is bound, then, if that was refused, the cache; each accepted binding runs."""
    scene = Scene().load(update.model()).bind(first, "first", refused=BIND if refused else NEVER)
    if not refused:
        scene.run(update.step(1, tag="_1"), "first").release("first")
    return (
        scene.bind(update.cache("other"), "second").run(update.step(4, tag="_2"), "second").release("second").unload()
    )


def _read_only(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_BIND_002,)
    update = float_update(nonce, "read-only")
    [(cache, storage)] = update.cache().items()
    twin = "bind-002/writable"
    yield _bound_first(update, {cache: storage}, refused=False).case(twin, requirement, "Writable storage is bound.")
    scene = _bound_first(update, {cache: replace(storage, writable=False)}, refused=True)
    yield scene.case("bind-002/read-only", requirement, "Read-only storage is bound as mutable.", twin=twin)

    pair = two_caches(nonce, "read-only pair")
    both, feeds = pair.mutable(), pair.step((0, 4), tag="")
    [(cache_a, storage_a), (cache_b, storage_b)] = both.items()
    twin, title = "bind-002/both-writable", "The storage of two caches is writable."
    scene = Scene().load(pair.model()).bind(both, "second").run(feeds, "second").release("second").unload()
    yield scene.case(twin, (*requirement, Req.MC_BIND_005), title)
    locked = replace(storage_b, name="locked", writable=False)
    scene = Scene().load(pair.model()).bind({cache_a: storage_a, cache_b: locked}, "first", refused=BIND)
    scene.bind(both, "second").run(feeds, "second").release("second").unload()
    title = "That of the second cache is not; the refusal leaves no lease of the first one's behind."
    yield scene.case("bind-002/one-of-two", (*requirement, Req.MC_BIND_005), title, twin=twin)


def _initializer(nonce: int) -> Iterator[Case]:
    update = float_update(nonce, "initializer")
    draw = update.draw
    table, echo = draw.name("table"), draw.name("echo")
    content = draw.content("table", update.dtype, update.shape)

    def with_table(model: ModelProto) -> None:
        model.graph.initializer.append(initializer(table, update.dtype, update.shape, content))
        model.graph.node.append(node("Identity", [table], [echo]))
        model.graph.output.append(tensor(echo, update.dtype, update.shape))

    model = update.program(0).edited(with_table).model
    held = {table: Storage("table", update.dtype, update.shape, content, origin=f"initializer:{table}")}
    [cache] = update.cache()

    def script(storage: Storage, *, refused: bool, model: ModelProto = model) -> Scene:
        scene = Scene().load(model, initializers=held)
        scene.bind({cache: storage}, "first", refused=BIND if refused else NEVER)
        if not refused:
            scene.run(update.step(1, tag="_1"), "first").release("first")
        scene.bind(update.cache("other"), "second").run(update.step(4, tag="_2"), "second")
        return scene.release("second").unload()

    twin, requirement = "bind-003/caller", (Req.MC_BIND_003,)
    scene = script(update.cache()[cache], refused=False)
    yield scene.case(twin, requirement, "Storage of the caller's, beside an initializer of the same shape.")
    title = "The storage that holds an initializer is bound as mutable."
    yield script(held[table], refused=True).case("bind-003/initializer", requirement, title, twin=twin)
    # Whatever the caller calls it: what counts are the bytes.
    lent = Storage("lent", update.dtype, update.shape)
    for what, rows, title in (
        ("same-bytes", 0, "Storage of the caller's that has the very bytes of an initializer."),
        ("first-row", -7, "Storage that ends in the first row of an initializer."),
        ("last-row", 7, "Storage that begins in the last row of an initializer."),
    ):
        scene = script(within(lent, held[table], rows), refused=True)
        yield scene.case(f"bind-003/{what}", requirement, title, twin=twin)
    title = "Storage that begins where an initializer ends."
    yield script(within(lent, held[table], 8), refused=False).case("bind-003/adjacent", requirement, title)

    def with_input(model: ModelProto) -> None:
        model.graph.input.append(tensor(table, update.dtype, update.shape))

    twin, overridable = "bind-003/beside-default", Program(model, {}, {}).edited(with_input).model
    scene = script(update.cache()[cache], refused=False, model=overridable)
    yield scene.case(twin, requirement, "Storage of the caller's, beside the default of an input.")
    title = "The storage that holds the default of an input is bound as mutable."
    scene = script(held[table], refused=True, model=overridable)
    yield scene.case("bind-003/default", requirement, title, twin=twin)

    def by_other(*, refused: bool) -> Scene:
        """The bytes of an initializer are bound by another session, while its own is loaded or after that."""
        same = within(lent, held[table], 0)
        scene = Scene().load(model, initializers=held).load(update.model(), "other", called="plain")
        if refused:
            scene.bind({cache: same}, "first", session="other", refused=BIND).unload()
        else:
            scene.unload().bind({cache: same}, "first", session="other")
            scene.run(update.step(1, tag="_1"), "first", session="other").release("first")
        scene.bind({cache: same}, "second", session="other").run(update.step(4, tag="_2"), "second", session="other")
        return scene.release("second").unload("other")

    twin, title = "bind-003/after-unload", "What held an initializer is ordinary storage once its session is unloaded."
    yield by_other(refused=False).case(twin, (*requirement, Req.MC_BIND_006), title)
    title = "The initializer belongs to another session."
    yield by_other(refused=True).case("bind-003/of-other-session", requirement, title, twin=twin)


def _layout(nonce: int) -> Iterator[Case]:
    requirement, no_copy = Req.MC_BIND_007, Req.MC_BIND_010
    update = replace(float_update(nonce, "layout"), static=True)
    [(cache, good)] = update.cache().items()
    rows, width = update.shape

    def other(shape: tuple[int, ...], dtype: int = update.dtype) -> Storage:
        return update.draw.storage("cache", dtype, shape, label=f"cache of {shape}")

    twin = "bind-007/as-declared"
    title = "Row-major storage of the declared type and shape."
    yield _bound_first(update, {cache: good}, refused=False).case(twin, (requirement, no_copy), title)
    wrong = {
        "strided": (replace(good, strides=(2 * ROW_BYTES, 4)), "Rows with gaps between them."),
        "elements-apart": (replace(good, strides=(2 * ROW_BYTES, 8)), "Elements with gaps between them."),
        "broadcast": (replace(good, strides=(0, 4)), "All rows are one."),
        "column-major": (replace(good, strides=(4, 4 * rows)), "The same shape, column by column."),
        "misaligned": (replace(good, misalignment=2), "An address that is no multiple of the element's size."),
        "odd-address": (replace(good, misalignment=1), "An odd address."),
        "too-small": (other((rows - 1, width)), "A row less than declared."),
        "too-large": (other((rows + 1, width)), "A row more than declared."),
        "reshaped": (other((rows // 2, 2 * width)), "Another shape of the same size."),
        "higher-rank": (other((1, rows, width)), "A dimension of one more."),
        "lower-rank": (other((rows * width,)), "The same bytes as a vector."),
        "other-type": (other((rows, width), TensorProto.INT32), "Another type of the same size."),
        "wider-type": (other((rows, width), TensorProto.DOUBLE), "A wider type."),
        "empty": (other((0, width)), "No rows at all."),
    }
    for what, (storage, title) in wrong.items():
        scene = _bound_first(update, {cache: storage}, refused=True)
        yield scene.case(f"bind-007/{what}", (requirement, no_copy), title, twin=twin)
    yield from _alike_types(nonce)
    yield from _symbols(nonce)


def _alike_types(nonce: int) -> Iterator[Case]:
    """Types that differ in nothing but their meaning."""
    for declared, given in (("FLOAT16", "BFLOAT16"), ("BFLOAT16", "FLOAT16"), ("UINT8", "BOOL"), ("INT8", "UINT8")):
        update = Update(Draw(nonce, f"{declared} as {given}"), TensorProto.DataType.Value(declared), SHAPE)
        [(cache, good)] = update.cache().items()
        twin, requirement = f"bind-007/{declared.lower()}", (Req.MC_BIND_007,)
        scene = _bound_first(update, {cache: good}, refused=False)
        yield scene.case(twin, requirement, f"Storage of {declared}, as declared.")
        dtype = TensorProto.DataType.Value(given)
        wrong = replace(good, dtype=dtype, content=update.draw.content(given, dtype, SHAPE))
        scene = _bound_first(update, {cache: wrong}, refused=True)
        title = f"Storage of {given} for a cache of {declared}."
        yield scene.case(f"{twin}-is-{given.lower()}", requirement, title, twin=twin)


def _symbols(nonce: int) -> Iterator[Case]:
    """Two caches whose capacities have one symbol."""
    pair = two_caches(nonce, "symbols", shape=SHAPE)
    both, feeds = pair.mutable(), pair.step((0, 2), tag="_1")
    [cache_a, cache_b] = both
    other = two_caches(nonce, "symbols", shape=(6, SHAPE[1])).mutable()[cache_b]

    def script(second: Storage, *, refused: bool) -> Scene:
        phases = BIND | RUN if refused else NEVER
        scene = Scene().load(pair.model()).bind({cache_a: both[cache_a], cache_b: second}, "first")
        scene.run(feeds, "first", refused=phases).unload()
        scene.load(pair.model(), "other").bind(both, "second", session="other")
        return scene.run(pair.step((3, 1), tag="_2"), "second", session="other").release("second").unload("other")

    twin, requirements = "bind-007/one-symbol", (Req.MC_BIND_007, Req.MC_SHAPE_003)
    yield script(both[cache_b], refused=False).case(twin, requirements, "One symbol, one size.")
    title = "One symbol, two sizes: the second cache has fewer rows than the first."
    scene = script(replace(other, name="smaller"), refused=True)
    yield scene.case("bind-007/one-symbol-two-sizes", requirements, title, twin=twin)


def _outputs(nonce: int) -> Iterator[Case]:
    update = float_update(nonce, "outputs")
    [(cache, storage)] = update.cache().items()
    [updated] = (value.name for value in update.model().graph.output)

    def script(output: Storage, *, refused: bool) -> Scene:
        scene = Scene().load(update.model())
        scene.bind({cache: storage}, "first", outputs={updated: output}, refused=BIND if refused else NEVER)
        if not refused:
            scene.run(update.step(1, tag="_1"), "first").release("first")
        scene.bind({cache: storage}, "second").run(update.step(4, tag="_2"), "second")
        return scene.release("second").unload()

    twin, requirement = "bind-008/same-storage", (Req.MC_BIND_008,)
    title = "The result of the update is bound to the storage of the cache."
    yield script(storage, refused=False).case(twin, (*requirement, Req.MC_BIND_009), title)
    other = replace(storage, name="elsewhere", content=None)
    title = "The result of the update is bound to storage of its own."
    yield script(other, refused=True).case("bind-008/elsewhere", requirement, title, twin=twin)
    title = "The result of the update is bound to storage that begins a row after the cache."
    yield script(within(other, storage, 1), refused=True).case("bind-008/shifted", requirement, title, twin=twin)
    yield from _outputs_of_two(nonce)

    steps = [update.step(position, tag=f"_{position}") for position in (0, 3, 5, 2)]
    scene = Scene().load(update.model()).bind({cache: storage})
    for step in steps:
        scene.run(step)
    title = "The result has the address of the cache, in every run."
    yield scene.release().unload().case("bind-009/every-run", (Req.MC_BIND_009, Req.MC_BIND_010), title)

    title = "Both updates of a chain are found in the storage of the caller."
    links = chain(nonce, "no copy", shape=SHAPE)
    yield links.case("bind-010/chain", (Req.MC_BIND_010, Req.MC_BIND_009), title, [0, 5], [3, 1])


def _outputs_of_two(nonce: int) -> Iterator[Case]:
    """Two caches whose results could be taken for one another."""
    pair = two_caches(nonce, "outputs of two", shape=SHAPE)
    both = pair.mutable()
    storages = list(both.values())
    results = [value.name for value in pair.model().graph.output]

    def script(order: tuple[int, int], *, refused: bool) -> Scene:
        outputs = {name: storages[number] for name, number in zip(results, order, strict=True)}
        scene = Scene().load(pair.model()).bind(both, "first", outputs=outputs, refused=BIND if refused else NEVER)
        if not refused:
            scene.run(pair.step((0, 5), tag="_1"), "first").release("first")
        return scene.bind(both, "second").run(pair.step((2, 3), tag="_2"), "second").release("second").unload()

    twin, requirement = "bind-008/each-its-own", (Req.MC_BIND_008, Req.MC_BIND_009)
    title = "Each of two results is bound to the storage of its cache."
    yield script((0, 1), refused=False).case(twin, requirement, title)
    title = "Each is bound to the storage of the other cache."
    yield script((1, 0), refused=True).case("bind-008/swapped", requirement, title, twin=twin)
    scene = Scene().load(pair.model()).bind(both).run(pair.step((0, 5), tag="_1")).run(pair.step((2, 3), tag="_2"))
    title = "Each of two results has the address of its cache, in every run."
    yield scene.release().unload().case("bind-009/two-caches", (Req.MC_BIND_009,), title)
