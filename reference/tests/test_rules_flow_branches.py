"""The rules in and around branches, and names across scopes: violations and valid twins."""

from __future__ import annotations

import pytest
from flow_findings import U, keeps, makes, only, requirements, writes
from flow_models import (
    body,
    branch,
    graph,
    negated,
    passed,
    updated,
    value,
)

from mutcache.proto.onnx_ml import GraphProto, ModelProto, NodeProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, node, tensor, update


@pytest.mark.parametrize(
    ("then", "otherwise"),
    [(writes(), keeps()), (keeps(), writes()), (writes(), writes()), (keeps(), keeps())],
    ids=["then", "else", "both", "neither"],
)
def test_an_if_updates_or_passes_on_what_its_branches_capture(then: GraphProto, otherwise: GraphProto) -> None:
    chosen = branch(["y"], then, otherwise)
    assert requirements(graph([chosen, updated("y", "u")], U)) == []
    assert requirements(graph([chosen], value("y", alias_of="c"))) == []


def test_an_if_may_return_values_of_its_own_beside_a_cache() -> None:
    then = body([updated("c", "t"), negated("t", "n")], value("n"), value("t", alias_of="c"))
    otherwise = body([negated("c", "n"), passed("c", "t")], value("n"), value("t", alias_of="c"))
    made = graph([branch(["v", "u"], then, otherwise)], value("v"), U)
    assert requirements(made) == []


def test_a_read_of_a_cache_in_branches_stands_before_the_update() -> None:
    chosen = branch(["y"], body([negated("c", "t")], value("t")), makes())
    assert requirements(graph([chosen, updated("c", "u")], U, value("y"))) == []
    finding = only(graph([updated("c", "u"), chosen], U, value("y")))
    assert (finding.requirement, finding.where.node) == (Req.MC_ALIAS_011, "If (#1)")
    assert "mutcache sort" in finding.hint


def test_mc_flow_001_rejects_an_output_of_two_roots() -> None:
    def made(other: str) -> ModelProto:
        otherwise = keeps(other, alias_of=other)
        return graph([branch(["y"], keeps(), otherwise)], value("y", alias_of="c"), caches=("c", "d"))

    assert requirements(made("c")) == []
    finding = only(made("d"))
    assert finding.requirement is Req.MC_FLOW_001
    assert "then_branch returns 'c', else_branch returns 'd'" in finding.message


def test_mc_flow_001_knows_names_of_one_version() -> None:
    for source in ("c", "same"):
        chosen = branch(["y"], writes("same", alias_of="c"), keeps(source))
        assert requirements(graph([passed("c", "same"), chosen], value("y", alias_of="c"))) == []


def test_mc_flow_002_rejects_a_branch_that_makes_a_value_of_its_own() -> None:
    for then in (writes(), keeps()):
        finding = only(graph([branch(["y"], then, makes())], value("y", alias_of="c")))
        assert (finding.requirement, finding.where.value) == (Req.MC_FLOW_002, "y")
        assert "else_branch" in finding.message
    assert requirements(graph([branch(["y"], makes(), makes())], value("y"))) == []


def test_mc_flow_002_lets_a_branch_alias_what_it_made_itself() -> None:
    inner = body([negated("x", "t"), passed("t", "t2")], value("t2"))
    assert requirements(graph([branch(["y"], inner, makes("t2"))], value("y"))) == []


def test_mc_flow_003_rejects_a_copy_of_what_the_other_branch_mutates() -> None:
    copies = body([node("Identity", ["c"], ["t"])], value("t"))
    finding = only(graph([branch(["y"], writes(), copies)], value("y", alias_of="c")))
    assert finding.requirement is Req.MC_FLOW_003
    assert "else_branch of If (#0) does not modify 'c'" in finding.message
    own = body([updated("c", "w"), node("Identity", ["w"], ["t"])], value("t"))
    assert requirements(graph([branch(["y"], own, keeps())], value("y", alias_of="c"))) == [Req.MC_FLOW_002]
    assert requirements(graph([branch(["y"], keeps(), copies)], value("y", alias_of="c"))) == [Req.MC_FLOW_002]


def test_mc_flow_009_rejects_a_branch_that_keeps_what_it_mutates() -> None:
    then = body([updated("c", "t"), negated("x", "n")], value("n"))
    finding = only(graph([branch(["y"], then, makes("n")), negated("c", "z")], value("y"), value("z")))
    assert (finding.requirement, finding.where.value) == (Req.MC_FLOW_009, "c")


def test_mc_flow_009_rejects_an_if_that_omits_the_output() -> None:
    then = body([updated("c", "t"), negated("x", "n")], value("n"), value("t", alias_of="c"))
    otherwise = body([passed("c", "t"), negated("x", "n")], value("n"), value("t", alias_of="c"))
    assert requirements(graph([branch(["y", "u"], then, otherwise)], value("y"), U)) == []
    finding = only(graph([branch(["y", ""], then, otherwise)], value("y")))
    assert finding.requirement is Req.MC_FLOW_009


def test_a_branch_reads_before_it_writes() -> None:
    def made(*nodes: NodeProto) -> ModelProto:
        then = body(nodes, value("t", alias_of="c"), value("n"))
        otherwise = body([passed("c", "t"), negated("c", "n")], value("t", alias_of="c"), value("n"))
        return graph([branch(["u", "y"], then, otherwise)], U, value("y"))

    assert requirements(made(negated("c", "n"), updated("c", "t"))) == []
    finding = only(made(updated("c", "t"), negated("c", "n")))
    assert (finding.requirement, finding.where.graph) == (Req.MC_ALIAS_011, "main/If_0.then_branch")


