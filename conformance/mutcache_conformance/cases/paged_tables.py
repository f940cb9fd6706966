"""PAGED: what tables may be bound, and maps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import TensorProto as Stock

from mutcache.requirements import Profile, Req
from mutcache_conformance.case import BIND, RUN, Case, Storage
from mutcache_conformance.cases.builder import model
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.formats import FORMATS
from mutcache_conformance.cases.paged_steps import accepted, bound, refused, with_page
from mutcache_conformance.cases.paged_words import Paged, Step, paged_update
from mutcache_conformance.cases.scene import NEVER, Lent, Scene, Table
from mutcache_conformance.cases.steps import INT64_MAX

ALL = tuple(FORMATS)


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _wrong_pages(nonce)
    yield from _overlaps(nonce)
    yield from _apart(nonce)
    yield from _leases(nonce)
    yield from _maps(nonce)


def _wrong_pages(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PAGED_007,)
    paged = Paged(Draw(nonce, "paged wrong pages"), ("int4",))
    table = paged.table("int4", "int4")
    size = paged.nbytes("int4")
    [_, second] = table.payloads
    twin = "paged-007/right"
    yield bound(twin, requirement, "Pages of the container's dims, and of the size that follows.", paged, table)
    longer = replace(second, shape=(2 * size,), content=(second.content or b"") * 2)
    for what, changes, title in (
        ("fewer-rows", {"dims": (2, 3, 32)}, "A page has a row less than the container says."),
        ("more-rows", {"dims": (2, 5, 32)}, "A page has a row more than the container says."),
        ("swapped", {"dims": (4, 2, 32)}, "The dims of a page are in another order."),
        ("rank", {"dims": (8, 32)}, "A page has another rank."),
        ("no-rows", {"dims": (2, 0, 32)}, "A page has no rows, though it has bytes for them."),
        ("n-bytes-less", {"nbytes": size - 1}, "A page declares a byte less than its layout has."),
        ("n-bytes-more", {"nbytes": size + 1}, "A page declares a byte more than its layout has."),
        ("n-bytes-zero", {"nbytes": 0}, "A page declares no bytes."),
    ):
        yield bound(f"paged-007/{what}", requirement, title, paged, with_page(table, 1, **changes), twin=twin)
    for what, payload, title in (
        ("payload-short", _cut(second, size - 1), "The payload of a page is a byte shorter than its layout."),
        ("payload-long", _cut(longer, size + 1), "The payload of a page is a byte longer than its layout."),
    ):
        wrong = replace(table, payloads=(table.payloads[0], payload))
        yield bound(f"paged-007/{what}", requirement, title, paged, wrong, twin=twin)

    yield from _wrong_feeds(nonce)
    mixed = Paged(Draw(nonce, "paged wrong types of pages"), ("int8", "fp8", "int4"))
    table = mixed.table("int8", "fp8")
    twin = "paged-007/decodes"
    title = "All types of the table decode to the container's elements; another one of the model does not."
    made = mixed.model()
    made.quantizations[2].data_type = Stock.FLOAT
    yield bound(twin, requirement, title, mixed, table, model=made)
    title = "A page has a type that decodes to other elements than the container's."
    wrong = mixed.table("int8", "int4")
    yield bound("paged-007/decodes-otherwise", requirement, title, mixed, wrong, model=made, twin=twin)
    title = "A page has the bytes of another type than it names."
    wrong = with_page(table, 1, quantized_type=0)
    yield bound("paged-007/other-type", requirement, title, mixed, wrong, model=made, twin=twin)


def _wrong_feeds(nonce: int) -> Iterator[Case]:
    """Tables that are not mutable are judged like others."""
    requirement = (Req.MC_PAGED_007,)
    paged = Paged(Draw(nonce, "paged wrong feeds"), ("int4",))
    name, table = paged.draw.name, paged.table("int4", "int4")
    again: dict[str, Lent] = {
        name("cache"): paged.table("int4", name="again"),
        name("page_ids"): paged.number_storage("page_ids_2", 0, scalar=False),
    }

    def script(fed: Table, *, refused: bool) -> Scene:
        feeds: dict[str, Lent] = {
            name("cache"): fed,
            name("page_ids"): paged.number_storage("page_ids", 1, scalar=False),
        }
        scene = Scene().load(paged.reader()).run(feeds, "", refused=BIND | RUN if refused else NEVER)
        return scene.run(again, "").unload()

    twin = "paged-007/fed"
    yield script(table, refused=False).case(twin, requirement, "A table that is only read.")
    for what, changes, title in (
        ("fewer-rows", {"dims": (2, 3, 32)}, "One of its pages has a row less than the container says."),
        ("n-bytes", {"nbytes": paged.nbytes("int4") + 1}, "One of its pages declares a byte too many."),
    ):
        scene = script(with_page(table, 1, **changes), refused=True)
        yield scene.case(f"paged-007/fed-{what}", requirement, title, twin=twin)

    kind = (Req.MC_BIND_007,)
    plain = Paged(Draw(nonce, "paged wrong kinds"), ("int8",))
    table, name = plain.table("int8", "int8"), plain.draw.name
    pages = tuple(replace(page, key=number) for number, page in enumerate(table.table.pages))
    mapped = replace(table.table, container="map", pages=pages)
    twin = "bind-007/sequence"
    title = "A sequence of pages is bound to a sequence."
    yield bound(twin, kind, title, plain, table, profile=Profile.PAGED)
    title = "A map of pages is bound to a sequence."
    wrong = replace(table, table=mapped)
    yield bound("bind-007/map-for-sequence", kind, title, plain, wrong, twin=twin, profile=Profile.PAGED)


def _cut(payload: Storage, size: int) -> Storage:
    return replace(payload, shape=(size,), content=(payload.content or b"")[:size])


def _overlaps(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PAGED_011,)
    paged = Paged(Draw(nonce, "paged overlaps"), ("int8",))
    table = paged.table("int8", "int8", "int8")
    size = paged.nbytes("int8")
    ground = Storage("ground", Stock.UINT8, (4 * size,), bytes(4 * size))
    twin = "paged-011/adjacent"

    def laid(*offsets: int) -> Table:
        """The pages at these offsets of one memory."""
        lying = [
            replace(payload, within="ground", offset=offset)
            for payload, offset in zip(table.payloads, offsets, strict=True)
        ]
        return replace(table, payloads=(ground, *lying))

    title = "Payloads that touch each other, in one piece of memory."
    yield bound(twin, requirement, title, paged, laid(0, size, 2 * size))
    for what, offsets, title in (
        ("by-one", (0, size - 1, 2 * size), "The last byte of a payload is the first of another."),
        ("inside", (0, size, size + 5), "A payload begins a few bytes behind the begin of another one."),
        ("out-of-order", (size, 0, size - 40), "A payload begins before the one that it overlaps."),
        ("same-range", (0, 0, size), "Two payloads of equal size have the same bytes."),
    ):
        yield bound(f"paged-011/{what}", requirement, title, paged, laid(*offsets), twin=twin)
    first, *_ = table.payloads
    shared = with_page(table, 1, storage=first.name)
    title = "One payload under two numbers."
    yield bound("paged-011/same-storage", requirement, title, paged, shared, twin=twin)

    # What is not in the table: an ordinary input, and storage that may not be written.
    name = paged.draw.name
    for what, req, title in (
        ("paged-011/values-inside", (*requirement, Req.MC_BIND_004), "The values of an update lie in a payload."),
        (
            "paged-011/values-adjacent",
            (*requirement, Req.MC_BIND_004),
            "The values of an update begin behind a payload.",
        ),
    ):
        is_bad = what.endswith("inside")
        feeds = paged.step((1, 1, 2), tag="_1")
        values = feeds[name("values")]
        offset = 8 if is_bad else -(-size // 64) * 64
        host = replace(first, shape=(4 * size,), content=(first.content or b"") * 4, name="host")
        lying = replace(first, within="host", offset=0)
        feeds[name("values")] = replace(values, within="host", offset=offset)
        lent = replace(table, payloads=(host, lying, *table.payloads[1:]))
        scene = Scene().load(paged.model()).bind({name("cache"): lent})
        scene.run(feeds, refused=BIND | RUN if is_bad else NEVER)
        scene.run(paged.step((2, 0, 1), tag="_2")).release().unload()
        yield scene.case(what, req, title, twin="paged-011/values-adjacent" if is_bad else "")
    read_only = replace(
        table, payloads=(table.payloads[0], replace(table.payloads[1], writable=False), table.payloads[2])
    )
    twin = "paged-011/writable"
    also = (*requirement, Req.MC_BIND_002)
    yield bound(twin, also, "Payloads that may be written, each in memory of its own.", paged, table)
    title = "One of the payloads may not be written."
    yield bound("paged-011/read-only", also, title, paged, read_only, twin=twin)


def _apart(nonce: int) -> Iterator[Case]:
    """Payloads more than 2 GiB from each other, in one piece of memory that nobody fills."""
    paged = Paged(Draw(nonce, "paged apart"), ("int8", "int4", "identity"))
    table = paged.table("int8", "int4", "identity")
    ground = Storage("ground", Stock.UINT8, ((5 << 30) + 4096,))
    places = (0, (2 << 30) + 64, 5 << 30)
    lying = [replace(one, within="ground", offset=at) for one, at in zip(table.payloads, places, strict=True)]
    far = replace(table, payloads=(ground, *lying))
    title = "Payloads more than 2 GiB and 4 GiB from each other in memory."
    steps: list[Step] = [(0, 1, 2), (1, 0, 1), (2, 2, 2), (1, 3, 1)]
    requirement = (Req.MC_PAGED_001, Req.MC_PAGED_002)
    yield accepted("paged-001/apart", requirement, title, paged, far, *steps, gathered=(0, 1, 2))


def _leases(nonce: int) -> Iterator[Case]:
    """The lease of a table covers all its payloads."""
    requirement = (Req.MC_PAGED_011, Req.MC_BIND_004)
    paged = Paged(Draw(nonce, "paged leases"), ("fp8",), gathers=False)
    name = paged.draw.name
    inputs = [paged.container("cache_a", mutable=True), paged.container("cache_b", mutable=True), *paged.operands()]
    nodes = [
        paged_update(name(f"cache_{one}"), name("page_id"), name("values"), name("position"), name(f"updated_{one}"))
        for one in "ab"
    ]
    outputs = [paged.container(f"updated_{one}", root=f"cache_{one}") for one in "ab"]
    both = paged.declare(model(inputs, nodes, outputs))
    first, second = paged.table("fp8", "fp8", name="a"), paged.table("fp8", "fp8", name="b")

    def script(other: Table, *, refused: bool) -> Scene:
        scene = Scene().load(both)
        scene.bind({name("cache_a"): first, name("cache_b"): other}, "first", refused=BIND if refused else NEVER)
        if not refused:
            scene.run(paged.operands_of((1, 0, 2), "_1"), "first").release("first")
        good = paged.table("fp8", name="c"), paged.table("fp8", name="d")
        scene.bind({name("cache_a"): good[0], name("cache_b"): good[1]}, "second")
        return scene.run(paged.operands_of((0, 1, 2), "_2"), "second").release("second").unload()

    twin = "paged-011/two-tables"
    yield script(second, refused=False).case(twin, requirement, "Two tables of one run.")
    shared = replace(with_page(second, 1, storage=first.payloads[1].name), payloads=(*second.payloads, *first.payloads))
    title = "A payload is in both of the tables of one run."
    yield script(shared, refused=True).case("paged-011/in-both-tables", requirement, title, twin=twin)

    cache = name("cache")

    def twice(other: Table, *, refused: bool) -> Scene:
        scene = Scene().load(paged.model()).bind({cache: first}, "first")
        scene.load(paged.model(), "other").bind(
            {cache: other}, "second", session="other", refused=BIND if refused else NEVER
        )
        if not refused:
            scene.run(paged.step((0, 2, 1), tag="_1"), "second", session="other").release("second")
        return scene.run(paged.step((1, 2, 2), tag="_2"), "first").release("first").unload().unload("other")

    lease = (Req.MC_PAGED_011, Req.MC_BIND_005)
    twin = "paged-011/two-sessions"
    yield twice(second, refused=False).case(twin, lease, "Two sessions have tables of their own.")
    title = "A session binds a table that has a payload of a table bound in another."
    yield twice(shared, refused=True).case("paged-011/bound-elsewhere", lease, title, twin=twin)
    scene = Scene()
    single = replace(paged, formats=("int8",), allowed=("int8",))
    table = single.table("int8")
    scene.load(single.model()).bind({cache: table}, "first").run(single.step((1, 0, 2), tag="_1"), "first").release(
        "first"
    )
    scene.unload().load(single.model(), "other").bind({cache: table}, "second", session="other")
    scene.run(single.step((1, 2, 2), tag="_2"), "second", session="other").release("second").unload("other")
    title = "A table with a page that one session made is bound in another after it."
    yield scene.case("paged-011/handed-over", lease, title)


def _maps(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PAGED_014,)
    yield from _mixed_maps(nonce)
    paged = Paged(Draw(nonce, "paged maps"), ("int8",), ("int8",), kind="map")
    keys = _keys(paged)
    table, gathered = paged.table(*["int8"] * len(keys), keys=keys), (keys[3], keys[0])
    row = paged.draw.integer("row", 0, 2)
    title = "Pages with keys that have gaps are updated."
    steps: list[Step] = [(key, row, 2) for key in keys]
    in_place = (*requirement, Req.MC_PAGED_001, Req.MC_PAGED_002)
    yield accepted("paged-014/update", in_place, title, paged, table, *steps, gathered=gathered)
    title = "Pages are made under keys before, between and behind those that there are."
    steps = [(0, row, 1), (7, 0, 0), (INT64_MAX - 1, 1, 2), (7, 1, 1)]
    made = (*requirement, Req.MC_PAGED_003)
    yield accepted("paged-014/create", made, title, paged, table, *steps, gathered=gathered)
    empty = paged.table()
    title = "The first pages of a map without any."
    yield accepted("paged-014/first", made, title, paged, empty, (5, row, 1), (2, row, 2))

    twin = "paged-014/zero"
    good: tuple[Step, Step] = (0, row, 2), (keys[0], 1, 1)
    yield accepted(twin, requirement, "Key 0, the least that there is.", paged, table, *good, gathered=gathered)
    negative = (*requirement, Req.MC_PAGED_004)
    for what, key, title in (("minus-one", -1, "Key -1."), ("int64-min", -INT64_MAX - 1, "The smallest INT64.")):
        steps = [(key, row, 2), good[1]]
        yield refused(f"paged-014/{what}", negative, title, paged, table, *steps, twin=twin, gathered=gathered)
    reader = paged.reader()
    name = paged.draw.name

    def script(key: int, *, refused: bool) -> Scene:
        wanted = paged.number_storage("page_ids_1", key, scalar=False)
        again = paged.number_storage("page_ids_2", keys[3], keys[1], scalar=False)
        scene = Scene().load(reader)
        scene.run({name("cache"): table, name("page_ids"): wanted}, "", refused=RUN if refused else NEVER)
        return scene.run({name("cache"): table, name("page_ids"): again}, "").unload()

    absent = (*requirement, Req.MC_PAGED_016)
    twin = "paged-014/gather"
    yield script(keys[2], refused=False).case(twin, absent, "A page is gathered by its key.")
    title = "A page is gathered by its place among the others, which is no key."
    yield script(2, refused=True).case("paged-014/gather-place", absent, title, twin=twin)


def _keys(paged: Paged) -> list[int]:
    """Keys with gaps, the largest among them."""
    first, second = sorted(paged.draw.integers("keys", 2, 10, 1000))
    return [3, first, second + 1000, INT64_MAX]


def _mixed_maps(nonce: int) -> Iterator[Case]:
    paged = Paged(Draw(nonce, "paged mixed maps"), ALL, kind="map", typed=True)
    keys, row = _keys(paged), paged.draw.integer("row", 0, 2)
    table, gathered = paged.table("int8", "int4", "fp8", "identity", keys=keys), (keys[3], keys[0])
    title = "Pages of a map are changed to other types."
    steps: list[Step] = [(keys[1], row, 1, "identity"), (keys[0], 0, 0, "int2"), (keys[2], row, 1, "static-int8")]
    changed = (Req.MC_PAGED_014, Req.MC_PAGED_008, Req.MC_PAGED_009)
    yield accepted("paged-014/mixed-change", changed, title, paged, table, *steps, gathered=gathered)
    title = "Pages of other types are made under keys before, between and behind those that there are."
    steps = [(0, row, 1, "int2"), (7, 0, 0, "mxfp4"), (INT64_MAX - 1, 1, 2, "nvfp4"), (7, 1, 1, "mxfp4")]
    made = (Req.MC_PAGED_014, Req.MC_PAGED_003)
    yield accepted("paged-014/mixed-create", made, title, paged, table, *steps, gathered=gathered)
