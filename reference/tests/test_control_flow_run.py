"""If, Loop and Scan with caches: each construct mutating, passing on and reading, against the functional oracle."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from flow_models import (
    BOOL,
    FLOAT,
    INT64,
    body,
    branch,
    call,
    function,
    graph,
    holding,
    loop,
    negated,
    passed,
    scalar,
    scan,
    updated,
    value,
)
from flow_runs import check_runs, feed, fresh, viewed

from mutcache.errors import BindError, CheckError, PlanError, RunError
from mutcache.executor import Session
from mutcache.instance import Instance
from mutcache.model import DOMAIN
from mutcache.ops.dense import CacheUpdate
from mutcache.plan import plan
from mutcache.proto.onnx_ml import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache.storage import Array, storage_of
from mutcache_conformance.cases.builder import initializer, node, tensor, update


def cached(name: str) -> ValueInfoProto:
    return value(name, alias_of="c")


def side(*nodes: NodeProto, output: str = "w", root: str = "c", more: Sequence[str] = ()) -> GraphProto:
    """A branch that returns the cache ``output``, and the values ``more``."""
    return body(nodes, value(output, alias_of=root), *map(value, more))


# Branches.


def test_one_branch_updates_and_the_other_passes_on() -> None:
    made = branch(["u"], side(updated("c", "w")), side(passed("c", "w")))
    check_runs(graph([made, negated("u", "y")], cached("u"), value("y")))


def test_both_branches_pass_on() -> None:
    made = branch(["u"], side(passed("c", "w")), side(passed("c", "w")))
    check_runs(graph([made, updated("u", "last")], cached("last")))


def test_a_branch_reads() -> None:
    made = branch(["old"], body([negated("c", "w")], value("w")), body([viewed("c", "w")], value("w")))
    check_runs(
        graph([made, updated("c", "u"), node("Add", ["old", "u"], ["y"])], cached("u"), value("old"), value("y"))
    )


def test_what_branches_read_before_and_after_their_updates() -> None:
    def made(operator: Any) -> GraphProto:
        nodes = [operator("c", "before"), updated("c", "w"), operator("w", "after"), node("Shape", ["c"], ["size"])]
        return side(*nodes, more=["before", "after"])

    nodes = [branch(["u", "b", "a"], made(viewed), made(negated)), updated("u", "last"), node("Add", ["b", "a"], ["y"])]
    check_runs(graph(nodes, cached("last"), value("b"), value("a"), value("y")))


def test_a_branch_updates_in_a_chain_and_nobody_reads() -> None:
    inner = side(updated("c", "first"), updated("first", "second"), passed("second", "w"))
    check_runs(graph([branch(["u"], inner, side(passed("c", "w")))], caches=("c",)))


def test_nested_branches_and_two_caches() -> None:
    inner = branch(
        ["deep"], side(updated("d", "dd"), output="dd", root="d"), side(passed("d", "dd"), output="dd", root="d")
    )
    then = body([updated("c", "w"), inner, updated("deep", "v")], cached("w"), value("v", alias_of="d"), value("read"))
    then.node.append(negated("w", "read"))
    otherwise = body(
        [passed("d", "v"), passed("c", "w"), viewed("x", "read")], cached("w"), value("v", alias_of="d"), value("read")
    )
    made = branch(["u", "t", "read_out"], then, otherwise)
    check_runs(graph([made], cached("u"), value("t", alias_of="d"), value("read_out"), caches=("c", "d")))


def test_a_view_is_taken_before_the_branch_that_updates() -> None:
    made = branch(["u"], side(updated("c", "w")), side(passed("c", "w")))
    nodes = [viewed("c", "old"), made, node("Add", ["old", "u"], ["y"])]
    check_runs(graph(nodes, cached("u"), value("y"), value("old")))


def test_a_branch_reads_a_view_of_what_it_updates() -> None:
    then = side(updated("c", "w"), node("Add", ["old", "w"], ["y_then"]), more=["y_then"])
    otherwise = side(passed("c", "w"), viewed("old", "y_else"), more=["y_else"])
    check_runs(graph([viewed("c", "old"), branch(["u", "y"], then, otherwise)], cached("u"), value("y")))


def test_an_alias_of_an_ordinary_value() -> None:
    made = branch(["same"], side(passed("x", "w"), root="x"), side(passed("x", "w"), root="x"))
    model = graph([made, updated("c", "u")], value("same", alias_of="x"), cached("u"))
    feeds = feed()
    with Session(model).bind(fresh(model)) as binding:
        assert binding.run(feeds)["same"] is feeds["x"]


def test_a_branch_that_updates_runs_alone() -> None:
    made = branch(["u"], side(updated("c", "w")), side(passed("c", "w")))
    model = graph([made], cached("u"))
    caches = fresh(model)
    before = caches["c"].copy()
    with Session(model).bind(caches) as binding:
        binding.run(feed(k=False))
        np.testing.assert_array_equal(caches["c"], before)


def test_the_condition_of_a_branch_is_one_element() -> None:
    made = branch(["y"], body([negated("x", "w")], value("w")), body([viewed("x", "w")], value("w")))
    made.input[0] = "many"
    model = graph([made], value("y"), caches=())
    model.graph.input.append(tensor("many", BOOL, ["n"]))
    session = Session(model)
    assert session.run(feed(many=np.array([True])))["y"] is not None
    for many in ([], [True, False]):
        with pytest.raises(RunError, match=rf"If \(#0\) failed: 'many' must be one element, got {len(many)}"):
            session.run(feed(many=np.array(many, bool)))


# Loops.


def advancing(source: str = "f", output: str = "w") -> list[NodeProto]:
    """An update whose position grows with the iteration."""
    return [node("Add", ["p", "i"], ["at"]), update(source, "r", "at", output)]


SLOT = value("f", mutable=True)
RESULT = value("w", alias_of="f")
LOOPS = (feed(m=0), feed(m=1), feed(m=4), feed(m=2, p=4))


def test_a_loop_updates_what_it_carries() -> None:
    made = loop(["c"], ["u"], advancing(), RESULT, formals=[SLOT])
    check_runs(graph([made, negated("u", "y")], cached("u"), value("y")), LOOPS)


def test_a_loop_passes_on_what_it_carries() -> None:
    for nodes, result in (([passed("f", "w")], RESULT), ([], SLOT)):
        out = value(result.name, alias_of=result.alias_of)
        made = loop(["c"], ["u"], nodes, out, formals=[SLOT])
        check_runs(graph([made, updated("u", "last")], cached("last")), LOOPS)


def test_a_read_only_formal_is_a_value() -> None:
    made = loop(["c"], ["y"], [], value("f"), formals=[value("f")])
    check_runs(
        graph([made, updated("c", "u"), node("Add", ["y", "u"], ["z"])], value("y"), cached("u"), value("z")), LOOPS
    )


def test_what_a_loop_reads_and_collects_is_of_each_iteration() -> None:
    nodes = [viewed("f", "before"), *advancing(), viewed("w", "after"), node("Add", ["before", "after"], ["both"])]
    collected = (value("before"), value("w"), value("after"), value("both"))
    names = ["u", "t0", "t1", "t2", "t3"]
    made = loop(["c"], names, nodes, RESULT, *collected, formals=[SLOT])
    outputs = [tensor(name, FLOAT, [None, 8, 4]) for name in names[1:]]
    check_runs(graph([made], cached("u"), *outputs), LOOPS)


def test_a_view_carried_beside_the_cache() -> None:
    nodes = [*advancing(), viewed("w", "next"), node("Add", ["seen", "w"], ["both"])]
    made = loop(["c", "x"], ["u", "y", "t"], nodes, RESULT, value("next"), value("both"), formals=[SLOT, value("seen")])
    outputs = (cached("u"), value("y"), tensor("t", FLOAT, [None, 8, 4]))
    check_runs(graph([made], *outputs), LOOPS)


def test_a_view_of_the_cache_is_the_initial_value_of_another_slot() -> None:
    nodes = [*advancing(), node("Add", ["seen", "w"], ["next"])]
    made = loop(["c", "old"], ["u", "y"], nodes, RESULT, value("next"), formals=[SLOT, value("seen")])
    check_runs(graph([viewed("c", "old"), made], cached("u"), value("y")), LOOPS)


def test_a_loop_ends_early() -> None:
    nodes = [*advancing(), node("Less", ["i", "last"], ["more"])]
    made = loop(["c"], ["u", "t"], nodes, RESULT, value("w"), formals=[SLOT])
    inside = made.attribute[-1].g
    inside.output[0].CopyFrom(scalar("more", BOOL))
    model = graph([made], cached("u"), tensor("t", FLOAT, [None, 8, 4]))
    model.graph.input.append(scalar("last"))
    runs = [feed(m=m, last=last) for m, last in ((4, 1), (4, 0), (0, 1), (2, 9))]
    check_runs(model, runs)
    made.input[0] = ""  # without a number of trips the condition alone ends it
    del model.graph.node[:]
    model.graph.node.append(made)
    check_runs(model, [feed(last=0), feed(last=2)])
    made.input[1] = "k"  # and it may be false before the first trip
    del model.graph.node[:]
    model.graph.node.append(made)
    check_runs(model, [feed(last=2, k=False), feed(last=1, k=True)])


def test_nested_loops_and_branches() -> None:
    deep = loop(["f"], ["v"], [node("Add", ["i", "p"], ["at"]), update("g", "r", "at", "z")],
                value("z", alias_of="g"), formals=[value("g", mutable=True)])  # fmt: skip
    deep.attribute[-1].g.input[0].name = "j"
    deep.attribute[-1].g.input[1].name = "goes"
    deep.attribute[-1].g.node[0].input[0] = "goes"
    deep.attribute[-1].g.node[1].input[0] = "j"
    chosen = branch(
        ["w"], side(deep, passed("v", "zz"), output="zz", root="f"), side(passed("f", "zz"), output="zz", root="f")
    )
    made = loop(["c"], ["u", "t"], [chosen], RESULT, value("w"), formals=[SLOT])
    model = graph([made], cached("u"), tensor("t", FLOAT, [None, 8, 4]))
    check_runs(model, [feed(m=2), feed(m=3, k=False), feed(m=0)])


def test_a_loop_reads_a_cache_that_is_updated_later() -> None:
    nodes = [node("Add", ["seen", "c"], ["next"])]
    made = loop(["c"], ["y", "t"], nodes, value("next"), value("next"), formals=[value("seen")])
    check_runs(graph([made, updated("c", "u")], cached("u"), value("y"), tensor("t", FLOAT, [None, 8, 4])), LOOPS)


def test_every_iteration_sees_the_same_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx.reference.ops.op_neg import Neg

    seen: list[int] = []
    write = CacheUpdate.write

    def neg(_: Neg, x: Array) -> tuple[Array]:
        seen.append(storage_of(x).address)
        return (-x,)

    def recorded(update: CacheUpdate, values: Array, position: Array) -> None:
        seen.append(storage_of(update._view).address)
        write(update, values, position)

    monkeypatch.setattr(Neg, "_run", neg)
    monkeypatch.setattr(CacheUpdate, "write", recorded)
    inner = scan(["f"], ["v"], [updated("g", "h"), negated("h", "n")], value("h", alias_of="g"),
                 formals=[value("g", mutable=True)])  # fmt: skip
    made = loop(["c"], ["u"], [negated("f", "n0"), inner, passed("v", "w")], RESULT, formals=[SLOT])
    model = graph([made, negated("u", "y")], cached("u"))
    caches = fresh(model)
    with Session(model).bind(caches) as binding:
        binding.run(feed(m=3))
        binding.run(feed(m=2))
    assert len(seen) == 5 * (1 + 3 * 2) + 2
    assert set(seen) == {storage_of(caches["c"]).address}


def test_types_of_what_no_trip_collected() -> None:
    made = loop(
        [], ["numbers"], [node("Cast", ["i"], ["number"], {"to": FLOAT})], tensor("number", FLOAT, []), formals=[]
    )
    session = Session(graph([made], tensor("numbers", FLOAT, [None]), caches=()))
    for trips in (0, 3):
        numbers = session.run(feed(m=trips))["numbers"]
        assert numbers.dtype == np.float32
        assert numbers.tolist() == list(range(trips))


# Scans.


def test_a_scan_updates_its_state() -> None:
    nodes = [
        node("Slice", ["slice", "zero", "two", "zero"], ["rows"]),
        update("f", "rows", "p", "w"),
        viewed("f", "old"),
    ]
    nodes = [nodes[0], nodes[2], nodes[1]]
    made = scan(["c"], ["u", "t0", "t1"], nodes, RESULT, value("w"), value("old"), formals=[SLOT])
    model = graph([made], cached("u"), *(tensor(name, FLOAT, [3, 8, 4]) for name in ("t0", "t1")))
    model.graph.initializer.append(initializer("zero", INT64, [1], np.array([0]).tobytes()))
    model.graph.initializer.append(initializer("two", INT64, [1], np.array([2]).tobytes()))
    check_runs(model, [feed(), feed(p=6)])


def test_axes_and_directions() -> None:
    nodes = [updated("f", "w"), node("Add", ["slice", "w"], ["sum"]), viewed("slice", "same")]
    for axes, directions in (([1], [0]), ([2], [1]), ([-1], [1]), ([0], [1])):
        made = scan(["c"], ["u", "t0", "t1"], nodes, RESULT, value("sum"), value("same"), formals=[SLOT])
        made.attribute.add(name="scan_input_axes", type=AttributeProto.INTS, ints=axes)
        made.attribute.add(name="scan_input_directions", type=AttributeProto.INTS, ints=directions)
        made.attribute.add(name="scan_output_axes", type=AttributeProto.INTS, ints=[1, -1])
        made.attribute.add(name="scan_output_directions", type=AttributeProto.INTS, ints=[1, 0])
        model = graph([made], cached("u"), *(tensor(name, FLOAT, [None, None, None]) for name in ("t0", "t1")))
        dims = [8, 4]
        dims.insert(axes[0] % 3, 3)
        [source] = [one for one in model.graph.input if one.name == "s"]
        source.CopyFrom(tensor("s", FLOAT, dims))
        check_runs(model, [feed(s=np.arange(96, dtype=np.float32).reshape(dims))])


def test_a_scan_without_slices() -> None:
    made = scan(["c"], ["u", "t"], [updated("f", "w")], RESULT, value("slice"), formals=[SLOT])
    model = graph([made], cached("u"), tensor("t", FLOAT, [None, 8, 4]))
    [source] = [one for one in model.graph.input if one.name == "s"]
    source.CopyFrom(tensor("s", FLOAT, [None, 8, 4]))
    check_runs(model, [feed(s=np.zeros((0, 8, 4), np.float32)), feed(s=np.ones((2, 8, 4), np.float32))])


def test_a_scan_reads_a_cache_in_slices() -> None:
    rows = holding(
        node("Scan", ["c"], ["t"], {"num_scan_inputs": 1}),
        body=body([node("Neg", ["row"], ["n"])], tensor("n", FLOAT, [4]), inputs=[tensor("row", FLOAT, [4])]),
    )
    same = holding(
        node("Scan", ["c"], ["v"], {"num_scan_inputs": 1}),
        body=body([], tensor("row", FLOAT, [4]), inputs=[tensor("row", FLOAT, [4])]),
    )
    check_runs(graph([rows, same, updated("c", "u")], cached("u"), value("t"), value("v")))


# What bodies hold.


def test_bodies_have_constants_and_initializers_of_their_own() -> None:
    made = loop(["c"], ["u", "t"], [node("Add", ["p", "one"], ["at"]), update("f", "rows", "at", "w")],
                RESULT, value("w"), formals=[SLOT])  # fmt: skip
    inside = made.attribute[-1].g
    inside.initializer.append(initializer("one", INT64, [], np.int64(1).tobytes()))
    constant = node("Constant", [], ["rows"])
    constant.attribute.add(
        name="value",
        type=AttributeProto.TENSOR,
        t=initializer("", FLOAT, [1, 4], np.arange(4, dtype=np.float32).tobytes()),
    )
    inside.node.insert(0, constant)
    check_runs(graph([made], cached("u"), tensor("t", FLOAT, [None, 8, 4])), LOOPS)


def test_a_kernel_that_needs_types_which_nobody_declares() -> None:
    made = branch(["y"], body([node("Gelu", ["n"], ["w"])], value("w")), body([viewed("x", "w")], value("w")))
    made.attribute[0].g.node.insert(0, negated("x", "n"))
    outputs = Session(graph([made], value("y"), caches=())).run(feed(x=np.full((8, 4), -1, np.float32)))
    np.testing.assert_allclose(outputs["y"], 0.8413447, rtol=1e-6)


def test_an_operator_without_a_kernel_inside() -> None:
    made = branch(
        ["y"], body([node("Mystery", ["x"], ["w"], domain="local")], value("w")), body([viewed("x", "w")], value("w"))
    )
    with pytest.raises((PlanError, CheckError), match="Mystery"):
        Session(graph([made], value("y"), caches=()))


def test_a_sequence_map_is_not_ours() -> None:
    stock = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 21, "local" : 1]>
        main (float[n] x) => (seq(float[n]) y) {
            s = SequenceConstruct(x, x)
            y = SequenceMap <body = b (float[n] a) => (float[n] d) { d = local.twice(a) }> (s)
        }
        <domain: "local", opset_import: ["" : 21]>
        twice (v) => (w) { w = Add(v, v) }
    """)
    outputs = Session(ModelProto.FromString(stock.SerializeToString())).run({"x": np.ones(2, np.float32)})
    assert [array.tolist() for array in outputs["y"]] == [[2, 2], [2, 2]]


