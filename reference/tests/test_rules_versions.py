"""MC-ALIAS-010, 011, 012 and 014: who may mutate a class, and what is stale afterwards."""

from __future__ import annotations

import re

import pytest

from mutcache.check import diagnose
from mutcache.diagnostics import Diagnostic
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update

FLOAT = TensorProto.FLOAT


def value(name: str, *, mutable: bool = False, alias_of: str = "") -> ValueInfoProto:
    return tensor(name, FLOAT, [8, 4], mutable=mutable, alias_of=alias_of)


def graph(nodes: list[NodeProto], *outputs: ValueInfoProto, mutable: bool = True) -> ModelProto:
    """``nodes`` between the cache ``c``, rows ``r``, position ``p``, and ``outputs``."""
    inputs = [value("c", mutable=mutable), tensor("r", FLOAT, [2, 4]), tensor("p", TensorProto.INT64, [])]
    return model(inputs, nodes, outputs)


def errors(made: ModelProto) -> list[Diagnostic]:
    return [finding for finding in diagnose(made) if finding.is_error]


def requirements(made: ModelProto) -> list[Req | None]:
    return [finding.requirement for finding in errors(made)]


def updated(source: str, output: str) -> NodeProto:
    return update(source, "r", "p", output)


def passed(source: str, output: str) -> NodeProto:
    return aliased(node("Identity", [source], [output]))


U = value("u", alias_of="c")
W = value("w", alias_of="c")


def test_mc_alias_010_accepts_a_read_write_input_and_nothing_else() -> None:
    assert requirements(graph([updated("c", "u")], U)) == []
    assert requirements(graph([updated("c", "u")], U, mutable=False)) == [Req.MC_ALIAS_010]


def test_mc_alias_010_names_what_the_root_is() -> None:
    made = graph([updated("c", "u")], value("u"))
    del made.graph.input[0]
    made.graph.initializer.append(initializer("c", FLOAT, [8, 4], bytes(128)))
    (finding,) = errors(made)
    assert (finding.requirement, finding.where.value) == (Req.MC_ALIAS_010, "c")
    assert "an initializer" in finding.message

    made = graph([node("Neg", ["c"], ["n"]), updated("n", "u")], value("u"), mutable=False)
    (finding,) = errors(made)
    assert (finding.requirement, finding.where.value) == (Req.MC_ALIAS_010, "n")
    assert "intermediate value, made by node Neg (#0)" in finding.message


def test_mc_alias_010_accepts_a_read_only_input_that_is_passed_on_unmutated() -> None:
    assert requirements(graph([passed("c", "u")], U, mutable=False)) == []


def test_mc_alias_011_accepts_a_read_that_stands_earlier() -> None:
    assert requirements(graph([node("Neg", ["c"], ["n"]), updated("c", "u")], U, value("n"))) == []


def test_mc_alias_011_says_that_a_re_sort_mends_an_independent_read() -> None:
    (finding,) = errors(graph([updated("c", "u"), node("Neg", ["c"], ["n"])], U, value("n")))
    assert (finding.requirement, finding.where.value) == (Req.MC_ALIAS_011, "c")
    assert "node Neg (#1) reads 'c' after node CacheUpdate (#0)" in finding.message
    assert "mutcache sort" in finding.hint


def test_mc_alias_011_says_that_no_order_mends_a_read_that_needs_the_mutation() -> None:
    nodes = [updated("c", "u"), node("Neg", ["u"], ["n"]), node("Add", ["c", "n"], ["s"])]
    (finding,) = errors(graph(nodes, U, value("s")))
    assert finding.requirement is Req.MC_ALIAS_011
    assert "no order" in finding.hint
    assert "CacheUpdate (#0) -> Neg (#1) -> Add (#2)" in finding.hint
    assert "read 'u' instead" in finding.hint


