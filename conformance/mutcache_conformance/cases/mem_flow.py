"""MEM: what updates in branches, loops, scans and functions take of memory, measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import FunctionProto, ModelProto, NodeProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case, Storage
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.flow_family import Family, renamed
from mutcache_conformance.cases.flow_loop import OUTPUT, RESULT, SLOT, advancing
from mutcache_conformance.cases.flow_scan import LENT as STATE
from mutcache_conformance.cases.flow_scan import RESULT as STATE_RESULT
from mutcache_conformance.cases.flow_scan import SCANNED, writing
from mutcache_conformance.cases.flow_words import (
    cache,
    call,
    choose,
    function,
    graph,
    keep,
    keeps,
    loop,
    scan,
    step,
    step_function,
    write,
    writes,
)
from mutcache_conformance.cases.measured_scene import repeated, sizes
from mutcache_conformance.cases.mem import WIDTH
from mutcache_conformance.cases.sketch import DTYPE, LENGTH

_SIZE: Final = (Req.MC_MEM_001, Req.MC_BIND_010)
_RUNS: Final = (Req.MC_MEM_002,)
_BRANCH, _LOOP, _FUNCTION = "cache values position condition", "cache values position trips", "cache values position"
#: Trips of loops, and slices of scans; all write near the end of the cache.
TRIPS: Final = 3


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _branches(nonce)
    yield from _loops(nonce)
    yield from _functions(nonce)
    yield from _repeated(nonce)


def _case(what: str, title: str, family: Family, *nodes: NodeProto, taken: bool = True, trips: int = TRIPS) -> Case:
    """A case of a model of these nodes, which make ``updated`` of ``cache``."""
    return _case_of(what, title, family, family.model(nodes, OUTPUT), taken=taken, trips=trips)


def _case_of(
    what: str, title: str, family: Family, model: ModelProto, *, taken: bool = True, trips: int = TRIPS
) -> Case:
    draw, made = family.draw, renamed(model, family.draw)

    def caches(rows: int) -> Mapping[str, Storage]:
        return {draw.name("cache"): Storage("cache", DTYPE, (rows, WIDTH))}

    def feeds(rows: int) -> Mapping[str, Storage]:
        return _feeds(draw, family.inputs, WIDTH, rows - LENGTH - TRIPS, taken=taken, trips=trips)

    return sizes(what, _SIZE, title, lambda _: made, caches, feeds)


def _feeds(
    draw: Draw, inputs: str, width: int, position: int, *, taken: bool = True, trips: int = TRIPS
) -> dict[str, Storage]:
    """Storage for each input but the cache."""
    made = {
        "values": draw.small_integers("values", DTYPE, (LENGTH, width)),
        "stack": draw.small_integers("stack", DTYPE, (TRIPS, LENGTH, width)),
        "position": Storage("position", Stock.INT64, (), int64(position)),
        "positions": Storage("positions", Stock.INT64, (TRIPS,), int64(*range(position, position + TRIPS))),
        "trips": Storage("trips", Stock.INT64, (), int64(trips)),
        "condition": Storage("condition", Stock.BOOL, (), bytes([taken])),
    }
    return {draw.name(role): made[role] for role in inputs.split() if role != "cache"}


def _branches(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "mem branch", _BRANCH)
    for taken, word in ((True, "taken"), (False, "kept")):
        title = f"An update in a branch that is {'taken' if taken else 'not taken'}."
        yield _case(f"mem-001/branch-{word}", title, family, choose("updated", writes(), keeps()), taken=taken)

    family = Family(nonce, "mem branches", _BRANCH)
    nested = graph([choose("inner", writes(output="deep"), keeps(output="kept"))], cache("inner", root="cache"))
    title = "Updates in both branches, one of them in a branch of a branch."
    yield _case("mem-001/nested-branch", title, family, choose("updated", nested, writes(output="other")))

    family = Family(nonce, "mem branch and update", _BRANCH)
    title = "An update in a branch, and one after it."
    nodes = [choose("chosen", writes(), keeps()), write("chosen", "updated")]
    yield _case("mem-001/branch-then-update", title, family, *nodes)


def _loops(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "mem loop", _LOOP)
    looped = loop(SLOT, ["updated"], advancing(), RESULT)
    for trips, words in ((TRIPS, "three trips"), (1, "one trip"), (0, "no trip")):
        what = f"mem-001/loop-{words.replace(' ', '-')}"
        yield _case(what, f"An update in a Loop that makes {words}.", family, looped, trips=trips)

    family = Family(nonce, "mem loop and update", _LOOP)
    nodes = [write("cache", "first"), loop({"first": SLOT["cache"]}, ["looped"], advancing(), RESULT)]
    title = "Updates before a Loop, in it, and after it."
    yield _case("mem-001/around-a-loop", title, family, *nodes, write("looped", "updated"))

    family = Family(nonce, "mem loop in branch", f"{_LOOP} condition")
    then = graph([loop(SLOT, ["deep"], advancing(), RESULT)], cache("deep", root="cache"))
    title = "An update in a Loop in a branch."
    yield _case("mem-001/loop-in-a-branch", title, family, choose("updated", then, keeps(output="kept")))

    family = Family(nonce, "mem scan", "cache stack positions")
    scanned = scan({"cache": STATE}, SCANNED, ["updated"], [writing()], STATE_RESULT)
    yield _case("mem-001/scan", "An update in a Scan.", family, scanned)


def _functions(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "mem function", _FUNCTION)

    def case(what: str, title: str, *nodes: NodeProto, functions: tuple[FunctionProto, ...]) -> Case:
        return _case_of(f"mem-001/{what}", title, family, family.model(nodes, OUTPUT, functions=functions))

    made = step_function()
    yield case("function", "An update in a function.", step("cache", "updated"), functions=(made,))
    twice = [step("cache", "first"), keep("first", "same"), step("same", "updated")]
    yield case("function-twice", "Two calls of a function that updates.", *twice, functions=(made,))
    outer = function(
        "outer",
        made.input,
        ["result"],
        [call("step", made.input, ["result"])],
        cache("formal", mutable=True),
        cache("result", root="formal"),
    )
    title = "An update in a function that a function calls."
    yield case("function-in-function", title, step("cache", "updated", of="outer"), functions=(made, outer))


def _repeated(nonce: int) -> Iterator[Case]:
    for what, inputs, words, made in (
        ("branch", _BRANCH, "branch", choose("updated", writes(), keeps())),
        ("loop", _LOOP, "Loop", loop(SLOT, ["updated"], advancing(), RESULT)),
        ("function", _FUNCTION, "function", step("cache", "updated")),
    ):
        family = Family(nonce, f"mem repeated {what}", inputs)
        functions = [step_function()] if what == "function" else []
        model = renamed(family.model([made], OUTPUT, functions=functions), family.draw)
        title = f"The same run with an update in a {words}, again and again."
        caches = family.mutable()
        [storage] = caches.values()
        feeds = _feeds(family.draw, inputs, storage.shape[1], storage.shape[0] - LENGTH - TRIPS)
        yield repeated(f"mem-002/{what}", _RUNS, title, model, caches, feeds)
