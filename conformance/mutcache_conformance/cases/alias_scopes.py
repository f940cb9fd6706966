"""ALIAS in the bodies of control flow and functions: names, versions, cycles."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.proto.onnx_ml import ModelProto, NodeProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.builder import node
from mutcache_conformance.cases.flow_branch import BOTH
from mutcache_conformance.cases.flow_family import Family, Wrong, body_of, edited
from mutcache_conformance.cases.flow_loop import LENT, OUTPUT, RESULT, SLOT, TRIPS, advancing
from mutcache_conformance.cases.flow_words import (
    cache,
    choose,
    graph,
    keep,
    keeps,
    loop,
    makes,
    neg,
    plain,
    step,
    step_function,
    write,
    writes,
)

_SAME, _VISIBLE, _CYCLE, _ESTABLISHED = Req.MC_ALIAS_005, Req.MC_ALIAS_006, Req.MC_ALIAS_007, Req.MC_ALIAS_008
_OUTPUT, _ROOT, _STALE, _FORK = Req.MC_ALIAS_009, Req.MC_ALIAS_010, Req.MC_ALIAS_011, Req.MC_ALIAS_012
_CARRIES, _ACCESS = Req.MC_ALIAS_015, Req.MC_ACCESS_001
_ONE = "cache values position condition"


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _names(nonce)
    yield from _stale(nonce)
    yield from _forks(nonce)
    yield from _cycles(nonce)


def _names(nonce: int) -> Iterator[Case]:
    """What ``alias_of`` may name, on the outputs of branches."""
    family = Family(nonce, "names in branches", "cache cache_b values position condition", BOTH)
    hidden = graph([keep("cache", "hidden"), write("hidden", "inner")], cache("inner", root="hidden"))
    nodes = [
        keep("cache", "named"),
        choose("chosen", hidden, keeps("named", root="named")),
        keep("chosen", "later"),
        write("later", "updated"),
        write("cache_b", "updated_b"),
    ]
    valid = family.model(nodes, OUTPUT, cache("updated_b", root="cache_b"))

    def names(root: str, branch: int = 1) -> ModelProto:
        def edit(model: ModelProto) -> None:
            body_of(model, 1, branch).output[0].alias_of = root

        return edited(valid, edit)

    def outside(root: str) -> ModelProto:
        def edit(model: ModelProto) -> None:
            model.graph.output[0].alias_of = root

        return edited(valid, edit)

    yield from family.cases(
        "alias-006/names-in-branches",
        (_VISIBLE, _SAME, _OUTPUT),
        "An output of a branch names a value of the branch, or one of the graph around it.",
        valid,
        Wrong("alias-005/branch-other-cache", (_SAME,), "It names another cache.", names("cache_b")),
        Wrong(
            "alias-007/branch-later-name",
            (_CYCLE,),
            "It names a value that is made of the output of the If.",
            names("later"),
        ),
        Wrong("alias-006/sibling", (_VISIBLE,), "It names a value of the other branch.", names("hidden")),
        Wrong("alias-006/unknown-in-a-branch", (_VISIBLE,), "It names no value at all.", names("nowhere")),
        Wrong("alias-006/into-a-branch", (_VISIBLE,), "A graph output names a value of a branch.", outside("hidden")),
        Wrong("alias-009/branch", (_OUTPUT,), "It names nothing.", names("")),
        Wrong("alias-009/other-branch", (_OUTPUT,), "The output of the other branch names nothing.", names("", 0)),
        Wrong("alias-009/after-branches", (_OUTPUT,), "The graph output names nothing.", outside("")),
    )
    plain_family = Family(nonce, "values of branches named", _ONE, BOTH)
    nodes = [choose("chosen", makes(), makes()), write("cache", "updated")]
    values = plain_family.model(nodes, plain("chosen"), OUTPUT)

    def claims(model: ModelProto) -> None:
        body_of(model).output[0].alias_of = "cache"

    def claims_outside(model: ModelProto) -> None:
        model.graph.output[0].alias_of = "cache"

    yield from plain_family.cases(
        "alias-008/values-of-branches",
        (_ESTABLISHED,),
        "The branches compute values from a cache, and name nothing.",
        values,
        Wrong("alias-008/branch", (_ESTABLISHED,), "One branch names the cache.", edited(values, claims)),
        Wrong("alias-008/if", (_ESTABLISHED,), "The output of the If names the cache.", edited(values, claims_outside)),
    )


def _stale(nonce: int) -> Iterator[Case]:
    """Reads that come too late, in the scopes in which they stand."""
    branch = Family(nonce, "order in a branch", _ONE, BOTH)

    def in_branch(*nodes: NodeProto, result: str = "inner") -> ModelProto:
        then = graph(nodes, cache("read"), cache(result, root="cache"))
        otherwise = graph([neg("cache", "read"), keep("cache", "inner")], cache("read"), cache("inner", root="cache"))
        return branch.model([choose(["seen", "updated"], then, otherwise)], plain("seen"), OUTPUT)

    read, updated = neg("cache", "read"), write("cache", "inner")
    yield from branch.cases(
        "alias-011/order-in-a-branch",
        (_STALE, Req.MC_PLAN_005),
        "A branch reads the cache that it captures, then updates it.",
        in_branch(read, updated),
        Wrong("alias-011/read-after-in-a-branch", (_STALE,), "It updates it first.", in_branch(updated, read)),
        Wrong(
            "alias-011/branch-returns-stale-name",
            (_STALE,),
            "It returns another name of the version that it has updated.",
            in_branch(read, keep("cache", "same"), write("same", "inner"), result="same"),
        ),
    )
    looped = Family(nonce, "order in a loop", "cache values position trips", TRIPS)

    def in_loop(read: int, *, result: str = "inner") -> ModelProto:
        nodes = [*advancing("same"), keep("carried", "same")]
        nodes.insert(0, nodes.pop())
        nodes.insert(read, neg("carried", "read"))
        return looped.model([loop(SLOT, ["updated"], nodes, cache(result, root="carried"))], OUTPUT)

    yield from looped.cases(
        "alias-011/order-in-a-loop",
        (_STALE, Req.MC_PLAN_005),
        "The body of a Loop reads the cache that it carries, then updates it by another name.",
        in_loop(0),
        Wrong("alias-011/read-after-in-a-loop", (_STALE,), "It updates it first.", in_loop(3)),
        Wrong(
            "alias-011/loop-returns-stale-name",
            (_STALE,),
            "It returns the name of the version that it has updated.",
            in_loop(0, result="same"),
        ),
    )
    runs = tuple({**feeds, "condition": bool(number % 2)} for number, feeds in enumerate(TRIPS))
    after = Family(nonce, "order after constructs", "cache values position condition trips", runs)

    def reads(source: str, *, of: str = "Neg") -> ModelProto:
        nodes = [
            choose("chosen", writes(), keeps()),
            loop({"chosen": LENT}, ["looped"], advancing(), RESULT),
            node(of, [source], ["read"]),
            step("looped", "updated"),
        ]
        outputs = [plain("read")] if of == "Neg" else []
        return after.model(nodes, OUTPUT, *outputs, functions=[step_function()])

    yield from after.cases(
        "alias-011/between-constructs",
        (_STALE, Req.MC_PLAN_005),
        "What a Loop returned is read before a function updates it.",
        reads("looped"),
        Wrong("alias-011/after-an-if", (_STALE,), "The name is read that a branch has updated.", reads("cache")),
        Wrong("alias-011/after-a-loop", (_STALE,), "The name is read that the Loop started from.", reads("chosen")),
    )
    title = "Shape of a name that a branch has updated."
    yield after.valid("alias-011/shape-after-an-if", (_STALE,), title, reads("cache", of="Shape"))
    deep = Family(nonce, "deep captures", "cache values position condition", BOTH)

    def captured(order: int) -> ModelProto:
        inner = choose("deeper", makes(output="deepest"), makes("values_read", output="deepest"))
        then = graph([neg("cache", "values_read"), inner], cache("deeper"))
        nodes = [choose("seen", then, makes(output="seen_else")), write("cache", "updated")][::order]
        return deep.model(nodes, plain("seen"), OUTPUT)

    yield from deep.cases(
        "alias-011/deep-capture",
        (_STALE,),
        "A branch of a branch captures a cache that is updated later.",
        captured(1),
        Wrong("alias-011/stale-deep-capture", (_STALE,), "The cache is updated before.", captured(-1)),
    )


def _forks(nonce: int) -> Iterator[Case]:
    family = Family(nonce, "forks", _ONE, BOTH)
    outputs = [cache("first", root="cache"), OUTPUT]

    def chained(*sources: str) -> ModelProto:
        nodes = [
            choose("first", writes(sources[0]), keeps(sources[0])),
            choose("updated", writes(sources[1]), keeps(sources[1])),
        ]
        return family.model(nodes, outputs[1])

    yield from family.cases(
        "alias-012/chained-branches",
        (_FORK, _STALE),
        "Two Ifs update the cache one after the other.",
        chained("cache", "first"),
        Wrong("alias-012/ifs-fork", (_FORK,), "Both update the graph input.", chained("cache", "cache")),
    )
    inside = Family(nonce, "forks in a branch", _ONE, BOTH)

    def branch(source: str) -> ModelProto:
        then = graph([write("cache", "half"), write(source, "inner")], cache("inner", root="cache"))
        return inside.model([choose("updated", then, keeps())], OUTPUT)

    yield from inside.cases(
        "alias-012/chain-in-a-branch",
        (_FORK,),
        "A branch updates what it captures twice.",
        branch("half"),
        Wrong("alias-012/fork-in-a-branch", (_FORK,), "Both updates are of the captured version.", branch("cache")),
    )
    runs = tuple({**feeds, "condition": True} for feeds in TRIPS)
    mixed = Family(nonce, "forks of constructs", "cache values position trips", runs)

    def after_loop(source: str) -> ModelProto:
        nodes = [loop(SLOT, ["looped"], advancing(), RESULT), write(source, "updated")]
        return mixed.model(nodes, OUTPUT)

    yield from mixed.cases(
        "alias-012/after-a-loop",
        (_FORK,),
        "What a Loop has updated is updated once more.",
        after_loop("looped"),
        Wrong("alias-012/loop-forks", (_FORK,), "That update is of what the Loop started from.", after_loop("cache")),
    )
    in_loop = Family(nonce, "forks in a loop", "cache values position trips", TRIPS)

    def body(source: str) -> ModelProto:
        nodes = [*advancing(output="half"), write(source, "inner")]
        return in_loop.model([loop(SLOT, ["updated"], nodes, RESULT)], OUTPUT)

    yield from in_loop.cases(
        "alias-012/chain-in-a-loop",
        (_FORK,),
        "Each trip updates the cache twice.",
        body("half"),
        Wrong("alias-012/fork-in-a-loop", (_FORK,), "Both updates are of the formal input.", body("carried")),
    )


def _cycles(nonce: int) -> Iterator[Case]:
    """Cycles that lead through a scope."""
    family = Family(nonce, "cycles", _ONE, BOTH)
    valid = family.model([choose("updated", writes(), keeps())], OUTPUT)

    def branch_names(root: str) -> ModelProto:
        def edit(model: ModelProto) -> None:
            body_of(model).output[0].alias_of = root

        return edited(valid, edit)

    yield from family.cases(
        "alias-007/branches",
        (_CYCLE, _SAME),
        "An If returns what its branches return, those what they capture.",
        valid,
        Wrong("alias-007/branch-names-if", (_CYCLE,), "A branch names the output of the If.", branch_names("updated")),
        Wrong("alias-007/branch-names-itself", (_CYCLE,), "A branch names its own output.", branch_names("inner")),
    )
    looped = Family(nonce, "cycles in a loop", "cache values position trips", TRIPS)

    def in_loop(root: str) -> ModelProto:
        return looped.model([loop(SLOT, ["updated"], advancing(), cache("inner", root=root))], OUTPUT)

    def annotated_formal(model: ModelProto) -> None:
        body_of(model).input[2].alias_of = "inner"

    yield from looped.cases(
        "alias-007/loop",
        (_CYCLE, _SAME),
        "A slot returns its formal input, updated.",
        in_loop("carried"),
        Wrong("alias-007/body-names-loop", (_CYCLE,), "The body names the output of the Loop.", in_loop("updated")),
        Wrong("alias-007/body-names-itself", (_CYCLE,), "The body names its own output.", in_loop("inner")),
        Wrong(
            "alias-007/formal-names-result",
            (_CYCLE,),
            "The formal input names what the body returns for it.",
            edited(in_loop("carried"), annotated_formal),
        ),
    )
