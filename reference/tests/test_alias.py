"""Alias classes: roots, versions, uses; on sound graphs and on any other."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from mutcache.alias import INITIAL, AliasClasses, analyze, captures, find_uses
from mutcache.decode import decode
from mutcache.model import Graph
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache_conformance.cases.builder import aliased, model, node, tensor, update


def cache(name: str, *, mutable: bool = True) -> ValueInfoProto:
    return tensor(name, TensorProto.FLOAT, [8, 4], mutable=mutable)


def graph_of(nodes: list[NodeProto], *inputs: ValueInfoProto) -> Graph:
    return decode(model(inputs or [cache("c")], nodes, [])).graph


def identity(source: str, output: str) -> NodeProto:
    return aliased(node("Identity", [source], [output]))


def test_a_chain_is_one_class_with_a_version_for_each_update() -> None:
    nodes = [update("c", "v", "p", "u1"), identity("u1", "same"), update("same", "v", "p", "u2")]
    classes = analyze(graph_of(nodes))
    assert classes.root_of == {"c": "c", "u1": "c", "same": "c", "u2": "c"}
    assert classes.members == {"c": ("c", "u1", "same", "u2")}
    assert classes.mutations == {"c": (0, 2)}
    assert classes.version_of == {"c": INITIAL, "u1": 0, "same": 0, "u2": 2}
    assert classes.mutators() == {("c", INITIAL): (0,), ("c", 0): (2,)}


def test_only_read_write_inputs_are_mutable_roots_and_an_unused_one_is_a_class_of_its_own() -> None:
    graph = graph_of([update("ro", "v", "p", "u")], cache("a"), cache("ro", mutable=False), cache("b"))
    classes = analyze(graph)
    assert classes.members == {"a": ("a",), "b": ("b",), "ro": ("ro", "u")}
    assert classes.mutable_roots(graph) == ("a", "b")


def test_an_unannotated_graph_has_no_classes() -> None:
    classes = analyze(
        graph_of([node("Identity", ["c"], ["y"]), node("Add", ["c", "y"], ["z"])], cache("c", mutable=False))
    )
    assert (classes.root_of, classes.members, classes.mutations) == ({}, {}, {})


def test_any_operator_may_carry_an_alias_and_only_identity_does_not_mutate() -> None:
    custom = aliased(node("Rotate", ["x", "c"], ["", "r"], domain="vendor"), 1, 1)
    foreign = aliased(node("Identity", ["r"], ["s"], domain="vendor"))
    classes = analyze(graph_of([custom, foreign, identity("s", "t")]))
    assert classes.members == {"c": ("c", "r", "s", "t")}
    assert classes.mutations == {"c": (0, 1)}


def test_an_update_aliases_its_cache_whatever_its_entries_say() -> None:
    wrong = node("CacheUpdate", ["c", "v", "p"], ["u"], domain="onnx.mutable_cache")
    assert analyze(graph_of([wrong])).root_of == {"c": "c", "u": "c"}
    assert analyze(graph_of([aliased(wrong, 0, 1)])).root_of == {"c": "c", "u": "c"}


def test_alias_of_does_not_make_classes() -> None:
    made = model([cache("c")], [node("Neg", ["c"], ["y"])], [tensor("y", TensorProto.FLOAT, [8, 4], alias_of="c")])
    assert analyze(decode(made).graph).root_of == {"c": "c"}


def test_uses_are_in_node_order_and_include_what_subgraphs_capture() -> None:
    branch = node("If", ["k"], ["y"])
    body = branch.attribute.add(name="then_branch").g
    body.node.append(node("Add", ["c", "local"], ["sum"]))
    body.node.append(node("Neg", ["sum"], ["local"]))
    inner = body.node.add(op_type="If").attribute.add(name="else_branch").g
    inner.output.add(name="d")
    inner.input.add(name="shadow")
    inner.node.append(node("Neg", ["shadow"], ["n"]))
    graph = graph_of([node("Neg", ["d"], ["x"]), branch, node("Add", ["c", "d"], ["z"])])
    assert captures(graph.nodes[1]) == {"c", "d"}
    assert find_uses(graph, frozenset({"c", "d", "absent"})) == {"c": [1, 2], "d": [0, 1, 2]}


def conditional(*outputs: str, body: NodeProto) -> NodeProto:
    made = node("If", ["k"], outputs)
    made.attribute.add(name="then_branch").g.node.append(body)
    return made


def test_a_node_that_aliases_through_a_subgraph_is_opaque_and_its_classes_are_not_judged() -> None:
    nodes = [conditional("y", body=update("c", "v", "p", "u")), update("d", "v", "p", "w")]
    classes = analyze(graph_of(nodes, cache("c"), cache("d")))
    assert (classes.opaque, classes.unjudged) == ((0,), frozenset({"c"}))


def test_a_plain_subgraph_is_not_opaque() -> None:
    classes = analyze(graph_of([conditional("y", body=node("Neg", ["c"], ["u"]))]))
    assert (classes.opaque, classes.unjudged) == ((), frozenset())


def test_a_call_is_opaque_when_what_it_calls_aliases_at_any_depth() -> None:
    made = model(
        [cache("c"), cache("d")],
        [node("outer", ["c"], ["y"], domain="local"), node("plain", ["d"], ["z"], domain="local")],
        [],
    )
    for name, body in (
        ("outer", node("inner", ["x"], ["y"], domain="local")),
        ("inner", update("x", "v", "p", "y")),
        ("plain", node("Neg", ["x"], ["y"])),
    ):
        function = made.functions.add(domain="local", name=name)
        function.input.append("x")
        function.output.append("y")
        function.node.append(body)
    decoded = decode(made)
    classes = analyze(decoded.graph, decoded.functions)
    assert (classes.opaque, classes.unjudged) == ((0,), frozenset({"c"}))


NAMES = st.sampled_from(["", "a", "b", "c", "d", "e", "f"])


@st.composite
def tangled_models(draw: st.DrawFn) -> ModelProto:
    """Nodes that alias anything to anything: cycles, repeated outputs, indices out of range."""
    nodes = []
    for _ in range(draw(st.integers(0, 8))):
        made = node(
            draw(st.sampled_from(["Identity", "CacheUpdate", "Other"])),
            draw(st.lists(NAMES, max_size=3)),
            draw(st.lists(NAMES, max_size=2)),
            domain=draw(st.sampled_from(["", "onnx.mutable_cache"])),
        )
        for _ in range(draw(st.integers(0, 2))):
            aliased(made, draw(st.integers(-1, 2)), draw(st.integers(-1, 3)))
        nodes.append(made)
    names = draw(st.lists(NAMES, max_size=3))
    return model([cache(name, mutable=draw(st.booleans())) for name in names], nodes, [])


@given(tangled_models())
def test_every_name_has_a_root_that_is_its_own_root(made: ModelProto) -> None:
    graph = decode(made).graph
    classes = analyze(graph)
    assert "" not in classes.root_of
    assert_consistent(classes)
    for link in classes.links.values():
        assert classes.root_of[link.source] == classes.root_of[link.output]


def assert_consistent(classes: AliasClasses) -> None:
    for root in classes.root_of.values():
        assert classes.root_of[root] == root
    members = [name for names in classes.members.values() for name in names]
    assert sorted(members) == sorted(classes.root_of)
    assert all(names[0] == root for root, names in classes.members.items())
    assert set(classes.version_of) == set(classes.root_of)
    assert set(classes.mutations) <= set(classes.members)


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=20))
def test_classes_are_what_joining_the_ends_of_every_link_gives(links: list[tuple[int, bool]]) -> None:
    """Node i returns ``n{i}``, the storage of an earlier name or of one of three inputs, and perhaps mutates it."""
    names = ["i0", "i1", "i2"]
    nodes, parents = [], {}
    for index, (choice, mutates) in enumerate(links):
        source = names[choice % len(names)]
        nodes.append(update(source, "v", "p", f"n{index}") if mutates else identity(source, f"n{index}"))
        parents[f"n{index}"] = source
        names.append(f"n{index}")
    classes = analyze(graph_of(nodes, *(cache(name) for name in names[:3])))

    def root(name: str) -> str:
        return root(parents[name]) if name in parents else name

    assert classes.root_of == {name: root(name) for name in names}
    assert_consistent(classes)
