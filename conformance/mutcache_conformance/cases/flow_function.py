"""FLOW: caches as arguments of functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mutcache.proto.onnx_ml import FunctionProto, ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.builder import aliased
from mutcache_conformance.cases.flow_family import Family, Wrong
from mutcache_conformance.cases.flow_words import (
    LENT,
    STEP_INPUTS,
    cache,
    call,
    copy,
    function,
    keep,
    neg,
    plain,
    step,
    step_function,
    write,
)

_FUNCTION, _LEAVES, _CARRIES = Req.MC_FLOW_007, Req.MC_FLOW_009, Req.MC_ALIAS_015
_ONE = "cache other values position"
FORMAL, RESULT = LENT
OUTPUT = cache("updated", root="cache")


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _says_so(nonce)
    yield from _arguments(nonce)
    yield from _twice(nonce)
    yield from _leaves(nonce)
    yield from _nested(nonce)
    yield from _passes(nonce)
    yield from _overloads(nonce)
    yield from _uncalled(nonce)


def _says_so(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "function", _ONE)

    def model(*value_info: ValueInfoProto, entry: tuple[int, int] | None = None) -> ModelProto:
        called = step("cache", "updated")
        functions = [step_function(*value_info)]
        return family.model([aliased(called, *entry) if entry else called], OUTPUT, functions=functions)

    silent = cache("formal")
    yield from family.cases(
        "flow-007/one-call",
        (_FUNCTION, _LEAVES, Req.MC_BIND_009),
        "A function updates its first argument, and says so of its formal input and of its output.",
        model(),
        Wrong("flow-007/no-formal", (_FUNCTION,), "It says nothing of its formal input.", model(RESULT)),
        Wrong("flow-007/read-only-formal", (_FUNCTION,), "Its formal input is READ_ONLY.", model(silent, RESULT)),
        Wrong("flow-007/no-alias-of", (_FUNCTION,), "It says nothing of its output.", model(FORMAL)),
        Wrong(
            "flow-007/output-without-alias-of",
            (_FUNCTION,),
            "It knows its output without alias_of.",
            model(FORMAL, cache("result")),
        ),
        Wrong(
            "alias-005/function-output",
            (Req.MC_ALIAS_005,),
            "Its output names another input.",
            model(FORMAL, cache("result", root="rows")),
        ),
        Wrong(
            "alias-006/function-output",
            (Req.MC_ALIAS_006,),
            "Its output names a value of the caller.",
            model(FORMAL, cache("result", root="cache")),
        ),
        Wrong(
            "alias-007/function-output",
            (Req.MC_ALIAS_007,),
            "Its output names itself.",
            model(FORMAL, cache("result", root="result")),
        ),
        Wrong(
            "alias-015/call-other-input",
            (_CARRIES,),
            "An entry of the call names another argument than the function returns.",
            model(entry=(0, 1)),
        ),
        Wrong(
            "alias-008/formal-input",
            (Req.MC_ALIAS_008,),
            "alias_of on a formal input of the function.",
            model(*LENT, cache("rows", root="formal")),
        ),
    )
    title = "The call says with an entry what the function does."
    yield family.valid("alias-015/call-entry", (_CARRIES, _FUNCTION), title, model(entry=(0, 0)))
    twice = model()
    twice.functions[0].value_info.extend(LENT)
    title = "The function has two entries for one name, which agree."
    yield family.valid("flow-007/entries-twice", (_FUNCTION,), title, twice)


def _arguments(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "arguments", _ONE)

    def model(argument: str) -> ModelProto:
        nodes = [keep("cache", "named"), neg("other", "negated"), step(argument, "updated")]
        return family.model(nodes, OUTPUT, functions=[step_function()])

    def annotated(argument: str) -> ModelProto:
        made = model(argument)
        made.graph.output[0].alias_of = argument if argument == "other" else ""
        return made

    yield from family.cases(
        "flow-007/lent",
        (_FUNCTION,),
        "The argument is a name that the graph gave the cache.",
        model("named"),
        Wrong("flow-007/read-only-argument", (_FUNCTION,), "The argument is a READ_ONLY input.", annotated("other")),
        Wrong(
            "flow-007/computed-argument", (_FUNCTION,), "The argument is an intermediate value.", annotated("negated")
        ),
    )
    chained = Family(nonce, "chained calls", _ONE)

    def chain(second: str, *more: NodeProto) -> ModelProto:
        nodes = [step("cache", "first"), step(second, "updated"), *more]
        outputs = [plain("negated")] if more else []
        return chained.model(nodes, OUTPUT, *outputs, functions=[step_function()])

    yield from chained.cases(
        "alias-012/chained-calls",
        (Req.MC_ALIAS_012, _FUNCTION),
        "Two calls of a function, the second with the result of the first.",
        chain("first"),
        Wrong("alias-012/calls-fork", (Req.MC_ALIAS_012,), "Both take the graph input.", chain("cache")),
        Wrong(
            "alias-011/after-a-call",
            (Req.MC_ALIAS_011,),
            "The result of the first call is read after the second.",
            chain("first", neg("first", "negated")),
        ),
    )


def _twice(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "two parameters", _ONE)
    nodes = [neg("read", "negated"), write("formal", "result", "rows", "at")]
    adding = function("adds", ["formal", "read", "rows", "at"], ["result", "negated"], nodes, *LENT)

    def model(read: str) -> ModelProto:
        made = [keep("cache", "named"), call("adds", ["cache", read, "values", "position"], ["updated", "negated"])]
        return family.model(made, OUTPUT, plain("negated"), functions=[adding])

    yield from family.cases(
        "flow-007/two-parameters",
        (_FUNCTION, Req.MC_ALIAS_014),
        "A function mutates one parameter and reads another.",
        model("other"),
        Wrong("flow-007/one-storage-twice", (_FUNCTION,), "Both are the cache.", model("cache")),
        Wrong("flow-007/one-storage-by-two-names", (_FUNCTION,), "Both are the cache, by two names.", model("named")),
    )
    pair = Family(nonce, "two mutated parameters", "cache_a cache_b values position")
    writing = [write(f"formal_{one}", f"result_{one}", "rows", "at") for one in "ab"]
    lent = [
        *(cache(f"formal_{one}", mutable=True) for one in "ab"),
        *(cache(f"result_{one}", root=f"formal_{one}") for one in "ab"),
    ]
    both = function("both", ["formal_a", "formal_b", "rows", "at"], ["result_a", "result_b"], writing, *lent)
    outputs = [cache(f"updated_{one}", root=f"cache_{one}") for one in "ab"]

    def called(second: str) -> ModelProto:
        arguments = ["cache_a", second, "values", "position"]
        return pair.model([call("both", arguments, ["updated_a", "updated_b"])], *outputs, functions=[both])

    yield from pair.cases(
        "flow-007/two-mutated",
        (_FUNCTION,),
        "A function mutates two parameters.",
        called("cache_b"),
        Wrong(
            "flow-007/one-storage-mutated-twice",
            (_FUNCTION, Req.MC_ALIAS_005),
            "Both are one cache.",
            called("cache_a"),
        ),
    )
    reading = Family(nonce, "read twice", _ONE)
    sums = function("sums", ["one", "two"], ["sum"], [neg("one", "negated"), _added("negated", "two", "sum")])
    nodes = [call("sums", ["cache", "cache"], ["sum"]), write("cache", "updated")]
    title = "A function that mutates nothing is given one cache twice."
    made = reading.model(nodes, plain("sum"), OUTPUT, functions=[sums])
    yield reading.valid("flow-007/read-twice", (_FUNCTION,), title, made)


def _added(one: str, other: str, output: str) -> NodeProto:
    return NodeProto(op_type="Add", input=[one, other], output=[output])


def _leaves(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "updates leave functions", _ONE)
    nodes = [neg("formal", "before"), write("formal", "result", "rows", "at"), neg("result", "after")]

    def model(outputs: Sequence[str], arguments: Sequence[str] = (), *, returns: str = "result") -> ModelProto:
        inputs = ("rows", "at", "formal")
        body = function("logs", inputs, ["before", returns], nodes, *LENT)
        made = [call("logs", arguments or ["values", "position", "cache"], outputs)]
        named = outputs[1] and cache(outputs[1], root="cache" if returns == "result" and not arguments else "")
        return family.model(made, plain("before"), *([named] if named else []), functions=[body])

    yield from family.cases(
        "flow-009/function",
        (_LEAVES, _FUNCTION, Req.MC_PLAN_005),
        "A function returns what the cache was before, and the cache that it updated.",
        model(["before", "updated"]),
        Wrong("flow-009/call-omits-output", (_LEAVES,), "The call leaves the cache out.", model(["before", ""])),
        Wrong(
            "flow-009/function-keeps",
            (_LEAVES,),
            "The function returns what it computed of the updated cache instead.",
            model(["before", "updated"], returns="after"),
        ),
    )


def _nested(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "nested functions", _ONE)

    def model(*value_info: ValueInfoProto, argument: str = "cache", inner: str = "formal") -> ModelProto:
        body = [neg("formal", "negated"), step(inner, "half", "rows", "at"), step("half", "result", "rows", "at")]
        outer = step_function(*value_info, name="outer", nodes=body)
        root = argument if argument == "other" else "cache"
        calls = [step(argument, "updated", of="outer")]
        return family.model(calls, cache("updated", root=root), functions=[step_function(), outer])

    yield from family.cases(
        "flow-007/nested",
        (_FUNCTION, _LEAVES),
        "A function calls another one twice, with the cache that it was given.",
        model(),
        Wrong("flow-007/nested-no-formal", (_FUNCTION,), "It says nothing of its formal input.", model(RESULT)),
        Wrong("flow-007/nested-no-alias-of", (_FUNCTION,), "It says nothing of its output.", model(FORMAL)),
        Wrong(
            "flow-007/nested-read-only-argument",
            (_FUNCTION,),
            "The graph passes it a READ_ONLY input.",
            model(argument="other"),
        ),
        Wrong(
            "flow-007/nested-computed-argument",
            (_FUNCTION, Req.MC_ALIAS_005, Req.MC_ALIAS_008),
            "It passes on what it computed.",
            model(inner="negated"),
        ),
    )


def _passes(nonce: int) -> Iterator[Case]:
    """Functions that hand a storage through."""
    family = Family(nonce, "functions that pass", _ONE)

    def model(body: FunctionProto, *nodes: NodeProto) -> ModelProto:
        called = call(body.name, ["cache"], ["same"])
        return family.model([called, *nodes], OUTPUT, functions=[body])

    named = function("names", ["formal"], ["result"], [keep("formal", "result")], RESULT)
    silent = function("names", ["formal"], ["result"], [keep("formal", "result")])
    copies = function("names", ["formal"], ["result"], [copy("formal", "result")], cache("result"))
    yield from family.cases(
        "flow-007/passes",
        (_FUNCTION, Req.MC_ALIAS_009),
        "A function gives the cache another name, by which it is updated.",
        model(named, write("same", "updated")),
        Wrong(
            "alias-009/function-passes",
            (Req.MC_ALIAS_009,),
            "It does not say so.",
            model(silent, write("same", "updated")),
        ),
        Wrong(
            "alias-010/function-copies",
            (Req.MC_ALIAS_010, Req.MC_ALIAS_005),
            "It returns a copy.",
            model(copies, write("same", "updated")),
        ),
    )
    lent = function("hands", ["formal"], ["formal"], [], FORMAL)
    title = "A function returns its READ_WRITE formal input under its own name."
    yield family.valid("flow-007/own-name", (_FUNCTION,), title, model(lent, write("same", "updated")))
    value = function("hands", ["formal"], ["formal"], [])
    reads = Family(nonce, "read-only own name", _ONE)
    nodes = [call("hands", ["cache"], ["same"]), write("cache", "updated"), neg("same", "negated")]
    yield from reads.cases(
        "flow-007/read-only-own-name",
        (_FUNCTION, Req.MC_ALIAS_011),
        "A READ_ONLY formal input under its own name is a value, which is read after the update.",
        reads.model(nodes, OUTPUT, plain("negated"), functions=[value]),
        Wrong(
            "alias-011/own-name",
            (Req.MC_ALIAS_011,),
            "The formal input is READ_WRITE, so that it is the cache.",
            reads.model(nodes, OUTPUT, plain("negated"), functions=[lent]),
        ),
    )


def _overloads(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "overloads", _ONE)
    reading = function("step", STEP_INPUTS, ["result"], [neg("formal", "result")], overload="reads")
    arguments = ["cache", "values", "position"]

    def model(order: int = 1) -> ModelProto:
        nodes = [call("step", arguments, ["negated"], overload="reads"), step("cache", "updated")][::order]
        return family.model(nodes, plain("negated"), OUTPUT, functions=[step_function(), reading])

    yield from family.cases(
        "flow-007/overloads",
        (_FUNCTION, Req.MC_ALIAS_011),
        "One overload of a function reads the cache, then another one updates it.",
        model(),
        Wrong("alias-011/overloads", (Req.MC_ALIAS_011,), "It reads it after the update.", model(-1)),
    )


def _uncalled(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "uncalled", _ONE)
    careless = function(
        "careless", STEP_INPUTS, ["negated"], [neg("rows", "negated"), write("formal", "lost", "rows", "at")]
    )

    def model(*functions: FunctionProto) -> ModelProto:
        return family.model([write("cache", "updated")], OUTPUT, functions=functions)

    title = "A library function that nobody calls does not say what it mutates, nor returns it."
    yield family.valid("flow-007/uncalled", (_FUNCTION, _LEAVES, Req.MC_ACCESS_001), title, model(careless))

    def library(read: int, *sources: str) -> ModelProto:
        nodes = [write(sources[0], "first", "rows", "at"), write(sources[1], "result", "rows", "at")]
        nodes.insert(read, neg("formal", "negated"))
        return model(function("careful", STEP_INPUTS, ["result"], nodes, *LENT))

    yield from family.cases(
        "alias-012/uncalled",
        (Req.MC_ALIAS_012, Req.MC_ALIAS_011, Req.MC_ALIAS_010),
        "A library function that nobody calls reads the cache and updates it twice.",
        library(0, "formal", "first"),
        Wrong(
            "alias-011/in-a-function",
            (Req.MC_ALIAS_011,),
            "It reads a stale name, which is wrong in every call.",
            library(1, "formal", "first"),
        ),
        Wrong(
            "alias-012/in-a-function",
            (Req.MC_ALIAS_012,),
            "It updates one version twice, which is wrong in every call.",
            library(0, "formal", "formal"),
        ),
        Wrong(
            "alias-010/in-a-function",
            (Req.MC_ALIAS_010, Req.MC_ALIAS_005),
            "It updates what it computed, which is wrong in every call.",
            library(0, "negated", "first"),
        ),
    )
