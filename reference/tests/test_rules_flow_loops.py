"""The rules in and around loops and scans: violations and valid twins."""

from __future__ import annotations

from flow_findings import ALL, C_IN, T, U, keeps, looped, makes, only, requirements, writes
from flow_models import (
    FLOAT,
    body,
    branch,
    graph,
    holding,
    negated,
    passed,
    scan,
    updated,
    value,
)

from mutcache.proto.onnx_ml import GraphProto, ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, initializer, node, tensor


def test_a_loop_carries_a_cache() -> None:
    for name in ("c_in", "c"):
        carried = looped(updated("c_in", "t"), results=(value("t", alias_of=name),))
        assert requirements(graph([carried, negated("u", "n")], U, value("n"))) == []
    assert requirements(graph([looped(passed("c_in", "t"))], U)) == []
    assert requirements(graph([looped(updated("c_in", "t")), negated("c", "n")], U, value("n"))) == [Req.MC_ALIAS_011]


def test_a_read_write_formal_under_its_own_name_passes_the_storage_on() -> None:
    own = looped(results=(value("c_in"),))
    assert requirements(graph([own, updated("u", "w")], value("w", alias_of="c"))) == []
    assert requirements(graph([own], U)) == []
    assert requirements(graph([own], value("u"))) == [Req.MC_ALIAS_009]


def test_a_read_only_formal_under_its_own_name_is_a_value() -> None:
    own = looped(results=(value("c_in"),), formals=(value("c_in"),))
    late = [own, updated("c", "w"), negated("u", "n")]
    assert requirements(graph(late, value("n"), value("w", alias_of="c"))) == []
    assert requirements(graph([own, updated("u", "w")], value("w"))) == [Req.MC_ALIAS_010]


def test_a_loop_that_starts_from_a_cache_need_not_carry_it() -> None:
    plain = looped(node("Add", ["c_in", "c"], ["t"]), results=(value("t"),), formals=(value("c_in"),))
    assert requirements(graph([plain, updated("c", "w")], value("u"), value("w", alias_of="c"))) == []


def test_mc_flow_004_rejects_a_slot_that_does_not_return_what_it_mutates() -> None:
    lost = looped(updated("c_in", "t"), negated("t", "n"), results=(value("n"),))
    finding = only(graph([lost], value("u")))
    assert (finding.requirement, finding.where.graph, finding.where.value) == (
        Req.MC_FLOW_004,
        "main/Loop_0.body",
        "n",
    )
    assert requirements(graph([lost], U)) == [Req.MC_FLOW_004]


def test_mc_flow_004_rejects_slots_that_change_places() -> None:
    def made(first: str, second: str) -> ModelProto:
        carried = looped(
            passed(first, "t"),
            passed(second, "s2"),
            results=(value("t", alias_of=first), value("s2", alias_of=second)),
            formals=(C_IN, value("d_in", mutable=True)),
            initial=("c", "d"),
            outputs=("u", "w"),
        )
        return graph([carried], value("u"), value("w"), caches=("c", "d"))

    straight = made("c_in", "d_in")
    straight.graph.output[0].alias_of, straight.graph.output[1].alias_of = "c", "d"
    assert requirements(straight) == []
    found = requirements(made("d_in", "c_in"))
    assert found.count(Req.MC_FLOW_004) == 2


def test_mc_flow_004_rejects_a_slot_that_returns_what_it_captures() -> None:
    captured = looped(passed("d", "t"), results=(value("t", alias_of="d"),), formals=(value("c_in"),))
    assert requirements(graph([captured], value("u"), caches=("c", "d"))) == [Req.MC_FLOW_004]


def test_scan_outputs_and_conditions_are_read() -> None:
    carried = looped(updated("c_in", "t"), results=(T, value("t")), outputs=("u", "all"))
    collected = tensor("all", FLOAT, [None, 8, 4])
    assert requirements(graph([carried], U, collected)) == []
    stale = looped(updated("c_in", "t"), results=(T, value("c_in")), outputs=("u", "all"))
    assert requirements(graph([stale], U, collected)) == [Req.MC_ALIAS_011]


def test_mc_flow_005_rejects_scan_outputs_that_alias() -> None:
    carried = looped(updated("c_in", "t"), results=(T, T), outputs=("u", "all"))
    collected = tensor("all", FLOAT, [None, 8, 4])
    assert requirements(graph([carried], U, collected)) == []
    collected.alias_of = "c"
    assert requirements(graph([carried], U, collected)) == [Req.MC_FLOW_005]
    collected.alias_of = ""
    assert requirements(graph([aliased(carried, 1, 2)], U, collected)) == [Req.MC_FLOW_005]


def test_mc_flow_005_holds_states_of_a_scan_to_the_same() -> None:
    kept = scan(["c"], ["u"], [updated("c_in", "t")], T, formals=[C_IN])
    assert requirements(graph([kept], U)) == []
    lost = scan(["c"], ["u"], [updated("c_in", "t"), negated("t", "n")], value("n"), formals=[C_IN])
    assert requirements(graph([lost], value("u"))) == [Req.MC_FLOW_005]


def test_mc_flow_006_rejects_the_mutation_of_a_capture() -> None:
    captured = looped(
        updated("c", "t2"), negated("c_in", "t"), results=(value("t"),), formals=(value("c_in"),), initial=("x",)
    )
    finding = only(graph([captured], value("u")))
    assert (finding.requirement, finding.where.value) == (Req.MC_FLOW_006, "c")


