"""PAGED: what an update of a page writes and leaves alone, and how tables grow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache_conformance.case import RUN, Case
from mutcache_conformance.cases.builder import initializer, model, node
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.formats import FORMATS
from mutcache_conformance.cases.paged_steps import accepted, refused
from mutcache_conformance.cases.paged_words import Paged, Step, paged_update
from mutcache_conformance.cases.scene import NEVER, Scene
from mutcache_conformance.cases.steps import INT64_MAX, INT64_MIN

ALL = tuple(FORMATS)
IN_PLACE = (Req.MC_PAGED_001, Req.MC_PAGED_002, Req.MC_QUANT_003)


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield _seed_example(nonce)
    yield from _in_place(nonce)
    yield from _rows(nonce)
    yield from _shapes(nonce)
    yield from _creation(nonce)
    yield from _page_ids(nonce)
    yield from _positions(nonce)
    yield from _growth(nonce)
    yield from _gather(nonce)


def mixed(nonce: int, family: str) -> Paged:
    """Tables of all types."""
    return Paged(Draw(nonce, family), ALL)


def _seed_example(nonce: int) -> Case:
    paged = Paged(Draw(nonce, "paged seed"), ("int4", "fp8", "int2"), dims=(2, 2, 4, 32), declared=(2, "heads", 4, 32))
    steps: list[Step] = [(0, 0, 4), (1, 0, 4), (2, 0, 1), (2, 1, 1), (2, 2, 1)]
    title = "The specification's example: INT4, FP8 and INT2 pages in one sequence, filled up, then token by token."
    return accepted(
        "paged-001/seed-example",
        (*IN_PLACE, Req.MC_PAGED_010, Req.MC_QUANT_001),
        title,
        paged,
        paged.table("int4", "fp8", "int2"),
        *steps,
        gathered=(0, 1, 2),
    )


def _in_place(nonce: int) -> Iterator[Case]:
    row = Draw(nonce, "paged in place").integer("row", 0, 2)
    for kind in ALL:
        paged = Paged(Draw(nonce, f"paged in place {kind}"), (kind,))
        title = f"Two rows of a page of type {kind}, again and again: the latest stay."
        steps: list[Step] = [(1, row, 2)] * 3
        yield accepted(f"paged-001/{kind}", IN_PLACE, title, paged, paged.table(kind, kind, kind), *steps)
    paged = replace(Paged(Draw(nonce, "paged unread"), ("int4",)), gathers=False)
    title = "A model without a gather: nobody reads what it writes but the caller."
    table = paged.table("int4", "int4")
    yield accepted("paged-001/unread", IN_PLACE, title, paged, table, (1, row, 2), (0, row, 1))

    paged = mixed(nonce, "paged mixed in place")
    everything: list[Step] = [(number, (number + row) % 4, 1) for number in range(len(ALL))]
    title = "A row of each page in turn, the types all different; each time everything is gathered."
    yield accepted(
        "paged-001/all", IN_PLACE, title, paged, paged.table(*ALL), *everything, gathered=tuple(range(len(ALL)))
    )
    for what, elem, name in (("float", Stock.FLOAT, "FLOAT"), ("bfloat16", Stock.BFLOAT16, "BFLOAT16")):
        other = replace(mixed(nonce, f"paged {what}"), elem=elem)
        steps = [(number, (number + row) % 3, 2) for number in range(len(ALL))]
        title = f"Pages of all types that decode to {name}."
        yield accepted(f"paged-001/{what}", IN_PLACE, title, other, other.table(*ALL), *steps)


def _rows(nonce: int) -> Iterator[Case]:
    others = (Req.MC_PAGED_002, Req.MC_QUANT_001)
    every: list[Step] = [(0, 0, 1), (0, 3, 1), (0, 1, 1), (0, 2, 1), (0, 1, 2), (0, 0, 3)]
    for kind in ALL:
        paged = Paged(Draw(nonce, f"paged rows {kind}"), (kind,), gathers=False)
        title = f"One, two and three rows at every position of a page of type {kind}; the rows beside them stay."
        yield accepted(f"paged-002/rows-{kind}", others, title, paged, paged.table(kind, kind), *every)

    paged = Paged(Draw(nonce, "paged plain lengths"), ("int4",))
    table = paged.table("int4", "int4")
    title = "All rows of a page, and no rows at every position that is allowed, the page's size among them."
    at_all: list[Step] = [(0, 0, 4), *[(1, position, 0) for position in range(5)]]
    yield accepted("paged-002/lengths", others, title, paged, table, *at_all)
    odd = replace(table, payloads=tuple(replace(one, misalignment=1) for one in table.payloads))
    yield accepted("paged-002/odd-address", others, "Payloads at odd addresses.", paged, odd, (1, 1, 2), (0, 3, 1))

    noisy = replace(paged, gathers=False)
    content = {0: noisy.draw.content("noise", Stock.UINT8, (noisy.nbytes("int4"),))}
    title = "Any bytes at all in the rows that an update leaves alone."
    table = noisy.table("int4", contents=content)
    yield accepted("paged-002/any-bytes", others, title, noisy, table, (0, 2, 1), (0, 0, 1))

    paged = mixed(nonce, "paged lengths")
    whole: list[Step] = [(number, 0, 4) for number in range(len(ALL))]
    title = "All rows of every page at once."
    yield accepted("paged-002/mixed-whole-pages", others, title, paged, paged.table(*ALL), *whole)
    none: list[Step] = [(number, number % 5, 0) for number in range(len(ALL))]
    title = "No rows, at every position that is allowed, the page's size among them: no byte changes."
    yield accepted("paged-002/mixed-no-rows", others, title, paged, paged.table(*ALL), *none)

    # What lies in the untouched rows need not be what an encoder makes: scales that are NaN, codes that none makes.
    noise = {
        number: paged.draw.content(f"noise {kind}", Stock.UINT8, (paged.nbytes(kind),))
        for number, kind in enumerate(ALL)
    }
    some: list[Step] = [(number, (number + 1) % 4, 1) for number in range(len(ALL))]
    title = "Any bytes at all in the rows that an update leaves alone."
    silent = replace(paged, gathers=False)
    yield accepted("paged-002/mixed-any-bytes", others, title, silent, silent.table(*ALL, contents=noise), *some)

    table = paged.table(*ALL)
    odd = replace(table, payloads=tuple(replace(one, misalignment=1) for one in table.payloads))
    title = "Payloads of all types at odd addresses."
    yield accepted("paged-002/mixed-odd-addresses", others, title, paged, odd, *some)


def _shapes(nonce: int) -> Iterator[Case]:
    others = (Req.MC_PAGED_002, Req.MC_QUANT_001)
    for what, dims, axis, title in (
        ("rank-2", (5, 32), -2, "Pages of rank 2."),
        ("first-axis", (4, 2, 32), -3, "Rows along the first axis."),
        ("middle-axis", (2, 3, 2, 32), -3, "Rows along an axis in the middle, in several pieces each."),
        ("wide", (1, 2, 256), -2, "Rows of several groups."),
    ):
        paged = replace(mixed(nonce, f"paged {what}"), dims=dims, axis=axis)
        last = dims[axis] - 1
        steps: list[Step] = [(number, last - number % 2, 1) for number in range(len(ALL))]
        yield accepted(f"paged-002/mixed-{what}", others, title, paged, paged.table(*ALL), *steps)
        plain = replace(paged, formats=("int8",))
        yield accepted(f"paged-002/{what}", others, title, plain, plain.table("int8"), (0, last, 1), (0, 0, 2))
    for kind, elem in (("fp8", Stock.FLOAT), ("static-int8", Stock.FLOAT16), ("identity", Stock.BFLOAT16)):
        paged = Paged(Draw(nonce, f"paged last axis {kind}"), (kind,), elem=elem, dims=(3, 2, 5), axis=-1)
        title = f"Rows along the last axis of pages of type {kind}, which has no groups."
        yield accepted(f"paged-002/last-axis-{kind}", others, title, paged, paged.table(kind), (0, 3, 2), (0, 1, 1))


def _creation(nonce: int) -> Iterator[Case]:
    made = (Req.MC_PAGED_003, Req.MC_PAGED_010)
    typed = replace(mixed(nonce, "paged creation"), typed=True)
    row = typed.draw.integer("row", 0, 2)
    for kind in ALL:
        one_type = Paged(Draw(nonce, f"paged creation {kind}"), (kind,), (kind,))
        title = f"A page of type {kind} is made behind others, and one of its rows written; the others are zero bytes."
        table = one_type.table(kind, kind)
        yield accepted(f"paged-003/{kind}", made, title, one_type, table, (2, row, 1), (2, row + 1, 1))
    title = "The first page of a table without any."
    yield accepted(
        "paged-003/mixed-first", made, title, typed, typed.table(), (0, row, 1, "int4"), (1, 0, 4, "identity")
    )
    title = "An update of no rows makes its page all the same."
    steps: list[Step] = [(1, 4, 0, "int2"), (2, 0, 0, "mxfp4")]
    yield accepted("paged-003/mixed-no-rows", made, title, typed, typed.table("int8"), *steps)
    single = Paged(Draw(nonce, "paged single"), ("int8",), ("int8",))
    title = "Pages without a type given, where the container allows one only."
    one = (Req.MC_PAGED_003, Req.MC_PAGED_015)
    yield accepted("paged-003/single-type", one, title, single, single.table("int8"), (1, 1, 2), (2, 0, 1), (1, 0, 1))
    title = "The first page of a table without any."
    yield accepted("paged-003/first", made, title, single, single.table(), (0, row, 1), (1, 0, 4))
    title = "An update of no rows makes its page all the same."
    yield accepted("paged-003/no-rows", made, title, single, single.table("int8"), (1, 4, 0), (2, 0, 0))
    title = "Pages of all types are made one after the other, and then written again."
    steps = [(number, number % 3, 2, kind) for number, kind in enumerate(ALL)]
    steps += [(number, 1, 1, kind) for number, kind in enumerate(ALL)]
    yield accepted("paged-003/mixed-all", made, title, typed, typed.table(), *steps, gathered=(0,))


def _page_ids(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PAGED_004,)
    paged = Paged(Draw(nonce, "paged ids"), ("int8",), ("int8",))
    table, recovery = paged.table("int8", "int8"), (1, paged.draw.integer("recovery", 0, 2), 2)
    twin = "paged-004/next"
    yield accepted(
        twin, requirement, "The page behind the last one.", paged, table, (2, 1, 2), recovery, gathered=(0, 1)
    )
    for what, number, title in (
        ("gap", 3, "A page is left out."),
        ("far", paged.draw.integer("far", 10, 1000), "Many pages are left out."),
        ("minus-one", -1, "Page -1 is not the last one."),
        ("minus-length", -2, "Page -length is not the first one."),
        ("int64-max", INT64_MAX, "The largest INT64."),
        ("int64-min", INT64_MIN, "The smallest INT64."),
        ("two-to-the-32", 2**32, "Page 0 when truncated to 32 bits."),
        ("minus-two-to-the-32", -(2**32) + 1, "Negative, page 1 when truncated."),
    ):
        step: Step = (number, 1, 2)
        yield refused(f"paged-004/{what}", requirement, title, paged, table, step, recovery, twin=twin, gathered=(0, 1))
    empty, first = paged.table(), "paged-004/first"
    yield accepted(
        first, requirement, "The first page of a table without any.", paged, empty, (0, 1, 2), (0, 0, 1), gathered=(0,)
    )
    title = "Page 1 of a table without any."
    steps: tuple[Step, Step] = (1, 1, 2), (0, 0, 1)
    yield refused("paged-004/gap-at-first", requirement, title, paged, empty, *steps, twin=first, gathered=(0,))


def _positions(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PAGED_005, Req.MC_PAGED_012)
    paged = Paged(Draw(nonce, "paged positions"), ("mxfp4",))
    table, recovery = paged.table("mxfp4", "mxfp4"), (0, paged.draw.integer("recovery", 0, 2), 2)
    twin = "paged-005/last-rows"
    title = "Rows that end where the page does."
    yield accepted(twin, requirement, title, paged, table, (1, 2, 2), recovery, gathered=(0,))
    for what, position, title in (
        ("by-one", 3, "position + length is one more than the page has."),
        ("at-the-end", 4, "No row fits: they belong to the next page, which is not this update's."),
        ("minus-one", -1, "Position -1 is not the last row."),
        ("minus-length", -2, "Position -length is not the last rows."),
        ("int64-max", INT64_MAX, "The largest INT64."),
        ("sum-overflows", INT64_MAX - 1, "position + length is 2**63, negative when it wraps."),
        ("int64-min", INT64_MIN, "The smallest INT64."),
        ("two-to-the-32", 2**32 + 1, "In range when truncated to 32 bits."),
    ):
        step: Step = (1, position, 2)
        yield refused(f"paged-005/{what}", requirement, title, paged, table, step, recovery, twin=twin, gathered=(0,))
    twin = "paged-005/no-rows"
    title = "No rows at the size of the page."
    yield accepted(twin, requirement, title, paged, table, (1, 4, 0), recovery, gathered=(0,))
    title = "No rows behind the page."
    step = (1, 5, 0)
    yield refused(
        "paged-005/no-rows-behind", requirement, title, paged, table, step, recovery, twin=twin, gathered=(0,)
    )
    twin = "paged-005/whole"
    title = "As many rows as the page has."
    yield accepted(twin, requirement, title, paged, table, (1, 0, 4), recovery, gathered=(0,))
    title = "A row more than the page has."
    step = (1, 0, 5)
    yield refused("paged-005/longer", requirement, title, paged, table, step, recovery, twin=twin, gathered=(0,))


#: Pages that a run of the growing model makes, and its runs.
_PER_RUN, _RUNS = 125, 8


def _growth(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PAGED_010, Req.MC_PAGED_003)
    kind = "int8-interleaved"
    paged = Paged(Draw(nonce, "paged growth"), (kind,), (kind,), dims=(1, 2, 8), gathers=False)
    name = paged.draw.name
    growing = _growing(paged)
    rows = paged.values("values", 1)
    for what, pages, title in (
        ("thousand-pages", (), "A thousand pages, from none on: none moves once it is there."),
        ("behind-the-callers", (kind,) * 20, "Pages behind those of the caller, which stay where they are."),
    ):
        scene = Scene().load(growing).bind({name("cache"): paged.table(*pages)})
        for run in range(_RUNS if not pages else 2):
            first = paged.number_storage(f"page_id_{run}", len(pages) + run * _PER_RUN)
            position = paged.number_storage(f"position_{run}", run % 2)
            scene.run({name("page_id"): first, name("values"): rows, name("position"): position})
        yield scene.release().unload().case(f"paged-010/{what}", requirement, title)

    typed = replace(mixed(nonce, "paged growth of two"), typed=True)
    kinds = ("int8", "int4", "identity")
    steps: list[Step] = [
        (3, 0, 1, "fp8"),
        (0, 1, 1, "int8"),
        (4, 1, 2, "int2"),
        (3, 2, 1, "fp8"),
        (2, 3, 1, "identity"),
    ]
    title = "New pages between updates of old ones."
    yield accepted("paged-010/between-updates", requirement, title, typed, typed.table(*kinds), *steps)


def _growing(paged: Paged) -> ModelProto:
    """A model of many updates, of the page ``page_id`` and each of those behind it."""
    name = paged.draw.name
    inputs = [paged.container("cache", mutable=True), paged.scalar("page_id"), paged.rows(), paged.scalar("position")]
    nodes, constants, cache = [], [], "cache"
    for number in range(_PER_RUN):
        offset, page_id, updated = (f"{role}_{number}" for role in ("offset", "page_id", "updated"))
        constants.append(initializer(name(offset), Stock.INT64, [], int64(number)))
        nodes.append(node("Add", [name("page_id"), name(offset)], [name(page_id)]))
        nodes.append(paged_update(name(cache), name(page_id), name("values"), name("position"), name(updated)))
        cache = updated
    return paged.declare(model(inputs, nodes, [paged.container(cache, root="cache")], initializers=constants))


def _gather(nonce: int) -> Iterator[Case]:
    absent = (Req.MC_PAGED_016,)
    paged = Paged(Draw(nonce, "paged gather"), ("int4",))
    table, name = paged.table("int4", "int4", "int4"), paged.draw.name
    reader, cache = paged.reader(), name("cache")

    def script(*page_ids: int, refused: bool = False) -> Scene:
        wanted = paged.number_storage("page_ids_1", *page_ids, scalar=False)
        again = paged.number_storage("page_ids_2", 2, 0, scalar=False)
        scene = Scene().load(reader)
        scene.run({cache: table, name("page_ids"): wanted}, "", refused=RUN if refused else NEVER)
        return scene.run({cache: table, name("page_ids"): again}, "").unload()

    twin = "paged-016/last"
    yield script(2, 1).case(twin, absent, "The last page is gathered, and the one before it.")
    for what, number, title in (
        ("length", 3, "The page behind the last one is gathered."),
        ("minus-one", -1, "Page -1 is not the last one."),
        ("two-to-the-32", 2**32, "Page 0 when truncated to 32 bits."),
        ("int64-max", INT64_MAX, "The largest INT64."),
    ):
        yield script(number, 1, refused=True).case(f"paged-016/{what}", absent, title, twin=twin)
    title = "The page that is absent is not the first of those gathered."
    yield script(2, 3, refused=True).case("paged-016/second", absent, title, twin=twin)

    decode = (Req.MC_QUANT_002,)
    yield script(1, 1, 0, 1).case("quant-002/again", decode, "Pages are gathered several times and in any order.")
    yield script().case("quant-002/no-pages", decode, "No page at all is gathered.")
    title = "The number of pages, before and after one is made."
    yield _lengths(nonce).case("paged-003/sequence-length", (Req.MC_PAGED_003,), title)
    wide = replace(mixed(nonce, "paged gather axis 0"), axis=-3)
    title = "Pages stand behind each other along the first axis."
    steps: list[Step] = [(2, 1, 1), (0, 0, 2)]
    yield accepted("quant-002/first-axis", decode, title, wide, wide.table(*ALL), *steps, gathered=(5, 0, 8))


def _lengths(nonce: int) -> Scene:
    paged = Paged(Draw(nonce, "paged lengths of sequences"), ("fp8",), ("fp8",))
    name = paged.draw.name
    inputs = [paged.container("cache", mutable=True), *paged.operands()]
    nodes = [
        node("SequenceLength", [name("cache")], [name("length_before")]),
        paged.update("cache", "updated_cache"),
        node("SequenceLength", [name("updated_cache")], [name("length_after")]),
    ]
    outputs = [
        paged.container("updated_cache", root="cache"),
        paged.scalar("length_before"),
        paged.scalar("length_after"),
    ]
    table, scene = paged.table("fp8", "fp8"), Scene().load(paged.declare(model(inputs, nodes, outputs)))
    scene.bind({name("cache"): table})
    for number, step in enumerate([(2, 0, 1), (0, 1, 2), (3, 0, 0)], 1):
        scene.run(paged.operands_of(step, f"_{number}"))
    return scene.release().unload()
