"""PAGED: tables in chains, branches, loops and functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import GraphProto, ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.case import RUN, Case, Storage
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.flow_words import (
    LOCAL,
    call,
    choose,
    flag,
    function,
    graph,
    loop,
    scalar,
)
from mutcache_conformance.cases.paged_steps import with_flow
from mutcache_conformance.cases.paged_words import (
    Kind,
    Paged,
    Step,
    importing,
    paged_gather,
    paged_update,
)
from mutcache_conformance.cases.scene import NEVER, Lent, Scene


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _order(nonce)
    yield from _loops(nonce)
    yield from _branches(nonce)
    yield from _functions(nonce)


def _order(nonce: int) -> Iterator[Case]:
    paged = Paged(Draw(nonce, "paged order"), ("int8", "int4", "fp8"), typed=True)
    name, table = paged.draw.name, paged.table("int8", "int4")
    inputs = [paged.container("cache", mutable=True), *paged.operands("_a"), *paged.operands("_b"), paged.vector()]
    first, second = paged.update("cache", "between", "_a"), paged.update("between", "updated_cache", "_b")
    gathers = {
        "before": paged.gather("cache", "gathered_before"),
        "between": paged.gather("between", "gathered_between"),
        "after": paged.gather("updated_cache", "gathered_after"),
    }
    output = paged.container("updated_cache", root="cache")
    pairs: list[tuple[Step, Step]] = [
        ((0, 1, 2, "int8"), (0, 2, 1, "int8")),
        ((1, 0, 1, "fp8"), (0, 3, 1, "int8")),
    ]
    for what, read, title in (
        ("between", ("before", "between", "after"), "Pages are read before, between and after two updates."),
        ("before", ("before",), "Pages are read, and then updated: what was read stays."),
    ):
        nodes: list[NodeProto] = []
        for point, one in (("before", first), ("between", second), ("after", None)):
            nodes += [gathers[point]] if point in read else []
            nodes += [one] if one is not None else []
        outputs = [output, *[paged.decoded(f"gathered_{point}") for point in read]]
        made = paged.declare(model(inputs, nodes, outputs))
        scene = Scene().load(made).bind({name("cache"): table})
        for number, (one_step, other_step) in enumerate(pairs):
            feeds = {
                **paged.operands_of(one_step, f"_a{number}", "_a"),
                **paged.operands_of(other_step, f"_b{number}", "_b"),
            }
            feeds[name("page_ids")] = paged.number_storage(f"page_ids_{number}", 1, 0, scalar=False)
            scene.run(feeds)
        requirements = (Req.MC_PAGED_002, Req.MC_PLAN_005, Req.MC_PLAN_006)
        yield (scene.release().unload().case(f"paged-002/read-{what}", requirements, title))


def _prompt(paged: Paged, pages: int) -> Storage:
    """The rows of several pages."""
    storage = paged.values("prompt", pages * paged.dims[-2])
    shape = (pages, *paged.dims)
    return replace(storage, shape=shape)


def _loops(nonce: int) -> Iterator[Case]:
    paged = Paged(Draw(nonce, "paged loops"), ("int8",), ("int8",), gathers=False)
    name, pages = paged.draw.name, 4
    prompt = tensor(name("prompt"), paged.elem, [name("pages"), *paged.dims])
    inputs = [paged.container("cache", mutable=True), prompt, scalar(name("trips")), scalar(name("first"))]
    constants = [initializer(name("zero"), Stock.INT64, [], int64(0))]

    def made(step: int = 1) -> ModelProto:
        nodes = [
            node("Gather", [name("prompt"), "i"], [name("rows")], {"axis": 0}),
            node("Mul", ["i", name("stride")], [name("scaled")]),
            node("Add", [name("scaled"), name("first")], [name("number")]),
            paged_update(name("formal"), name("number"), name("rows"), name("zero"), name("next")),
        ]
        carried = {name("cache"): paged.container("formal", mutable=True)}
        looped = loop(
            carried, [name("updated_cache")], nodes, paged.container("next", root="formal"), trips=name("trips")
        )
        stride = initializer(name("stride"), Stock.INT64, [], int64(step))
        outputs = [paged.container("updated_cache", root="cache")]
        return importing(paged.declare(model(inputs, [looped], outputs, initializers=[*constants, stride])))

    def feeds(run: int, trips: int, first: int) -> dict[str, Storage]:
        return {
            name("prompt"): _prompt(paged, pages),
            name("trips"): paged.number_storage(f"trips_{run}", trips),
            name("first"): paged.number_storage(f"first_{run}", first),
        }

    def script(step: int, trips: int, first: int, *, refused: bool = False) -> Scene:
        scene = Scene().load(made(step)).bind({name("cache"): paged.table("int8")})
        scene.run(feeds(1, trips, first), refused=RUN if refused else NEVER)
        return scene.run(feeds(2, 1, 0)).release().unload()

    grows = (Req.MC_PAGED_010, Req.MC_PAGED_003, Req.MC_FLOW_004)
    title = "A prompt is written page by page in a loop, which makes the pages."
    yield with_flow(script(1, pages, 1), "paged-010/loop", grows, title)
    title = "A loop of no iterations: the table stays as it is."
    yield with_flow(script(1, 0, 1), "paged-001/loop-of-none", (Req.MC_PAGED_001, Req.MC_FLOW_004), title)
    gap = (Req.MC_PAGED_004, Req.MC_PAGED_012)
    twin = "paged-004/loop"
    yield with_flow(script(1, 2, 1), twin, gap, "A loop makes two pages, one behind the other.")
    title = "A loop makes a page, and then one that leaves a gap."
    yield with_flow(script(2, 2, 1, refused=True), "paged-004/loop-gap", gap, title, twin=twin)


def _branches(nonce: int) -> Iterator[Case]:
    paged = Paged(Draw(nonce, "paged branches"), ("int8", "fp8", "int2"), typed=True)
    name, table = paged.draw.name, paged.table("int8", "fp8")
    inputs = [paged.container("cache", mutable=True), flag(name("condition")), *paged.operands(), paged.vector()]
    inner = paged.container("inner", root="cache")

    def branch(*nodes: NodeProto) -> GraphProto:
        return graph(nodes, inner)

    writes = branch(paged.update("cache", "inner"))
    keeps = branch(aliased(node("Identity", [name("cache")], [name("inner")])))
    untyped = branch(paged.update("cache", "inner", typed=False))
    outputs = [paged.container("updated_cache", root="cache"), paged.decoded()]
    steps: Sequence[tuple[Step, bool]] = (
        ((0, 1, 2, "int8"), True),
        ((1, 0, 1, "int2"), True),
        ((0, 2, 1, "fp8"), False),
        ((1, 3, 1, "int2"), False),
    )
    for what, then, otherwise, title in (
        ("keep", writes, keeps, "One branch updates a table, the other keeps it."),
        ("both", writes, untyped, "Both branches update a table, one of them with a type."),
    ):
        chosen = choose(name("updated_cache"), then, otherwise, condition=name("condition"))
        made = paged.declare(model(inputs, [chosen, paged.gather("updated_cache")], outputs))
        importing(made)
        scene = Scene().load(made).bind({name("cache"): table})
        for number, (step, condition) in enumerate(steps):
            feeds = paged.step(step, (0, 1), tag=f"_{number}")
            feeds[name("condition")] = Storage(f"condition_{number}", Stock.BOOL, (), bytes([condition]))
            scene.run(feeds)
        requirements = (Req.MC_PAGED_001, Req.MC_PAGED_008, Req.MC_FLOW_001)
        scene.release().unload()
        yield with_flow(scene, f"paged-001/branch-{what}", requirements, title)

    mapped = Paged(Draw(nonce, "paged captured map"), ("fp8",), kind="map")
    name = mapped.draw.name
    inputs = [mapped.container("cache"), flag(name("condition")), mapped.vector("page_ids"), mapped.vector("others")]
    picked = tensor(name("picked"), mapped.elem, [None] * 3)
    branches = [
        graph([paged_gather(name("cache"), name(role), name("picked"))], picked) for role in ("page_ids", "others")
    ]
    chosen = choose(name("gathered"), *branches, condition=name("condition"))
    made = mapped.declare(model(inputs, [chosen], [mapped.decoded()]))
    importing(made)
    lent: dict[str, Lent] = {
        name("cache"): mapped.table("fp8", "fp8", keys=(4, 9)),
        name("condition"): Storage("condition", Stock.BOOL, (), b"\0"),
        name("page_ids"): mapped.number_storage("page_ids", 4, scalar=False),
        name("others"): mapped.number_storage("others", 9, 4, scalar=False),
    }
    title = "A branch gathers pages of a map that it captures."
    yield with_flow(Scene().load(made).run(lent, "").unload(), "access-005/captured-map", (Req.MC_ACCESS_005,), title)


def _functions(nonce: int) -> Iterator[Case]:
    kinds: tuple[Kind, ...] = ("sequence", "map")
    for kind in kinds:
        paged = Paged(Draw(nonce, f"paged function {kind}"), ("int8",), kind=kind)
        name = paged.draw.name
        nodes = [paged_update("formal", "number", "rows", "at", "result"), paged_gather("result", "wanted", "read")]
        lent = paged.container("cache", mutable=True), paged.container("updated_cache", root="cache")
        named: list[ValueInfoProto] = []
        for value, called, root in ((lent[0], "formal", ""), (lent[1], "result", "formal")):
            named.append(ValueInfoProto.FromString(value.SerializeToString()))
            named[-1].name = called
            if root:
                named[-1].alias_of = root
        formals = ["formal", "number", "rows", "at", "wanted"]
        made = model(
            [lent[0], *paged.operands(), paged.vector()],
            [
                call(
                    "step",
                    [name(role) for role in ("cache", "page_id", "values", "position", "page_ids")],
                    [name("updated_cache"), name("gathered")],
                )
            ],
            [lent[1], paged.decoded()],
        )
        made.functions.append(function("step", formals, ["result", "read"], nodes, *named))
        made.opset_import.add(domain=LOCAL, version=1)
        importing(paged.declare(made))
        keys = (3, 8) if kind == "map" else ()
        table, (one_page, other) = paged.table("int8", "int8", keys=keys), keys or (0, 1)
        scene = Scene().load(made).bind({name("cache"): table})
        for number, step in enumerate([(other, 1, 2), (one_page, 0, 1)]):
            scene.run(paged.step(step, (one_page, other), tag=f"_{number}"))
        title = f"A function updates a {kind} and gathers pages of it."
        scene.release().unload()
        requirement = Req.MC_PAGED_014 if kind == "map" else Req.MC_PAGED_001
        what = f"paged-{requirement[-3:]}/function"
        yield with_flow(scene, what, (requirement, Req.MC_FLOW_007), title)
