"""The registered operator schema, as stock onnx sees it."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, defs, shape_inference

from mutcache import schemas
from mutcache.decode import decode
from mutcache.projection import project
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import ModelProto
from mutcache_conformance.cases.builder import model, node, tensor, update


def test_registering_again_changes_nothing() -> None:
    schemas.register()
    schema = defs.get_schema("CacheUpdate", 1, "onnx.mutable_cache")
    assert [formal.name for formal in schema.inputs] == ["cache", "values", "position"]
    assert schema.attributes["axis"].default_value.i == -2
    assert schema.attributes["mode"].default_value.s == b"linear"
    assert not schema.attributes["batch_axis"].required


def test_the_types_are_those_whose_elements_are_whole_bytes() -> None:
    (constraint,) = defs.get_schema("CacheUpdate", 1, "onnx.mutable_cache").type_constraints
    excluded = {
        "undefined", "string", "int4", "uint4", "int2", "uint2", "float4e2m1", "float6e2m3", "float6e3m2",
    }  # fmt: skip
    every = {name.lower() for name in TensorProto.DataType.keys()}  # noqa: SIM118  # a protobuf enum, no mapping
    assert set(constraint.allowed_type_strs) == {f"tensor({name})" for name in every - excluded}


def stock(made: ModelProto) -> bytes:
    return serialize(project(decode(made)))


def test_the_output_has_the_type_of_the_cache() -> None:
    made = model(
        [
            tensor("c", TensorProto.FLOAT16, [2, "n", 8], mutable=True),
            tensor("v", TensorProto.FLOAT16, [2, 1, 8]),
            tensor("p", TensorProto.INT64, []),
        ],
        [update("c", "v", "p", "u"), node("Transpose", ["u"], ["t"])],
        [tensor("t", TensorProto.FLOAT16, [None, None, None])],
    )
    inferred = shape_inference.infer_shapes(stock(made), check_type=True, strict_mode=True)
    dims = inferred.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value or dim.dim_param for dim in dims] == [8, "n", 2]


@pytest.mark.parametrize("operands", [[], [""], ["", "", ""], ["c"], ["unknown", "v", "p"]])
def test_inference_survives_nodes_that_make_no_sense(operands: list[str]) -> None:
    broken = node("CacheUpdate", operands, ["u"], domain="onnx.mutable_cache")
    made = model([tensor("c", TensorProto.FLOAT, None)], [broken, node("Shape", ["c"], ["s"])], [])
    inferred = shape_inference.infer_shapes(onnx.ModelProto.FromString(stock(made)))
    assert "s" in [value.name for value in inferred.graph.value_info]
