"""ALIAS: versions of a cache, and in which order its names may be used."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache_conformance.case import LOAD, Case
from mutcache_conformance.cases.builder import tensor
from mutcache_conformance.cases.edits import Edit, alias_of, operand
from mutcache_conformance.cases.scene import Fault, Scene, family
from mutcache_conformance.cases.sketch import DTYPE, OPERANDS, Sketch, one_cache

_CYCLE, _ESTABLISHED, _GRAPH_OUTPUT, _ROOT = Req.MC_ALIAS_007, Req.MC_ALIAS_008, Req.MC_ALIAS_009, Req.MC_ALIAS_010
_SAME, _STALE, _FORK, _ONE_OPERAND = Req.MC_ALIAS_005, Req.MC_ALIAS_011, Req.MC_ALIAS_012, Req.MC_ALIAS_014


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _readers(nonce)
    yield from _two_names(nonce)
    yield from _other_operators(nonce)


def _readers(nonce: int) -> Iterator[Case]:
    reader = one_cache(nonce, "alias reader").node("Neg", ["cache"], "negated").output("negated", 2).update(*OPERANDS)
    name = reader.draw.name

    def swapped(model: ModelProto) -> None:
        first, second = (type(one).FromString(one.SerializeToString()) for one in model.graph.node)
        model.graph.ClearField("node")
        model.graph.node.extend((second, first))

    yield from family(
        "alias-011/read-before",
        (_STALE, _ESTABLISHED, _ROOT),
        "The cache is read before it is updated.",
        reader.program(3),
        Fault("alias-011/read-after", (_STALE,), "The old name is read after the update.", swapped),
        Fault(
            "alias-011/passed-through",
            (_STALE,),
            "The old name is an output, too.",
            lambda model: model.graph.output.append(model.graph.input[0]),
        ),
        Fault(
            "alias-008/other-producer",
            (_ESTABLISHED,),
            "alias_of on the result of a node without an alias entry.",
            alias_of(output_0=name("cache")),
        ),
        Fault(
            "alias-010/intermediate",
            (_ROOT, _SAME, _STALE),
            "The update is of a value that the graph computed.",
            operand(1, 0, name("negated")),
        ),
    )
    table = one_cache(nonce, "alias table").constant("table", 1, 2, 3).node("Cast", ["table"], "row", to=DTYPE)
    table.output("row", 1).update(*OPERANDS)

    def on_initializer(model: ModelProto) -> None:
        annotated = tensor(table.draw.name("table"), Stock.INT64, [3], alias_of=table.draw.name("cache"))
        model.graph.value_info.append(annotated)

    yield from family(
        "alias-008/initializer-beside",
        (_ESTABLISHED,),
        "An initializer beside the cache.",
        table.program(1),
        Fault("alias-008/on-an-initializer", (_ESTABLISHED,), "alias_of on that initializer.", on_initializer),
    )

    shape = one_cache(nonce, "shape of stale").update(*OPERANDS).node("Shape", ["cache"], "shape")
    shape.node("Size", ["cache"], "size").node("Mul", ["shape", "size"], "product")
    shape.node("Cast", ["product"], "numbers", to=DTYPE).output("numbers", 1)
    yield shape.case("alias-011/shape-of-stale", (_STALE,), "Shape and Size of the old name, after the update.", [3])

    through = one_cache(nonce, "pass through").node("Neg", ["cache"], "negated").output("negated", 2)
    through.cache_output("cache")
    title = "A cache that nothing updates is an output under its own name, and needs no alias_of."
    yield through.case("alias-009/passed-through", (_GRAPH_OUTPUT,), title, [0])


def _two_names(nonce: int) -> Iterator[Case]:
    """What holds for a version holds for each of its names: here ``cache`` and ``named`` are one version."""
    graph = Sketch(nonce, "two names", "cache").feed("values_a", "position_a", "values_b", "position_b")
    graph.node("Identity", ["cache"], "named").alias(0, 0).node("Neg", ["named"], "before").output("before", 2)
    graph.unread_update("cache", "values_a", "position_a", "updated_a")
    graph.node("Identity", ["updated_a"], "renamed").alias(0, 0)
    graph.node("Abs", ["updated_a"], "after_a").output("after_a", 2)
    graph.node("Neg", ["renamed"], "after_b").output("after_b", 2)
    graph.update("renamed", "values_b", "position_b", "updated_b", root="cache")
    name = graph.draw.name
    yield from family(
        "alias-011/two-names",
        (_STALE, _FORK, _ONE_OPERAND, _GRAPH_OUTPUT),
        "Each version of a cache has two names, read before the next update.",
        graph.program(0, 4),
        Fault("alias-011/other-name", (_STALE,), "The other old name is read after it.", operand(4, 0, name("named"))),
        Fault("alias-012/other-name", (_FORK,), "The other old name is updated, too.", operand(6, 0, name("named"))),
        Fault("alias-012/stale-name", (_FORK,), "The old name is updated once more.", operand(6, 0, name("cache"))),
        Fault(
            "alias-014/other-name",
            (_ONE_OPERAND,),
            "The values are the cache, under its other name.",
            operand(2, 1, name("named")),
        ),
        Fault(
            "alias-007/through-identity",
            (_CYCLE,),
            "The names of a version alias each other.",
            _both_names(name("renamed"), name("updated_a")),
        ),
    )


def _other_operators(nonce: int) -> Iterator[Case]:
    """Operators for which a runtime may or may not have a kernel in place: it refuses the model, or updates."""
    requirements = (Req.MC_ALIAS_015, Req.MC_BIND_009, Req.MC_BIND_010)
    for what, title, graph in (
        ("negated", "Neg negates a cache in place.", Sketch(nonce, "negated in place", "cache")),
        ("added", "Add adds rows to those of a cache in place.", Sketch(nonce, "added in place", "cache").feed("rows")),
    ):
        if what == "negated":
            graph.node("Neg", ["cache"], "updated")
        else:
            graph.node("ReduceSum", ["rows"], "total", keepdims=0).node("Add", ["cache", "total"], "updated")
        graph.alias(0, 0).cache_output("updated", root="cache")
        scene = Scene().load(graph.model(), refused=LOAD, may_succeed=True).bind(graph.mutable())
        scene.run(graph.step([], tag="_1")).run(graph.step([], tag="_2")).release().unload()
        yield scene.case(f"alias-015/{what}-in-place", requirements, f"{title} A runtime may refuse that at load.")


def _both_names(one: str, other: str) -> Edit:
    """Annotate two intermediate values, each with the name of the other."""

    def edit(model: ModelProto) -> None:
        for name, named in ((one, other), (other, one)):
            model.graph.value_info.append(tensor(name, DTYPE, [None, None], alias_of=named))

    return edit
