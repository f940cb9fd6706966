"""The model as stock onnx judges it."""

from __future__ import annotations

import onnx
import pytest

from mutcache.decode import decode
from mutcache.model import TensorType, ValueType
from mutcache.projection import Additions, large_initializers, project
from mutcache.proto import serialize, to_onnx
from mutcache.proto.onnx_ml import ModelProto, TensorProto, ValueInfoProto
from mutcache.stock import infer, structure_error
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def annotated() -> ModelProto:
    """A model that uses the delta in every kind of scope."""
    branch = node("If", ["k"], ["y"])
    body = branch.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    body.node.append(aliased(node("Identity", ["cache"], ["t"])))
    body.output.append(tensor("t", FLOAT, [8, 4], alias_of="cache"))
    made = model(
        [tensor("cache", FLOAT, [8, 4], mutable=True), tensor("k", TensorProto.BOOL, [])],
        [branch, update("cache", "rows", "at", "updated")],
        [tensor("updated", FLOAT, [8, 4], alias_of="cache")],
        value_info=[tensor("y", FLOAT, [8, 4], alias_of="cache")],
    )
    function = made.functions.add(domain="local", name="f")
    function.node.append(update("a", "b", "c", "d"))
    function.value_info.append(tensor("a", FLOAT, None, mutable=True))
    made.quantizations.add().identity.SetInParent()
    return made


def test_nothing_of_the_delta_is_left_and_the_model_is_not_modified() -> None:
    made = annotated()
    before = serialize(made)
    projected = project(decode(made))
    assert serialize(made) == before
    assert projected.ir_version == 14
    text = str(projected)
    for field in ("output_alias", "access", "alias_of", "quantizations"):
        assert field in str(made)
        assert field not in text
    assert [one.op_type for one in projected.graph.node] == ["If", "CacheUpdate"]


@pytest.mark.parametrize(("declared", "projected"), [(0, 0), (10, 10), (14, 14), (15, 14), (16, 16)])
def test_only_the_deltas_own_version_is_lowered(declared: int, projected: int) -> None:
    assert project(decode(model([], [], [], ir_version=declared))).ir_version == projected


def test_quantized_containers_become_sequences_of_what_they_decode_to() -> None:
    pages = ValueInfoProto(name="pages")
    page = pages.type.sequence_type.elem_type.quantized_tensor_type
    page.elem_type = TensorProto.FLOAT16
    page.shape.dim.add(dim_value=16)
    table = ValueInfoProto(name="table")
    table.type.map_type.key_type = INT64
    table.type.map_type.value_type.quantized_tensor_type.elem_type = FLOAT
    made = to_onnx(project(decode(model([pages, table], [], []))))
    element = made.graph.input[0].type.sequence_type.elem_type.tensor_type
    assert (element.elem_type, [dim.dim_value for dim in element.shape.dim]) == (TensorProto.FLOAT16, [16])
    assert made.graph.input[1].type.sequence_type.elem_type.tensor_type.elem_type == FLOAT


def with_initializer(name: str, count: int) -> ModelProto:
    return model(
        [tensor("x", FLOAT, [count])],
        [node("Add", ["x", name], ["y"])],
        [tensor("y", FLOAT, [count])],
        initializers=[initializer(name, FLOAT, [count], bytes(4 * count))],
    )


def test_a_large_initializer_becomes_an_input_and_its_bytes_are_checked_alone() -> None:
    made = with_initializer("weights", 1 << 20)
    decoded = decode(made)
    projected = project(decoded)
    assert [value.name for value in projected.graph.input] == ["x", "weights"]
    assert len(serialize(projected)) < 1000
    assert structure_error(decoded, serialize(projected)) == ""
    message, types = infer(serialize(projected))
    assert (message, types.get("y")) == ("", TensorType(FLOAT, (1 << 20,)))
    made.graph.initializer[0].raw_data = bytes(4)
    decoded = decode(made)
    assert structure_error(decoded, serialize(project(decoded))) != ""


def test_a_small_initializer_stays_and_one_that_is_there_twice_too() -> None:
    assert list(large_initializers(decode(with_initializer("weights", 16)))) == []
    made = with_initializer("weights", 1 << 20)
    made.graph.initializer.append(made.graph.initializer[0])
    decoded = decode(made)
    assert list(large_initializers(decoded)) == []
    assert structure_error(decoded, serialize(project(decoded))) != ""


def test_types_are_put_in_place_of_declared_ones_or_added() -> None:
    made = annotated()
    decoded = decode(made)
    types: dict[str, ValueType] = {name: TensorType(FLOAT, (8, "n", None)) for name in ("updated", "y", "inner")}
    projected = project(decoded, {decoded.graph: Additions(types=types)})
    entries = {value.name: value for value in [*projected.graph.output, *projected.graph.value_info]}
    for name in types:
        dims = entries[name].type.tensor_type.shape.dim
        assert [dim.WhichOneof("value") for dim in dims] == ["dim_value", "dim_param", None]