def test_mc_flow_006_looks_through_branches() -> None:
    inside = branch(["b"], writes(), keeps())
    captured = looped(inside, negated("c_in", "t"), results=(value("t"),), formals=(value("c_in"),), initial=("x",))
    assert requirements(graph([captured], value("u"))) == [Req.MC_FLOW_006]
    allowed = branch(["b"], writes("c_in", alias_of="c_in"), keeps("c_in", alias_of="c_in"))
    carried = looped(allowed, passed("b", "t"))
    assert requirements(graph([carried], U)) == []


def test_mc_flow_006_rejects_the_capture_of_what_is_carried() -> None:
    def made(reader: NodeProto) -> ModelProto:
        return graph([passed("c", "same"), looped(reader, updated("c_in", "t"))], U)

    assert requirements(made(negated("c_in", "n"))) == []
    assert requirements(made(negated("x", "n"))) == []
    assert requirements(made(node("Shape", ["c"], ["n"]))) == []
    for name in ("c", "same"):
        finding = only(made(negated(name, "n")))
        assert (finding.requirement, finding.where.value) == (Req.MC_FLOW_006, name)


def test_mc_flow_006_knows_nothing_of_other_operators_with_bodies() -> None:
    def made(inside: GraphProto) -> ModelProto:
        result = graph([holding(node("Repeat", [], ["y"], domain="vendor"), body=inside)], value("y"))
        result.opset_import.add(domain="vendor", version=1)
        return result

    assert requirements(made(body([negated("c", "t")], value("t")))) == []
    assert requirements(made(writes())) == [Req.MC_FLOW_006]


def test_mc_flow_009_wants_mutated_formals_read_write_and_their_outputs_named() -> None:
    silent = looped(updated("c_in", "t"), formals=(value("c_in"),))
    finding = only(graph([silent], U))
    assert (finding.requirement, finding.where.graph) == (Req.MC_FLOW_009, "main/Loop_0.body")
    omitted = looped(updated("c_in", "t"), results=(T, value("t")), outputs=("", "all"))
    assert requirements(graph([omitted], ALL)) == [Req.MC_FLOW_009]


def test_mc_alias_010_follows_a_formal_to_its_initial_value() -> None:
    carried = looped(updated("c_in", "t"), initial=("x",))
    assert requirements(graph([carried], value("u", alias_of="x"))) == [Req.MC_ALIAS_010]
    made = graph([negated("c", "n"), looped(updated("c_in", "t"), initial=("n",))], value("u"))
    assert requirements(made) == [Req.MC_ALIAS_010]


def test_mc_alias_010_has_no_storage_for_slices_and_counters() -> None:
    sliced = scan([], ["all"], [updated("slice", "t")], value("t"), formals=[])
    assert requirements(graph([sliced], ALL)) == [Req.MC_ALIAS_010]


def test_mc_alias_014_rejects_a_storage_in_two_slots() -> None:
    twice = looped(
        updated("c_in", "t"),
        negated("d_in", "n"),
        results=(T, value("n")),
        formals=(C_IN, value("d_in")),
        initial=("c", "c"),
        outputs=("u", "w"),
    )
    assert requirements(graph([twice], U, value("w"))) == [Req.MC_ALIAS_014]
    twice.input[3] = "x"
    assert requirements(graph([twice], U, value("w"))) == []


def test_mc_alias_014_rejects_a_scan_of_its_own_state() -> None:
    made = graph([scan(["c3"], ["u"], [passed("c_in", "t")], tensor("t", 1, [3, 8, 4], alias_of="c_in"),
                       formals=[tensor("c_in", 1, [3, 8, 4], mutable=True)])],
                 tensor("u", 1, [3, 8, 4], alias_of="c3"), caches=())  # fmt: skip
    made.graph.input.append(tensor("c3", 1, [3, 8, 4], mutable=True))
    writing = made.graph.node[0].attribute[1].g
    writing.node[0].CopyFrom(updated("c_in", "t"))
    writing.node[0].input[1] = "rows"
    made.graph.input.append(tensor("rows", 1, [3, 2, 4]))
    assert requirements(made) == []
    made.graph.node[0].input[1] = "c3"
    assert requirements(made) == [Req.MC_ALIAS_014]


def test_mc_alias_015_compares_entries_of_loops_with_their_bodies() -> None:
    carried = looped(updated("c_in", "t"))
    assert requirements(graph([aliased(carried, 0, 2)], U)) == []
    carried.output_alias[0].input_index = 0
    assert requirements(graph([carried], U)) == [Req.MC_ALIAS_015]
    plain = looped(negated("c_in", "t"), results=(value("t"),), formals=(value("c_in"),))
    assert requirements(graph([aliased(plain, 0, 2)], value("u"))) == [Req.MC_ALIAS_015]


def test_mc_access_001_in_bodies() -> None:
    passing = looped(passed("c_in", "t"), initial=("x",))
    assert requirements(graph([passing], value("u", alias_of="x"))) == [Req.MC_ACCESS_001]
    dropping = looped(negated("c_in", "t"), results=(value("t"),))
    finding = only(graph([dropping], value("u")))
    assert finding.requirement is Req.MC_ACCESS_001
    assert "from the second iteration on" in finding.message
    sliced = scan([], ["all"], [negated("slice", "t")], value("t"), formals=[])
    sliced.attribute[1].g.input[0].access = ValueInfoProto.READ_WRITE
    assert requirements(graph([sliced], ALL)) == [Req.MC_ACCESS_001]
    chosen = branch(["y"], makes(), makes())
    chosen.attribute[0].g.value_info.append(value("x", mutable=True))
    assert requirements(graph([chosen], value("y"))) == [Req.MC_ACCESS_001]


def test_mc_access_002_in_bodies() -> None:
    carried = looped(updated("c_in", "t"))
    carried.attribute[0].g.initializer.append(initializer("c_in", 1, [8, 4], bytes(128)))
    assert Req.MC_ACCESS_002 in requirements(graph([carried], U))
