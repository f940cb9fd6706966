"""The rules in functions and at their calls: violations and valid twins."""

from __future__ import annotations

from flow_findings import U, errors, keeps, looped, only, requirements
from flow_models import (
    body,
    branch,
    call,
    function,
    graph,
    negated,
    passed,
    updated,
    value,
)

from mutcache.proto.onnx_ml import ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, tensor

X_RW = value("a", mutable=True)
STEP = function("step", ["a", "r", "p"], ["b"], [updated("a", "b")], X_RW, value("b", alias_of="a"))


def stepped(source: str, output: str) -> NodeProto:
    return call("step", [source, "r", "p"], [output])


def test_a_function_updates_its_argument() -> None:
    nodes = [stepped("c", "y"), stepped("y", "u")]
    assert requirements(graph(nodes, U, functions=[STEP])) == []
    assert requirements(graph([*nodes, negated("y", "n")], U, value("n"), functions=[STEP])) == [Req.MC_ALIAS_011]
    fork = graph([*nodes, stepped("c", "w")], U, value("w", alias_of="c"), functions=[STEP])
    assert requirements(fork) == [Req.MC_ALIAS_012]


def test_functions_nest_and_have_overloads() -> None:
    outer = function(
        "outer", ["a", "r", "p"], ["b"], [stepped("a", "t"), stepped("t", "b")], X_RW, value("b", alias_of="a")
    )
    reading = function("step", ["a"], ["b"], [negated("a", "b")], overload="read")
    nodes = [call("step", ["c"], ["n"], overload="read"), call("outer", ["c", "r", "p"], ["u"])]
    functions = [outer, STEP, reading]
    assert requirements(graph(nodes, U, value("n"), functions=functions)) == []
    late = graph(nodes[::-1], U, value("n"), functions=functions)
    assert requirements(late) == [Req.MC_ALIAS_011]


def test_functions_in_bodies_and_bodies_in_functions() -> None:
    stepping = function(
        "loops", ["a", "r", "p", "m"], ["b"], [looped(stepped("c_in", "t"), initial=("a",), outputs=("b",))], X_RW,
        value("b", alias_of="a"),
    )  # fmt: skip
    then = body([call("loops", ["c", "r", "p", "m"], ["t"])], value("t", alias_of="c"))
    assert requirements(graph([branch(["u"], then, keeps())], U, functions=[STEP, stepping])) == []


def test_mc_flow_007_wants_the_formal_read_write_and_the_output_annotated() -> None:
    for entries, count in (((value("b", alias_of="a"),), 1), ((X_RW,), 1), ((), 2)):
        silent = function("step", ["a", "r", "p"], ["b"], [updated("a", "b")], *entries)
        assert requirements(graph([stepped("c", "u")], U, functions=[silent])) == [Req.MC_FLOW_007] * count


def test_mc_flow_007_wants_arguments_that_a_caller_lends() -> None:
    for argument in ("x", "n"):
        made = graph([negated("c", "n"), stepped(argument, "u")], value("u"), functions=[STEP])
        if argument == "x":
            made.graph.output[0].alias_of = "x"
        finding = only(made)
        assert (finding.requirement, finding.where.value) == (Req.MC_FLOW_007, argument)


def test_mc_flow_007_follows_arguments_through_calls() -> None:
    outer = function("outer", ["a", "r", "p"], ["b"], [stepped("a", "b")], X_RW, value("b", alias_of="a"))
    made = graph([call("outer", ["x", "r", "p"], ["u"])], value("u", alias_of="x"), functions=[outer, STEP])
    finding = only(made)
    assert (finding.requirement, finding.where.graph, finding.where.value) == (Req.MC_FLOW_007, "main", "x")


def test_mc_flow_007_rejects_one_storage_for_two_parameters() -> None:
    adding = function(
        "step2",
        ["a", "o", "r", "p"],
        ["b", "n"],
        [negated("o", "n"), updated("a", "b")],
        X_RW,
        value("b", alias_of="a"),
    )

    def made(other: str) -> ModelProto:
        nodes = [passed("c", "same"), call("step2", ["c", other, "r", "p"], ["u", "n"])]
        return graph(nodes, U, value("n"), functions=[adding])

    assert requirements(made("x")) == []
    assert requirements(made("c")) == [Req.MC_FLOW_007]
    assert requirements(made("same")) == [Req.MC_FLOW_007]


def test_mc_flow_009_at_calls_and_in_functions() -> None:
    two = function(
        "two", ["a", "r", "p"], ["n", "b"], [negated("a", "n"), updated("a", "b")], X_RW, value("b", alias_of="a")
    )
    assert requirements(graph([call("two", ["c", "r", "p"], ["n", "u"])], U, value("n"), functions=[two])) == []
    made = graph([call("two", ["c", "r", "p"], ["n", ""])], value("n"), functions=[two])
    assert requirements(made) == [Req.MC_FLOW_009]
    absent = function("last", ["r", "p", "a"], ["n", "b"], [negated("r", "n"), updated("a", "b")], X_RW,
                      value("b", alias_of="a"))  # fmt: skip
    made = graph([call("last", ["r", "p"], ["n", "u"])], tensor("n", 1, [2, 4]), value("u"), functions=[absent])
    assert requirements(made)[0] is Req.MC_FLOW_009
    kept = function("kept", ["a", "r", "p"], ["n"], [negated("a", "n"), updated("a", "b")], X_RW)
    assert requirements(graph([call("kept", ["c", "r", "p"], ["n"])], value("n"), functions=[kept])) == [
        Req.MC_FLOW_009
    ]


