"""PLAN: the order of reads and writes, views of a cache, and updates that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import TensorProto as Stock

from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.scene import Scene
from mutcache_conformance.cases.sketch import DTYPE, OPERANDS, SHAPE, Sketch, one_cache
from mutcache_conformance.cases.update import Update


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the area."""
    yield from _root(nonce)
    yield from _unread(nonce)
    yield from _reads_before_writes(nonce)
    yield from _views(nonce)
    yield from _views_as_values(nonce)
    yield from _reuse(nonce)


def _root(nonce: int) -> Iterator[Case]:
    draw = Draw(nonce, "root")
    mine, other = Update(draw), Update(Draw(nonce, "root beside"), dtype=Stock.FLOAT16, shape=(16, 8))
    scene = Scene().load(mine.model()).bind(mine.cache()).run(mine.step(0, tag="_1"))
    feeds = {name: replace(storage, name=f"other_{storage.name}") for name, storage in other.step(4).items()}
    scene.load(other.model(), "other", called="other").bind(other.cache("other_cache"), "beside", session="other")
    scene.run(feeds, "beside", session="other").release("beside").unload("other")
    scene.run(mine.step(3, tag="_2")).run(mine.step(draw.integer("last", 0, 5), tag="_3")).release().unload()
    title = "The cache stays where it is, while another session comes and goes."
    yield scene.case("plan-002/another-session-between", (Req.MC_PLAN_002, Req.MC_PLAN_001), title)

    title = "The result is computed into memory of its own, though nothing reads the cache after it."
    graph = (
        one_cache(nonce, "reuse").unread_update(*OPERANDS).node("Add", ["updated", "updated"], "sum").output("sum", 2)
    )
    yield graph.case("plan-002/last-reader", (Req.MC_PLAN_002,), title, [2], [5])

    title = "Temporaries of the cache's shape, made and dropped around the update, are not the cache."
    graph = one_cache(nonce, "temporaries").node("Add", ["cache", "cache"], "twice").node("Neg", ["twice"], "minus")
    graph.update(*OPERANDS).node("Mul", ["minus", "updated"], "product").node("Abs", ["product"], "size")
    yield graph.output("size", 2).case("plan-002/temporaries", (Req.MC_PLAN_002,), title, [0], [5])

    graph = Sketch(nonce, "allocation", "cache").feed("values_a", "position_a", "values_b", "position_b")
    graph.unread_update("cache", "values_a", "position_a", "first")
    graph.node("Add", ["values_a", "values_b"], "sum").output("sum", 2)
    graph.update("first", "values_b", "position_b", "second", root="cache")
    title = "The value between two updates lies in the cache, too."
    yield graph.case("plan-001/intermediate", (Req.MC_PLAN_001, Req.MC_BIND_009), title, [0, 5], [4, 1])