def test_mc_alias_011_counts_reads_that_must_precede_other_mutations() -> None:
    """Each of two readers alone could move; together they wait for each other."""
    nodes = [
        updated("c", "u"),
        updated("d", "w"),
        node("Add", ["c", "w"], ["x"]),
        node("Add", ["d", "u"], ["y"]),
    ]
    made = graph(nodes, U, value("w", alias_of="d"), value("x"), value("y"))
    made.graph.input.append(value("d", mutable=True))
    found = errors(made)
    assert [finding.requirement for finding in found] == [Req.MC_ALIAS_011] * 2
    assert all("no order" in finding.hint for finding in found)


def test_mc_alias_011_rejects_a_stale_graph_output() -> None:
    (finding,) = errors(graph([updated("c", "u"), updated("u", "w")], U, W))
    assert (finding.requirement, finding.where.value) == (Req.MC_ALIAS_011, "u")
    assert "return 'w' instead" in finding.hint
    assert requirements(graph([updated("c", "u")], U, value("c"))) == [Req.MC_ALIAS_011]


@pytest.mark.parametrize("op_type", ["Shape", "Size"])
def test_mc_alias_011_exempts_operators_that_read_no_content(op_type: str) -> None:
    made = graph([updated("c", "u"), node(op_type, ["c"], ["s"])], U)
    made.graph.output.append(tensor("s", TensorProto.INT64, [2] if op_type == "Shape" else []))
    assert requirements(made) == []
    made.graph.node[1].domain = "vendor"
    made.opset_import.add(domain="vendor", version=1)
    assert requirements(made) == [Req.MC_ALIAS_011]


def test_mc_alias_011_rejects_a_stale_name_that_a_subgraph_captures() -> None:
    branch = node("If", ["k"], ["y"])
    for attribute in ("then_branch", "else_branch"):
        body = branch.attribute.add(name=attribute, type=5).g
        body.name = attribute
        body.node.append(node("Neg", ["c"], [attribute]))
        body.output.append(value(attribute))
    made = graph([branch, updated("c", "u")], U, value("y"))
    made.graph.input.append(tensor("k", TensorProto.BOOL, []))
    assert requirements(made) == []
    made.graph.node.append(made.graph.node[0])
    del made.graph.node[0]
    assert requirements(made) == [Req.MC_ALIAS_011]


def test_a_pass_through_is_the_same_version() -> None:
    nodes = [passed("c", "same"), node("Neg", ["c"], ["n"]), updated("same", "u")]
    assert requirements(graph(nodes, U, value("n"))) == []
    late = [passed("c", "same"), updated("same", "u"), node("Neg", ["c"], ["n"])]
    assert requirements(graph(late, U, value("n"))) == [Req.MC_ALIAS_011]


def test_a_stale_pass_through_is_one_finding_whoever_reads_it() -> None:
    nodes = [updated("c", "u"), passed("c", "late"), node("Neg", ["late"], ["n"])]
    (finding,) = errors(graph(nodes, U, value("n")))
    assert (finding.requirement, finding.where.node) == (Req.MC_ALIAS_011, "Identity (#1)")


def test_mc_alias_012_rejects_two_mutations_of_one_version() -> None:
    assert requirements(graph([updated("c", "u"), updated("u", "w")], W)) == []
    (finding,) = errors(graph([updated("c", "u"), updated("c", "w")], U, W))
    assert finding.requirement is Req.MC_ALIAS_012
    assert re.search(r"CacheUpdate \(#0\) and CacheUpdate \(#1\) both mutate .* 'c'", finding.message)


def test_mc_alias_012_sees_through_pass_throughs() -> None:
    nodes = [passed("c", "a"), passed("c", "b"), updated("a", "u"), updated("b", "w")]
    assert requirements(graph(nodes, U, W)) == [Req.MC_ALIAS_012]


@pytest.mark.parametrize("older", ["c", "u"])
def test_mc_alias_014_rejects_the_cache_among_the_other_operands(older: str) -> None:
    wide = [updated("c", "u"), update("u", "r", "p", "w")]
    assert requirements(graph(wide, W)) == []
    wide[1].input[1] = older
    assert requirements(graph(wide, W)) == [Req.MC_ALIAS_014]
