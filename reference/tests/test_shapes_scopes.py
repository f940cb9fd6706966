"""MC-SHAPE through subgraphs and functions: one storage has one type wherever it goes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import hypothesis.strategies as st
import numpy as np
import pytest
from flow_models import body, branch, call, function, graph, loop, passed, scan, updated
from hypothesis import given, settings

from mutcache.alias import alias_classes
from mutcache.check import diagnose
from mutcache.decode import decode
from mutcache.diagnostics import Diagnostic, Severity
from mutcache.infer import infer_shapes
from mutcache.model import Dim, TensorType
from mutcache.proto.onnx_ml import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache.shapes import ShapesContext
from mutcache_conformance.cases.builder import initializer, node, tensor, update

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Dims = Sequence[Dim] | None


def typed(name: str, dims: Dims, dtype: int = FLOAT, *, mutable: bool = False, alias_of: str = "") -> ValueInfoProto:
    return tensor(name, dtype, dims, mutable=mutable, alias_of=alias_of)


def in_branch(dims: Dims, dtype: int = FLOAT) -> ModelProto:
    then = body([updated("c", "t")], typed("t", dims, dtype, alias_of="c"))
    otherwise = body([passed("c", "e")], typed("e", None, alias_of="c"))
    return graph([branch(["out"], then, otherwise)], typed("out", None, alias_of="c"))


def in_loop(dims: Dims, dtype: int = FLOAT) -> ModelProto:
    made = loop(
        ["c"],
        ["out"],
        [updated("v", "u")],
        typed("u", dims, dtype, alias_of="v"),
        formals=[typed("v", None, mutable=True)],
    )
    return graph([made], typed("out", None, alias_of="c"))


def in_scan(dims: Dims, dtype: int = FLOAT) -> ModelProto:
    made = scan(
        ["c"],
        ["out"],
        [updated("v", "u")],
        typed("u", dims, dtype, alias_of="v"),
        formals=[typed("v", None, mutable=True)],
    )
    return graph([made], typed("out", None, alias_of="c"))


def in_function(dims: Dims, dtype: int = FLOAT) -> ModelProto:
    write = function(
        "write",
        ["c", "r", "p"],
        ["u"],
        [updated("c", "u")],
        typed("c", None, mutable=True),
        typed("u", dims, dtype, alias_of="c"),
    )
    return graph([call("write", ["c", "r", "p"], ["out"])], typed("out", None, alias_of="c"), functions=[write])


def in_nested_function(dims: Dims, dtype: int = FLOAT) -> ModelProto:
    """A function called in a loop of a function."""
    write = in_function(dims, dtype).functions[0]
    inner = loop(
        ["c"],
        ["w"],
        [call("write", ["v", "r", "p"], ["u"])],
        typed("u", None, alias_of="v"),
        formals=[typed("v", None, mutable=True)],
    )
    outer = function(
        "outer",
        ["c", "r", "p", "m"],
        ["w"],
        [inner],
        typed("c", None, mutable=True),
        typed("w", None, alias_of="c"),
    )
    calls = [call("outer", ["c", "r", "p", "m"], ["out"])]
    return graph(calls, typed("out", None, alias_of="c"), functions=[write, outer])


CONSTRUCTS = {
    "branch": in_branch,
    "loop": in_loop,
    "scan": in_scan,
    "function": in_function,
    "nested": in_nested_function,
}
#: Where the update of each construct stands.
PLACES = {
    "branch": "main/If_0.then_branch",
    "loop": "main/Loop_0.body",
    "scan": "main/Scan_0.body",
    "function": "local::write",
    "nested": "local::write",
}
Make = Callable[..., ModelProto]
each_construct = pytest.mark.parametrize("kind", CONSTRUCTS)


def errors(made: ModelProto) -> list[Diagnostic]:
    return [finding for finding in diagnose(made) if finding.is_error]


@each_construct
@pytest.mark.parametrize("dims", [None, (8, 4), ("n", "w"), (None, 4), (8, None), (-1, 4)], ids=str)
def test_a_body_may_leave_open_what_the_storage_is(kind: str, dims: Dims) -> None:
    assert errors(CONSTRUCTS[kind](dims)) == []


@each_construct
@pytest.mark.parametrize(
    ("dims", "dtype", "requirement"),
    [
        ((8, 4), TensorProto.FLOAT16, Req.MC_SHAPE_001),
        ((8, 4, 1), FLOAT, Req.MC_SHAPE_002),
        ((9, 4), FLOAT, Req.MC_SHAPE_003),
    ],
)
def test_a_body_must_not_contradict_the_storage(kind: str, dims: Dims, dtype: int, requirement: Req) -> None:
    (finding,) = errors(CONSTRUCTS[kind](dims, dtype))
    assert finding.requirement is requirement
    assert "graph input of 'c' says FLOAT[8, 4]" in finding.message
    assert f"in {PLACES[kind]} says " in finding.message
    assert (finding.where.graph, finding.where.value) == (PLACES[kind], "t" if kind == "branch" else "u")
    assert "CacheUpdate" in finding.where.node


def set_capacity(made: ModelProto, dim: Dim) -> None:
    shape = made.graph.input[0].type.tensor_type.shape
    shape.dim[0].Clear()
    if isinstance(dim, int):
        shape.dim[0].dim_value = dim
    elif dim is not None:
        shape.dim[0].dim_param = dim


@each_construct
@pytest.mark.parametrize("capacity", ["n", None])
def test_what_only_a_body_says_holds_outside(kind: str, capacity: Dim) -> None:
    made = CONSTRUCTS[kind]((8, 4))
    set_capacity(made, capacity)
    decoded = decode(made)
    shapes = ShapesContext(decoded, alias_classes(decoded))
    assert errors(made) == []
    for name in ("c", "out"):
        assert shapes.type_of(name) == TensorType(FLOAT, (8, 4))


@each_construct
def test_stock_inference_learns_what_a_body_says(kind: str) -> None:
    made = CONSTRUCTS[kind]((8, 4))
    set_capacity(made, "n")
    made.graph.node.append(node("Neg", ["out"], ["negated"]))
    made.graph.output.append(tensor("negated", FLOAT, ("rows", 4)))
    assert errors(made) == []
    made.graph.output[-1].type.tensor_type.shape.dim[0].dim_value = 9
    # What a Scan declares inside, stock inference hands out by itself.
    stock_knows = kind == "scan"
    assert [finding.requirement for finding in errors(made)] == [None if stock_knows else Req.MC_SHAPE_004]


@each_construct
@pytest.mark.parametrize("length", [3, 9])
def test_operands_in_bodies_have_the_types_of_the_caller(kind: str, length: int) -> None:
    made = CONSTRUCTS[kind](None)
    (rows,) = (value for value in made.graph.input if value.name == "r")
    rows.type.tensor_type.shape.dim[0].dim_value = length
    found = [finding for finding in diagnose(made) if finding.severity is not Severity.INFO]
    assert [finding.requirement for finding in found] == ([Req.MC_SHAPE_005] if length > 8 else [])
    assert all("length 9 > capacity 8" in finding.message for finding in found)


@each_construct
def test_operands_in_bodies_must_fit(kind: str) -> None:
    made = CONSTRUCTS[kind](None)
    (rows,) = (value for value in made.graph.input if value.name == "r")
    rows.type.tensor_type.shape.dim[1].dim_value = 5
    (finding,) = errors(made)
    assert (finding.requirement, finding.where.graph) == (Req.MC_SHAPE_006, PLACES[kind])


def with_position(made: ModelProto, position: int) -> ModelProto:
    """The same with the position an initializer."""
    del made.graph.input[[value.name for value in made.graph.input].index("p")]
    made.graph.initializer.append(initializer("p", INT64, [], position.to_bytes(8, "little", signed=True)))
    return made


@each_construct
@pytest.mark.parametrize("position", [6, 7, -1])
def test_constant_positions_are_known_inside(kind: str, position: int) -> None:
    made = with_position(CONSTRUCTS[kind](None), position)
    found = diagnose(made)
    wrong = {7: "position 7 + length 2 > capacity 8", -1: "position -1 < 0"}
    assert [finding.requirement for finding in found] == ([Req.MC_SHAPE_005] if position in wrong else [])
    for finding in found:
        assert wrong[position] in finding.message
        assert finding.where.graph == PLACES[kind]
        # Whether a branch or the body of a loop runs at all is not known: that must not be rejected.
        assert finding.severity is (Severity.ERROR if kind == "function" else Severity.WARNING)


def constants(made: ModelProto, **values: int | bool) -> ModelProto:
    for name, number in values.items():
        del made.graph.input[[value.name for value in made.graph.input].index(name)]
        dtype, size = (TensorProto.BOOL, 1) if isinstance(number, bool) else (INT64, 8)
        made.graph.initializer.append(initializer(name, dtype, [], int(number).to_bytes(size, "little", signed=True)))
    return made


@pytest.mark.parametrize(
    ("kind", "known", "severity"),
    [
        ("branch", {"k": True}, Severity.ERROR),
        ("branch", {"k": False}, None),
        ("loop", {"m": 1}, Severity.ERROR),
        ("loop", {"m": 0}, None),
        ("loop", {"m": -1}, None),
        ("nested", {"m": 3}, Severity.ERROR),
        ("nested", {"m": 0}, None),
    ],
)
def test_what_certainly_runs_is_rejected_and_what_never_runs_is_not(
    kind: str, known: dict[str, int | bool], severity: Severity | None
) -> None:
    found = diagnose(with_position(constants(CONSTRUCTS[kind](None), **known), 7))
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])


def test_a_function_that_is_wrong_for_every_call_is_reported_once() -> None:
    made = with_position(in_function(None), 7)
    made.graph.node.append(call("write", ["out", "r", "p"], ["again"]))
    made.graph.output[0].name = "again"
    (finding,) = errors(made)
    assert "called by local::write (#0) of main" in finding.message


def test_a_function_is_judged_by_the_arguments_of_each_call() -> None:
    made = in_function(None)
    made.graph.initializer.append(initializer("late", INT64, [], (7).to_bytes(8, "little")))
    made.graph.node.append(call("write", ["out", "r", "late"], ["again"]))
    made.graph.output[0].name = "again"
    (finding,) = errors(made)
    assert "called by local::write (#1) of main" in finding.message


def test_attributes_of_calls_reach_updates() -> None:
    made = in_function(None)
    update_node = made.functions[0].node[0]
    update_node.attribute.add(name="axis", type=AttributeProto.INT, ref_attr_name="along")
    made.functions[0].attribute.append("along")
    made.graph.node[0].attribute.add(name="along", type=AttributeProto.INT, i=0)
    assert errors(made) == []
    made.graph.node[0].attribute[0].i = 1  # then rows of shape [2, 4] do not fit
    assert [finding.requirement for finding in errors(made)] == [Req.MC_SHAPE_006]


def test_each_call_has_symbols_of_its_own() -> None:
    made = in_function(("n", 4))
    made.graph.input.append(tensor("d", FLOAT, (16, 4), mutable=True))
    made.graph.node.append(call("write", ["d", "r", "p"], ["other"]))
    made.graph.output.append(typed("other", None, alias_of="d"))
    assert errors(made) == []


def test_a_subgraph_has_symbols_of_its_own() -> None:
    made = in_loop(("n", 4))
    made.graph.input.append(tensor("d", FLOAT, ("n", 4), mutable=True))
    made.graph.node.append(updated("d", "other"))
    made.graph.output.append(typed("other", (16, 4), alias_of="d"))
    assert errors(made) == []


def test_one_symbol_of_one_graph_has_one_size() -> None:
    made = in_loop((8, 4))
    set_capacity(made, "n")
    made.graph.input.append(tensor("d", FLOAT, ("n", 4), mutable=True))
    made.graph.node.append(updated("d", "other"))
    made.graph.output.append(typed("other", (8, 4), alias_of="d"))
    assert errors(made) == []
    made.graph.output[-1].type.tensor_type.shape.dim[0].dim_value = 9
    (finding,) = errors(made)
    assert finding.requirement is Req.MC_SHAPE_003
    assert "graph output of 'u' in main/Loop_0.body says FLOAT[8, 4]" in finding.message
    assert "n is 9 since 'd' and 'other' are one storage" in finding.message


def test_the_reason_follows_every_equation() -> None:
    made = graph(
        [updated("c", "c1"), updated("d", "d1"), updated("e", "e1")],
        *(typed(f"{name}1", None, alias_of=name) for name in "cde"),
        caches=["c", "d", "e"],
    )
    dims: dict[str, tuple[Dim, Dim]] = {"c": ("n", 4), "c1": ("m", 4), "d": ("m", 4), "d1": (8, 4), "e": ("n", 4)}
    for entry in (*made.graph.input, *made.graph.output):
        if entry.name in dims:
            entry.type.CopyFrom(tensor("", FLOAT, dims[entry.name]).type)
    assert errors(made) == []
    made.graph.output[2].type.CopyFrom(tensor("", FLOAT, (9, 4)).type)
    (finding,) = errors(made)
    assert "n is m since 'c' and 'c1' are one storage; m is 8 since 'd' and 'd1' are one storage" in finding.message


def test_captured_constants_shape_values_in_branches() -> None:
    made = in_branch(None)
    made.graph.initializer.append(initializer("shape", INT64, [2], np.array([3, 4], "<i8").tobytes()))
    made.graph.input.append(tensor("flat", FLOAT, (12,)))
    then = made.graph.node[0].attribute[0].g
    then.node[0].CopyFrom(node("Reshape", ["flat", "shape"], ["rows"]))
    then.node.append(update("c", "rows", "p", "t"))
    assert diagnose(made) == []
    assert [f.severity for f in diagnose(with_position(made, 6))] == [Severity.WARNING]


def test_explain_says_what_is_left_to_run_time() -> None:
    made = in_function(None)
    assert diagnose(made) == []
    (finding,) = diagnose(made, explain=True)
    assert (finding.requirement, finding.severity) == (Req.MC_SHAPE_005, Severity.INFO)
    assert "position 'p' is no constant" in finding.message
    assert diagnose(with_position(made, 6), explain=True) == []
    set_capacity(made, "n")
    (finding,) = diagnose(made, explain=True)
    assert "the capacity, a size of 'c', is not known" in finding.message


DIM = st.one_of(st.none(), st.sampled_from(["n", "m"]), st.integers(7, 9))
ENTRY = st.tuples(st.sampled_from(["c", "u1", "u2", "out"]), st.one_of(st.none(), st.tuples(DIM, DIM)))


@settings(max_examples=60, deadline=None)
@given(st.lists(ENTRY, min_size=1, max_size=5), st.randoms(use_true_random=False), st.booleans())
def test_merging_does_not_depend_on_the_order_of_entries(
    entries: list[tuple[str, Dims]], random: object, base: bool
) -> None:
    names = ["c", "u1", "u2", "out"]
    values = [typed(name, dims, alias_of="" if name == "c" else "c") for name, dims in entries]
    nodes = [updated(one, other) for one, other in itertools.pairwise(names)]

    def findings(order: list[ValueInfoProto]) -> list[Diagnostic]:
        made = graph(nodes, typed("out", None, alias_of="c"), value_info=order)
        set_capacity(made, "n")
        return [finding for finding in diagnose(made, base=base) if finding.requirement is not None]

    expected = findings(values)
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # random.Random; the strategy's type says object
    assert findings(shuffled) == expected


HOSTILE = st.one_of(st.none(), st.text(max_size=3), st.sampled_from([-(2**63), -1, 0, 1, 2**31, 2**62, 2**63 - 1]))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(CONSTRUCTS)),
    st.one_of(st.none(), st.lists(HOSTILE, max_size=3)),
    st.sampled_from([0, FLOAT, 99, -1]),
    st.one_of(st.none(), st.lists(HOSTILE, max_size=2)),
    st.sampled_from([-(2**63), -1, 0, 7, 2**63 - 1]),
)
def test_garbage_ends_in_findings(kind: str, dims: Dims, dtype: int, rows: Dims, position: int) -> None:
    made = CONSTRUCTS[kind](dims, dtype)
    (entry,) = (value for value in made.graph.input if value.name == "r")
    entry.CopyFrom(tensor("r", FLOAT, rows))
    with_position(made, position)
    diagnose(made, explain=True)
    infer_shapes(made)
    made.graph.input[0].ClearField("type")
    diagnose(made, explain=True)
    infer_shapes(made)
    diagnose(made, base=False)


def test_many_calls_of_many_calls_end() -> None:
    """Thirty functions, each of which calls the next one twice: no tool can follow a billion calls."""
    last = 30
    functions = [
        function(
            f"f{number}",
            ["c", "r", "p"],
            ["w"],
            [call(f"f{number + 1}", ["c", "r", "p"], ["u"]), call(f"f{number + 1}", ["u", "r", "p"], ["w"])]
            if number < last
            else [updated("c", "w")],
            typed("c", None, mutable=True),
            typed("w", None, alias_of="c"),
        )
        for number in range(last + 1)
    ]
    made = graph([call("f0", ["c", "r", "p"], ["out"])], typed("out", None, alias_of="c"), functions=functions)
    found = diagnose(made)
    assert [finding.severity for finding in found] == [Severity.WARNING]
    assert "types are not inferred" in found[0].message


def test_a_node_kind_without_subgraphs_is_no_construct() -> None:
    decoded = decode(graph([NodeProto(op_type="Loop", output=["y"])], typed("y", None)))
    assert len(ShapesContext(decoded, alias_classes(decoded), base=False).frames) == 1
