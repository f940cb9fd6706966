"""FLOW: caches in the branches of an If."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.proto.onnx_ml import GraphProto, ModelProto, NodeProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.flow_family import Family, Wrong
from mutcache_conformance.cases.flow_words import (
    cache,
    choose,
    copies,
    copy,
    graph,
    keep,
    keeps,
    makes,
    neg,
    plain,
    write,
    writes,
)

_ONE_ROOT, _ALL_OR_NONE, _IDENTITY, _LEAVES = Req.MC_FLOW_001, Req.MC_FLOW_002, Req.MC_FLOW_003, Req.MC_FLOW_009
#: Both branches are run.
BOTH = ({"position": 1, "condition": True}, {"position": 4, "condition": False})
_ONE = "cache values position condition"
_TWO = "cache_a cache_b values position condition"


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _one_root(nonce)
    yield from _two_outputs(nonce)
    yield from _every_branch(nonce)
    yield from _of_its_own(nonce)
    yield from _copies(nonce)
    yield from _leaves(nonce)
    yield from _nested(nonce)


def _one_root(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "branches of one root", _TWO, BOTH)

    def model(otherwise: GraphProto, then: GraphProto | None = None) -> ModelProto:
        then = then or writes("cache_a", root="cache_a")
        both = [choose("chosen", then, otherwise), write("cache_b", "updated_b")]
        return family.model(both, cache("chosen", root="cache_a"), cache("updated_b", root="cache_b"))

    def keeping(then_source: str, else_source: str) -> ModelProto:
        branches = (keeps(source, root=source) for source in (then_source, else_source))
        nodes = [choose("chosen", *branches), write("chosen", "updated_a"), write("cache_b", "updated_b")]
        return family.model(nodes, cache("updated_a", root="cache_a"), cache("updated_b", root="cache_b"))

    yield from family.cases(
        "flow-001/one-root",
        (_ONE_ROOT, _ALL_OR_NONE, _IDENTITY, _LEAVES),
        "Both branches return one cache, updated by one of them.",
        model(keeps("cache_a", root="cache_a")),
        Wrong(
            "flow-001/other-cache",
            (_ONE_ROOT,),
            "The other branch returns another cache.",
            model(keeps("cache_b", root="cache_b")),
        ),
        Wrong(
            "flow-001/updates-other-cache",
            (_ONE_ROOT, Req.MC_ALIAS_012),
            "Each branch updates and returns a cache of its own.",
            model(writes("cache_b", root="cache_b")),
        ),
    )
    yield from family.cases(
        "flow-001/unmodified",
        (_ONE_ROOT,),
        "Both branches return one cache, unmodified.",
        keeping("cache_a", "cache_a"),
        Wrong(
            "flow-001/unmodified-other-cache",
            (_ONE_ROOT,),
            "Each branch returns another one.",
            keeping("cache_a", "cache_b"),
        ),
    )
    named = Family(nonce, "branches of one version", _ONE, BOTH)
    branches = writes("named"), keeps("cache")
    made = named.model([keep("cache", "named"), choose("chosen", *branches)], cache("chosen", root="cache"))
    title = "The branches know one version by two names."
    yield named.valid("flow-001/names-of-one-version", (_ONE_ROOT, Req.MC_ALIAS_014), title, made)


def _two_outputs(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "branches of two caches", _TWO, BOTH)

    def branch(*nodes: NodeProto, order: str = "ab") -> GraphProto:
        return graph(nodes, *(cache(f"inner_{one}", root=f"cache_{one}") for one in order))

    def model(then: GraphProto, otherwise: GraphProto) -> ModelProto:
        outputs = [cache(f"chosen_{one}", root=f"cache_{one}") for one in "ab"]
        return family.model([choose(["chosen_a", "chosen_b"], then, otherwise)], *outputs)

    each = branch(write("cache_a", "inner_a"), keep("cache_b", "inner_b"))
    valid = model(each, branch(keep("cache_a", "inner_a"), write("cache_b", "inner_b")))
    swapped = branch(keep("cache_a", "inner_a"), write("cache_b", "inner_b"), order="ba")
    copied = graph([copy("cache_a", "inner_a"), write("cache_b", "inner_b")], cache("inner_a"), each.output[1])
    yield from family.cases(
        "flow-001/two-outputs",
        (_ONE_ROOT, _IDENTITY),
        "Each branch updates one of two caches and returns both.",
        valid,
        Wrong(
            "flow-001/swapped-outputs",
            (_ONE_ROOT,),
            "One branch returns them in the other order.",
            model(each, swapped),
        ),
        Wrong(
            "flow-003/one-of-two",
            (_IDENTITY,),
            "One branch returns a copy of the cache that it does not update.",
            model(each, copied),
        ),
    )


def _every_branch(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "every branch", _ONE, BOTH)

    def model(then: GraphProto, otherwise: GraphProto, root: str = "cache") -> ModelProto:
        return family.model([choose("chosen", then, otherwise)], cache("chosen", root=root))

    own, added = makes(), graph([keep("cache", "named"), neg("named", "inner")], cache("inner"))
    yield from family.cases(
        "flow-002/every-branch",
        (_ALL_OR_NONE, _LEAVES),
        "Both branches update the cache that they capture.",
        model(writes(), writes()),
        Wrong(
            "flow-002/then-makes",
            (_ALL_OR_NONE,),
            "One branch computes a value of its own.",
            model(own, writes()),
        ),
        Wrong("flow-002/else-makes", (_ALL_OR_NONE,), "The other branch does.", model(writes(), own)),
        Wrong(
            "flow-002/made-of-a-name",
            (_ALL_OR_NONE,),
            "It computes it from another name of the cache.",
            model(writes(), added),
        ),
    )
    passing = Family(nonce, "every branch passes", _ONE, BOTH)

    def passed(otherwise: GraphProto, root: str) -> ModelProto:
        chosen = choose("chosen", keeps(), otherwise)
        nodes = [chosen, neg("chosen", "negated"), write("cache", "updated")]
        made = passing.model(nodes, plain("negated"), cache("updated", root="cache"))
        made.graph.value_info.append(cache("chosen", root=root))
        return made

    yield from passing.cases(
        "flow-002/every-branch-passes",
        (_ALL_OR_NONE,),
        "Both branches pass the cache on; it is updated later.",
        passed(keeps(), "cache"),
        Wrong(
            "flow-002/one-passes",
            (_ALL_OR_NONE,),
            "One branch returns a copy; that no branch mutates does not make it right.",
            passed(copies(), "cache"),
        ),
        Wrong("flow-002/one-makes", (_ALL_OR_NONE,), "One branch computes a value.", passed(makes(), "cache")),
    )


def _of_its_own(nonce: int) -> Iterator[Case]:
    """Branches that read a cache and return values: the If aliases nothing."""
    family = Family(nonce, "values of branches", _ONE, BOTH)
    own = graph([neg("cache", "made"), keep("made", "inner")], cache("inner"))
    nodes = [choose("chosen", own, makes()), write("cache", "updated")]
    valid = family.model(nodes, plain("chosen"), cache("updated", root="cache"))
    late = family.model(nodes[::-1], plain("chosen"), cache("updated", root="cache"))
    yield from family.cases(
        "flow-002/neither",
        (_ALL_OR_NONE, Req.MC_ALIAS_011, Req.MC_PLAN_005),
        "The branches read a cache that is updated later; what one of them aliases is a value of its own.",
        valid,
        Wrong(
            "alias-011/captured-by-a-branch",
            (Req.MC_ALIAS_011,),
            "The cache is updated before, under the name that the branches read.",
            late,
        ),
    )


def _copies(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "passing through", _ONE, BOTH)

    def model(then: GraphProto, otherwise: GraphProto) -> ModelProto:
        return family.model([choose("chosen", then, otherwise)], cache("chosen", root="cache"))

    yield from family.cases(
        "flow-003/identity",
        (_IDENTITY, _ALL_OR_NONE),
        "The branch that does not update the cache passes it on.",
        model(writes(), keeps()),
        Wrong("flow-003/else-copies", (_IDENTITY,), "It returns a copy.", model(writes(), copies())),
        Wrong("flow-003/then-copies", (_IDENTITY,), "The other branch does.", model(copies(), writes())),
    )
    twice = graph([keep("cache", "first"), keep("first", "inner")], cache("inner", root="cache"))
    half = graph([copy("cache", "first"), copy("first", "inner")], cache("inner"))
    yield from family.cases(
        "flow-003/two-identities",
        (_IDENTITY,),
        "It passes the cache on through two nodes.",
        model(writes(), twice),
        Wrong(
            "flow-002/two-copies",
            (_ALL_OR_NONE,),
            "It returns a copy of a copy, a value of its own.",
            model(writes(), half),
        ),
    )


def _leaves(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "updates leave branches", _ONE, BOTH)

    def branch(first: NodeProto, *, returns: bool) -> GraphProto:
        result = cache("inner", root="cache") if returns else cache("lost")
        more = [] if returns else [neg("inner", "lost")]
        return graph([neg("cache", "negated"), first, *more], cache("negated"), result)

    def model(*outputs: str, returns: bool = True) -> ModelProto:
        branches = (branch(one, returns=returns) for one in (write("cache", "inner"), keep("cache", "inner")))
        results = [cache(name, root="cache" if returns else "") for name in outputs[1:] if name]
        return family.model([choose(outputs, *branches)], plain("chosen"), *results)

    valid = model("chosen", "updated")
    omitted = model("chosen", "")
    yield from family.cases(
        "flow-009/branches",
        (_LEAVES, Req.MC_PLAN_005),
        "What a branch updates leaves through an output beside what it computed.",
        valid,
        Wrong("flow-009/if-omits-output", (_LEAVES,), "The If leaves that output out.", omitted),
        Wrong(
            "flow-009/branches-keep",
            (_LEAVES,),
            "Neither branch returns the cache, only what it computed from it.",
            model("chosen", "updated", returns=False),
        ),
    )


def _nested(nonce: int) -> Iterator[Case]:
    runs = tuple(
        {"position": position, "condition_a": outer, "condition_b": inner}
        for position, (outer, inner) in enumerate([(True, True), (True, False), (False, True)])
    )
    family = Family(nonce, "nested branches", "cache values position condition_a condition_b", runs)

    def model(then: GraphProto, otherwise: GraphProto, *, after: str = "deeper") -> ModelProto:
        inner = choose("deeper", then, otherwise, condition="condition_b")
        nodes = [inner] if after == "deeper" else [inner, copy("deeper", after)]
        outer = graph(nodes, cache(after, root="cache" if after == "deeper" else ""))
        chosen = choose("chosen", outer, keeps(output="kept"), condition="condition_a")
        return family.model([chosen], cache("chosen", root="cache"))

    yield from family.cases(
        "flow-001/nested",
        (_ONE_ROOT, _ALL_OR_NONE, _IDENTITY),
        "An If inside a branch updates the cache of the outermost graph.",
        model(writes(), keeps()),
        Wrong("flow-003/nested-copy", (_IDENTITY,), "Its other branch copies it.", model(writes(), copies())),
        Wrong("flow-002/nested-makes", (_ALL_OR_NONE,), "Its other branch computes.", model(writes(), makes())),
        Wrong(
            "flow-002/nested-copied",
            (_ALL_OR_NONE,),
            "The outer branch returns a copy of what the inner If updated.",
            model(writes(), keeps(), after="copied"),
        ),
    )
