"""ALIAS, ACCESS and PROTO in the bodies of control flow and functions: entries, roots, access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mutcache.proto.onnx_ml import ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.flow_branch import BOTH
from mutcache_conformance.cases.flow_family import Family, Wrong, body_of, edited
from mutcache_conformance.cases.flow_loop import LENT, OUTPUT, RESULT, TRIPS, advancing
from mutcache_conformance.cases.flow_words import (
    cache,
    choose,
    keep,
    keeps,
    loop,
    neg,
    plain,
    step,
    step_function,
    write,
    writes,
)

_ROOT, _CARRIES, _ACCESS = Req.MC_ALIAS_010, Req.MC_ALIAS_015, Req.MC_ACCESS_001


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _entries(nonce)
    yield from _roots(nonce)
    yield from _formals(nonce)


def _entries(nonce: int) -> Iterator[Case]:
    """Entries of nodes in a branch, a body and a function, and delta fields that stand nowhere else."""
    runs = tuple({**feeds, "condition": bool(number % 2)} for number, feeds in enumerate(TRIPS))
    family = Family(nonce, "entries", "cache cache_b values position condition trips", runs)
    nodes = [
        choose("chosen", writes(), keeps()),
        loop({"chosen": LENT}, ["looped"], advancing(), RESULT),
        step("looped", "updated"),
        write("cache_b", "updated_b"),
    ]
    valid = family.model(nodes, OUTPUT, cache("updated_b", root="cache_b"), functions=[step_function()])

    def places(model: ModelProto) -> dict[str, NodeProto]:
        return {
            "branch": body_of(model).node[0],
            "loop": body_of(model, 1).node[2],
            "function": model.functions[0].node[0],
        }

    def entry(place: str, output_index: int, input_index: int, kind: int = 1) -> ModelProto:
        def edit(model: ModelProto) -> None:
            changed = places(model)[place].output_alias[0]
            changed.output_index, changed.input_index = output_index, input_index
            changed.ClearField("kind")
            changed.MergeFromString(bytes([3 << 3, kind]))

        return edited(valid, edit)

    def without(place: str) -> ModelProto:
        return edited(valid, lambda model: places(model)[place].ClearField("output_alias"))

    def twice(model: ModelProto) -> None:
        places(model)["branch"].output_alias.add(output_index=0, input_index=0, kind=1)

    def on_if(model: ModelProto) -> None:
        model.graph.node[0].output_alias.add(output_index=0, input_index=0, kind=1)

    def unknown_access(model: ModelProto) -> None:
        body_of(model, 1).input[2].ClearField("access")
        body_of(model, 1).input[2].MergeFromString(bytes([5 << 3, 7]))

    def unknown_formal(model: ModelProto) -> None:
        model.functions[0].value_info[0].ClearField("access")
        model.functions[0].value_info[0].MergeFromString(bytes([5 << 3, 2]))

    yield from family.cases(
        "alias-015/in-bodies",
        (_CARRIES, Req.MC_ALIAS_001, Req.MC_ALIAS_002, Req.MC_ALIAS_003, Req.MC_PROTO_003),
        "Updates in a branch, in a Loop and in a function, each with its entry.",
        valid,
        Wrong(
            "alias-001/in-a-branch", (Req.MC_ALIAS_001,), "A branch: no output of that index.", entry("branch", 1, 0)
        ),
        Wrong("alias-002/in-a-loop", (Req.MC_ALIAS_002,), "A Loop: no input of that index.", entry("loop", 0, 3)),
        Wrong("alias-001/in-a-function", (Req.MC_ALIAS_001,), "A function: no such output.", entry("function", -1, 0)),
        Wrong("alias-003/in-a-branch", (Req.MC_ALIAS_003,), "A branch: the same entry twice.", edited(valid, twice)),
        Wrong("alias-015/in-a-branch", (_CARRIES,), "The update in a branch has no entry.", without("branch")),
        Wrong("alias-015/in-a-loop", (_CARRIES,), "The update in a Loop has no entry.", without("loop")),
        Wrong("alias-015/in-a-function", (_CARRIES,), "The update in a function has no entry.", without("function")),
        Wrong("alias-015/if", (_CARRIES,), "The If has an entry.", edited(valid, on_if)),
        Wrong("proto-003/in-a-branch", (Req.MC_PROTO_003,), "A branch: no kind.", entry("branch", 0, 0, 0)),
        Wrong("proto-003/in-a-function", (Req.MC_PROTO_003,), "A function: kind 5.", entry("function", 0, 0, 5)),
        Wrong(
            "proto-004/in-a-loop", (Req.MC_PROTO_004,), "A formal input with access 7.", edited(valid, unknown_access)
        ),
        Wrong(
            "proto-004/in-a-function",
            (Req.MC_PROTO_004,),
            "A formal input with access 2.",
            edited(valid, unknown_formal),
        ),
    )


def _roots(nonce: int) -> Iterator[Case]:
    """Where the storage comes from that a body mutates."""
    runs = tuple({**feeds, "condition": bool(number % 2)} for number, feeds in enumerate(TRIPS))
    family = Family(nonce, "roots", "cache other values position condition trips", runs)

    def branches(source: str) -> ModelProto:
        root = "" if source == "negated" else source
        then, otherwise = writes(source, root=source), keeps(source, root=source)
        nodes = [neg("other", "negated"), choose("chosen", then, otherwise)]
        return family.model(nodes, cache("chosen", root=root))

    yield from family.cases(
        "alias-010/branches",
        (_ROOT,),
        "A branch updates a READ_WRITE input.",
        branches("cache"),
        Wrong("alias-010/branch-read-only", (_ROOT,), "A branch updates a READ_ONLY input.", branches("other")),
    )
    carried = Family(nonce, "roots of slots", "cache other values position condition trips", runs)

    def slots(source: str) -> ModelProto:
        made = loop({source: LENT}, ["updated"], advancing(), RESULT)
        root = "" if source == "negated" else source
        return carried.model([neg("other", "negated"), made], cache("updated", root=root))

    yield from carried.cases(
        "alias-010/loop",
        (_ROOT, _ACCESS),
        "A Loop updates a slot that starts from a READ_WRITE input.",
        slots("cache"),
        Wrong("alias-010/loop-read-only", (_ROOT,), "It starts from a READ_ONLY input.", slots("other")),
        Wrong("alias-010/loop-computed", (_ROOT,), "It starts from an intermediate value.", slots("negated")),
    )


def _formals(nonce: int) -> Iterator[Case]:
    """READ_WRITE on values of bodies."""
    family = Family(nonce, "access in bodies", "cache other values position trips", TRIPS)

    def model(initial: str, *, mutable: bool, values: Sequence[str] = ()) -> ModelProto:
        formal = cache("passed", mutable=mutable)
        slots = {"cache": LENT, initial: formal}
        results = (RESULT, cache("again", root="passed"))
        looped = loop(slots, ["updated", "same"], [*advancing(), keep("passed", "again")], *results)
        looped.attribute[-1].g.value_info.extend(cache(name, mutable=True) for name in values)
        outputs = [OUTPUT, cache("same", root=initial)]
        return family.model([looped], *outputs)

    def lent_counter(made: ModelProto) -> None:
        body_of(made).input[0].access = ValueInfoProto.READ_WRITE

    valid = model("other", mutable=False)
    yield from family.cases(
        "access-001/loop",
        (_ACCESS,),
        "A Loop carries a cache that it updates, and passes a READ_ONLY input on.",
        valid,
        Wrong(
            "access-001/read-only-initial-value",
            (_ACCESS,),
            "The formal input for that is READ_WRITE.",
            model("other", mutable=True),
        ),
        Wrong(
            "access-001/value-of-a-body",
            (_ACCESS,),
            "A value of the body is READ_WRITE.",
            model("other", mutable=False, values=["again"]),
        ),
        Wrong(
            "access-001/iteration",
            (_ACCESS,),
            "The number of the iteration is READ_WRITE.",
            edited(valid, lent_counter),
        ),
    )
    branch = Family(nonce, "access in branches", "cache values position condition", BOTH)
    valid = branch.model([choose("updated", writes(), keeps())], OUTPUT)

    def in_branch(name: str) -> ModelProto:
        return edited(valid, lambda model: body_of(model).value_info.append(cache(name, mutable=True)))

    yield from branch.cases(
        "access-001/branches",
        (_ACCESS,),
        "The branches say nothing of access.",
        valid,
        Wrong("access-001/captured", (_ACCESS,), "A branch calls what it captures READ_WRITE.", in_branch("cache")),
        Wrong("access-001/branch-output", (_ACCESS,), "A branch calls what it returns READ_WRITE.", in_branch("inner")),
    )
    lending = Family(nonce, "access in functions", "cache other values position")

    def called(argument: str) -> ModelProto:
        body = step_function(cache("formal", mutable=True), name="reads", nodes=[neg("formal", "result")])
        nodes = [step(argument, "read", of="reads"), write("cache", "updated")]
        return lending.model(nodes, plain("read"), OUTPUT, functions=[body])

    yield from lending.cases(
        "access-001/function",
        (_ACCESS,),
        "A function that reads is lent a cache.",
        called("cache"),
        Wrong("access-001/function-argument", (_ACCESS,), "It is given a READ_ONLY input.", called("other")),
    )