def test_a_function_that_nobody_calls_is_no_error() -> None:
    careless = function("careless", ["a", "r", "p"], ["n"], [negated("a", "n"), updated("a", "b")])
    caller = function("caller", ["x", "r", "p"], ["n"], [negated("x", "t"), call("careless", ["t", "r", "p"], ["n"])])
    lending = function("lending", ["a"], ["n"], [negated("a", "n")], X_RW)
    functions = [careless, caller, lending]
    assert requirements(graph([updated("c", "u")], U, functions=functions)) == []
    made = graph([call("caller", ["x", "r", "p"], ["u"])], value("u"), functions=functions)
    assert set(requirements(made)) == {Req.MC_FLOW_007, Req.MC_FLOW_009}
    assert requirements(graph([call("lending", ["x"], ["u"])], value("u"), functions=functions)) == [Req.MC_ACCESS_001]
    assert requirements(graph([call("lending", ["c"], ["u"])], value("u"), functions=functions)) == []


def test_what_is_wrong_in_every_call_is_wrong_without_one() -> None:
    stale = function("stale", ["a", "r", "p"], ["b", "n"], [updated("a", "b"), negated("a", "n")], X_RW,
                     value("b", alias_of="a"))  # fmt: skip
    assert requirements(graph([updated("c", "u")], U, functions=[stale])) == [Req.MC_ALIAS_011]
    made_up = function("made_up", ["a", "r", "p"], ["b"], [negated("a", "n"), updated("n", "b")])
    assert requirements(graph([updated("c", "u")], U, functions=[made_up])) == [Req.MC_ALIAS_010]


def test_mc_access_001_follows_a_read_write_formal_through_calls() -> None:
    lending = function("lending", ["a"], ["n"], [negated("a", "n")], X_RW)
    outer = function("outer", ["x"], ["n"], [call("lending", ["x"], ["n"])])
    assert requirements(graph([call("outer", ["c"], ["u"])], value("u"), functions=[outer, lending])) == []
    finding = only(graph([call("outer", ["x"], ["u"])], value("u"), functions=[outer, lending]))
    assert (finding.requirement, finding.where.graph) == (Req.MC_ACCESS_001, "main")


def test_mc_alias_009_asks_functions_that_pass_on() -> None:
    def made(*entries: ValueInfoProto) -> ModelProto:
        passing = function("pass", ["a"], ["b"], [passed("a", "b")], *entries)
        return graph([call("pass", ["c"], ["u"])], U, functions=[passing])

    assert requirements(made(value("b", alias_of="a"))) == []
    assert requirements(made(value("b", alias_of="a"), value("b"))) == []
    assert requirements(made()) == [Req.MC_ALIAS_009]


def test_an_own_name_passes_a_read_write_formal_on_and_copies_a_read_only_one() -> None:
    lent = function("id", ["a"], ["a"], [], X_RW)
    late = [call("id", ["c"], ["y"]), updated("c", "u"), negated("y", "n")]
    assert requirements(graph([call("id", ["c"], ["y"]), updated("y", "u")], U, functions=[lent])) == []
    assert requirements(graph(late, U, value("n"), functions=[lent])) == [Req.MC_ALIAS_011]
    assert requirements(graph(late, U, value("n"), functions=[function("id", ["a"], ["a"], [])])) == []


def test_a_function_may_return_a_storage_twice() -> None:
    twice = function("twice", ["a", "r", "p"], ["b", "d"], [updated("a", "b"), passed("b", "d")], X_RW,
                     value("b", alias_of="a"), value("d", alias_of="a"))  # fmt: skip
    made = graph([call("twice", ["c", "r", "p"], ["u", "w"])], U, value("w", alias_of="c"), functions=[twice])
    assert requirements(made) == []


def test_mc_alias_015_compares_entries_of_calls_with_functions() -> None:
    assert requirements(graph([aliased(stepped("c", "u"))], U, functions=[STEP])) == []
    assert requirements(graph([aliased(stepped("c", "u"), 0, 1)], U, functions=[STEP])) == [Req.MC_ALIAS_015]
    plain = function("plain", ["a"], ["b"], [negated("a", "b")])
    assert requirements(graph([aliased(call("plain", ["c"], ["u"]))], value("u"), functions=[plain])) == [
        Req.MC_ALIAS_015
    ]


def test_functions_that_call_each_other_end_in_a_finding() -> None:
    ping = function(
        "ping", ["a", "r", "p"], ["b"], [call("pong", ["a", "r", "p"], ["b"])], X_RW, value("b", alias_of="a")
    )
    pong = function("pong", ["a", "r", "p"], ["b"], [call("ping", ["a", "r", "p"], ["t"]), updated("t", "b")], X_RW,
                    value("b", alias_of="a"))  # fmt: skip
    assert errors(graph([call("ping", ["c", "r", "p"], ["u"])], U, functions=[ping, pong]))
