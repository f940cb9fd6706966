"""PAGED: models that use tables wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import ModelProto, ValueInfoProto
from mutcache.requirements import Profile, Req
from mutcache_conformance.case import LOAD, RUN, Case, Storage
from mutcache_conformance.cases import edits
from mutcache_conformance.cases.builder import aliased, model, node, tensor
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.flow_words import (
    choose,
    flag,
    graph,
    loop,
    scalar,
    scan,
)
from mutcache_conformance.cases.paged_steps import with_flow
from mutcache_conformance.cases.paged_words import (
    Kind,
    Paged,
    importing,
    paged_gather,
)
from mutcache_conformance.cases.scene import Fault, Program, Scene, family

PAGED = Profile.PAGED


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _names(nonce)
    yield from _wrong_consumers(nonce)
    yield from _constructs(nonce)


def _names(nonce: int) -> Iterator[Case]:
    """What is wrong with any cache is wrong with a table."""
    paged = Paged(Draw(nonce, "paged names"), ("int4",))
    name = paged.draw.name
    program = paged.program(paged.table("int4", "int4"), (1, 1, 2))

    def read_only(made: ModelProto) -> None:
        made.graph.input[0].ClearField("access")

    def other_type(made: ModelProto) -> None:
        page = made.graph.output[0].type.sequence_type.elem_type.quantized_tensor_type
        page.elem_type = Stock.BFLOAT16

    def rows(made: ModelProto) -> None:
        page = made.graph.output[0].type.sequence_type.elem_type.quantized_tensor_type
        page.shape.dim[1].dim_value = 5

    def earlier_version(made: ModelProto) -> None:
        made.ir_version = 14

    def default_operand(made: ModelProto) -> None:
        made.graph.node[0].output_alias[0].input_index = 2

    yield from family(
        "alias-011/paged-updated",
        (Req.MC_ALIAS_011,),
        "Pages are gathered from the table as an update left it.",
        program,
        Fault(
            "alias-011/paged-stale",
            (Req.MC_ALIAS_011,),
            "Pages are gathered from the table as it was before, after the update.",
            edits.operand(1, 0, name("cache")),
        ),
        Fault("alias-010/paged-read-only", (Req.MC_ALIAS_010,), "The table is READ_ONLY, and updated.", read_only),
        Fault(
            "alias-009/paged-output", (Req.MC_ALIAS_009,), "The output has no alias_of.", edits.alias_of(output_0="")
        ),
        Fault("alias-015/paged-no-entry", (Req.MC_ALIAS_015,), "The update has no alias entry.", edits.no_entry()),
        Fault("alias-015/paged-other-input", (Req.MC_ALIAS_015,), "Its entry names the values.", default_operand),
        Fault("shape-001/paged", (Req.MC_SHAPE_001,), "The output's pages decode to another type.", other_type),
        Fault("shape-003/paged", (Req.MC_SHAPE_003,), "The output's pages have more rows.", rows, LOAD | RUN),
        Fault("proto-002/paged", (Req.MC_PROTO_002,), "The model declares IR version 14.", earlier_version),
        profile=PAGED,
    )
    typed = replace(paged, draw=Draw(nonce, "paged forks"), gathers=False)
    name = typed.draw.name
    inputs = [typed.container("cache", mutable=True), *typed.operands("_a"), *typed.operands("_b")]
    nodes = [typed.update("cache", "between", "_a"), typed.update("between", "updated_cache", "_b")]
    made = typed.declare(model(inputs, nodes, [typed.container("updated_cache", root="cache")]))
    feeds = {
        **typed.operands_of((0, 1, 2), tag="_a", role_tag="_a"),
        **typed.operands_of((1, 0, 1), tag="_b", role_tag="_b"),
    }
    yield from family(
        "alias-012/paged-chain",
        (Req.MC_ALIAS_012,),
        "Two updates of a table, one after the other.",
        Program(made, {name("cache"): typed.table("int4", "int4")}, feeds),
        Fault(
            "alias-012/paged-fork",
            (Req.MC_ALIAS_012,),
            "Two updates of the same version of a table.",
            edits.operand(1, 0, name("cache")),
        ),
        profile=PAGED,
    )
    named = Paged(Draw(nonce, "paged identity"), ("int4",))
    name = named.draw.name
    inputs = [named.container("cache", mutable=True), *named.operands(), named.vector()]
    nodes = [
        aliased(node("Identity", [name("cache")], [name("same")])),
        named.update("same", "updated_cache"),
        named.gather("updated_cache"),
    ]
    outputs = [named.container("updated_cache", root="cache"), named.decoded()]
    made = named.declare(model(inputs, nodes, outputs))
    title = "An Identity gives the table another name, under which it is updated."
    program = Program(made, {name("cache"): named.table("int4", "int4")}, named.step((1, 2, 1)))
    yield Scene().whole(program).case("paged-001/another-name", (Req.MC_PAGED_001, Req.MC_PLAN_001), title)


def _wrong_consumers(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_ACCESS_005,)
    paged = Paged(Draw(nonce, "paged consumers"), ("int8",))
    name = paged.draw.name
    program = paged.program(paged.table("int8", "int8"), (1, 1, 2))

    def reads(op_type: str, *operands: str, **attributes: int) -> edits.Edit:
        """The gather becomes another operator."""

        def edit(made: ModelProto) -> None:
            inputs = [name(operand) for operand in operands]
            made.graph.node[1].CopyFrom(node(op_type, inputs, [name("gathered")], attributes))

        return edit

    def adds(op_type: str, *operands: str) -> edits.Edit:
        """One more operator, whose result nobody reads."""

        def edit(made: ModelProto) -> None:
            made.graph.node.append(node(op_type, [name(operand) for operand in operands], [name("other")]))

        return edit

    yield from family(
        "access-005/gather",
        requirement,
        "A table is read by the operator that is there for it.",
        program,
        Fault(
            "access-005/sequence-at",
            requirement,
            "A page is taken with SequenceAt.",
            reads("SequenceAt", "updated_cache", "page_id"),
        ),
        Fault(
            "access-005/concat",
            requirement,
            "The pages are put together with ConcatFromSequence.",
            reads("ConcatFromSequence", "updated_cache", axis=1),
        ),
        Fault(
            "access-005/erase",
            requirement,
            "A page is taken away with SequenceErase.",
            adds("SequenceErase", "updated_cache", "page_id"),
        ),
        Fault(
            "access-005/insert",
            requirement,
            "Rows are put in as a page with SequenceInsert.",
            adds("SequenceInsert", "updated_cache", "values"),
        ),
    )


def _constructs(nonce: int) -> Iterator[Case]:
    """Constructs that ONNX lets no container into."""
    requirement = (Req.MC_ACCESS_005,)
    for what, title, wrong in (
        ("branch", "A sequence is the result of an If.", "The same with a map."),
        ("loop", "A Loop carries a sequence.", "The same with a map."),
    ):
        programs = [_through(nonce, what, "sequence"), _through(nonce, what, "map")]
        twin = f"access-005/{what}-sequence"
        yield with_flow(Scene().whole(programs[0]), twin, requirement, title)
        scene = Scene().refused_load(programs[1], programs[0])
        yield with_flow(scene, f"access-005/{what}-map", requirement, wrong, twin=twin)
    captured, carried = _scanned(nonce, carries=False), _scanned(nonce, carries=True)
    twin = "access-005/scan-captures"
    yield with_flow(
        Scene().whole(captured), twin, requirement, "A Scan captures a sequence, of which it gathers pages."
    )
    scene = Scene().refused_load(carried, captured)
    yield with_flow(scene, "access-005/scan", requirement, "A Scan has the sequence as its state.", twin=twin)


def _scanned(nonce: int, *, carries: bool) -> Program:
    """A Scan that gathers pages of a sequence; they hold their elements as they are, so that there is one result."""
    paged = Paged(Draw(nonce, "paged scan"), ("identity",))
    name = paged.draw.name
    one, read = tensor(name("one"), Stock.INT64, [1]), tensor(name("read"), paged.elem, paged.dims)
    formal = ValueInfoProto(name=name("formal"))
    sequence = {name("cache"): formal} if carries else {}
    body = [paged_gather(name("formal" if carries else "cache"), name("one"), name("read"))]
    kept = [formal] if carries else []
    outputs = [*([name("kept")] if carries else []), name("gathered")]
    construct = scan(sequence, {name("page_ids"): one}, outputs, body, *kept, read)
    page_ids = tensor(name("page_ids"), Stock.INT64, [name("count"), 1])
    made = model([paged.container("cache"), page_ids], [construct], [tensor(name("gathered"), paged.elem, [None] * 4)])
    importing(paged.declare(made))
    chosen = Storage("page_ids", Stock.INT64, (3, 1), int64(1, 0, 1))
    return Program(made, {}, {name("cache"): paged.table("identity", "identity"), name("page_ids"): chosen})


def _through(nonce: int, what: str, kind: Kind) -> Program:
    """A table that passes through a construct."""
    paged = Paged(Draw(nonce, f"paged through {what}"), ("int8",), ("int8",), kind=kind, gathers=False)
    name = paged.draw.name
    updated, keys = name("updated_cache"), (0,) if kind == "map" else ()
    feeds: Mapping[str, Storage]
    inputs = [paged.container("cache", mutable=True), *paged.operands()]
    feeds = paged.step((0, 1, 2))
    if what == "branch":
        inner = paged.container("inner", root="cache")
        keeps = graph([aliased(node("Identity", [name("cache")], [name("inner")]))], inner)
        construct = choose(updated, graph([paged.update("cache", "inner")], inner), keeps, condition=name("condition"))
        inputs.append(flag(name("condition")))
        feeds = {**feeds, name("condition"): Storage("condition", Stock.BOOL, (), b"\1")}
    else:
        carried = {name("cache"): paged.container("formal", mutable=True)}
        body = [paged.update("formal", "next")]
        result = paged.container("next", root="formal")
        construct = loop(carried, [updated], body, result, trips=name("trips"))
        inputs.append(scalar(name("trips")))
        feeds = {**feeds, name("trips"): paged.number_storage("trips", 2)}
    made = paged.declare(model(inputs, [construct], [paged.container("updated_cache", root="cache")]))
    importing(made)
    return Program(made, {name("cache"): paged.table("int8", keys=keys)}, feeds)