# What the caller supplies for what only bodies use.


def test_operands_of_updates_in_bodies() -> None:
    model = graph([branch(["u"], side(updated("c", "w")), side(passed("c", "w")))], cached("u"))
    caches = fresh(model)
    before = caches["c"].copy()
    with Session(model).bind(caches) as binding, pytest.raises(RunError, match="'r'") as refused:
        binding.run(feed(k=False, r=np.zeros((2, 4), np.int32)))
    assert refused.value.requirement is Req.MC_SHAPE_006
    np.testing.assert_array_equal(caches["c"], before)


def test_bodies_declare_dimensions_of_the_storage() -> None:
    model = graph([branch(["u"], side(updated("c", "w")), side(passed("c", "w")))], cached("u"))
    for one in (model.graph.input[0], model.graph.output[0]):
        one.type.tensor_type.shape.dim[0].dim_param = "rows"
    session = Session(model)
    with pytest.raises(BindError, match="also named 'w'") as refused:
        session.bind({"c": np.zeros((6, 4), np.float32)})
    assert refused.value.requirement is Req.MC_BIND_007
    session.bind({"c": np.zeros((8, 4), np.float32)}).release()


# Addresses.


def passed_in_a_branch() -> ModelProto:
    chosen = branch(["u"], side(negated("s", "n"), passed("c", "w")), side(passed("c", "w")))
    return graph([chosen], cached("u"))


