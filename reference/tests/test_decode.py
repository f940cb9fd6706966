"""Decoding: what protobuf drops in silence is kept, and nothing is decoded that is not asked for."""

from __future__ import annotations

import pytest

from mutcache.decode import decode
from mutcache.errors import DecodeError
from mutcache.model import MapType, QuantizedTensorType, SequenceType, TensorType
from mutcache.proto import parse, serialize
from mutcache.proto.onnx_ml import ModelProto, TensorProto, TypeProto, ValueAliasProto, ValueInfoProto
from mutcache_conformance.cases.builder import model, node, tensor, update


def with_value_bytes(content: bytes) -> ModelProto:
    """A model whose only input is the value that ``content`` serializes."""
    made = ModelProto()
    made.graph.input.append(ValueInfoProto.FromString(content))
    return made


@pytest.mark.parametrize(
    ("content", "unknown"),
    [
        (b"\x0a\x01c\x28\x00", None),
        (b"\x0a\x01c\x28\x01", None),
        (b"\x0a\x01c\x28\x07", 7),
        (b"\x0a\x01c\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", -1),
        (b"\x0a\x01c\x2a\x02ab", -1),  # field 5 as a string
    ],
    ids=["read-only", "read-write", "seven", "negative", "wrong-wire-type"],
)
def test_an_unknown_access_is_kept(content: bytes, unknown: int | None) -> None:
    (value,) = decode(with_value_bytes(content)).graph.inputs
    assert value.name == "c"
    assert value.unknown_access == unknown
    assert value.is_mutable == (content[-1:] == b"\x01" and unknown is None)


def test_an_unknown_kind_is_kept() -> None:
    made = model([], [update("c", "v", "p", "u")], [])
    made.graph.node[0].output_alias[0].CopyFrom(ValueAliasProto.FromString(b"\x08\x00\x10\x00\x18\x09"))
    (alias,) = decode(made).graph.nodes[0].aliases
    assert (alias.kind, alias.is_must) == (9, False)


def test_annotated_entries_are_found_wherever_they_stand_and_however_often() -> None:
    entries = [tensor("u", TensorProto.FLOAT, [4], alias_of="c"), tensor("u", TensorProto.FLOAT, [5], alias_of="d")]
    made = model(
        [tensor("c", TensorProto.FLOAT, [4], mutable=True), tensor("v", TensorProto.FLOAT, [1])],
        [],
        [tensor("u", TensorProto.FLOAT, [4], alias_of="e"), tensor("plain", TensorProto.FLOAT, [4])],
        value_info=[*entries, tensor("other", TensorProto.FLOAT, [4])],
    )
    graph = decode(made).graph
    assert [(value.name, value.alias_of) for value in graph.annotated] == [
        ("c", ""),
        ("u", "e"),
        ("u", "c"),
        ("u", "d"),
    ]
    assert graph.value_info["u"].alias_of == "d"
    assert list(graph.value_info) == ["u", "other"]


def test_a_field_that_is_present_with_its_default_is_no_annotation() -> None:
    made = model([tensor("c", TensorProto.FLOAT, [4])], [], [])
    made.graph.input[0].access = ValueInfoProto.READ_ONLY
    made.graph.input[0].alias_of = ""
    assert decode(made).graph.annotated == ()
    made.graph.input[0].access = ValueInfoProto.READ_WRITE
    assert [value.name for value in decode(made).graph.annotated] == ["c"]


def test_the_entries_of_a_formal_of_a_function_speak_of_it_together() -> None:
    made = model([], [], [])
    function = made.functions.add(domain="local", name="f", input=["a", "b"], output=["b"])
    function.value_info.add(name="a", access=ValueInfoProto.READ_WRITE)
    function.value_info.add(name="b", alias_of="a")
    function.value_info.extend([tensor("b", TensorProto.FLOAT, [4]), tensor("a", TensorProto.FLOAT, [4])])
    body = decode(made).functions["local", "f", ""]
    assert [(value.name, value.is_mutable, value.alias_of) for value in body.inputs] == [
        ("a", True, ""),
        ("b", False, "a"),
    ]
    assert all(value.type == TensorType(TensorProto.FLOAT, (4,)) for value in (*body.inputs, *body.outputs))


