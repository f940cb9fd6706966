"""The stable re-sort by data and by write-after-read."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from mutcache.check import diagnose
from mutcache.errors import CheckError
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache.transform import sort
from mutcache_conformance.cases.builder import aliased, model, node, tensor, update

FLOAT = TensorProto.FLOAT


def value(name: str, *, mutable: bool = False, alias_of: str = "") -> ValueInfoProto:
    return tensor(name, FLOAT, [8, 4], mutable=mutable, alias_of=alias_of)


def graph(nodes: list[NodeProto], *outputs: ValueInfoProto, caches: tuple[str, ...] = ("c",)) -> ModelProto:
    inputs = [value(name, mutable=True) for name in caches]
    inputs += [tensor("r", FLOAT, [2, 4]), tensor("p", TensorProto.INT64, [])]
    return model(inputs, nodes, outputs)


def updated(source: str, output: str) -> NodeProto:
    return update(source, "r", "p", output)


def outputs_of(made: ModelProto) -> list[str]:
    return [one.output[0] for one in made.graph.node]


U = value("u", alias_of="c")


def test_a_sound_model_stays_as_it_is() -> None:
    made = graph([node("Neg", ["c"], ["n"]), updated("c", "u"), node("Neg", ["r"], ["m"])], U, value("n"))
    assert serialize(sort(made)) == serialize(made)


def test_late_reads_move_before_the_mutation_and_the_rest_stays_in_order() -> None:
    nodes = [
        node("Neg", ["r"], ["a"]),
        updated("c", "u"),
        node("Neg", ["a"], ["b"]),
        node("Neg", ["c"], ["n"]),
        node("Abs", ["c"], ["m"]),
    ]
    made = graph(nodes, U, value("n"), value("m"))
    before = serialize(made)
    result = sort(made)
    assert serialize(made) == before
    assert outputs_of(result) == ["a", "b", "n", "m", "u"]
    assert diagnose(result) == []
    assert serialize(sort(result)) == serialize(result)


def test_nodes_out_of_data_order_are_sorted_too() -> None:
    assert outputs_of(sort(graph([node("Neg", ["a"], ["b"]), node("Neg", ["r"], ["a"])]))) == ["a", "b"]


def test_reads_by_subgraphs_count() -> None:
    branch = node("If", ["k"], ["y"])
    branch.attribute.add(name="then_branch").g.node.append(node("Neg", ["c"], ["t"]))
    assert outputs_of(sort(graph([updated("c", "u"), branch], U))) == ["y", "u"]


def test_subgraphs_and_functions_are_sorted_as_well() -> None:
    branch = node("If", ["k"], ["y"])
    swapped = [node("Neg", ["a"], ["b"]), node("Neg", ["r"], ["a"])]
    branch.attribute.add(name="then_branch").g.node.extend(swapped)
    made = graph([node("Neg", ["y"], ["z"]), branch])
    made.functions.add(domain="local", name="f").node.extend(swapped)
    result = sort(made)
    assert outputs_of(result) == ["y", "z"]
    (body,) = (attribute.g for attribute in result.graph.node[0].attribute)
    for nodes in (body.node, result.functions[0].node):
        assert [one.output[0] for one in nodes] == ["a", "b"]


def test_reads_move_before_a_branch_that_mutates_and_inside_it_before_the_update() -> None:
    branch = node("If", ["k"], ["u"])
    inner = branch.attribute.add(name="then_branch").g
    inner.node.extend([updated("c", "t"), node("Neg", ["c"], ["z"])])
    inner.output.append(value("t", alias_of="c"))
    made = graph([branch, node("Neg", ["c"], ["n"]), node("Abs", ["u"], ["m"])])
    result = sort(made)
    assert outputs_of(result) == ["n", "u", "m"]
    (body,) = (attribute.g for attribute in result.graph.node[1].attribute)
    assert [one.output[0] for one in body.node] == ["z", "t"]


def test_what_alias_of_names_comes_first_if_that_is_possible() -> None:
    passes = [aliased(node("Identity", ["c"], [name])) for name in ("a", "b")]
    made = graph(passes)
    made.graph.value_info.append(value("a", alias_of="b"))
    assert outputs_of(sort(made)) == ["b", "a"]
    made.graph.value_info.append(value("b", alias_of="a"))
    assert outputs_of(sort(made)) == ["a", "b"]


@pytest.mark.parametrize(
    ("nodes", "requirement", "words"),
    [
        ([updated("c", "u"), node("Add", ["c", "u"], ["n"])], Req.MC_ALIAS_011, "CacheUpdate (#0) -> Add (#1)"),
        ([updated("c", "u"), updated("c", "w")], Req.MC_ALIAS_012, "both mutate"),
        ([updated("c", "u"), updated("u", "w")], Req.MC_ALIAS_011, "return 'w' instead"),
        ([node("Neg", ["b"], ["a"]), node("Neg", ["a"], ["b"])], None, "Neg (#0) -> Neg (#1) -> Neg (#0)"),
        ([node("Add", ["a", "a"], ["a"])], None, "Add (#0) -> Add (#0)"),
    ],
    ids=["read-of-both", "fork", "stale-output", "cycle", "self"],
)
def test_without_an_order_the_obstacle_is_named(nodes: list[NodeProto], requirement: Req | None, words: str) -> None:
    with pytest.raises(CheckError) as caught:
        sort(graph(nodes, U))
    assert caught.value.requirement is requirement
    assert words in str(caught.value)


@st.composite
def shuffled_models(draw: st.DrawFn) -> ModelProto:
    """A sound model of chains, pass-throughs and readers over two caches, and then its nodes in any order."""
    current = {"c": "c", "d": "d"}
    known = ["r"]
    nodes: list[NodeProto] = []
    for index in range(draw(st.integers(1, 12))):
        root = draw(st.sampled_from(["c", "d"]))
        name = f"n{index}"
        match draw(st.integers(0, 3)):
            case 0:
                nodes.append(updated(current[root], name))
                current[root] = name
            case 1:
                nodes.append(aliased(node("Identity", [current[root]], [name])))
                current[root] = name
            case 2:
                nodes.append(node("Neg", [current[root]], [name]))
            case _:
                nodes.append(node("Add", [draw(st.sampled_from(known)), "r"], [name]))
                known.append(name)
    order = draw(st.permutations(range(len(nodes))))
    outputs = [value(name, alias_of=root) for root, name in current.items() if name != root]
    return graph([nodes[index] for index in order], *outputs, caches=("c", "d"))


@given(shuffled_models())
@settings(deadline=None)
def test_a_shuffled_sound_model_is_sorted_into_a_sound_one(made: ModelProto) -> None:
    result = sort(made)
    assert [finding for finding in diagnose(result, base=False) if finding.is_error] == []
    assert sorted(map(serialize_node, result.graph.node)) == sorted(map(serialize_node, made.graph.node))
    assert serialize(sort(result)) == serialize(result)
    defined = {"c", "d", "r", "p"}
    for one in result.graph.node:
        assert set(one.input) <= defined
        defined.update(one.output)


def serialize_node(one: NodeProto) -> bytes:
    return one.SerializeToString(deterministic=True)
