"""PAGED: types of pages, and changes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache_conformance.case import RUN, Case
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.edits import Edit
from mutcache_conformance.cases.formats import FORMATS, payload
from mutcache_conformance.cases.paged_steps import accepted, bound, refused, with_page
from mutcache_conformance.cases.paged_words import Paged, Step
from mutcache_conformance.cases.scene import NEVER, Fault, Scene, family

ALL = tuple(FORMATS)
REPLACED = (Req.MC_PAGED_008, Req.MC_PAGED_010, Req.MC_QUANT_003)
STAYS = (Req.MC_PAGED_009, Req.MC_QUANT_003)


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _changes(nonce)
    yield from _special_changes(nonce)
    yield from _wrong_types(nonce)
    yield from _wrong_declared(nonce)
    yield from _unfit_types(nonce)
    yield from _no_type(nonce)


def _typed(nonce: int, family: str) -> Paged:
    return Paged(Draw(nonce, family), ALL, typed=True)


def _changes(nonce: int) -> Iterator[Case]:
    """Every type to every other one."""
    paged = replace(_typed(nonce, "paged changes"), gathers=False)
    row = paged.draw.integer("row", 0, 3)
    for kind in ALL:
        others = [other for other in ALL if other != kind]
        table = paged.table(*[kind] * len(others))
        steps: list[Step] = [(number, (row + number) % 4, 1, other) for number, other in enumerate(others)]
        title = f"Pages of type {kind} are changed to each other type; a row is written, the others are re-encoded."
        yield accepted(f"paged-008/from-{kind}", REPLACED, title, paged, table, *steps)
    for one, other in (("int4", "nvfp4"), ("fp8", "static-int8")):
        for old, new in ((one, other), (other, one)):
            title = f"A page of type {old} is changed to {new}, which has as many bytes: its payload stays."
            steps = [(1, row, 1, new), (1, (row + 1) % 4, 0, old), (1, 0, 2, new)]
            table = paged.table("int8", old, "identity")
            yield accepted(f"paged-009/{old}-to-{new}", STAYS, title, paged, table, *steps)


def _special_changes(nonce: int) -> Iterator[Case]:
    paged = _typed(nonce, "paged special changes")
    three = paged.table("int8", "int4", "fp8")
    everything = (0, 1, 2)
    title = "An update of no rows changes the type of its page: all rows are re-encoded."
    steps: list[Step] = [(1, 0, 0, "identity"), (0, 4, 0, "int2")]
    yield accepted("paged-008/no-rows", REPLACED, title, paged, three, *steps, gathered=everything)
    title = "All rows are written: nothing of the old page is left."
    steps = [(1, 0, 4, "mxfp4"), (2, 0, 4, "scaled-fp8")]
    yield accepted("paged-008/whole-page", REPLACED, title, paged, three, *steps, gathered=everything)
    title = "A page is changed again and again, to smaller types and larger ones."
    steps = [(1, 1, 1, kind) for kind in ("int8", "int2", "identity", "mxfp4", "static-int8", "int4")]
    yield accepted("paged-008/to-and-fro", REPLACED, title, paged, three, *steps, gathered=everything)
    title = "A page that a run made is changed in a later one."
    steps = [(3, 1, 2, "fp8"), (3, 0, 1, "int2"), (3, 3, 1, "identity")]
    yield accepted("paged-008/made-page", REPLACED, title, paged, three, *steps, gathered=(3, 1))
    title = "Rows that nothing has been written to are re-encoded as what code 0 decodes to."
    steps = [(3, 1, 1, "uint8-zero-point"), (3, 2, 1, "static-int8"), (3, 0, 0, "int4")]
    zeros = replace(paged, formats=(*ALL, "uint8-zero-point"))
    yield accepted("paged-008/unwritten-rows", REPLACED, title, zeros, three, *steps, gathered=(3, 0))

    for kind in ("int8", "int4", "mxfp4"):
        noise = {0: paged.draw.content(f"noise {kind}", Stock.UINT8, (paged.nbytes(kind),))}
        table, silent = paged.table(kind, contents=noise), replace(paged, gathers=False)
        title = f"The type that a page of type {kind} has is named: no other row is re-encoded, whatever its bytes are."
        named = (Req.MC_PAGED_002, Req.MC_PAGED_009)
        yield accepted(f"paged-002/same-type-{kind}", named, title, silent, table, (0, 1, 1, kind))
    for old, new in (("identity", "int8"), ("fp8", "mxfp4"), ("int8", "fp8"), ("identity", "static-int8")):
        special = paged.draw.integers(f"special {old}", 8, 0, 1)
        numbers = paged.numbers(f"page {old}", 256)
        for place in range(0, 256, 37):
            numbers[place] = float("nan") if special[place // 37] else float("inf")
        content = {0: payload(paged.declaration(old), numbers, paged.dims)}
        table = paged.table(old, "int8", contents=content)
        title = f"A page of type {old} that holds NaN and infinities is changed to {new}."
        reqs = (Req.MC_PAGED_008, Req.MC_QUANT_005)
        yield accepted(f"paged-008/{old}-nan-to-{new}", reqs, title, paged, table, (0, 1, 1, new))


def _wrong_types(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PAGED_006,)
    paged = Paged(
        Draw(nonce, "paged wrong types"), ("int8", "int4", "fp8", "int2"), ("int8", "int4", "fp8"), typed=True
    )
    table, recovery = paged.table("int8", "int4"), (0, paged.draw.integer("recovery", 0, 2), 2, "int8")
    name = paged.draw.name

    def played(what: str, title: str, page: int, number: int, *, twin: str = "") -> Case:
        """A page is updated to the type of a number."""
        scene = Scene().load(paged.model()).bind({name("cache"): table})
        feeds = paged.step((page, 1, 2, "int8"), (0, 1), tag="_1")
        feeds[name("quantized_type")] = paged.number_storage("type_1", number)
        scene.run(feeds, refused=RUN if twin else NEVER)
        scene.run(paged.step(recovery, (0, 1), tag="_2")).release().unload()
        return scene.case(what, requirement, title, twin=twin)

    for page, verb in ((1, "changed to"), (2, "made with")):
        word = {1: "change", 2: "create"}[page]
        twin = f"paged-006/{word}"
        yield played(twin, f"A page is {verb} a type that the container allows.", page, 2)
        for what, number, title in (
            ("disallowed", 3, "a type of the model that the container does not allow."),
            ("unregistered", 4, "a type that the model does not declare."),
            ("negative", -1, "type -1, which is not the last one."),
            ("truncated", 2**32 + 2, "a type that is right when truncated to 32 bits."),
        ):
            yield played(f"paged-006/{word}-{what}", f"A page is {verb} {title}", page, number, twin=twin)

    fits = replace(paged, typed=False)
    twin = "paged-006/bound"
    yield bound(twin, requirement, "A table of types that the container allows.", fits, fits.table("int8", "int4"))
    wrong = fits.table("int8", "int2")
    yield bound("paged-006/bound-disallowed", requirement, "One of its pages has another type.", fits, wrong, twin=twin)
    for what, number, title in (
        ("unregistered", 4, "A page has a type that the model does not declare."),
        ("negative", -1, "A page has type -1."),
        ("int32-max", 2**31 - 1, "A page has the largest type that there can be."),
    ):
        wrong = with_page(fits.table("int8", "int4"), 1, quantized_type=number)
        yield bound(f"paged-006/bound-{what}", requirement, title, fits, wrong, twin=twin)
    anything = replace(paged, allowed=())
    table = anything.table("int8", "int4")
    title = "A container that allows every type that the model declares."
    steps: list[Step] = [(1, 0, 1, "int2"), (2, 1, 2, "fp8")]
    yield accepted("paged-006/any", requirement, title, anything, table, *steps, gathered=(0, 1))


def _wrong_declared(nonce: int) -> Iterator[Case]:
    """What a container says of its types in the model."""
    paged = Paged(Draw(nonce, "paged declared types"), ("int8", "int4"), ("int8", "int4"))
    program = paged.program(paged.table("int8", "int4"), (1, 1, 2))

    def allow(number: int) -> Edit:
        def edit(made: ModelProto) -> None:
            for value in (made.graph.input[0], made.graph.output[0]):
                value.type.sequence_type.elem_type.quantized_tensor_type.allowed_quantized_type[1] = number

        return edit

    def decodes(made: ModelProto) -> None:
        made.quantizations[1].data_type = Stock.FLOAT

    def narrow(made: ModelProto) -> None:
        made.quantizations[1].packed_linear.block_size = 24

    yield from family(
        "paged-006/declared",
        (Req.MC_PAGED_006,),
        "A container names the types that its pages may have.",
        program,
        Fault("paged-006/declared-beyond", (Req.MC_PAGED_006,), "It names one more than there are.", allow(2)),
        Fault("paged-006/declared-negative", (Req.MC_PAGED_006,), "It names type -1.", allow(-1)),
        Fault("paged-007/declared-decodes", (Req.MC_PAGED_007,), "One of them decodes to another type.", decodes),
        Fault("paged-007/declared-blocks", (Req.MC_PAGED_007,), "The blocks of one do not fill its rows.", narrow),
    )


def _unfit_types(nonce: int) -> Iterator[Case]:
    """Types that the model declares, and that no page of the container can have, named in a run."""
    requirement = (Req.MC_PAGED_007,)
    paged = Paged(Draw(nonce, "paged unfit types"), ("int8", "fp8", "int4", "mxfp4"), typed=True)
    made = paged.model()
    made.quantizations[2].data_type = Stock.FLOAT
    made.quantizations[3].packed_linear.block_size = 24
    table, recovery = paged.table("int8", "int8"), (0, paged.draw.integer("recovery", 0, 2), 2, "int8")

    def played(what: str, title: str, page: int, kind: str, *, twin: str = "") -> Case:
        scene = Scene().load(made).bind({paged.draw.name("cache"): table})
        scene.run(paged.step((page, 1, 2, kind), (0,), tag="_1"), refused=RUN if twin else NEVER)
        scene.run(paged.step(recovery, (0,), tag="_2")).release().unload()
        return scene.case(what, requirement, title, twin=twin)

    for page, word, verb in ((1, "change", "changed to"), (2, "create", "made with")):
        twin = f"paged-007/{word}"
        yield played(twin, f"A page is {verb} a type that it can have.", page, "fp8")
        title = f"A page is {verb} a type that decodes to other elements."
        yield played(f"paged-007/{word}-decodes", title, page, "int4", twin=twin)
        title = f"A page is {verb} a type whose groups do not fill its rows."
        yield played(f"paged-007/{word}-blocks", title, page, "mxfp4", twin=twin)


def _no_type(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PAGED_015,)
    draw = Draw(nonce, "paged no type")
    row = draw.integer("row", 0, 2)
    one = Paged(draw, ("int8", "int4"), ("int4",))
    step, again = (1, row, 2), (0, 1, 2)
    twin = "paged-015/single"
    table = one.table("int4")
    title = "A page is made without a type given; the container allows one."
    yield accepted(twin, requirement, title, one, table, step, again, gathered=(0,))
    for what, allowed, title in (
        ("several", ("int4", "int8"), "The container allows two types, and the update gives none."),
        ("any", (), "The container allows every type, and the update gives none."),
    ):
        several = replace(one, allowed=allowed)
        yield refused(f"paged-015/{what}", requirement, title, several, table, step, again, twin=twin, gathered=(0,))
    existing = replace(one, allowed=("int4", "int8"))
    title = "A page that is there keeps its type when none is given, whatever the container allows."
    yield accepted("paged-015/existing", requirement, title, existing, existing.table("int4", "int8"), step, again)
