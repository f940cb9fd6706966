"""Local functions at run time: caches as arguments, attributes, overloads, what a call leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flow_models import FLOAT, INT64, LOCAL, body, branch, call, function, graph, loop, negated, passed, updated, value
from flow_runs import FEEDS, check_runs, feed, fresh, viewed

from mutcache.decode import decode
from mutcache.errors import CheckError, PlanError, RunError
from mutcache.executor import Session
from mutcache.instance import Lent, instantiate
from mutcache.plan import plan
from mutcache.program import Program
from mutcache.proto.onnx_ml import AttributeProto, FunctionProto, ModelProto, NodeProto, ValueInfoProto
from mutcache_conformance.cases.builder import initializer, node, tensor, update

LENT = value("f", mutable=True)
RESULT = value("w", alias_of="f")
WRITES = function("writes", ["f", "r", "p"], ["w"], [updated("f", "w")], LENT, RESULT)


def cached(name: str, root: str = "c") -> ValueInfoProto:
    return value(name, alias_of=root)


def test_a_function_updates_its_argument() -> None:
    nodes = [negated("c", "old"), call("writes", ["c", "r", "p"], ["u"]), node("Add", ["old", "u"], ["y"])]
    check_runs(graph(nodes, cached("u"), value("old"), value("y"), functions=[WRITES]))


def test_one_function_for_several_caches_and_in_a_chain() -> None:
    nodes = [
        call("writes", ["c", "r", "p"], ["u"]),
        call("writes", ["d", "r", "m"], ["v"]),
        negated("u", "y"),
        call("writes", ["u", "r", "m"], ["uu"]),
    ]
    made = graph(nodes, cached("uu"), cached("v", "d"), value("y"), caches=("c", "d", "e"), functions=[WRITES])
    check_runs(made)


def test_what_a_function_reads_before_and_after_its_update() -> None:
    both = function(
        "both",
        ["f", "r", "p"],
        ["w", "before", "after"],
        [viewed("f", "before"), updated("f", "w"), viewed("w", "after")],
        LENT,
        RESULT,
    )
    nodes = [call("both", ["c", "r", "p"], ["u", "b", "a"]), updated("u", "last"), node("Add", ["b", "a"], ["y"])]
    check_runs(graph(nodes, cached("last"), value("b"), value("a"), value("y"), functions=[both]))


def test_an_argument_that_is_a_view_of_another_one() -> None:
    mixes = function(
        "mixes",
        ["f", "seen", "r", "p"],
        ["w", "sum"],
        [updated("f", "w"), node("Add", ["seen", "w"], ["sum"])],
        LENT,
        RESULT,
    )
    nodes = [viewed("c", "old"), call("mixes", ["c", "old", "r", "p"], ["u", "y"])]
    check_runs(graph(nodes, cached("u"), value("y"), functions=[mixes]))


def test_functions_that_pass_on() -> None:
    keeps = function("keeps", ["f"], ["w"], [passed("f", "w")], RESULT)
    hands = function("hands", ["f"], ["f"], [], LENT)
    reads = function("reads", ["f"], ["f"], [])
    for one, is_storage in ((keeps, True), (hands, True), (reads, False)):
        nodes = [call(one.name, ["c"], ["t"]), updated("t" if is_storage else "c", "u"), negated("u", "y")]
        outputs = [cached("u"), value("y")] + ([] if is_storage else [value("t")])
        check_runs(graph(nodes, *outputs, functions=[one]))


def test_functions_in_functions_and_bodies() -> None:
    outer = function(
        "outer",
        ["f", "g", "k", "r", "p", "m"],
        ["w", "h"],
        [
            call("writes", ["f", "r", "p"], ["f1"]),
            branch(
                ["g1"],
                body([call("writes", ["g", "r", "m"], ["z"])], value("z", alias_of="g")),
                body([passed("g", "z")], value("z", alias_of="g")),
            ),
            loop(["f1"], ["w"], [call("writes", ["q", "r", "i"], ["qq"])], value("qq", alias_of="q"),
                 formals=[value("q", mutable=True)]),
            call("writes", ["g1", "r", "p"], ["h"]),
        ],
        LENT,
        value("g", mutable=True),
        RESULT,
        value("h", alias_of="g"),
    )  # fmt: skip
    nodes = [
        call("outer", ["c", "d", "k", "r", "p", "m"], ["u", "v"]),
        call("outer", ["v", "u", "k", "r", "m", "p"], ["vv", "uu"]),
    ]
    made = graph(nodes, cached("uu"), cached("vv", "d"), caches=("c", "d"), functions=[outer, WRITES])
    check_runs(made, [feed(p=1, m=2), feed(p=0, m=3, k=False)])


def test_overloads_are_told_apart() -> None:
    inside = [updated("f", "w1"), negated("r", "n"), update("w1", "n", "zero", "w")]
    twice = function("writes", ["f", "r", "p"], ["w"], inside, LENT, RESULT, overload="twice")
    zero = node("Constant", [], ["zero"])
    zero.attribute.add(name="value", type=AttributeProto.TENSOR, t=initializer("", INT64, [], bytes(8)))
    twice.node.insert(0, zero)
    nodes = [call("writes", ["c", "r", "p"], ["u"]), call("writes", ["d", "r", "p"], ["v"], overload="twice")]
    check_runs(graph(nodes, cached("u"), cached("v", "d"), caches=("c", "d"), functions=[WRITES, twice]))


# Attributes.


def refer(made: NodeProto, attribute: str, to: str) -> NodeProto:
    """The node, whose ``attribute``, a number, is the attribute ``to`` of the function."""
    made.attribute.add(name=attribute, type=AttributeProto.INT, ref_attr_name=to)
    return made


def with_attributes(made: NodeProto, **attributes: Any) -> NodeProto:
    for name, number in attributes.items():
        made.attribute.add(name=name, type=AttributeProto.INT, i=number)
    return made


def along() -> FunctionProto:
    """Updates and reads along an axis that the call chooses, in a branch too; it is 0 if the call does not say."""
    moved = refer(update("f", "v", "p", "w"), "axis", "along")
    sizes = refer(node("Split", ["f"], ["first", "second"], {"num_outputs": 2}), "axis", "along")
    inner = refer(node("Concat", ["first", "second"], ["b"]), "axis", "along")
    chosen = branch(["joined"], body([inner], value("b")), body([negated("f", "b")], value("b")))
    made = function("along", ["f", "v", "p", "k"], ["w", "joined"], [sizes, chosen, moved], LENT, RESULT)
    made.attribute_proto.add(name="along", type=AttributeProto.INT, i=0)
    return made


def test_attributes_of_the_call_reach_every_depth() -> None:
    middle = function(
        "middle",
        ["f", "v", "p", "k"],
        ["w", "joined"],
        [refer(call("along", ["f", "v", "p", "k"], ["w", "joined"]), "along", "axis")],
        LENT,
        RESULT,
    )
    middle.attribute.append("axis")
    nodes = [
        call("along", ["c", "r", "p", "k"], ["u", "y0"]),
        with_attributes(call("along", ["u", "columns", "p", "k"], ["v", "y1"]), along=1),
        with_attributes(call("middle", ["v", "columns", "p", "k"], ["w", "y2"]), axis=-1),
    ]
    made = graph(nodes, cached("w"), *map(value, ("y0", "y1", "y2")), functions=[along(), middle])
    made.graph.input.append(tensor("columns", FLOAT, [8, 1]))
    columns = -np.arange(8, dtype=np.float32).reshape(8, 1)
    check_runs(made, [feed(p=2, columns=columns), feed(p=0, k=False, columns=columns)])


def test_a_reference_to_nothing_leaves_the_default() -> None:
    made = function("plain", ["f", "r", "p"], ["w"], [refer(updated("f", "w"), "axis", "along")],
                    LENT, RESULT)  # fmt: skip
    made.attribute.append("along")
    check_runs(graph([call("plain", ["c", "r", "p"], ["u"])], cached("u"), functions=[made]))


def test_a_graph_that_a_call_passes_has_no_plan() -> None:
    def pick(reference: bool) -> FunctionProto:
        chosen = branch(["w"], body([negated("f", "b")], value("b")), body([viewed("f", "b")], value("b")))
        if reference:
            chosen.attribute[0].ClearField("g")
            chosen.attribute[0].ref_attr_name = "then"
        made = function("pick", ["f", "k"], ["w"], [chosen])
        made.attribute.append("then")
        return made

    made = call("pick", ["x", "k"], ["y"])
    made.attribute.add(name="then", type=AttributeProto.GRAPH, g=body([negated("x", "b")], value("b")))
    model = graph([made], value("y"), caches=(), functions=[pick(reference=True)])
    with pytest.raises((PlanError, CheckError)):
        Session(model)


# What a call leaves out.


def test_arguments_and_outputs_that_are_left_out() -> None:
    clips = function(
        "clips",
        ["f", "low", "high", "r", "p"],
        ["w", "unused", "clipped"],
        [node("Clip", ["f", "low", "high"], ["clipped"]), negated("f", "unused"), updated("f", "w")],
        LENT,
        RESULT,
    )
    nodes = [
        call("clips", ["c", "", "twenty", "r", "p"], ["u", "", "y"]),
        call("clips", ["u", "twenty", "", "r", "m"], ["v", "", ""]),
        call("writes", ["v", "r", "p"], ["w"]),
    ]
    made = graph(nodes, cached("w"), value("y"), functions=[clips, WRITES])
    made.graph.initializer.append(initializer("twenty", FLOAT, [], np.float32(20).tobytes()))
    check_runs(made)


def test_functions_import_operator_sets_of_their_own() -> None:
    steep = function("steep", ["a"], ["b"], [node("Binarizer", ["a"], ["b"], {}, domain="ai.onnx.ml")])
    steep.opset_import.add(domain="ai.onnx.ml", version=1)
    steep.node[0].attribute.add(name="threshold", type=AttributeProto.FLOAT, f=16)
    made = graph([call("steep", ["x"], ["y"])], value("y"), caches=(), functions=[steep])
    x = feed()["x"]
    np.testing.assert_array_equal(Session(made).run(feed(x=x))["y"], x > 16)


def test_calls_nest_as_deep_as_they_may() -> None:
    def chain(count: int) -> ModelProto:
        functions = [
            function(f"f{n}", ["f", "r", "p"], ["w"],
                     [call(f"f{n + 1}", ["f", "r", "p"], ["w"]) if n + 1 < count else updated("f", "w")], LENT, RESULT)
            for n in range(count)
        ]  # fmt: skip
        return graph([call("f0", ["c", "r", "p"], ["u"])], cached("u"), functions=functions)

    check_runs(chain(99), FEEDS[:1], ["node-order"])
    with pytest.raises((PlanError, CheckError)):
        Session(chain(130))


def test_a_function_may_be_called_near_the_top_and_too_deep_inside() -> None:
    def chain(name: str, last: NodeProto) -> list[FunctionProto]:
        bodies = [call(f"{name}{n}", ["f"], ["w"]) for n in range(1, 60)]
        return [function(f"{name}{n}", ["f"], ["w"], [one]) for n, one in enumerate([*bodies, last])]

    functions = [*chain("a", negated("f", "w")), *chain("b", call("a0", ["f"], ["w"]))]
    nodes = [call("a0", ["x"], ["y"]), call("b0", ["x"], ["z"])]
    plan(decode(graph(nodes[:1], value("y"), caches=(), functions=functions)))
    for order in (nodes, nodes[::-1]):
        with pytest.raises(PlanError, match="nest more than 100 deep"):
            plan(decode(graph(order, value("y"), caches=(), functions=functions)))


def test_calls_that_multiply_are_loaded_once() -> None:
    doubles = [
        function(f"f{n}", ["f", "r", "p"], ["w"],
                 [call(f"f{n + 1}", ["f", "r", "p"], ["v"]), call(f"f{n + 1}", ["v", "r", "p"], ["w"])], LENT, RESULT)
        for n in range(40)
    ]  # fmt: skip
    leaf = function("f40", ["f", "r", "p"], ["w"], [updated("f", "w")], LENT, RESULT)
    chosen = branch(
        ["u"],
        body([call("f0", ["c", "r", "p"], ["w"])], cached("w")),
        body([passed("c", "w")], cached("w")),
    )
    made = graph([chosen], cached("u"), functions=[*doubles, leaf])
    program = Program(plan(decode(made)), {})  # the checker is not asked: stock inference enters each call
    assert len(instantiate(program.main, {"c": Lent(fresh(made)["c"])})) == 1


def test_a_function_of_the_model_comes_before_an_operator() -> None:
    made = function("Neg", ["a"], ["b"], [node("Abs", ["a"], ["b"])])
    model = graph([node("Neg", ["x"], ["y"], domain=LOCAL)], value("y"), caches=(), functions=[made])
    x = feed()["x"] - 16
    np.testing.assert_array_equal(Session(model).run(feed(x=x))["y"], abs(x))


def test_too_many_arguments_are_refused() -> None:
    made = graph([call("writes", ["c", "r", "p", "x"], ["u"])], cached("u"), functions=[WRITES])
    with pytest.raises((CheckError, RunError)), Session(made).bind(fresh(made)) as binding:
        binding.run(feed())
