"""A run that fails in the middle: what it leaves, what it says, and that everything stays usable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flow_models import body, branch, call, function, graph, loop, negated, passed, scan, updated, value
from flow_runs import check_refusal, feed, fresh

from mutcache.errors import RunError
from mutcache.executor import Session
from mutcache.proto.onnx_ml import ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import node, tensor, update

LENT = value("f", mutable=True)
RESULT = value("w", alias_of="f")


def cached(name: str, root: str = "c") -> ValueInfoProto:
    return value(name, alias_of=root)


def advancing(source: str = "f", output: str = "w") -> list[NodeProto]:
    return [node("Add", ["p", "i"], ["at"]), update(source, "r", "at", output)]


def refused(made: ModelProto, feeds: dict[str, Any], schedule: str = "node-order") -> RunError:
    with Session(made, schedule=schedule).bind(fresh(made)) as binding, pytest.raises(RunError) as error:
        binding.run(feeds)
    return error.value


def test_a_chain_names_what_had_completed() -> None:
    made = graph([updated("c", "u"), negated("u", "y"), update("u", "r", "m", "v"), updated("v", "w")], cached("w"))
    errors = check_refusal(made, feed(p=2, m=7))
    for error in errors:
        assert error.values["where"] == ("main",)
        assert error.values["completed"] == ("main: CacheUpdate (#0)",)
        assert error.values["position"] == 7
        assert "completed before: main: CacheUpdate (#0)" in error.message
    assert refused(made, feed(p=7)).values["completed"] == ()


def test_a_loop_names_its_iteration() -> None:
    nodes = [*advancing(), updated("w", "v")]
    made = loop(["u"], ["last"], nodes, value("v", alias_of="f"), formals=[LENT])
    model = graph([updated("c", "u"), made, updated("last", "end")], cached("end"))
    [error, *_] = check_refusal(model, feed(p=3, m=9))
    assert error.requirement is Req.MC_DENSE_003
    assert error.values["where"] == ("main", "main/Loop_1.body iteration 4")
    assert error.values["completed"] == (
        "main: CacheUpdate (#0)",
        "main/Loop_1.body iterations 0 to 3: CacheUpdate (#2)",
        "main/Loop_1.body iterations 0 to 3: CacheUpdate (#3)",
    )
    assert error.message.startswith("in main/Loop_1.body iteration 4: CacheUpdate (#2): 'at': position 7 + length 2")
    [error, *_] = check_refusal(model, feed(p=6, m=9))
    assert error.values["completed"] == (
        "main: CacheUpdate (#0)",
        "main/Loop_1.body iteration 0: CacheUpdate (#2)",
        "main/Loop_1.body iteration 0: CacheUpdate (#3)",
    )


def test_a_failing_iteration_names_what_it_had_completed() -> None:
    nodes = [updated("f", "v"), node("Add", ["p", "i"], ["at"]), update("v", "r", "at", "w")]
    model = graph([loop(["c"], ["u"], nodes, RESULT, formals=[LENT])], cached("u"))
    [error, *_] = check_refusal(model, feed(p=6, m=9))
    assert error.values["completed"] == (
        "main/Loop_0.body iteration 0: CacheUpdate (#1)",
        "main/Loop_0.body iteration 0: CacheUpdate (#3)",
        "main/Loop_0.body iteration 1: CacheUpdate (#1)",
    )


def test_a_negative_position_in_a_branch_in_a_scan_in_a_function() -> None:
    chosen = branch(
        ["w"],
        body([update("f", "r", "q", "z")], value("z", alias_of="f")),
        body([passed("f", "z")], value("z", alias_of="f")),
    )
    made = scan(["g"], ["h"], [chosen], RESULT, formals=[LENT])
    inner = function(
        "inner", ["g", "k", "r", "q", "s"], ["h"], [made], value("g", mutable=True), value("h", alias_of="g")
    )
    nodes = [updated("d", "dd"), call("inner", ["c", "k", "r", "q", "s"], ["u"])]
    model = graph(nodes, cached("u"), cached("dd", "d"), caches=("c", "d"), functions=[inner])
    model.graph.input.append(tensor("q", 7, []))
    error = refused(model, feed(q=-1))
    assert error.requirement is Req.MC_DENSE_004
    assert error.values["where"] == (
        "main",
        "local::inner",
        "local::inner/Scan_0.body iteration 0",
        "local::inner/Scan_0.body/If_0.then_branch",
    )
    assert error.values["completed"] == ("main: CacheUpdate (#0)",)


def test_a_kernel_that_fails_names_what_had_completed() -> None:
    nodes = [*advancing(), node("Gather", ["w", "i"], ["row"]), node("Gather", ["row", "p"], ["number"])]
    model = graph([loop(["c"], ["u"], nodes, RESULT, formals=[LENT])], cached("u"))
    caches = fresh(model)
    before = caches["c"].copy()
    feeds = feed(p=4, m=2)  # row i has four numbers
    with Session(model).bind(caches) as binding:
        with pytest.raises(RunError, match=r"in main/Loop_0.body iteration 0: Gather \(#4\) failed") as error:
            binding.run(feeds)
        assert error.value.requirement is None
        assert error.value.values["completed"] == ("main/Loop_0.body iteration 0: CacheUpdate (#2)",)
        before[4:6] = feeds["r"]
        np.testing.assert_array_equal(caches["c"], before)
        binding.run(feed(p=1, m=1))


def test_what_completed_depends_on_the_order() -> None:
    made = graph([updated("c", "u"), update("d", "r", "m", "v")], cached("u"), cached("v", "d"), caches=("c", "d"))
    found = {refused(made, feed(p=0, m=7), f"random:{seed}").values["completed"] for seed in range(8)}
    assert found == {(), ("main: CacheUpdate (#0)",)}


def test_a_construct_that_completed_counts_as_one() -> None:
    looped = loop(["c"], ["u"], advancing(), RESULT, formals=[LENT])
    chosen = branch(
        ["v"], body([updated("u", "z")], value("z", alias_of="u")), body([passed("u", "z")], value("z", alias_of="u"))
    )
    writes = function("writes", ["f", "r", "p"], ["w"], [updated("f", "w")], LENT, RESULT)
    nodes = [looped, chosen, call("writes", ["v", "r", "p"], ["a"]), passed("a", "b"), update("b", "r", "m", "last")]
    model = graph(nodes, cached("last"), functions=[writes])
    [error, *_] = check_refusal(model, feed(p=0, m=7, k=False))
    assert error.values["completed"] == ("main: Loop (#0)", "main: If (#1)", "main: local::writes (#2)")
