"""The patch, the patched files and the descriptors built in Python say the same, on ground that is still free."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from google.protobuf import descriptor_pb2, json_format
from onnx import onnx_data_pb2, onnx_ml_pb2

from mutcache.proto import BASE_IR_VERSION, IR_VERSION
from mutcache.proto.delta import POOL
from mutcache_tools.generate import ROOT, stale_files
from mutcache_tools.generate.proto import PATCH, compiled_descriptors, generate, patched_protos, patched_sources

STOCK = {module.DESCRIPTOR.name: module.DESCRIPTOR for module in (onnx_ml_pb2, onnx_data_pb2)}

# The delta as the design lists it: (message, field) -> number.
DELTA_FIELDS = {
    ("NodeProto", "output_alias"): 11,
    ("ValueInfoProto", "access"): 5,
    ("ValueInfoProto", "alias_of"): 6,
    ("ModelProto", "quantizations"): 27,
    ("TypeProto", "quantized_tensor_type"): 10,
    ("SequenceProto", "quantized_tensor_values"): 8,
}
DELTA_MESSAGES = {
    "ValueAliasProto": {"output_index": 1, "input_index": 2, "kind": 3},
    "QuantizedTensorProto": {"dims": 1, "raw_data": 2, "n_bytes": 3, "quantized_type": 4, "quantization": 5},
    "QuantizationProto": {
        "linear": 1,
        "codebook": 2,
        "doc_string": 9,
        "metadata_props": 10,
        "identity": 14,
        "data_type": 15,
        "cast": 16,
        "packed_linear": 17,
    },
    "LinearUniformProto": {
        "storage_type": 1,
        "bits": 2,
        "symmetric": 3,
        "scale_float": 4,
        "scale_int": 5,
        "zero_point": 6,
        "axis": 7,
    },
    "CodebookUniformProto": {"scale_float": 1, "scale_int": 2, "codebook": 3, "packed_count": 4, "packed_bytes": 5},
    "IdentityProto": {},
    "CastUniformProto": {"storage_type": 1},
    "PackedLinearUniformProto": {
        "storage_type": 1,
        "bits": 2,
        "symmetric": 3,
        "block_size": 4,
        "axis": 5,
        "scale_type": 6,
        "zero_point_type": 7,
        "correction_type": 8,
        "layout": 9,
    },
}


def _normalized(file: descriptor_pb2.FileDescriptorProto) -> object:
    """Without what depends on the writer's order or on how the wheel was built."""
    content = json_format.MessageToDict(file)
    content.pop("options", None)
    return _sorted_lists(content)


def _sorted_lists(value: object) -> object:
    if isinstance(value, dict):
        # A field refers to its oneof by index, so that order stays.
        return {
            key: member if key == "oneofDecl" else _sorted_lists(member)
            for key, member in value.items()
            if key != "jsonName"
        }
    if isinstance(value, list):
        return sorted((_sorted_lists(member) for member in value), key=repr)
    return value


@pytest.mark.parametrize("name", sorted(STOCK))
def test_python_descriptors_equal_what_protoc_makes_of_the_patched_files(name: str) -> None:
    compiled = compiled_descriptors(patched_protos())[name]
    ours = descriptor_pb2.FileDescriptorProto()
    POOL.FindFileByName(name).CopyToProto(ours)
    assert _normalized(ours) == _normalized(compiled)


@pytest.mark.parametrize(("message", "field"), sorted(DELTA_FIELDS))
def test_a_number_of_the_delta_is_free_in_the_installed_onnx(message: str, field: str) -> None:
    number = DELTA_FIELDS[message, field]
    owner = next(file for file in STOCK.values() if message in file.message_types_by_name)
    stock = owner.message_types_by_name[message]
    assert number not in stock.fields_by_number
    assert field not in stock.fields_by_name
    reserved = descriptor_pb2.DescriptorProto()
    stock.CopyToProto(reserved)
    assert not any(area.start <= number < area.end for area in reserved.reserved_range)
    ours = POOL.FindMessageTypeByName(f"onnx.{message}")
    assert ours.fields_by_name[field].number == number


@pytest.mark.parametrize("message", sorted(DELTA_MESSAGES))
def test_a_message_of_the_delta_is_new_and_has_the_decided_numbers(message: str) -> None:
    assert all(message not in file.message_types_by_name for file in STOCK.values())
    ours = POOL.FindMessageTypeByName(f"onnx.{message}")
    assert {field.name: field.number for field in ours.fields} == DELTA_MESSAGES[message]


def test_the_enum_value_of_sequences_is_free() -> None:
    assert 6 not in onnx_data_pb2.SequenceProto.DataType.values()


def test_the_ir_version_is_free() -> None:
    assert onnx.IR_VERSION == BASE_IR_VERSION < IR_VERSION, "onnx reached the draft's IR version: the delta must move"


def test_generated_files_are_up_to_date() -> None:
    assert stale_files(generate()) == []


def test_a_patch_that_does_not_apply_is_refused(tmp_path: Path) -> None:
    moved = tmp_path / "moved.patch"
    moved.write_text((ROOT / PATCH).read_text().replace(" message NodeProto {", " message NodePrototype {", 1))
    moved.write_text(moved.read_text().replace("// Named metadata values", "// Renamed metadata values"))
    with pytest.raises(ValueError, match="does not apply"):
        patched_sources(moved)