def _unread(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PLAN_004,)
    graph = one_cache(nonce, "unread").unread_update(*OPERANDS).node("Neg", ["values"], "echo").output("echo", 2)
    yield graph.case("plan-004/unread", requirement, "Nothing reads the result of the update.", [1], [5])

    graph = Sketch(nonce, "unread of two", "cache_a", "cache_b").feed("values", "position")
    graph.update("cache_a", "values", "position", "updated_a").unread_update("cache_b", "values", "position", "unread")
    title = "One update is an output, the other is read by nothing."
    yield graph.case("plan-004/one-of-two-unread", requirement, title, [0], [3])

    graph = Sketch(nonce, "alike", "cache_a", "cache_b").feed("values", "position")
    graph.update("cache_a", "values", "position", "updated_a").update("cache_b", "values", "position", "updated_b")
    cache_a, cache_b = graph.mutable().values()
    alike = {graph.draw.name("cache_a"): cache_a, graph.draw.name("cache_b"): replace(cache_b, content=cache_a.content)}
    scene = Scene().load(graph.model()).bind(alike).run(graph.step([2], tag="")).release().unload()
    title = "Two caches of equal content take the same update: two updates, not one."
    yield scene.case("plan-004/equal-updates", requirement, title)

    graph = Sketch(nonce, "constant", "cache").constant("position", 2, scalar=True).feed("values")
    graph.constant("size", 1, SHAPE[1]).node("ConstantOfShape", ["size"], "blank")
    graph.node("Cast", ["blank"], "rows", to=DTYPE).unread_update("cache", "rows", "position", "updated")
    graph.node("Neg", ["values"], "echo").output("echo", 2)
    title = "Values and position are constants, and nothing reads the result."
    yield graph.case("plan-004/constant-operands", requirement, title, [], [])

    graph = one_cache(nonce, "increment").slice("cache", 2, 5, "rows").node("Add", ["rows", "values"], "sum")
    graph.update("cache", "sum", "position", "updated")
    title = "Each run adds to rows of the cache: done twice, the sum is another one."
    yield graph.case("plan-004/once", requirement, title, [2], [2], [2])

    graph = Sketch(nonce, "again", "cache").feed("values_a", "values_b", "position")
    graph.unread_update("cache", "values_a", "position", "first").unread_update(
        "first", "values_b", "position", "second"
    )
    graph.update("second", "values_a", "position", "third", root="cache")
    title = "The third update is equal to the first, and not superfluous: the second came between."
    yield graph.case("plan-004/written-again", requirement, title, [1], [4])

    graph = one_cache(nonce, "read for shape").update(*OPERANDS).node("Shape", ["updated"], "shape")
    graph.node("Cast", ["shape"], "dims", to=DTYPE).output("dims", 1)
    title = "The result is read only for its shape."
    yield graph.case("plan-004/read-for-shape", requirement, title, [4])


def _reads_before_writes(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PLAN_005,)
    graph = one_cache(nonce, "sum before").node("ReduceSum", ["cache"], "before", keepdims=0).output("before", 0)
    graph.update(*OPERANDS).node("ReduceSum", ["updated"], "after", keepdims=0).output("after", 0)
    yield graph.case("plan-005/before-and-after", requirement, "A sum before the update, and one after.", [0], [5])

    graph = (
        one_cache(nonce, "add before").node("Add", ["cache", "cache"], "before").output("before", 2).update(*OPERANDS)
    )
    yield graph.case("plan-005/elementwise", requirement, "An element-wise reader of the old content.", [2], [3])

    graph = (
        one_cache(nonce, "gather before").constant("rows", 0, 5, 3).node("Gather", ["cache", "rows"], "before", axis=0)
    )
    graph.output("before", 2).update(*OPERANDS)
    yield graph.case("plan-005/gather", requirement, "Rows gathered from the old content.", [3], [0])

    graph = (
        one_cache(nonce, "reader waits")
        .node("ReduceSum", ["values"], "total", keepdims=0)
        .node("Neg", ["total"], "minus")
    )
    graph.node("Abs", ["minus"], "size").node("Mul", ["size", "minus"], "factor").node(
        "Mul", ["cache", "factor"], "before"
    )
    graph.output("before", 2).update(*OPERANDS)
    title = "The reader of the old content waits for a long computation, the update for nothing."
    yield graph.case("plan-005/reader-waits", requirement, title, [1], [4])

    graph = Sketch(nonce, "two readers", "cache").feed("values_a", "position_a", "values_b", "position_b")
    graph.node("ReduceMax", ["cache"], "before", keepdims=0).output("before", 0)
    graph.unread_update("cache", "values_a", "position_a", "first")
    graph.node("ReduceMax", ["first"], "between", keepdims=0).output("between", 0)
    graph.update("first", "values_b", "position_b", "second", root="cache")
    title = "A reader of each version of a chain."
    yield graph.case("plan-005/each-version", requirement, title, [0, 5], [5, 0])