def test_nodes_are_a_sequence_and_keep_what_is_left_out() -> None:
    nodes = [node("Clip", ["x", "", "high"], ["y"]), node("Identity", ["y"], ["z"]), update("c", "v", "p", "u")]
    nodes[1].name = "named"
    graph = decode(model([], nodes, [])).graph
    assert len(graph.nodes) == 3
    assert graph.nodes[0].inputs == ("x", "", "high")
    assert graph.nodes[-1] is graph.nodes[2]
    assert [one.index for one in graph.nodes[1:]] == [1, 2]
    assert [one.label for one in graph.nodes] == ["Clip (#0)", "Identity 'named' (#1)", "CacheUpdate (#2)"]
    assert graph.marked == (2,)
    with pytest.raises(IndexError):
        graph.nodes[3]


def test_subgraphs_are_found_under_paths_that_name_the_way() -> None:
    made = model([], [node("If", ["condition"], ["y"])], [])
    then = made.graph.node[0].attribute.add(name="then_branch").g
    then.node.add(op_type="Loop", name="inner").attribute.add(name="body").g.input.add(name="deep")
    branches = made.graph.node[0].attribute.add(name="more")
    branches.graphs.add()
    graph = decode(made).graph
    assert graph.nested == (0,)
    subgraphs = graph.nodes[0].subgraphs
    assert list(subgraphs) == ["then_branch", "more[0]"]
    inner = subgraphs["then_branch"].nodes[0].subgraphs["body"]
    assert inner.path == "main/If_0.then_branch/inner.body"
    assert [value.name for value in inner.inputs] == ["deep"]


def test_functions_take_types_and_access_from_their_value_info() -> None:
    made = ModelProto()
    function = made.functions.add(domain="local", name="step", overload="a")
    function.input.extend(["cache", "rows"])
    function.output.append("updated")
    function.value_info.append(tensor("cache", TensorProto.FLOAT, [4], mutable=True))
    body = decode(made).functions["local", "step", "a"]
    assert body.path == "local::step:a"
    assert [(value.name, value.is_mutable) for value in body.inputs] == [("cache", True), ("rows", False)]
    assert body.outputs[0].type is None


def test_types_decode_with_what_they_leave_open() -> None:
    made = ModelProto()
    made.graph.input.append(tensor("t", TensorProto.FLOAT, [2, "n", None]))
    made.graph.input.append(tensor("r", TensorProto.FLOAT, None))
    page = made.graph.input.add(name="s").type.sequence_type.elem_type.quantized_tensor_type
    page.elem_type = TensorProto.FLOAT16
    page.allowed_quantized_type.extend([0, 2])
    pages = made.graph.input.add(name="m").type.map_type
    pages.key_type = TensorProto.INT64
    pages.value_type.tensor_type.elem_type = TensorProto.INT8
    made.graph.input.add(name="nothing")
    quantized = QuantizedTensorType(TensorProto.FLOAT16, None, (0, 2))
    assert [value.type for value in decode(made).graph.inputs] == [
        TensorType(TensorProto.FLOAT, (2, "n", None)),
        TensorType(TensorProto.FLOAT, None),
        SequenceType(quantized),
        MapType(TensorProto.INT64, TensorType(TensorProto.INT8, None)),
        None,
    ]


def test_a_type_nested_deeper_than_protobuf_reads_is_refused() -> None:
    made = ModelProto()
    inner: TypeProto = made.graph.input.add(name="deep").type
    for _ in range(2000):
        inner = inner.sequence_type.elem_type
    inner.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(DecodeError, match="nests"):
        decode(made)


def test_a_name_that_is_not_utf8_is_refused() -> None:
    made = model([tensor("ABCD", TensorProto.FLOAT, [1])], [node("Identity", ["ABCD"], ["y"])], [])
    broken = parse(serialize(made).replace(b"ABCD", b"\xff\xfe\xfd\xfc"))
    with pytest.raises(DecodeError, match="UTF-8"):
        decode(broken)
