"""Reading, writing and exchanging models that carry the delta (MC-PROTO-005)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from mutcache.errors import DecodeError, MutcacheError
from mutcache.proto import from_onnx, load, parse, save, serialize, to_onnx
from mutcache.proto.onnx_data import SequenceProto
from mutcache.proto.onnx_ml import AttributeProto, ModelProto, TensorProto, ValueAliasProto, ValueInfoProto


def annotated_model() -> ModelProto:
    """A model that uses every field of the delta."""
    model = ModelProto(ir_version=15)
    model.opset_import.add(domain="onnx.mutable_cache", version=1)
    model.quantizations.add(data_type=TensorProto.FLOAT16).identity.SetInParent()
    cache = model.graph.input.add(name="cache", access=ValueInfoProto.READ_WRITE)
    cache.type.tensor_type.elem_type = TensorProto.FLOAT16
    pages = model.graph.input.add(name="pages", access=ValueInfoProto.READ_WRITE)
    page = pages.type.sequence_type.elem_type.quantized_tensor_type
    page.elem_type = TensorProto.FLOAT16
    page.allowed_quantized_type.append(0)
    node = model.graph.node.add(op_type="CacheUpdate", domain="onnx.mutable_cache")
    node.input.extend(["cache", "values", "position"])
    node.output.append("updated_cache")
    node.output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
    output = model.graph.output.add(name="updated_cache", alias_of="cache")
    output.type.tensor_type.elem_type = TensorProto.FLOAT16
    weight = model.graph.initializer.add()
    weight.ParseFromString(numpy_helper.from_array(np.arange(4096, dtype=np.float32), "weight").SerializeToString())
    weight.data_location = TensorProto.DEFAULT  # as loading external data leaves it
    return model


def test_annotations_survive_saving_and_loading(tmp_path: Path) -> None:
    model = annotated_model()
    save(model, tmp_path / "model.onnx")
    assert load(tmp_path / "model.onnx") == model


def test_annotations_survive_the_stock_package(tmp_path: Path) -> None:
    model = annotated_model()
    stock = to_onnx(model)
    assert isinstance(stock, onnx.ModelProto)
    onnx.save_model(stock, tmp_path / "model.onnx")
    assert from_onnx(onnx.load_model(tmp_path / "model.onnx")) == model


def test_external_data_returns_into_the_model(tmp_path: Path) -> None:
    model = annotated_model()
    before = serialize(model)
    save(model, tmp_path / "model.onnx", external_data="model.data")
    assert serialize(model) == before, "saving must not modify its argument"
    assert (tmp_path / "model.data").stat().st_size == 4096 * 4
    assert (tmp_path / "model.onnx").stat().st_size < 4096
    assert load(tmp_path / "model.onnx") == model
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.data", "model.onnx"]


def test_saving_over_a_model_replaces_its_external_data(tmp_path: Path) -> None:
    model = annotated_model()
    save(model, tmp_path / "model.onnx", external_data="model.data")
    save(load(tmp_path / "model.onnx"), tmp_path / "model.onnx", external_data="model.data")
    assert (tmp_path / "model.data").stat().st_size == 4096 * 4
    assert load(tmp_path / "model.onnx") == model


@pytest.mark.parametrize("name", ["../model.data", "folder/model.data", "/model.data", "model.onnx"])
def test_external_data_must_lie_beside_the_model(tmp_path: Path, name: str) -> None:
    with pytest.raises(MutcacheError, match="plain file name"):
        save(annotated_model(), tmp_path / "model.onnx", external_data=name)
    assert list(tmp_path.iterdir()) == []


def test_missing_external_data_is_a_decode_error(tmp_path: Path) -> None:
    save(annotated_model(), tmp_path / "model.onnx", external_data="model.data")
    (tmp_path / "model.data").unlink()
    with pytest.raises(DecodeError, match="external data"):
        load(tmp_path / "model.onnx")
    assert load(tmp_path / "model.onnx", external_data=False).graph.input[0].name == "cache"


def test_short_external_data_is_a_decode_error(tmp_path: Path) -> None:
    save(annotated_model(), tmp_path / "model.onnx", external_data="model.data")
    (tmp_path / "model.data").write_bytes(b"short")
    with pytest.raises(DecodeError, match="external data"):
        load(tmp_path / "model.onnx")


@pytest.mark.parametrize("key", ["offset", "length"])
def test_malformed_external_data_is_a_decode_error(tmp_path: Path, key: str) -> None:
    model = annotated_model()
    weight = model.graph.initializer[0]
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="model.data")
    weight.external_data.add(key=key, value="a few")
    (tmp_path / "model.data").write_bytes(bytes(16))
    save(model, tmp_path / "model.onnx")
    with pytest.raises(DecodeError, match="external data"):
        load(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "data", [b"", b"not a model", b"\x00" * 64, b"\xff" * 64], ids=["empty", "text", "zeros", "ones"]
)
def test_bytes_that_are_no_model_are_a_decode_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(data)
    with pytest.raises(DecodeError):
        load(tmp_path / "model.onnx")


def test_a_missing_file_is_a_decode_error(tmp_path: Path) -> None:
    with pytest.raises(DecodeError, match=r"missing\.onnx"):
        load(tmp_path / "missing.onnx")
    with pytest.raises(DecodeError, match="cannot read"):
        load(tmp_path)


def test_a_truncated_file_is_a_decode_error() -> None:
    data = serialize(annotated_model())
    refused = 0
    for length in range(0, len(data), 97):
        try:
            parse(data[:length])
        except DecodeError:
            refused += 1
    assert refused > 100


def test_nesting_beyond_protobufs_limit_is_a_decode_error() -> None:
    def nested(depth: int) -> bytes:
        model = ModelProto(ir_version=15)
        graph = model.graph
        for _ in range(depth):
            attribute = graph.node.add(op_type="If").attribute.add(name="then_branch", type=AttributeProto.GRAPH)
            graph = attribute.g
            graph.name = "g"
        return model.SerializeToString()

    assert parse(nested(20)).graph.node[0].op_type == "If"
    with pytest.raises(DecodeError, match="nest"):
        parse(nested(60))


def test_quantized_pages_are_test_data_of_sequences() -> None:
    sequence = SequenceProto(elem_type=SequenceProto.QUANTIZED_TENSOR)
    sequence.quantized_tensor_values.add(dims=[2, 8], raw_data=bytes(16), n_bytes=16, quantized_type=0)
    assert SequenceProto.FromString(sequence.SerializeToString()) == sequence