def test_a_branch_returns_the_version_that_it_leaves_behind() -> None:
    then = body([passed("c", "a"), updated("a", "t")], value("a", alias_of="c"))
    finding = only(graph([branch(["u"], then, keeps())], U))
    assert (finding.requirement, finding.where.value) == (Req.MC_ALIAS_011, "a")
    assert "return 't' instead" in finding.hint


def test_what_one_branch_mutates_is_stale_after_the_if() -> None:
    chosen = branch(["u"], writes(), keeps())
    assert requirements(graph([negated("c", "n"), chosen], U, value("n"))) == []
    assert requirements(graph([chosen, negated("c", "n")], U, value("n"))) == [Req.MC_ALIAS_011]
    assert requirements(graph([chosen, negated("u", "n")], U, value("n"))) == []
    assert requirements(graph([chosen, updated("c", "w")], U, value("w", alias_of="c"))) == [Req.MC_ALIAS_012]


def test_an_if_mutates_no_cache_that_no_caller_lends() -> None:
    assert requirements(graph([branch(["u"], writes(), keeps())], U)) == []
    made = graph([branch(["u"], writes(), keeps())], U)
    made.graph.input[0].ClearField("access")
    finding = only(made)
    assert (finding.requirement, finding.where.graph) == (Req.MC_ALIAS_010, "main/If_0.then_branch")
    assert requirements(graph([branch(["u"], keeps(), keeps())], U)) == []


def test_mc_alias_014_counts_what_branches_capture_as_one_operand() -> None:
    condition = tensor("c", 9, [1], mutable=True)
    rows = tensor("b", 9, [1])
    one = update("c", "b", "p", "t", {"axis": 0})

    def made(test: str) -> ModelProto:
        then = body([one], tensor("t", 9, [1], alias_of="c"))
        otherwise = body([passed("c", "t")], tensor("t", 9, [1], alias_of="c"))
        chosen = branch(["u"], then, otherwise)
        chosen.input[0] = test
        result = graph([chosen], tensor("u", 9, [1], alias_of="c"), caches=())
        result.graph.input.extend([condition, rows])
        return result

    assert requirements(made("k")) == []
    assert requirements(made("c")) == [Req.MC_ALIAS_014]


def test_mc_alias_015_rejects_entries_of_an_if() -> None:
    chosen = branch(["u"], writes(), keeps())
    assert requirements(graph([aliased(chosen)], U)) == [Req.MC_ALIAS_015]


def test_siblings_may_use_the_same_names() -> None:
    nodes = [branch(["y"], writes(), keeps()), branch(["u"], keeps("y"), writes("y"))]
    assert requirements(graph(nodes, U)) == []


def test_branches_nest() -> None:
    inner = branch(["t"], writes("c", "t0"), keeps("c", "t0"))
    then = body([inner], value("t", alias_of="c"))
    assert requirements(graph([branch(["u"], then, keeps())], U)) == []
    stale = body([inner, negated("c", "n")], value("t", alias_of="c"))
    finding = only(graph([branch(["u"], stale, keeps())], U))
    assert (finding.requirement, finding.where.graph) == (Req.MC_ALIAS_011, "main/If_0.then_branch")


# Names.


def test_mc_alias_005_accepts_every_earlier_name_of_any_scope() -> None:
    for name in ("c", "same", "first"):
        nodes = [
            passed("c", "same"),
            updated("same", "first"),
            branch(["u"], writes("first", alias_of=name), keeps("first")),
        ]
        assert requirements(graph(nodes, U)) == []
    nodes = [branch(["u"], keeps(alias_of="late"), keeps()), passed("c", "late")]
    finding = only(graph(nodes, U))
    assert (finding.requirement, finding.where.value) == (Req.MC_ALIAS_005, "t")
    assert "no earlier" in finding.message


def test_mc_alias_005_in_a_branch_sees_other_caches() -> None:
    made = graph([branch(["u"], writes(alias_of="d"), keeps())], U, caches=("c", "d"))
    assert requirements(made) == [Req.MC_ALIAS_005]


def test_mc_alias_006_does_not_see_into_a_sibling() -> None:
    hidden = body([passed("c", "other"), updated("other", "t")], value("t", alias_of="other"))
    assert requirements(graph([branch(["u"], hidden, keeps())], U)) == []
    made = graph([branch(["u"], hidden, keeps(alias_of="other"))], U)
    finding = only(made)
    assert (finding.requirement, finding.where.graph) == (Req.MC_ALIAS_006, "main/If_0.else_branch")


def test_mc_alias_007_follows_a_cycle_out_of_a_branch() -> None:
    finding = only(graph([branch(["u"], writes(alias_of="u"), keeps())], U))
    assert finding.requirement is Req.MC_ALIAS_007
    assert "'u' -> 't' in main/If_0.then_branch -> 'u'" in finding.message


def test_mc_alias_008_in_a_branch() -> None:
    plain = body([negated("c", "t")], value("t", alias_of="c"))
    finding = only(graph([branch(["y"], plain, makes())], value("y")))
    assert (finding.requirement, finding.where.graph) == (Req.MC_ALIAS_008, "main/If_0.then_branch")


def test_mc_alias_009_asks_subgraph_outputs_too() -> None:
    finding = only(graph([branch(["u"], writes(alias_of=""), keeps())], U))
    assert (finding.requirement, finding.where.graph) == (Req.MC_ALIAS_009, "main/If_0.then_branch")
