"""FLOW at run time: which updates happen, in which order, and what is left of a run that fails among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import GraphProto, ModelProto, NodeProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.builder import node, tensor
from mutcache_conformance.cases.flow_family import Family, Feeds
from mutcache_conformance.cases.flow_loop import LENT, OUTPUT, RESULT, SLOT, advancing
from mutcache_conformance.cases.flow_words import LENT as LENT_FORMAL
from mutcache_conformance.cases.flow_words import (
    cache,
    choose,
    function,
    graph,
    keep,
    keeps,
    loop,
    neg,
    plain,
    rows,
    scalar,
    scan,
    step,
    step_function,
    write,
    writes,
)
from mutcache_conformance.cases.sketch import DTYPE, LENGTH, SHAPE

_OVERFLOW, _NEGATIVE, _ATOMIC = Req.MC_DENSE_003, Req.MC_DENSE_004, Req.MC_DENSE_012
_UNREAD, _READ_FIRST, _VIEW = Req.MC_PLAN_004, Req.MC_PLAN_005, Req.MC_PLAN_006
#: The last position at which an update fits.
LAST = SHAPE[0] - LENGTH


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _branches(nonce)
    yield from _loops(nonce)
    yield from _early_exit(nonce)
    yield from _scans(nonce)
    yield from _functions(nonce)
    yield from _mixed(nonce)
    yield from _unread(nonce)
    yield from _read_first(nonce)
    yield from _independent(nonce)
    yield from _static_branch(nonce)


def _branches(nonce: int) -> Iterator[Case]:
    """An update that does not fit, in the branch that is taken or in the other one."""
    runs: tuple[Feeds, ...] = (
        {"position": 1, "condition": True},
        {"position": LAST + 1, "condition": False},
        {"position": -1, "condition": False},
        {"position": LAST, "condition": True},
    )
    family = Family(nonce, "failing branch", "cache values position condition", runs)
    made = family.model([choose("updated", writes(), keeps())], OUTPUT)
    twin = "flow-003/branch-not-taken"
    title = "An update that would not fit stands in the branch that is not taken."
    yield family.valid(twin, (Req.MC_FLOW_003, _OVERFLOW, _NEGATIVE), title, made)
    for requirement, what, position in (
        (_OVERFLOW, "dense-003/in-a-branch", LAST + 1),
        (_NEGATIVE, "dense-004/in-a-branch", -1),
    ):
        feeds: Feeds = {"position": position, "condition": True}
        title = f"The branch is taken whose update is at position {position}."
        yield family.refused_run(what, (requirement, _ATOMIC), title, made, feeds, twin=twin)

    chained = Family(nonce, "chain in a branch", "cache values position_a position_b condition", _chained_runs())
    then = graph(
        [write("cache", "first", position="position_a"), write("first", "inner", position="position_b")],
        cache("inner", root="cache"),
    )
    made = chained.model([choose("updated", then, keeps())], OUTPUT)
    twin, title = "dense-009/chain-in-a-branch", "Two updates in a branch."
    yield chained.valid(twin, (Req.MC_DENSE_009, Req.MC_FLOW_003), title, made)
    feeds = {"position_a": 2, "position_b": LAST + 1, "condition": True}
    title = "The second of two updates in a branch does not fit; the first one may have been made."
    yield chained.refused_run("dense-012/chain-in-a-branch", (_ATOMIC, _OVERFLOW), title, made, feeds, twin=twin)


def _chained_runs() -> tuple[Feeds, ...]:
    return tuple(
        {"position_a": first, "position_b": second, "condition": taken}
        for first, second, taken in ((0, 4, True), (3, LAST, False), (1, 2, True))
    )


def _loops(nonce: int) -> Iterator[Case]:
    """A Loop whose trips write one row further each: the first ones fit."""
    runs: tuple[Feeds, ...] = (
        {"position": 0, "trips": 3},
        {"position": LAST + 1, "trips": 0},
        {"position": LAST, "trips": 1},
        {"position": 2, "trips": 4},
    )
    family = Family(nonce, "failing loop", "cache values position trips", runs)
    made = family.model([loop(SLOT, ["updated"], advancing(), RESULT)], OUTPUT)
    twin = "flow-004/no-trip"
    title = "A position at which nothing would fit, and no trip: the output is the cache as it was."
    yield family.valid(twin, (Req.MC_FLOW_004, Req.MC_DENSE_010), title, made)
    for what, feeds, requirement, said in (
        ("dense-003/first-trip", {"position": LAST + 1, "trips": 1}, _OVERFLOW, "The update of the first trip"),
        ("dense-003/last-trip", {"position": LAST - 1, "trips": 3}, _OVERFLOW, "The update of the third trip"),
        ("dense-012/middle-trip", {"position": LAST - 2, "trips": 6}, _ATOMIC, "The update of the fourth of six trips"),
        ("dense-004/first-trip", {"position": -2, "trips": 4}, _NEGATIVE, "The update of the first of four trips"),
    ):
        shown = (requirement, *({_ATOMIC, _OVERFLOW} - {requirement} if requirement is not _NEGATIVE else (_ATOMIC,)))
        yield family.refused_run(what, shown, f"{said} does not fit.", made, feeds, twin=twin)


def _early_exit(nonce: int) -> Iterator[Case]:
    """A Loop that ends itself, before it reaches the capacity."""
    runs: tuple[Feeds, ...] = (
        {"position": 4, "trips": 9, "position_stop": LAST},
        {"position": 0, "trips": 2, "position_stop": 9},
    )
    family = Family(nonce, "early exit", "cache values position trips position_stop", runs)
    nodes = [*advancing(), node("Less", ["at", "position_stop"], ["goes_on"])]
    made = family.model([loop(SLOT, ["updated"], nodes, RESULT, go="goes_on")], OUTPUT)
    twin = "flow-004/early-exit"
    title = "The body ends the Loop before an update that would not fit; another run ends by its trips."
    yield family.valid(twin, (Req.MC_FLOW_004,), title, made)
    late: Feeds = {"position": 4, "trips": 9, "position_stop": LAST + 1}
    title = "The body goes on until an update does not fit."
    yield family.refused_run("dense-003/no-early-exit", (_OVERFLOW, _ATOMIC), title, made, late, twin=twin)

    runs = ({"position": 4, "position_stop": LAST}, {"position": 0, "position_stop": 2})
    endless = Family(nonce, "without trips", "cache values position position_stop", runs)
    made = endless.model([loop(SLOT, ["updated"], nodes, RESULT, go="goes_on", trips="")], OUTPUT)
    title = "A Loop without a number of trips, ended by its condition."
    yield endless.valid("flow-004/without-trips", (Req.MC_FLOW_004,), title, made)

    never = Family(nonce, "condition given", "cache values position trips condition", (
        {"position": 1, "trips": 2, "condition": False},
        {"position": 4, "trips": 1, "condition": True},
    ))  # fmt: skip
    looped = loop(SLOT, ["updated"], advancing(), RESULT)
    looped.input[1] = "condition"
    title = "The condition that a Loop is given is false: no trip is made."
    yield never.valid("flow-004/condition-false", (Req.MC_FLOW_004,), title, never.model([looped], OUTPUT))


def _scans(nonce: int) -> Iterator[Case]:
    runs: tuple[Feeds, ...] = ({"stack": 3, "positions": (4, 0, 2)}, {"stack": 2, "positions": (LAST, 1)})
    family = Family(nonce, "failing scan", "cache stack positions", runs)
    scanned = {"stack": rows("slice"), "positions": scalar("at")}
    written = [write("carried", "inner", "slice", "at"), neg("carried", "before")]
    before = tensor("history", DTYPE, ["steps", "max_length", "width"])
    made = family.model(
        [scan(SLOT, scanned, ["updated", "history"], written[::-1], RESULT, cache("before"))], OUTPUT, before
    )
    twin = "flow-005/reads-then-writes"
    title = "A Scan collects what it reads of its state before each update."
    yield family.valid(twin, (Req.MC_FLOW_005, _READ_FIRST), title, made)
    for what, requirement, positions, title in (
        ("dense-004/in-a-scan", _NEGATIVE, (2, -1, 0), "The second position of three is negative."),
        ("dense-003/in-a-scan", _OVERFLOW, (2, 0, LAST + 1), "The last update of three does not fit."),
    ):
        feeds: Feeds = {"stack": 3, "positions": positions}
        yield family.refused_run(what, (requirement, _ATOMIC), title, made, feeds, twin=twin)


def _functions(nonce: int) -> Iterator[Case]:
    runs: tuple[Feeds, ...] = ({"position_a": 0, "position_b": 3}, {"position_a": LAST, "position_b": LAST})
    inputs = "cache values_a values_b position_a position_b"
    family = Family(nonce, "failing function", inputs, runs)
    nodes = [write("formal", "half", "rows_a", "at_a"), write("half", "result", "rows_b", "at_b")]
    two = function("two", ["formal", "rows_a", "at_a", "rows_b", "at_b"], ["result"], nodes, *LENT_FORMAL)
    arguments = ["cache", "values_a", "position_a", "values_b", "position_b"]
    made = family.model([NodeProto(domain="local", op_type="two", input=arguments, output=["updated"])], OUTPUT,
                        functions=[two])  # fmt: skip
    twin, title = "dense-009/chain-in-a-function", "A function updates its argument twice."
    yield family.valid(twin, (Req.MC_DENSE_009, Req.MC_FLOW_007), title, made)
    late: Feeds = {"position_a": 1, "position_b": LAST + 1}
    title = "The second update of a function does not fit; the first one may have been made."
    yield family.refused_run("dense-012/chain-in-a-function", (_ATOMIC, _OVERFLOW), title, made, late, twin=twin)
    early: Feeds = {"position_a": -1, "position_b": 2}
    title = "The first update of a function is at a negative position; the second one needs its result."
    yield family.refused_run("dense-004/in-a-function", (_NEGATIVE, _ATOMIC), title, made, early, twin=twin)


def _mixed(nonce: int) -> Iterator[Case]:
    """Functions in loops in branches, and the other way round."""
    runs: tuple[Feeds, ...] = (
        {"position": 0, "trips": 2, "condition": True},
        {"position": 3, "trips": 3, "condition": False},
        {"position": 2, "trips": 0, "condition": True},
    )
    inputs = "cache values position trips condition"
    add = node("Add", ["position", "i"], ["at"])
    looped = loop({"cache": LENT}, ["inner"], [add, step("carried", "stepped", position="at")],
                  cache("stepped", root="carried"))  # fmt: skip
    family = Family(nonce, "loop in a branch", inputs, runs)
    then = graph([looped], cache("inner", root="cache"))
    made = family.model([choose("updated", then, keeps())], OUTPUT, functions=[step_function()])
    twin, title = "flow-004/in-a-branch", "A function in a Loop in a branch."
    yield family.valid(twin, (Req.MC_FLOW_004, Req.MC_FLOW_003, Req.MC_FLOW_007), title, made)
    feeds: Feeds = {"position": LAST - 1, "trips": 4, "condition": True}
    title = "The third update of a function, in a Loop in a branch, does not fit."
    yield family.refused_run("dense-012/deep", (_ATOMIC, _OVERFLOW), title, made, feeds, twin=twin)

    every = Family(nonce, "branch in a loop", inputs, runs)
    parity = [node("Mod", ["i", "two"], ["odd"]), node("Cast", ["odd"], ["is_odd"], {"to": Stock.BOOL}), add]
    chosen = choose("inner", writes("carried", "chosen", root="carried", position="at"),
                    keeps("carried", "chosen", root="carried"), condition="is_odd")  # fmt: skip
    made = every.model([loop(SLOT, ["updated"], [*parity, chosen], RESULT)], OUTPUT)
    made.graph.initializer.add(name="two", data_type=Stock.INT64, raw_data=(2).to_bytes(8, "little"))
    title = "Every second trip of a Loop updates the cache, the others pass it on."
    yield every.valid("flow-003/in-a-loop", (Req.MC_FLOW_003, Req.MC_FLOW_004), title, made)

    inner = Family(nonce, "loop in a function", inputs, runs)
    moving = [node("Add", ["at", "i"], ["moved"]), write("carried", "inner", "rows", "moved")]
    body = loop({"formal": LENT}, ["result"], moving, RESULT, trips="times")
    repeats = function("repeats", ["formal", "rows", "at", "times"], ["result"], [body], *LENT_FORMAL)
    nodes = [
        NodeProto(domain="local", op_type="repeats", input=["cache", "values", "position", "trips"], output=["first"]),
        choose("updated", writes("first"), keeps("first")),
    ]
    made = inner.model(nodes, OUTPUT, functions=[repeats])
    title = "A Loop in a function, whose result is updated in a branch."
    yield inner.valid("flow-007/loop-in-a-function", (Req.MC_FLOW_007, Req.MC_FLOW_004), title, made)

    deep = Family(nonce, "loop in a loop", "cache values position trips_a trips_b", (
        {"position": 0, "trips_a": 2, "trips_b": 2},
        {"position": 3, "trips_a": 2, "trips_b": 0},
        {"position": 1, "trips_a": 1, "trips_b": 3},
    ))  # fmt: skip
    sums = [node("Add", ["position", "i"], ["begun"]), node("Add", ["begun", "i_deep"], ["at"])]
    innermost = loop({"carried": cache("deeper", mutable=True)}, ["inner"],
                     [sums[1], write("deeper", "deepest", position="at")], cache("deepest", root="deeper"),
                     trips="trips_b")  # fmt: skip
    nested = innermost.attribute[-1].g
    nested.input[0].name, nested.input[1].name, nested.node[0].input[0] = "i_deep", "go_deep", "go_deep"
    made = deep.model([loop(SLOT, ["updated"], [sums[0], innermost], RESULT, trips="trips_a")], OUTPUT)
    title = "A Loop in a Loop."
    yield deep.valid("flow-004/nested", (Req.MC_FLOW_004,), title, made)


def _unread(nonce: int) -> Iterator[Case]:
    """Updates whose result nobody reads: they happen."""
    runs: tuple[Feeds, ...] = tuple(
        {"position": position, "condition": taken, "trips": trips}
        for position, taken, trips in ((0, True, 2), (4, False, 1), (2, True, 0))
    )
    echo = [neg("other", "echo")]
    for what, nodes, functions, requirement in (
        ("branch", [choose("updated", writes(), keeps())], [], Req.MC_FLOW_009),
        ("loop", [loop(SLOT, ["updated"], advancing(), RESULT)], [], Req.MC_FLOW_009),
        ("function", [step("cache", "updated")], [step_function()], Req.MC_FLOW_007),
    ):
        family = Family(nonce, f"unread {what}", "cache other values position condition trips", runs)
        made = family.model([*nodes, *echo], plain("echo"), functions=functions)
        title = f"Nobody reads the cache that a {what} updates."
        yield family.valid(f"plan-004/{what}", (_UNREAD, requirement), title, made)
    twice = Family(nonce, "same call twice", "cache_a cache_b values position", ({"position": 1}, {"position": 5}))
    made = twice.model(
        [step(f"cache_{one}", f"updated_{one}") for one in "ab"],
        *(cache(f"updated_{one}", root=f"cache_{one}") for one in "ab"),
        functions=[step_function()],
    )
    title = "Two calls of a function with the same rows, of two caches."
    yield twice.valid("plan-004/two-calls", (_UNREAD, Req.MC_FLOW_007), title, made)
    again = Family(nonce, "same branch twice", "cache values position condition", runs)
    nodes = [neg("cache", "before"), choose("first", writes(), keeps()), neg("first", "between")]
    nodes += [choose("updated", writes("first"), keeps("first")), neg("updated", "after")]
    made = again.model(nodes, OUTPUT, *(plain(name) for name in ("before", "between", "after")))
    title = "Two Ifs that say the same, each with a version of its own, and reads of every version."
    yield again.valid("plan-004/two-branches", (_UNREAD, _READ_FIRST, Req.MC_FLOW_003), title, made)


def _read_first(nonce: int) -> Iterator[Case]:
    """Reads of an old version, inside bodies and before them."""
    runs: tuple[Feeds, ...] = (
        {"position": 0, "condition": True, "trips": 2},
        {"position": 3, "condition": False, "trips": 1},
    )
    inputs = "cache values position condition trips"
    family = Family(nonce, "reads before a branch", inputs, runs)
    then = graph([neg("cache", "read"), write("cache", "inner")], cache("read"), cache("inner", root="cache"))
    otherwise = graph([keep("cache", "inner"), neg("inner", "read")], cache("read"), cache("inner", root="cache"))
    nodes = [node("Abs", ["cache"], ["size"]), choose(["seen", "updated"], then, otherwise), neg("updated", "after")]
    made = family.model(nodes, plain("size"), plain("seen"), OUTPUT, plain("after"))
    title = "A cache is read before an If, in its branches before the update, and after it."
    yield family.valid("plan-005/branch", (_READ_FIRST, Req.MC_FLOW_003), title, made)

    views = Family(nonce, "views of bodies", inputs, runs)
    sliced = node("Split", ["carried"], ["upper", "lower"], {"axis": 0, "num_outputs": 2})
    body = [sliced, *advancing()]
    kept = tensor("lower", DTYPE, ["half", "width"])
    view = cache("view")
    view.type.tensor_type.shape.dim[0].dim_param = "half"
    made = views.model([loop({"cache": LENT, "cache_half": view}, ["updated", "last"], body, RESULT, kept)], OUTPUT)
    made.graph.node[0].input[3] = "start"
    split = node("Split", ["cache"], ["start", "rest"], {"axis": 0, "num_outputs": 2})
    made.graph.node.insert(0, split)
    made.graph.output.append(tensor("last", DTYPE, [None, None]))
    title = "A Loop carries half of the cache as it was before the last update, which may be no view of it."
    yield views.valid("plan-006/loop-carried", (_VIEW, _READ_FIRST, Req.MC_FLOW_004), title, made)

    reads = Family(nonce, "values from the cache", inputs, runs)
    first = node("Slice", ["carried", "zero", "three", "zero"], ["rows_read"])
    made = reads.model([loop(SLOT, ["updated"], [first, *advancing()], RESULT)], OUTPUT)
    made.graph.node[0].attribute[-1].g.node[-1].input[1] = "rows_read"
    for name, number in (("zero", 0), ("three", LENGTH)):
        made.graph.initializer.add(name=name, data_type=Stock.INT64, dims=[1], raw_data=number.to_bytes(8, "little"))
    title = "Each trip of a Loop writes rows that it has read of the cache, over some of those."
    yield reads.valid("plan-006/loop-rows", (_VIEW, Req.MC_FLOW_004), title, made)


def _independent(nonce: int) -> Iterator[Case]:
    """Two caches, of which one fails: each holds a prefix of its own updates."""
    runs: tuple[Feeds, ...] = (
        {"position_a": 0, "position_b": 4, "trips": 2},
        {"position_a": 2, "position_b": 0, "trips": 3},
    )
    family = Family(nonce, "two caches fail", "cache_a cache_b values_a values_b position_a position_b trips", runs)
    slots = {f"cache_{one}": cache(f"carried_{one}", mutable=True) for one in "ab"}
    nodes: list[NodeProto] = []
    for one in "ab":
        nodes.append(node("Add", [f"position_{one}", "i"], [f"at_{one}"]))
        nodes.append(write(f"carried_{one}", f"inner_{one}", f"values_{one}", f"at_{one}"))
    results = (cache(f"inner_{one}", root=f"carried_{one}") for one in "ab")
    outputs = [cache(f"updated_{one}", root=f"cache_{one}") for one in "ab"]
    made = family.model([loop(slots, ["updated_a", "updated_b"], nodes, *results)], *outputs)
    twin, title = "dense-009/two-caches-in-a-loop", "A Loop updates two caches at positions of their own."
    yield family.valid(twin, (Req.MC_DENSE_009, Req.MC_FLOW_004), title, made)
    feeds: Feeds = {"position_a": 1, "position_b": LAST - 1, "trips": 4}
    title = "The third update of one of them does not fit; each cache holds some of its updates, in order."
    yield family.refused_run("dense-012/two-caches-in-a-loop", (_ATOMIC, _OVERFLOW), title, made, feeds, twin=twin)

    split = Family(nonce, "branches of two fail", "cache_a cache_b values position condition", (
        {"position": 1, "condition": True},
        {"position": 3, "condition": False},
    ))  # fmt: skip

    def branch(order: str) -> GraphProto:
        updates = [write(f"cache_{one}", f"inner_{one}", position=f"at_{one}") for one in order]
        moves = [node("Add", ["position", "two"], ["at_b"]), node("Identity", ["position"], ["at_a"])]
        return graph([*moves, *updates], *(cache(f"inner_{one}", root=f"cache_{one}") for one in "ab"))

    made = split.model([choose(["updated_a", "updated_b"], branch("ab"), branch("ba"))], *outputs)
    made.graph.initializer.add(name="two", data_type=Stock.INT64, raw_data=(2).to_bytes(8, "little"))
    twin, title = "dense-009/two-caches-in-branches", "Each branch updates two caches, in an order of its own."
    yield split.valid(twin, (Req.MC_DENSE_009, Req.MC_FLOW_003), title, made)
    for taken, order in ((True, "last"), (False, "first")):
        late: Feeds = {"position": LAST - 1, "condition": taken}
        title = f"The {order} of the two updates of the branch taken does not fit."
        yield split.refused_run(f"dense-012/{order}-in-a-branch", (_ATOMIC, _OVERFLOW), title, made, late, twin=twin)


def _static_branch(nonce: int) -> Iterator[Case]:
    """A constant position that overflows, where it may never be executed."""
    family = Family(nonce, "static overflow in a branch", "cache values condition", (
        {"condition": False}, {"condition": True},
    ))  # fmt: skip

    def model(position: int) -> ModelProto:
        made = family.model([choose("updated", writes(position="start"), keeps())], OUTPUT)
        number = position.to_bytes(8, "little")
        made.graph.initializer.add(name="start", data_type=Stock.INT64, raw_data=number)
        for value in (*made.graph.input[:2], *made.graph.output):
            sizes = (LENGTH, SHAPE[1]) if value.name == "values" else SHAPE
            for dim, size in zip(value.type.tensor_type.shape.dim, sizes, strict=True):
                dim.dim_value = size
        return made

    twin, title = "shape-005/branch-fits", "A constant position in a branch, whose update ends at the capacity."
    yield family.valid(twin, (Req.MC_SHAPE_005, Req.MC_FLOW_003), title, model(LAST))
    title = "A constant position in a branch overflows; only a run that takes the branch may be refused."
    feeds: Feeds = {"condition": True}
    yield replace(family, runs=({"condition": False},) * 2).refused_run(
        "shape-005/branch-overflows", (Req.MC_SHAPE_005, _OVERFLOW), title, model(LAST + 1), feeds, twin=twin
    )
