"""``infer_shapes``: what it writes down, and that it changes nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import hypothesis.strategies as st
import pytest
from flow_models import body, branch, call, function, graph, loop, negated, passed, scan, updated
from hypothesis import HealthCheck, given, settings
from sound_models import SoundModel, sound_models

import mutcache
from mutcache.model import Dim
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import FunctionProto, GraphProto, ModelProto, TensorProto, ValueInfoProto
from mutcache_conformance.cases.builder import initializer, node, tensor, update

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Shape = tuple[Dim, ...] | None


def typed(name: str, dims: Sequence[Dim] | None, *, mutable: bool = False, alias_of: str = "") -> ValueInfoProto:
    return tensor(name, FLOAT, dims, mutable=mutable, alias_of=alias_of)


def shape(entry: ValueInfoProto) -> Shape:
    if not entry.type.tensor_type.HasField("shape"):
        return None
    dims = entry.type.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims)


def declared(proto: GraphProto | FunctionProto) -> Mapping[str, Shape]:
    entries = list(proto.value_info)
    if isinstance(proto, GraphProto):
        entries += [*proto.input, *proto.output]
    return {entry.name: shape(entry) for entry in entries}


def held(made: ModelProto, index: int, attribute: int = 0) -> GraphProto:
    return made.graph.node[index].attribute[attribute].g


def test_every_name_of_a_class_is_given_what_is_known_of_it() -> None:
    made = graph([updated("c", "u"), updated("u", "out"), negated("u", "n")], typed("out", None, alias_of="c"))
    made.graph.input[0].CopyFrom(typed("c", ("rows", 4), mutable=True))
    made.graph.value_info.append(typed("u", (8, None)))
    types = declared(mutcache.infer_shapes(made).graph)
    assert {types[name] for name in ("c", "u", "out", "n")} == {(8, 4)}


def test_a_symbol_with_a_size_is_replaced_wherever_the_graph_uses_it() -> None:
    made = graph([updated("c", "out"), negated("y", "z")], typed("out", (8, 4), alias_of="c"), typed("z", None))
    made.graph.input[0].CopyFrom(typed("c", ("rows", 4), mutable=True))
    made.graph.input.append(typed("y", ("rows", "columns")))
    made.graph.output[1].type.tensor_type.shape.SetInParent()
    made.graph.output[1].CopyFrom(typed("z", (None, None)))
    types = declared(mutcache.infer_shapes(made).graph)
    assert (types["y"], types["z"]) == ((8, "columns"), (8, "columns"))


@pytest.mark.parametrize("kind", ["branch", "loop", "scan"])
def test_subgraphs_and_what_follows_them_have_types(kind: str) -> None:
    formals, result = [typed("v", None, mutable=True)], typed("u", None, alias_of="v")
    made_node = {
        "branch": branch(
            ["w"], body([updated("c", "u")], typed("u", None, alias_of="c")),
            body([passed("c", "e")], typed("e", None, alias_of="c")),
        ),
        "loop": loop(["c"], ["w"], [updated("v", "u")], result, formals=formals),
        "scan": scan(["c"], ["w"], [updated("v", "u")], result, formals=formals),
    }[kind]  # fmt: skip
    made = graph([made_node, updated("w", "out")], typed("out", None, alias_of="c"))
    found = mutcache.infer_shapes(made)
    assert (declared(found.graph)["w"], declared(found.graph)["out"]) == ((8, 4), (8, 4))
    inner = next(attribute.g for attribute in found.graph.node[0].attribute if attribute.HasField("g"))
    assert declared(inner)["u"] == (8, 4)
    if kind != "branch":
        assert declared(inner)["v"] == (8, 4)


def writer() -> FunctionProto:
    return function(
        "write",
        ["c", "r", "p"],
        ["u"],
        [negated("r", "s"), update("c", "s", "p", "u")],
        typed("c", None, mutable=True),
        typed("u", None, alias_of="c"),
    )


def test_bodies_of_functions_have_what_all_calls_agree_on() -> None:
    made = graph([call("write", ["c", "r", "p"], ["out"])], typed("out", None, alias_of="c"), functions=[writer()])
    types = declared(mutcache.infer_shapes(made).functions[0])
    assert types == {"c": (8, 4), "u": (8, 4), "r": (2, 4), "s": (2, 4), "p": ()}
    made.graph.input.append(typed("d", (16, 4), mutable=True))
    made.graph.node.append(call("write", ["d", "r", "p"], ["other"]))
    made.graph.output.append(typed("other", None, alias_of="d"))
    found = mutcache.infer_shapes(made)
    types = declared(found.functions[0])
    assert types == {"c": (None, 4), "u": (None, 4), "r": (2, 4), "s": (2, 4), "p": ()}
    assert declared(found.graph)["other"] == (16, 4)


def test_functions_that_touch_no_cache_are_typed_too() -> None:
    twice = function("twice", ["a"], ["b"], [node("Concat", ["a", "a"], ["b"], {"axis": 0})])
    idle = function("idle", ["a"], ["b"], [negated("a", "b")])
    made = graph([call("twice", ["x"], ["y"])], typed("y", (None, None)), functions=[twice, idle])
    found = mutcache.infer_shapes(made)
    assert declared(found.functions[0]) == {"a": (8, 4), "b": (16, 4)}
    assert declared(found.functions[1]) == {}
    assert declared(found.graph)["y"] == (16, 4)


def test_functions_of_old_models_stay_as_they_are() -> None:
    twice = function("twice", ["a"], ["b"], [node("Concat", ["a", "a"], ["b"], {"axis": 0})])
    made = graph([call("twice", ["x"], ["y"])], typed("y", (None, None)), functions=[twice])
    made.graph.input[0].ClearField("access")
    made.ir_version = 9
    found = mutcache.infer_shapes(made)
    assert found.functions == made.functions
    assert declared(found.graph)["y"] == (16, 4)


def test_containers_keep_their_pages() -> None:
    made = ModelProto(ir_version=15)
    made.opset_import.add(domain="", version=24)
    made.quantizations.add().identity.SetInParent()
    pages = made.graph.input.add(name="pages", access=ValueInfoProto.READ_WRITE)
    page = pages.type.sequence_type.elem_type.quantized_tensor_type
    page.elem_type = FLOAT
    page.allowed_quantized_type.append(0)
    page.shape.dim.add(dim_param="heads")
    page.shape.dim.add(dim_value=16)
    made.graph.name = "paged"
    made.graph.node.append(passed("pages", "same"))
    out = made.graph.output.add(name="same", alias_of="pages")
    out.type.CopyFrom(pages.type)
    out.type.sequence_type.elem_type.quantized_tensor_type.shape.dim[0].dim_value = 2
    made.graph.node.append(passed("same", "again"))
    found = mutcache.infer_shapes(made)
    (again,) = found.graph.value_info
    assert again.type == out.type
    assert found.graph.input[0].type == out.type


def test_large_tensors_stay_initializers() -> None:
    made = graph([node("Add", ["x", "w"], ["y"])], typed("y", (None, None, None)))
    made.graph.initializer.append(initializer("w", FLOAT, [512, 8, 4], bytes(4 * 512 * 32)))
    found = mutcache.infer_shapes(made)
    assert found.graph.input == made.graph.input
    assert list(found.graph.value_info) == []
    assert declared(found.graph)["y"] == (512, 8, 4)


def test_a_model_that_contradicts_itself_comes_back_as_it_is() -> None:
    made = graph([updated("c", "out")], typed("out", (9, 4), alias_of="c"))
    assert mutcache.infer_shapes(made) == made
    made = graph([node("MatMul", ["x", "x"], ["y"])], typed("y", (None, None)))
    assert mutcache.infer_shapes(made) == made


def verdict(made: ModelProto) -> list[object]:
    return [(finding.requirement, finding.severity, finding.where) for finding in mutcache.diagnose(made)]


def without_types(made: ModelProto) -> ModelProto:
    """What is left when all that inference may write is taken away."""
    result = ModelProto()
    result.CopyFrom(made)
    pending: list[GraphProto | FunctionProto] = [result.graph, *result.functions]
    while pending:
        proto = pending.pop()
        for entries in (proto.value_info, *([proto.input, proto.output] if isinstance(proto, GraphProto) else [])):
            for entry in entries:
                entry.ClearField("type")
        kept = [entry for entry in proto.value_info if entry.access or entry.alias_of]
        del proto.value_info[:]
        proto.value_info.extend(kept)
        pending += [attribute.g for one in proto.node for attribute in one.attribute if attribute.HasField("g")]
    return result


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sound_models())
def test_it_is_idempotent_and_keeps_the_verdict_and_all_else(drawn: SoundModel) -> None:
    made = drawn.model
    before = serialize(made)
    found = mutcache.infer_shapes(made)
    assert serialize(made) == before
    assert mutcache.infer_shapes(found) == found
    assert verdict(found) == verdict(made)
    assert without_types(found) == without_types(made)
    del made.graph.value_info[:]
    types = declared(mutcache.infer_shapes(made).graph)
    assert {types[name] for name in drawn.root_of} <= {(8, 4)}


SIZE = st.one_of(st.none(), st.sampled_from(["n", "m", ""]), st.sampled_from([-1, 0, 4, 8, 9, 2**62]))
ENTRY = st.tuples(
    st.sampled_from(["c", "u", "out", "z", "x", "s"]), st.one_of(st.none(), st.lists(SIZE, min_size=2, max_size=2))
)


@settings(max_examples=80, deadline=None)
@given(st.lists(ENTRY, max_size=5), st.one_of(st.none(), st.tuples(SIZE, SIZE)), st.booleans())
def test_it_never_changes_the_verdict(
    entries: list[tuple[str, list[Dim] | None]], out: Sequence[Dim] | None, inside: bool
) -> None:
    nodes = [updated("c", "u"), updated("u", "out"), node("Add", ["x", "out"], ["z"])]
    if inside:
        formals, result = [typed("v", None, mutable=True)], typed("w", out, alias_of="v")
        nodes[0] = loop(["c"], ["u"], [updated("v", "w")], result, formals=formals)
    made = graph(nodes, typed("out", out, alias_of="c"), value_info=[typed(name, dims) for name, dims in entries])
    made.graph.input[0].CopyFrom(typed("c", ("n", "k"), mutable=True))
    found = mutcache.infer_shapes(made)
    assert verdict(found) == verdict(made)
    assert mutcache.infer_shapes(found) == found
