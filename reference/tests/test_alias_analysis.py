"""Alias classes: roots, versions, uses; on sound graphs and on any other."""

from __future__ import annotations

import flow_models as flow
import hypothesis.strategies as st
from hypothesis import given

from mutcache.alias import INITIAL, AliasClasses, Storage, alias_classes, analyze
from mutcache.decode import decode
from mutcache.model import Graph
from mutcache.proto.onnx_ml import FunctionProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.scopes import captures, find_uses
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
    assert classes.mutable_roots() == ("a", "b")


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


# Scopes.

U = flow.value("u", alias_of="c")


def scopes_of(made: ModelProto) -> AliasClasses:
    return alias_classes(made).main


def test_a_branch_sees_the_class_that_it_captures_under_the_captured_name() -> None:
    then = flow.body([flow.updated("same", "t")], flow.value("t", alias_of="c"))
    other = flow.body([flow.passed("c", "t")], flow.value("t", alias_of="c"))
    main = scopes_of(flow.graph([flow.passed("c", "same"), flow.branch(["u"], then, other)], U))
    assert main.root_of == {"c": "c", "same": "c", "u": "c"}
    assert main.version_of == {"c": INITIAL, "same": INITIAL, "u": 1}
    assert main.mutations == {"c": (1,)}
    assert main.constructs == (1,)
    written, kept = main.inner[1]["then_branch"], main.inner[1]["else_branch"]
    assert (written.outer, written.holder, written.origins) == (main, 1, {"same": "same"})
    assert (written.root_of, written.mutations) == ({"same": "same", "t": "same"}, {"same": (0,)})
    assert (kept.root_of, kept.mutations) == ({"c": "c", "t": "c"}, {})
    assert written.storage("t") == kept.storage("t") == main.storage("u") == Storage(main, "c")


def test_captured_names_of_one_class_are_one_class_inside_too() -> None:
    then = flow.body(
        [flow.negated("same", "n"), flow.passed("same", "a"), flow.updated("c", "t")], flow.value("t", alias_of="c")
    )
    other = flow.body([flow.passed("c", "t")], flow.value("t", alias_of="c"))
    main = scopes_of(flow.graph([flow.passed("c", "same"), flow.branch(["u"], then, other)], U))
    branch = main.inner[1]["then_branch"]
    assert set(branch.root_of) == {"c", "same", "a", "t"}
    assert len(set(branch.root_of.values())) == 1
    assert branch.base_of == {"c": "c", "same": "same", "a": "same", "t": "c"}


def test_the_formal_of_a_carried_slot_is_a_root_that_comes_from_the_initial_value() -> None:
    made = flow.loop(
        ["c", "x"],
        ["u", "w"],
        [flow.updated("c_in", "t"), flow.negated("x_in", "n")],
        flow.value("t", alias_of="c_in"),
        flow.value("n"),
        formals=[flow.value("c_in", mutable=True), flow.value("x_in")],
    )
    main = scopes_of(flow.graph([made], U, flow.value("w")))
    body = main.inner[0]["body"]
    assert (main.root_of, main.mutations) == ({"c": "c", "u": "c"}, {"c": (0,)})
    assert (body.root_of, body.origins) == ({"c_in": "c_in", "t": "c_in"}, {"c_in": "c"})
    assert body.storage("t") == Storage(main, "c")


def test_a_formal_may_have_the_name_of_another_storage_outside() -> None:
    made = flow.loop(
        ["d"], ["u"], [flow.updated("c", "t")], flow.value("t", alias_of="c"), formals=[flow.value("c", mutable=True)]
    )
    main = scopes_of(flow.graph([made], flow.value("u", alias_of="d"), caches=("c", "d")))
    assert main.members == {"c": ("c",), "d": ("d", "u")}
    assert main.inner[0]["body"].storage("c") == Storage(main, "d")


