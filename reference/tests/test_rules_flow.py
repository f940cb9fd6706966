"""MC-FLOW-001 to 007 and 009, and the other rules inside branches, loops and functions: violations and valid twins."""

from __future__ import annotations

import pytest
from flow_models import (
    FLOAT,
    body,
    branch,
    call,
    function,
    graph,
    holding,
    loop,
    negated,
    passed,
    scan,
    updated,
    value,
)

from mutcache.check import diagnose
from mutcache.diagnostics import Diagnostic
from mutcache.proto.onnx_ml import GraphProto, ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, initializer, node, tensor, update

U = value("u", alias_of="c")
ALL = tensor("all", FLOAT, [None, 8, 4])


def errors(made: ModelProto) -> list[Diagnostic]:
    return [finding for finding in diagnose(made) if finding.is_error]


def requirements(made: ModelProto) -> list[Req | None]:
    return [finding.requirement for finding in errors(made)]


def only(made: ModelProto) -> Diagnostic:
    (finding,) = errors(made)
    return finding


def writes(source: str = "c", output: str = "t", alias_of: str = "c") -> GraphProto:
    return body([updated(source, output)], value(output, alias_of=alias_of))


def keeps(source: str = "c", output: str = "t", alias_of: str = "c") -> GraphProto:
    return body([passed(source, output)], value(output, alias_of=alias_of))


def makes(output: str = "t") -> GraphProto:
    return body([negated("x", output)], value(output))


# Branches.


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


# Loops.

C_IN = value("c_in", mutable=True)
T = value("t", alias_of="c_in")


def looped(*nodes: NodeProto, results: tuple[ValueInfoProto, ...] = (T,), formals: tuple[ValueInfoProto, ...] = (C_IN,),
           initial: tuple[str, ...] = ("c",), outputs: tuple[str, ...] = ("u",)) -> NodeProto:  # fmt: skip
    return loop(initial, outputs, nodes, *results, formals=formals)


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


# Functions.

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
