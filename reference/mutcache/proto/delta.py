"""Descriptors of the proto delta, in a descriptor pool of their own.

The stock ``onnx`` package registers ``onnx.ModelProto`` in protobuf's default pool, and a pool
holds one definition of a name. So the delta's messages live in a private pool: the file
descriptors of the installed ``onnx``, with the additions below. ``proto/onnx.patch`` says the same
in ``.proto`` syntax; a test compares the two field by field.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper
from google.protobuf.message import Message
from onnx import onnx_data_pb2, onnx_ml_pb2

#: First IR version whose runtimes know the delta (MC-PROTO-002). Provisional: it moves when onnx reaches it.
IR_VERSION: Final = 15
#: Newest IR version of the stock onnx release that the delta is written against.
BASE_IR_VERSION: Final = 14

_Field = descriptor_pb2.FieldDescriptorProto
_Message = descriptor_pb2.DescriptorProto
_SCALARS: Final = {
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "float": _Field.TYPE_FLOAT,
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
}


def _add_field(message: _Message, declaration: str, number: int, *, oneof: int | None = None) -> None:
    """Append the field ``"[repeated] type name"``; a type with a dot is a message, ``enum X`` an enum."""
    words = declaration.split()
    label = _Field.LABEL_OPTIONAL
    if words[0] == "repeated":
        label = _Field.LABEL_REPEATED
        words = words[1:]
    field = message.field.add(name=words[-1], number=number, label=label)
    if words[0] == "enum":
        field.type = _Field.TYPE_ENUM
        field.type_name = words[1]
    elif words[0] in _SCALARS:
        field.type = _SCALARS[words[0]]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = words[0]
    if oneof is not None:
        field.oneof_index = oneof


def _add_enum(message: _Message, name: str, *values: str) -> None:
    enum = message.enum_type.add(name=name)
    for number, value in enumerate(values):
        enum.value.add(name=value, number=number)


def _find_message(file: descriptor_pb2.FileDescriptorProto, name: str) -> _Message:
    return next(message for message in file.message_type if message.name == name)


def _extend_onnx_ml(file: descriptor_pb2.FileDescriptorProto) -> None:
    version = next(enum for enum in file.enum_type if enum.name == "Version")
    newest = next(value for value in version.value if value.name == "IR_VERSION")
    if newest.number != BASE_IR_VERSION:
        raise ImportError(
            f"mutcache is written against onnx IR version {BASE_IR_VERSION}, "
            f"the installed onnx has IR version {newest.number}"
        )
    newest.name = f"IR_VERSION_{BASE_IR_VERSION}"
    version.value.add(name="IR_VERSION", number=IR_VERSION)

    alias = file.message_type.add(name="ValueAliasProto")
    _add_enum(alias, "Kind", "UNDEFINED", "MUST_ALIAS")
    _add_field(alias, "int32 output_index", 1)
    _add_field(alias, "int32 input_index", 2)
    _add_field(alias, "enum .onnx.ValueAliasProto.Kind kind", 3)

    _add_field(_find_message(file, "NodeProto"), "repeated .onnx.ValueAliasProto output_alias", 11)

    value_info = _find_message(file, "ValueInfoProto")
    _add_enum(value_info, "Access", "READ_ONLY", "READ_WRITE")
    _add_field(value_info, "enum .onnx.ValueInfoProto.Access access", 5)
    _add_field(value_info, "string alias_of", 6)

    _add_field(_find_message(file, "ModelProto"), "repeated .onnx.QuantizationProto quantizations", 27)

    type_proto = _find_message(file, "TypeProto")
    quantized = type_proto.nested_type.add(name="QuantizedTensor")
    _add_field(quantized, "repeated int32 allowed_quantized_type", 1)
    _add_field(quantized, "int32 elem_type", 2)
    _add_field(quantized, ".onnx.TensorShapeProto shape", 3)
    _add_field(type_proto, ".onnx.TypeProto.QuantizedTensor quantized_tensor_type", 10, oneof=0)

    quantization = file.message_type.add(name="QuantizationProto")
    for start, end in ((3, 9), (11, 14), (18, 19)):
        quantization.reserved_range.add(start=start, end=end)
    quantization.oneof_decl.add(name="kind")
    _add_field(quantization, ".onnx.LinearUniformProto linear", 1, oneof=0)
    _add_field(quantization, ".onnx.CodebookUniformProto codebook", 2, oneof=0)
    _add_field(quantization, ".onnx.IdentityProto identity", 14, oneof=0)
    _add_field(quantization, ".onnx.CastUniformProto cast", 16, oneof=0)
    _add_field(quantization, ".onnx.PackedLinearUniformProto packed_linear", 17, oneof=0)
    _add_field(quantization, "int32 data_type", 15)
    _add_field(quantization, "string doc_string", 9)
    _add_field(quantization, "repeated .onnx.StringStringEntryProto metadata_props", 10)

    linear = file.message_type.add(name="LinearUniformProto")
    linear.oneof_decl.add(name="scale")
    _add_field(linear, "int32 storage_type", 1)
    _add_field(linear, "int32 bits", 2)
    _add_field(linear, "bool symmetric", 3)
    _add_field(linear, "float scale_float", 4, oneof=0)
    _add_field(linear, "int32 scale_int", 5, oneof=0)
    _add_field(linear, "int64 zero_point", 6)
    _add_field(linear, "int32 axis", 7)

    codebook = file.message_type.add(name="CodebookUniformProto")
    codebook.oneof_decl.add(name="scale")
    _add_field(codebook, "float scale_float", 1, oneof=0)
    _add_field(codebook, "int32 scale_int", 2, oneof=0)
    _add_field(codebook, "repeated float codebook", 3)
    _add_field(codebook, "int32 packed_count", 4)
    _add_field(codebook, "int32 packed_bytes", 5)

    file.message_type.add(name="IdentityProto")
    _add_field(file.message_type.add(name="CastUniformProto"), "int32 storage_type", 1)

    packed = file.message_type.add(name="PackedLinearUniformProto")
    _add_enum(packed, "PackedLayout", "SEQUENTIAL", "INTERLEAVED")
    for number, declaration in enumerate(
        (
            "int32 storage_type",
            "int32 bits",
            "bool symmetric",
            "int32 block_size",
            "int32 axis",
            "int32 scale_type",
            "int32 zero_point_type",
            "int32 correction_type",
            "enum .onnx.PackedLinearUniformProto.PackedLayout layout",
        ),
        start=1,
    ):
        _add_field(packed, declaration, number)

    tensor = file.message_type.add(name="QuantizedTensorProto")
    _add_field(tensor, "repeated int64 dims", 1)
    _add_field(tensor, "bytes raw_data", 2)
    _add_field(tensor, "int64 n_bytes", 3)
    _add_field(tensor, "int32 quantized_type", 4)
    _add_field(tensor, ".onnx.QuantizationProto quantization", 5)


def _extend_onnx_data(file: descriptor_pb2.FileDescriptorProto) -> None:
    sequence = _find_message(file, "SequenceProto")
    data_type = next(enum for enum in sequence.enum_type if enum.name == "DataType")
    data_type.value.add(name="QUANTIZED_TENSOR", number=6)
    _add_field(sequence, "repeated .onnx.QuantizedTensorProto quantized_tensor_values", 8)


def _build_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for module, extend in ((onnx_ml_pb2, _extend_onnx_ml), (onnx_data_pb2, _extend_onnx_data)):
        file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        extend(file)
        pool.Add(file)
    return pool


POOL: Final = _build_pool()


def file_classes(file_name: str) -> dict[str, Any]:
    """The message classes and enums of one ``.proto`` file of the private pool, by name."""
    file = POOL.FindFileByName(file_name)
    classes: dict[str, Any] = {}
    for name, message in file.message_types_by_name.items():
        classes[name] = message_factory.GetMessageClass(message)
    for name, enum in file.enum_types_by_name.items():
        classes[name] = enum_type_wrapper.EnumTypeWrapper(enum)
        classes.update({value.name: value.number for value in enum.values})
    return classes


__all__ = ["BASE_IR_VERSION", "IR_VERSION", "POOL", "Message", "file_classes"]