def _views(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PLAN_006,)
    title = "{} of the cache is an output, and keeps the old content."

    def viewed(what: str, word: str, graph: Sketch, *outputs: tuple[str, int]) -> Case:
        for role, rank in outputs:
            graph.output(role, rank)
        return graph.update(*OPERANDS).case(f"plan-006/{what}", requirement, title.format(word), [1], [4])

    def start(what: str) -> Sketch:
        return one_cache(nonce, f"view {what}")

    yield viewed("slice", "A slice", start("slice").slice("cache", 1, 6, "view"), ("view", 2))
    yield viewed("reverse", "A reversed slice", start("reverse").slice("cache", 7, 1, "view", -1), ("view", 2))
    yield viewed("transpose", "The transpose", start("transpose").node("Transpose", ["cache"], "view"), ("view", 2))
    graph = start("reshape").constant("dims", 2, -1).node("Reshape", ["cache", "dims"], "view")
    yield viewed("reshape", "Another shape", graph, ("view", 2))
    graph = start("unsqueeze").constant("axes", 0).node("Unsqueeze", ["cache", "axes"], "view")
    yield viewed("unsqueeze", "One more dimension", graph, ("view", 3))
    graph = start("split").node("Split", ["cache"], "upper", "lower", axis=0, num_outputs=2)
    yield viewed("split", "Each half", graph, ("upper", 2), ("lower", 2))
    yield viewed("identity", "A plain Identity", start("identity").node("Identity", ["cache"], "view"), ("view", 2))
    yield viewed("flatten", "The flattened form", start("flatten").node("Flatten", ["cache"], "view"), ("view", 2))
    graph = start("nested").slice("cache", 0, 6, "rows").node("Transpose", ["rows"], "view")
    yield viewed("view-of-view", "A view of a view", graph, ("view", 2))

    graph = one_cache(nonce, "late").slice("cache", 1, 6, "view").update(*OPERANDS)
    graph.node("Neg", ["view"], "late").output("late", 2)
    title = "A slice of the old content is read after the update."
    yield graph.case("plan-006/read-after-update", requirement, title, [0], [3])

    graph = one_cache(nonce, "after").update(*OPERANDS).slice("updated", 1, 6, "view").output("view", 2)
    title = "A slice of the new content is an output of each run."
    yield graph.case("plan-006/slice-of-updated", requirement, title, [0], [3], [5])


def _views_as_values(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PLAN_006, Req.MC_DENSE_001)

    def moved(what: str, title: str, start: int, stop: int, step: int, *positions: int) -> Case:
        graph = Sketch(nonce, what, "cache").feed("position").slice("cache", start, stop, "rows", step)
        graph.update("cache", "rows", "position", "updated")
        return graph.case(f"plan-006/{what}", requirement, title, *([position] for position in positions))

    yield moved("rows-down", "Rows of the cache are written one row further down.", 0, 5, 1, 1, 1)
    yield moved("rows-up", "Rows of the cache are written one row further up.", 1, 6, 1, 0, 0)
    yield moved("rows-reversed", "Rows of the cache are written in reverse, over themselves.", 5, 0, -1, 1, 0)

    graph = Sketch(nonce, "swap", "cache_a", "cache_b").feed("position")
    graph.slice("cache_a", 0, 4, "rows_a").slice("cache_b", 2, 6, "rows_b")
    graph.update("cache_a", "rows_b", "position", "updated_a").update("cache_b", "rows_a", "position", "updated_b")
    yield graph.case("plan-006/swap", requirement, "Two caches exchange rows.", [0], [3])


def _reuse(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PLAN_007, Req.MC_PLAN_002)
    graph = one_cache(nonce, "dead cache").unread_update(*OPERANDS).node("Add", ["updated", "updated"], "twice")
    graph.node("Neg", ["twice"], "minus").node("Abs", ["minus"], "size").output("size", 2)
    title = "After the last reader of the cache come more results of its type and shape."
    yield graph.case("plan-007/after-last-reader", requirement, title, [1], [4])

    requirement = (Req.MC_PLAN_007, Req.MC_PLAN_001)
    graph = one_cache(nonce, "dead temporary").node("Neg", ["cache"], "minus").node("Abs", ["minus"], "size")
    graph.node("ReduceMax", ["size"], "before", keepdims=0).output("before", 0).update(*OPERANDS)
    title = "Temporaries of the cache's type and shape are free when the update comes, whose output is the cache."
    yield graph.case("plan-007/free-before-update", requirement, title, [2], [5])
