"""Declarations of page codecs: what version 1 of the specification accepts, and what it makes of a message."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from mutcache.errors import MutcacheError
from mutcache.proto.onnx_ml import LinearUniformProto, PackedLinearUniformProto, QuantizationProto, TensorProto
from mutcache.requirements import Phase, Req


class Kind(enum.StrEnum):
    """How codes stand for elements; the names are those of the fields of QuantizationProto."""

    PACKED_LINEAR = "packed_linear"
    LINEAR = "linear"
    CAST = "cast"
    IDENTITY = "identity"


class Layout(enum.StrEnum):
    """Where codes, scales, zero points and corrections of ``packed_linear`` lie."""

    SEQUENTIAL = "SEQUENTIAL"
    INTERLEAVED = "INTERLEAVED"


#: Integer storage types, to their width in bits.
SIGNED: Final[Mapping[int, int]] = {TensorProto.INT8: 8, TensorProto.INT4: 4, TensorProto.INT2: 2}
UNSIGNED: Final[Mapping[int, int]] = {TensorProto.UINT8: 8, TensorProto.UINT4: 4, TensorProto.UINT2: 2}
#: Float storage types, to their width in bits.
FLOATS: Final[Mapping[int, int]] = {TensorProto.FLOAT8E4M3FN: 8, TensorProto.FLOAT4E2M1: 4}
#: Element types that pages decode to, and types of scales and corrections.
DECODED: Final = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: Width in bits of every element type with a fixed width, for ``identity``.
WIDTHS: Final[Mapping[int, int]] = {
    **SIGNED,
    **UNSIGNED,
    **FLOATS,
    **dict.fromkeys((TensorProto.FLOAT6E2M3, TensorProto.FLOAT6E3M2), 6),
    **dict.fromkeys((TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ), 8),
    **dict.fromkeys((TensorProto.FLOAT8E8M0, TensorProto.BOOL), 8),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 32),
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64, TensorProto.COMPLEX64), 64),
    TensorProto.COMPLEX128: 128,
}


@dataclass(frozen=True, slots=True)
class Declaration:
    """A QuantizationProto that version 1 accepts; :func:`parse_declaration` makes it.

    Types are numbers of TensorProto.DataType; fields that the kind does not have are None, 0 or False.

    Attributes:
        kind: which codec.
        data_type: the element type that pages decode to.
        storage_type: the type of the codes; of ``identity`` the element type itself.
        bits: width of a code.
        symmetric: whether codes are signed, with neither zero point nor correction (``packed_linear``).
        block_size: consecutive elements of a group (``packed_linear``).
        axis: the axis of the groups, the last one of a page (``packed_linear``).
        scale_type: type of the scale of each group (``packed_linear``).
        zero_point_type: UINT8 if groups have zero points.
        correction_type: type of the correction of each group, if groups have one.
        layout: where the parts of a payload lie.
        scale_float: the scale of all elements, a float32 (``linear``).
        zero_point: the zero point of all elements (``linear``).
    """

    kind: Kind
    data_type: int
    storage_type: int
    bits: int
    symmetric: bool = False
    block_size: int = 0
    axis: int | None = None
    scale_type: int | None = None
    zero_point_type: int | None = None
    correction_type: int | None = None
    layout: Layout = Layout.SEQUENTIAL
    scale_float: float | None = None
    zero_point: int = 0


class UnsupportedDeclaration(MutcacheError):  # noqa: N818  (the interface's name: a state, told by its reasons)
    """A QuantizationProto that version 1 does not accept (MC-QUANT-006); ``reasons`` says all that is wrong."""

    phase: ClassVar[Phase] = Phase.CHECK

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(reasons), requirement=Req.MC_QUANT_006)


def parse_declaration(proto: QuantizationProto) -> Declaration:
    """The declaration that a message makes.

    Raises:
        UnsupportedDeclaration: version 1 does not accept it (MC-QUANT-006).
    """
    reasons = problems(proto)
    if reasons:
        raise UnsupportedDeclaration(reasons)
    kind = Kind(proto.WhichOneof("kind") or "")
    if kind is Kind.IDENTITY:
        return Declaration(kind, proto.data_type, proto.data_type, WIDTHS[proto.data_type])
    if kind is Kind.CAST:
        storage = proto.cast.storage_type
        return Declaration(kind, proto.data_type, storage, FLOATS[storage])
    if kind is Kind.LINEAR:
        linear = proto.linear
        return Declaration(
            kind,
            proto.data_type,
            linear.storage_type,
            linear.bits,
            linear.symmetric,
            scale_float=linear.scale_float,
            zero_point=linear.zero_point,
        )
    packed = proto.packed_linear
    return Declaration(
        kind,
        proto.data_type,
        packed.storage_type,
        packed.bits,
        packed.symmetric,
        packed.block_size,
        packed.axis,
        packed.scale_type,
        packed.zero_point_type or None,
        packed.correction_type or None,
        Layout(PackedLinearUniformProto.PackedLayout.Name(packed.layout)),
    )


def problems(proto: QuantizationProto) -> list[str]:
    """Everything for which version 1 does not accept a declaration; empty if it does."""
    found = list(_unknown_fields(proto))
    name = proto.WhichOneof("kind")
    if name is None:
        return found or ["the declaration has no kind"]
    found += _unknown_fields(getattr(proto, name))
    if name == "codebook":
        return [*found, "kind codebook is not accepted"]
    kind = Kind(name)
    if kind is Kind.IDENTITY:
        if proto.data_type not in WIDTHS:
            found.append(f"data_type {type_name(proto.data_type)} has no fixed width")
        return found
    if proto.data_type not in DECODED:
        found.append(f"data_type {type_name(proto.data_type)} is not {_either(DECODED)}")
    if kind is Kind.CAST:
        found += _cast_problems(proto)
    elif kind is Kind.LINEAR:
        found += _linear_problems(proto.linear)
    else:
        found += _packed_problems(proto.packed_linear)
    return found


def type_name(number: int) -> str:
    """The name of an element type, also of a number that has none."""
    try:
        return TensorProto.DataType.Name(number)  # type: ignore[arg-type]  # the stub wants a member, any int has an answer
    except ValueError:
        return f"number {number}"


def _either(types: tuple[int, ...]) -> str:
    return " or ".join(map(type_name, types))


def _unknown_fields(message: Message) -> Iterator[str]:
    """A field that version 1 does not know may change what the bytes mean; unknown enum values land here too."""
    unknowns = UnknownFieldSet(message)
    for index in range(len(unknowns)):
        field = unknowns[index]
        known = message.DESCRIPTOR.fields_by_number.get(field.field_number)
        if known is None:
            yield f"field {field.field_number} of {message.DESCRIPTOR.name} is not defined in version 1"
        else:
            yield f"{known.name} has the undefined value {field.data}"


def _cast_problems(proto: QuantizationProto) -> Iterator[str]:
    if proto.cast.storage_type != TensorProto.FLOAT8E4M3FN:
        yield f"storage_type {type_name(proto.cast.storage_type)} is not FLOAT8E4M3FN, the only one of cast"


def _linear_problems(linear: LinearUniformProto) -> Iterator[str]:
    integers = {**SIGNED, **UNSIGNED}
    bits = integers.get(linear.storage_type)
    yield from _width_problems(linear.storage_type, linear.bits, integers)
    scale = linear.WhichOneof("scale")
    if scale is None:
        yield "scale_float is missing"
    elif scale != "scale_float":
        yield f"{scale} is not accepted, only scale_float"
    elif not _is_scale(linear.scale_float):
        yield f"scale_float {linear.scale_float:g} is not finite and positive with a finite reciprocal"
    if bits is not None:
        low = -(1 << bits - 1) if linear.storage_type in SIGNED else 0
        high = low + (1 << bits) - 1
        if not low <= linear.zero_point <= high:
            yield f"zero_point {linear.zero_point} is outside {low} to {high}, what {bits} bits of storage hold"


def _is_scale(scale: float) -> bool:
    if not math.isfinite(scale) or scale <= 0:
        return False
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.float32(1) / np.float32(scale)))


def _packed_problems(packed: PackedLinearUniformProto) -> Iterator[str]:
    storage = packed.storage_type
    widths = {**SIGNED, **UNSIGNED, **FLOATS}
    yield from _width_problems(storage, packed.bits, widths)
    bits = widths.get(storage)
    if packed.block_size < 1:
        yield f"block_size {packed.block_size} is not positive"
    elif bits is not None and packed.block_size * bits % 8:
        yield f"block_size {packed.block_size} of {bits} bits is {packed.block_size * bits} bits, not whole bytes"
    if packed.axis < 0:
        yield f"axis {packed.axis} is negative; it is the last axis of a page as a non-negative index"
    if bits is not None:
        yield from _term_problems(packed)


def _width_problems(storage: int, bits: int, widths: Mapping[int, int]) -> Iterator[str]:
    width = widths.get(storage)
    if width is None:
        yield f"storage_type {type_name(storage)} is not accepted"
    elif bits != width:
        yield f"bits {bits} != {width}, the width of storage_type {type_name(storage)}"


def _term_problems(packed: PackedLinearUniformProto) -> Iterator[str]:
    """Scale, zero point and correction must fit the storage type."""
    storage, name = packed.storage_type, type_name(packed.storage_type)
    is_unsigned = storage in UNSIGNED
    if packed.symmetric == is_unsigned:
        kind = "an unsigned" if is_unsigned else "a float" if storage in FLOATS else "a signed"
        yield f"symmetric is {str(packed.symmetric).lower()}, but storage_type {name} is {kind} type"
    if packed.scale_type not in (scales := scale_types(storage)):
        yield f"scale_type {type_name(packed.scale_type)} is not {_either(scales)}, the choice for storage_type {name}"
    terms = {"zero_point_type": packed.zero_point_type, "correction_type": packed.correction_type}
    present = [term for term, number in terms.items() if number]
    if len(present) == 2:
        yield "zero_point_type and correction_type exclude each other"
    if is_unsigned and not present:
        yield f"storage_type {name} needs a zero_point_type or a correction_type"
    if not is_unsigned:
        yield from (f"{term} does not go with storage_type {name}" for term in present)
    if packed.zero_point_type and packed.zero_point_type != TensorProto.UINT8:
        yield f"zero_point_type {type_name(packed.zero_point_type)} is not UINT8"
    if packed.correction_type and packed.correction_type not in DECODED:
        yield f"correction_type {type_name(packed.correction_type)} is not {_either(DECODED)}"


def scale_types(storage_type: int) -> tuple[int, ...]:
    """The types that the scales of a ``packed_linear`` declaration with this storage type may have."""
    if storage_type == TensorProto.FLOAT4E2M1:
        return (*DECODED, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E8M0)
    if storage_type == TensorProto.FLOAT8E4M3FN:
        return (*DECODED, TensorProto.FLOAT8E8M0)
    return DECODED