def test_a_function_is_analyzed_once_with_its_formals_as_roots() -> None:
    step = flow.function("step", ["a", "r", "p"], ["b"], [flow.updated("a", "b")], flow.value("a", mutable=True))
    twice = flow.function(
        "twice",
        ["a", "r", "p"],
        ["b"],
        [flow.call("step", ["a", "r", "p"], ["t"]), flow.call("step", ["t", "r", "p"], ["b"])],
    )
    plain = flow.function("plain", ["a"], ["b"], [flow.negated("a", "b")])
    nodes = [flow.call("plain", ["c"], ["n"]), flow.call("twice", ["c", "r", "p"], ["u"])]
    aliases = alias_classes(flow.graph(nodes, U, functions=[plain, twice, step]))
    assert set(aliases.functions) == {("local", "step", ""), ("local", "twice", "")}
    assert aliases.called == set(aliases.functions)
    body = aliases.functions["local", "twice", ""]
    assert (body.root_of, body.mutations) == ({"a": "a", "t": "a", "b": "a"}, {"a": (0, 1)})
    assert aliases.main.root_of == {"c": "c", "u": "c"}
    assert aliases.main.calls == {1: ("local", "twice", "")}
    assert aliases.main.constructs == (1,)
    assert [scope.graph.path for scope in aliases.walk()] == ["main", "local::step", "local::twice"]


def test_nodes_need_not_be_in_order() -> None:
    def chosen(source: str, output: str) -> NodeProto:
        sides = [flow.body([made(source, "t")], flow.value("t")) for made in (flow.updated, flow.passed)]
        return flow.branch([output], *sides)

    nodes = [chosen("b", "u"), flow.passed("a2", "b"), flow.passed("a", "a2"), chosen("c", "a")]
    main = scopes_of(flow.graph(nodes, U))
    assert main.root_of == dict.fromkeys(("c", "a", "a2", "b", "u"), "c")
    assert main.version_of == {"c": INITIAL, "a": 3, "a2": 3, "b": 3, "u": 0}
    assert main.inner[0]["then_branch"].storage("t") == Storage(main, "c")


def test_constructs_that_need_each_other_are_cut() -> None:
    sides = [[flow.body([flow.passed(source, "t")], flow.value("t")) for _ in range(2)] for source in ("b", "a")]
    nodes = [flow.branch(["a"], *sides[0]), flow.branch(["b"], *sides[1]), flow.passed("b", "u")]
    for scope in alias_classes(flow.graph(nodes, U)).walk():
        assert_consistent(scope)


def test_a_subgraph_without_aliases_has_no_scope() -> None:
    plain = flow.branch(["y"], *(flow.body([flow.negated("c", "t")], flow.value("t")) for _ in range(2)))
    main = scopes_of(flow.graph([plain], flow.value("y")))
    assert (main.inner, main.root_of) == ({}, {"c": "c"})


def test_functions_that_call_each_other_are_cut() -> None:
    def calling(name: str, other: str) -> FunctionProto:
        nodes = [flow.call(other, ["a", "r", "p"], ["t"]), flow.updated("t", "b")]
        return flow.function(name, ["a", "r", "p"], ["b"], nodes)

    aliases = alias_classes(
        flow.graph(
            [flow.call("ping", ["c", "r", "p"], ["u"])], U, functions=[calling("ping", "pong"), calling("pong", "ping")]
        )
    )
    assert len(aliases.functions) == 2
    for scope in aliases.walk():
        assert_consistent(scope)


def test_capturing_only_a_shape_is_no_use_of_contents() -> None:
    side = flow.body([node("Shape", ["c"], ["n"]), flow.negated("d", "t")], flow.value("t"))
    holder = decode(flow.graph([flow.branch(["y"], side, side)], flow.value("y"), caches=("c", "d"))).graph.nodes[0]
    assert captures(holder) == {"c", "d"}
    assert captures(holder, contents=True) == {"d"}


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
