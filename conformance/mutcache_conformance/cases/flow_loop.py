"""FLOW: caches that a Loop carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mutcache.proto.onnx_ml import ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.builder import aliased, node, tensor
from mutcache_conformance.cases.flow_family import Family, Wrong
from mutcache_conformance.cases.flow_words import (
    cache,
    choose,
    keep,
    keeps,
    loop,
    neg,
    plain,
    write,
    writes,
)
from mutcache_conformance.cases.sketch import DTYPE

_SLOT, _CAPTURE, _LEAVES = Req.MC_FLOW_004, Req.MC_FLOW_006, Req.MC_FLOW_009
_ONE = "cache values position trips"
#: Two trips, none, and one.
TRIPS = ({"position": 1, "trips": 2}, {"position": 0, "trips": 0}, {"position": 3, "trips": 1})
LENT = cache("carried", mutable=True)
#: A slot that starts from the cache, and what it returns.
SLOT: Mapping[str, ValueInfoProto] = {"cache": LENT}
RESULT = cache("inner", root="carried")
OUTPUT = cache("updated", root="cache")


def advancing(source: str = "carried", output: str = "inner") -> list[NodeProto]:
    """An update behind that of the iteration before: at ``position + i``."""
    return [node("Add", ["position", "i"], ["at"]), write(source, output, position="at")]


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _carried(nonce)
    yield from _formals(nonce)
    yield from _two_slots(nonce)
    yield from _plain_slots(nonce)
    yield from _captures(nonce)
    yield from _other_captures(nonce)
    yield from _leaves(nonce)
    yield from _collected(nonce)


def _carried(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "carried", _ONE, TRIPS)

    def model(*more: NodeProto, result: ValueInfoProto = RESULT, entry: tuple[int, int] | None = None) -> ModelProto:
        made = loop(SLOT, ["updated"], [*advancing(), *more], result)
        if entry:
            aliased(made, *entry)
        return family.model([made], OUTPUT)

    yield from family.cases(
        "flow-004/carried",
        (_SLOT, _LEAVES, Req.MC_BIND_009),
        "A Loop updates the cache that it carries, in two trips, in none, and in one.",
        model(),
        Wrong(
            "flow-004/returns-a-value",
            (_SLOT,),
            "The slot returns what was computed from the updated cache.",
            model(neg("inner", "negated"), result=cache("negated")),
        ),
        Wrong(
            "flow-004/returns-a-copy",
            (_SLOT,),
            "The slot returns a copy of the updated cache.",
            model(node("Identity", ["inner"], ["copied"]), result=cache("copied")),
        ),
        Wrong(
            "alias-015/loop-other-input",
            (Req.MC_ALIAS_015,),
            "An entry of the Loop names its number of trips as what the output aliases.",
            model(entry=(0, 0)),
        ),
    )
    outside = model(result=cache("inner", root="cache"))
    title = "The body names the initial value, not the formal input."
    yield family.valid("alias-005/body-names-initial-value", (Req.MC_ALIAS_005, _SLOT), title, outside)
    title = "The Loop says with an entry what its body does."
    yield family.valid("alias-015/loop-entry", (Req.MC_ALIAS_015, _SLOT), title, model(entry=(0, 2)))


def _formals(nonce: int) -> Iterator[Case]:
    """Bodies that return what they were given."""
    family = Family(nonce, "formals", _ONE, TRIPS)

    def model(formal: ValueInfoProto, result: ValueInfoProto, *nodes: NodeProto, updates: str) -> ModelProto:
        looped = loop({"cache": formal}, ["same"], nodes, result)
        reads = [neg("same", "negated")] if updates == "cache" else []
        return family.model([looped, *reads, write(updates, "updated")], OUTPUT, *(plain("negated") for _ in reads))

    for what, title, result, nodes in (
        ("passed-through", "The body passes the cache on through Identity.", RESULT, [keep("carried", "inner")]),
        ("own-name", "The body returns its READ_WRITE formal input under its own name.", cache("carried"), []),
    ):
        made = model(LENT, result, *nodes, updates="same")
        yield family.valid(f"flow-004/{what}", (_SLOT, Req.MC_ALIAS_009), title, made)
    value = cache("carried")
    yield from family.cases(
        "flow-004/read-only-formal",
        (_SLOT, Req.MC_ALIAS_011),
        "A READ_ONLY formal input under its own name is a value; the cache is updated after the Loop.",
        model(value, value, updates="cache"),
        Wrong(
            "alias-010/read-only-formal",
            (Req.MC_ALIAS_010, Req.MC_ALIAS_005),
            "The value that the Loop returns is updated.",
            model(value, value, updates="same"),
        ),
    )


def _two_slots(nonce: int) -> Iterator[Case]:
    inputs = "cache_a cache_b values_a values_b position trips"
    family = Family(nonce, "two slots", inputs, TRIPS)
    slots = {f"cache_{one}": cache(f"carried_{one}", mutable=True) for one in "ab"}
    nodes = [
        node("Add", ["position", "i"], ["at"]),
        write("carried_a", "inner_a", "values_a", "at"),
        write("carried_b", "inner_b", "values_b", "at"),
    ]
    results = {one: cache(f"inner_{one}", root=f"carried_{one}") for one in "ab"}

    def model(order: str, outputs: Sequence[str] = "ab") -> ModelProto:
        looped = loop(slots, ["updated_a", "updated_b"], nodes, *(results[one] for one in order))
        roots = (cache(f"updated_{name}", root=f"cache_{root}") for name, root in zip("ab", outputs, strict=True))
        return family.model([looped], *roots)

    yield from family.cases(
        "flow-004/two-slots",
        (_SLOT,),
        "A Loop carries two caches.",
        model("ab"),
        Wrong("flow-004/swapped-slots", (_SLOT,), "The slots change places in each trip.", model("ba")),
    )
    same = Family(nonce, "one storage in two slots", "cache other values position trips", TRIPS)

    def twice(second: str) -> ModelProto:
        inner = [*advancing(), node("Add", ["copied", "i_wide"], ["more"])]
        inner.insert(0, node("Cast", ["i"], ["i_wide"], {"to": DTYPE}))
        made = loop({"cache": LENT, "other": cache("copied")}, ["updated", "summed"], inner, RESULT, cache("more"))
        made.input[3] = second
        return same.model([made], OUTPUT, plain("summed"))

    yield from same.cases(
        "alias-014/one-slot",
        (Req.MC_ALIAS_014,),
        "A Loop carries a cache, and a value of the same type.",
        twice("other"),
        Wrong(
            "alias-014/two-slots",
            (Req.MC_ALIAS_014,),
            "It carries the cache twice: as storage, and as a value.",
            twice("cache"),
        ),
    )


def _plain_slots(nonce: int) -> Iterator[Case]:
    """A Loop that starts from a cache and computes something else."""
    family = Family(nonce, "plain slots", _ONE, TRIPS)

    def model(formal: ValueInfoProto, order: int = 1) -> ModelProto:
        looped = loop({"cache": formal}, ["summed"], [node("Add", ["carried", "cache"], ["inner"])], cache("inner"))
        nodes = [looped, write("cache", "updated")][::order]
        return family.model(nodes, plain("summed"), OUTPUT)

    yield from family.cases(
        "flow-006/plain-slot",
        (_CAPTURE, _SLOT),
        "A Loop starts from a cache, which it captures as well, and returns a value.",
        model(cache("carried")),
        Wrong(
            "access-001/plain-slot",
            (Req.MC_ACCESS_001,),
            "The formal input is READ_WRITE, but from the second trip on it is no storage.",
            model(LENT),
        ),
        Wrong(
            "alias-011/initial-value",
            (Req.MC_ALIAS_011,),
            "The Loop starts from a stale name.",
            model(cache("carried"), -1),
        ),
    )


def _captures(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "captures", "cache other values position trips", TRIPS)

    def model(source: str, operator: str = "Neg") -> ModelProto:
        result = "read" if operator == "Neg" else "shape"
        looped = loop(SLOT, ["updated"], [*advancing(), node(operator, [source], [result])], RESULT)
        return family.model([keep("cache", "named"), looped], OUTPUT)

    yield from family.cases(
        "flow-006/reads-what-it-carries",
        (_CAPTURE,),
        "The body reads a value that no one mutates; the cache it only carries.",
        model("other"),
        Wrong(
            "flow-006/captures-what-it-carries", (_CAPTURE,), "It captures the cache that it carries.", model("cache")
        ),
        Wrong("flow-006/captures-other-name", (_CAPTURE,), "It captures another name of that cache.", model("named")),
    )
    title = "The body takes the Shape of the cache that it carries, by the name outside."
    yield family.valid("flow-006/shape-of-what-it-carries", (_CAPTURE,), title, model("cache", "Shape"))
    reading = Family(nonce, "captured and read", "cache_a cache_b values position trips", TRIPS)
    body = [neg("cache_b", "read"), *advancing()]
    looped = loop({"cache_a": LENT}, ["updated_a"], body, RESULT)
    outputs = (cache("updated_a", root="cache_a"), cache("updated_b", root="cache_b"))
    nodes = [looped, write("cache_b", "updated_b")]
    yield from reading.cases(
        "flow-006/reads-another-cache",
        (_CAPTURE, Req.MC_ALIAS_011),
        "The body reads another cache, which is updated after the Loop.",
        reading.model(nodes, *outputs),
        Wrong(
            "alias-011/captured-by-a-loop",
            (Req.MC_ALIAS_011,),
            "That cache is updated before the Loop.",
            reading.model(nodes[::-1], *outputs),
        ),
    )


def _other_captures(nonce: int) -> Iterator[Case]:
    """What a body mutates it must carry, however deep the update lies."""
    runs = tuple({**feeds, "condition": bool(number % 2)} for number, feeds in enumerate(TRIPS))
    family = Family(nonce, "mutated captures", "cache values position trips condition", runs)

    def model(source: str, *, chosen: bool) -> ModelProto:
        root = source
        branches = [body(source, root=root, output="chosen") for body in (writes, keeps)]
        nodes = [choose("inner", *branches)] if chosen else [write(source, "inner")]
        return family.model([loop(SLOT, ["updated"], nodes, cache("inner", root=root))], OUTPUT)

    for what, chosen, where in (("", False, ""), ("branch-", True, ", in a branch")):
        yield from family.cases(
            f"flow-006/{what}updates-what-it-carries",
            (_CAPTURE, _SLOT),
            f"The body updates the cache that it carries{where}.",
            model("carried", chosen=chosen),
            Wrong(
                f"flow-006/{what}updates-what-it-captures",
                (_CAPTURE, _SLOT, Req.MC_ACCESS_001),
                f"The body updates the cache that it captures{where}.",
                model("cache", chosen=chosen),
            ),
        )


def _leaves(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "updates leave loops", _ONE, TRIPS)

    def model(formal: ValueInfoProto = LENT, output: str = "updated") -> ModelProto:
        body = [*advancing(), node("Cast", ["at"], ["number"], {"to": DTYPE})]
        made = loop({"cache": formal}, [output, "numbers"], body, RESULT, tensor("number", DTYPE, []))
        return family.model([made], *([OUTPUT] if output else []), plain("numbers", 1))

    yield from family.cases(
        "flow-009/loop",
        (_LEAVES, Req.MC_FLOW_005),
        "What a Loop updates leaves through the output of its slot, beside what it collects.",
        model(),
        Wrong("flow-009/loop-omits-output", (_LEAVES,), "The Loop leaves that output out.", model(output="")),
        Wrong("flow-009/read-only-formal", (_LEAVES,), "The formal input is READ_ONLY.", model(cache("carried"))),
    )


def _collected(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "collected", _ONE, ({"position": 1, "trips": 3}, {"position": 0, "trips": 1}))

    def model(result: str, *, entry: bool = False, root: str = "") -> ModelProto:
        made = loop(SLOT, ["updated", "history"], [neg("carried", "before"), *advancing()], RESULT, cache(result))
        if entry:
            aliased(made, 1, 2)
        collected = tensor("history", DTYPE, ["trips_made", "max_length", "width"], alias_of=root)
        return family.model([made], OUTPUT, collected)

    yield from family.cases(
        "flow-005/loop-collects",
        (Req.MC_FLOW_005, Req.MC_PLAN_006),
        "A Loop collects the cache as it is after each trip.",
        model("inner"),
        Wrong(
            "flow-005/loop-collects-with-entry",
            (Req.MC_FLOW_005,),
            "An entry says that what is collected aliases the cache.",
            model("inner", entry=True),
        ),
        Wrong(
            "flow-005/loop-collects-with-alias-of",
            (Req.MC_FLOW_005,),
            "alias_of says that what is collected aliases the cache.",
            model("inner", root="cache"),
        ),
    )
    title = "A Loop collects what it computes of the cache before each update."
    yield family.valid("flow-005/loop-collects-values", (Req.MC_FLOW_005, Req.MC_PLAN_005), title, model("before"))