def handed_through_a_function() -> ModelProto:
    hands = function("hands", ["f", "s"], ["f"], [negated("s", "n")], SLOT)
    return graph([call("hands", ["c", "s"], ["u"])], cached("u"), functions=[hands])


MOVES = {
    "update": (
        lambda: graph([loop(["c"], ["u"], [negated("s", "n"), *advancing()], RESULT, formals=[SLOT])], cached("u")),
        "in main/Loop_0.body iteration 0: CacheUpdate (#3): 'w' would be at",
    ),
    "Identity": (lambda: graph([negated("s", "n"), passed("c", "u")], cached("u")), "Identity (#1): 'u' would be at"),
    "branch": (passed_in_a_branch, "in main/If_0.then_branch: Identity (#1): 'w' would be at"),
    "call": (handed_through_a_function, "local::hands (#0): 'u' would be at"),
}


@pytest.mark.parametrize(("made", "message"), MOVES.values(), ids=MOVES)
def test_storage_that_moves_during_a_run_is_noticed(
    made: Callable[[], ModelProto], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx.reference.ops.op_neg import Neg

    model = made()
    caches, other = fresh(model), np.zeros((8, 4), np.float32)
    before = caches["c"].copy()
    # NumPy moves no array that is bound. An extension that writes to the header of an array could.
    pointer = ctypes.c_void_p.from_address(id(caches["c"]) + object.__basicsize__)
    bound = pointer.value

    def move(_: Neg, x: Array) -> tuple[Array]:
        pointer.value = storage_of(other).address
        return (x,)

    monkeypatch.setattr(Neg, "_run", move)
    with Session(model).bind(caches) as binding:
        try:
            with pytest.raises(RunError, match=re.escape(message)) as refused:
                binding.run(feed())
        finally:
            pointer.value = bound
    assert refused.value.requirement is Req.MC_BIND_009
    assert not other.any()
    np.testing.assert_array_equal(caches["c"], before)


@pytest.mark.parametrize("place", ["construct", "slot"])
def test_a_body_that_returns_other_storage_is_noticed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if place == "construct":
        run = Instance.run
        monkeypatch.setattr(Instance, "run", lambda *arguments: [one.copy() for one in run(*arguments)])
        made = branch(["u"], side(updated("c", "w")), side(updated("c", "w")))
        where = r"If \(#0\): 'u' is not the storage of 'c'"
    else:
        monkeypatch.setattr("mutcache.instance._pass_through", lambda *_: _copy)
        made = loop(["c"], ["u"], [passed("f", "w")], RESULT, formals=[SLOT])
        where = "'w' is not the storage of 'f'"
    model = graph([made, updated("u", "last")], cached("last"))
    with Session(model).bind(fresh(model)) as binding, pytest.raises(RunError, match=where) as refused:
        binding.run(feed())
    assert refused.value.requirement is Req.MC_BIND_009


def _copy(values: dict[str, Any]) -> None:
    values["w"] = values["f"].copy()


# Plans of bodies.


def test_only_what_meets_a_mutation_is_copied() -> None:
    def copies(made: ModelProto) -> set[str]:
        steps = [step for one in plan(made).main.steps for body in one.bodies.values() for step in body.steps]
        return {name for step in steps for name in step.copies}

    then = side(viewed("c", "a"), viewed("a", "b"), updated("c", "w"), viewed("w", "after"), more=["b", "after"])
    other = side(passed("c", "w"), viewed("w", "b"), viewed("x", "after"), more=["b", "after"])
    assert copies(graph([branch(["u", "y", "z"], then, other)], cached("u"))) == {"b"}
    nodes = [negated("f", "a"), negated("d", "e"), *advancing(), negated("w", "unread")]
    made = loop(["c"], ["u", "t0", "t1"], nodes, RESULT, value("a"), value("e"), formals=[SLOT])
    assert copies(graph([made], cached("u"), caches=("c", "d"))) == {"a"}


def test_an_alias_without_a_kernel_inside_a_body() -> None:
    relu = node("Relu", ["c"], ["w"])
    relu.output_alias.add(output_index=0, input_index=0, kind=1)
    made = graph([branch(["u"], side(relu), side(passed("c", "w")))], cached("u"))
    with pytest.raises(PlanError, match="'w' the storage of 'c'") as refused:
        plan(made)
    assert refused.value.requirement is Req.MC_ALIAS_015


def test_scans_over_batches_have_no_plan() -> None:
    made = scan(["", "x"], ["y"], [negated("f", "w")], value("w"), formals=[value("f")])
    model = graph([made], value("y"), caches=())
    for opset in model.opset_import:
        if opset.domain != DOMAIN:
            opset.version = 8
    with pytest.raises((PlanError, CheckError), match="Scan"):
        Session(model)
