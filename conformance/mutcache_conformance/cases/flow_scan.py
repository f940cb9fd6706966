"""FLOW: caches as states of a Scan."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.builder import aliased, node, tensor
from mutcache_conformance.cases.flow_family import Family, Feeds, Wrong
from mutcache_conformance.cases.flow_words import cache, copy, keep, neg, plain, rows, scalar, scan, write
from mutcache_conformance.cases.sketch import DTYPE

_STATE, _CAPTURE, _LEAVES = Req.MC_FLOW_005, Req.MC_FLOW_006, Req.MC_FLOW_009
_ONE = "cache stack positions"
RUNS: tuple[Feeds, ...] = ({"stack": 3, "positions": (0, 4, 2)}, {"stack": 1, "positions": (5,)})
LENT = cache("state", mutable=True)
SCANNED = {"stack": rows("slice"), "positions": scalar("at")}
RESULT = cache("inner", root="state")
OUTPUT = cache("updated", root="cache")


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _state(nonce)
    yield from _passed(nonce)
    yield from _two_states(nonce)
    yield from _collected(nonce)
    yield from _captures(nonce)
    yield from _slices(nonce)
    yield from _scans_its_state(nonce)


def writing(source: str = "state", output: str = "inner") -> NodeProto:
    """The update by a slice, at the position scanned beside it."""
    return write(source, output, "slice", "at")


def _state(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "state", _ONE, RUNS)

    def model(
        *more: NodeProto,
        formal: ValueInfoProto = LENT,
        result: ValueInfoProto = RESULT,
        entry: tuple[int, int] | None = None,
    ) -> ModelProto:
        made = scan({"cache": formal}, SCANNED, ["updated"], [writing(), *more], result)
        return family.model([aliased(made, *entry) if entry else made], OUTPUT)

    yield from family.cases(
        "flow-005/state",
        (_STATE, _LEAVES, Req.MC_BIND_009),
        "A Scan updates the cache that is its state, by rows that it scans.",
        model(),
        Wrong(
            "flow-005/returns-a-value",
            (_STATE,),
            "The state becomes what was computed from the updated cache.",
            model(neg("inner", "negated"), result=cache("negated")),
        ),
        Wrong("flow-009/read-only-state", (_LEAVES,), "The formal input is READ_ONLY.", model(formal=cache("state"))),
        Wrong(
            "alias-015/scan-other-input",
            (Req.MC_ALIAS_015,),
            "An entry of the Scan names what it scans as what the output aliases.",
            model(entry=(0, 1)),
        ),
        Wrong(
            "alias-009/scan-body",
            (Req.MC_ALIAS_009,),
            "The body does not say whose storage it returns.",
            model(result=cache("inner")),
        ),
    )
    title = "The Scan says with an entry what its body does."
    yield family.valid("alias-015/scan-entry", (Req.MC_ALIAS_015, _STATE), title, model(entry=(0, 0)))


def _passed(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "state passed", _ONE + " values position", tuple({**one, "position": 2} for one in RUNS))
    sums = node("ReduceSum", ["slice"], ["total"], {"keepdims": 0})

    def model(formal: ValueInfoProto, result: ValueInfoProto, passing: NodeProto) -> ModelProto:
        results = (result, tensor("total", DTYPE, []))
        scanned = scan({"cache": formal}, SCANNED, ["same", "totals"], [sums, passing], *results)
        return family.model([scanned, write("same", "updated")], OUTPUT, plain("totals", 1))

    yield from family.cases(
        "flow-005/passed-through",
        (_STATE, Req.MC_ALIAS_012),
        "A Scan passes the cache through; it is updated after it, by the name that the Scan gave it.",
        model(LENT, RESULT, keep("state", "inner")),
        Wrong(
            "alias-010/scan-copies",
            (Req.MC_ALIAS_010, Req.MC_ALIAS_005),
            "The Scan returns a copy.",
            model(cache("state"), cache("inner"), copy("state", "inner")),
        ),
    )


def _two_states(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "two states", "cache_a cache_b stack positions", RUNS)
    states = {f"cache_{one}": cache(f"state_{one}", mutable=True) for one in "ab"}
    results = {one: cache(f"inner_{one}", root=f"state_{one}") for one in "ab"}
    nodes = [writing("state_a", "inner_a"), writing("state_b", "inner_b")]
    outputs = [cache(f"updated_{one}", root=f"cache_{one}") for one in "ab"]

    def model(order: str) -> ModelProto:
        made = scan(states, SCANNED, ["updated_a", "updated_b"], nodes, *(results[one] for one in order))
        return family.model([made], *outputs)

    yield from family.cases(
        "flow-005/two-states",
        (_STATE,),
        "A Scan has two caches as its states.",
        model("ab"),
        Wrong("flow-005/swapped-states", (_STATE,), "They change places in each iteration.", model("ba")),
    )


def _collected(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "states collected", _ONE, RUNS)

    def model(*, entry: bool = False, root: str = "") -> ModelProto:
        collected = tensor("history", DTYPE, ["steps", "max_length", "width"], alias_of=root)
        made = scan({"cache": LENT}, SCANNED, ["updated", "history"], [writing()], RESULT, cache("inner"))
        return family.model([aliased(made, 1, 0) if entry else made], OUTPUT, collected)

    def annotated() -> ModelProto:
        """The body says of its scan output what it is in the body."""
        made = model()
        made.graph.node[0].attribute[1].g.output[1].alias_of = "state"
        return made

    yield from family.cases(
        "flow-005/scan-output",
        (_STATE, Req.MC_PLAN_006),
        "A Scan collects the cache as it is after each update.",
        model(),
        Wrong(
            "flow-005/scan-output-with-entry",
            (_STATE,),
            "An entry says that what is collected aliases the cache.",
            model(entry=True),
        ),
        Wrong(
            "flow-005/scan-output-with-alias-of",
            (_STATE,),
            "alias_of says that what is collected aliases the cache.",
            model(root="cache"),
        ),
    )
    title = "The body's own output for it may say that it is a name of the cache there."
    yield family.valid("flow-005/scan-output-named-inside", (_STATE,), title, annotated())


def _captures(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "captured by a scan", "cache other stack positions", RUNS)

    def model(captured: str) -> ModelProto:
        made = scan({"cache": LENT}, SCANNED, ["updated"], [neg(captured, "read"), writing()], RESULT)
        return family.model([made], OUTPUT)

    yield from family.cases(
        "flow-006/scan-reads-another",
        (_CAPTURE,),
        "The body of a Scan captures a value that nothing mutates.",
        model("other"),
        Wrong(
            "flow-006/scan-captures-its-state", (_CAPTURE,), "It captures the cache that is its state.", model("cache")
        ),
    )


def _slices(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "slices", _ONE, RUNS)

    def model(formal: ValueInfoProto) -> ModelProto:
        scanned = {"stack": formal, "positions": scalar("at")}
        return family.model([scan({"cache": LENT}, scanned, ["updated"], [writing()], RESULT)], OUTPUT)

    lent = rows("slice")
    lent.access = ValueInfoProto.READ_WRITE
    yield from family.cases(
        "access-001/slices",
        (Req.MC_ACCESS_001,),
        "The slices that a Scan takes are READ_ONLY.",
        model(rows("slice")),
        Wrong("access-001/read-write-slices", (Req.MC_ACCESS_001,), "They are READ_WRITE.", model(lent)),
    )


def _scans_its_state(nonce: int) -> Iterator[Case]:
    """A Scan over the first dimension of its own state, which updates it."""
    family = Family(nonce, "scans its state", "cache other", ({}, {}))

    def model(scanned: str) -> ModelProto:
        wide = tensor("slice", DTYPE, ("width",))
        nodes = [
            node("Unsqueeze", ["slice", "first"], ["row"]),
            write("state", "inner", "row", "start"),
        ]
        made = scan({"cache": LENT}, {scanned: wide}, ["updated"], nodes, RESULT)
        result = family.model([made], OUTPUT)
        for name, dims in (("first", [1]), ("start", [])):
            result.graph.initializer.add(name=name, data_type=Stock.INT64, dims=dims, raw_data=bytes(8))
        return result

    yield from family.cases(
        "alias-014/scans-another",
        (Req.MC_ALIAS_014,),
        "A Scan updates its state by the rows of another value.",
        model("other"),
        Wrong(
            "alias-014/scans-its-state", (Req.MC_ALIAS_014,), "It scans the cache that is its state.", model("cache")
        ),
    )
