"""What version 1 accepts of a declaration, and how a refusal names what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from quantization_models import ALL, T, cast, codebook, identity, linear, number, packed

from mutcache.errors import MutcacheError
from mutcache.proto.onnx_ml import QuantizationProto
from mutcache.quantization import (
    Declaration,
    Kind,
    Layout,
    UnsupportedDeclaration,
    parse_declaration,
    problems,
)
from mutcache.requirements import Req

Edit = Callable[[QuantizationProto], object]


@pytest.mark.parametrize("name", ALL)
def test_every_combination_of_version_1_is_accepted(name: str) -> None:
    assert problems(ALL[name]) == []
    assert parse_declaration(ALL[name]).kind == ALL[name].WhichOneof("kind")


def test_a_declaration_says_what_its_message_says() -> None:
    proto = packed("UINT4", "BFLOAT16", block=16, axis=3, correction="FLOAT", layout="INTERLEAVED")
    assert parse_declaration(proto) == Declaration(
        kind=Kind.PACKED_LINEAR,
        data_type=T.FLOAT16,
        storage_type=T.UINT4,
        bits=4,
        symmetric=False,
        block_size=16,
        axis=3,
        scale_type=T.BFLOAT16,
        zero_point_type=None,
        correction_type=T.FLOAT,
        layout=Layout.INTERLEAVED,
    )
    assert parse_declaration(linear("UINT8", 0.5, zero_point=7, data="BFLOAT16")) == Declaration(
        Kind.LINEAR, T.BFLOAT16, T.UINT8, 8, scale_float=0.5, zero_point=7
    )
    assert parse_declaration(cast("FLOAT")) == Declaration(Kind.CAST, T.FLOAT, T.FLOAT8E4M3FN, 8)
    assert parse_declaration(identity("INT64")) == Declaration(Kind.IDENTITY, T.INT64, T.INT64, 64)


@pytest.mark.parametrize("name", sorted(set(T.DataType.keys()) - {"UNDEFINED", "STRING"}))
def test_identity_takes_every_type_of_fixed_width(name: str) -> None:
    assert problems(identity(name)) == []


def with_bytes(proto: QuantizationProto, extra: bytes) -> QuantizationProto:
    """The message with bytes of fields that this version does not know."""
    return QuantizationProto.FromString(proto.SerializeToString() + extra)


def edited(proto: QuantizationProto, **fields: object) -> QuantizationProto:
    """The message with fields of its kind, or its own data_type, replaced."""
    kind = proto.WhichOneof("kind")
    assert kind is not None
    for name, content in fields.items():
        setattr(proto if name == "data_type" else getattr(proto, kind), name, content)
    return proto


REFUSED = {
    "no kind": (QuantizationProto(data_type=T.FLOAT16), "no kind"),
    "codebook": (codebook(), "codebook is not accepted"),
    "a reserved kind": (with_bytes(QuantizationProto(), b"\x1a\x00"), "field 3 of QuantizationProto"),
    "a field of a later version": (with_bytes(packed("INT8", "FLOAT16"), b"\x60\x01"), "field 12 of QuantizationProto"),
    "an unknown layout": (with_bytes(packed("INT8", "FLOAT16"), b"\x8a\x01\x02\x48\x07"), "layout has the undefined"),
    "identity of strings": (identity("STRING"), "STRING has no fixed width"),
    "identity of nothing": (identity("UNDEFINED"), "UNDEFINED has no fixed width"),
    "identity of an unknown type": (edited(identity(), data_type=99), "number 99 has no fixed width"),
    "decodes to double": (packed("INT8", "FLOAT16", data="DOUBLE"), "data_type DOUBLE is not FLOAT or"),
    "cast decodes to integers": (cast("INT8"), "data_type INT8 is not"),
    "cast to E5M2": (edited(cast(), storage_type=T.FLOAT8E5M2), "FLOAT8E5M2 is not FLOAT8E4M3FN"),
    "cast to FNUZ": (edited(cast(), storage_type=T.FLOAT8E4M3FNUZ), "FLOAT8E4M3FNUZ is not FLOAT8E4M3FN"),
    "linear with an integer scale": (edited(linear("INT8", 1.0), scale_int=2), "scale_int is not accepted"),
    "linear without a scale": (edited(linear("INT8", 1.0), scale_int=2), "scale"),
    "linear, scale 0": (linear("INT8", 0.0), "scale_float 0 is not"),
    "linear, scale -1": (linear("INT8", -1.0), "scale_float -1 is not"),
    "linear, scale infinite": (linear("INT8", float("inf")), "scale_float inf is not"),
    "linear, scale NaN": (linear("INT8", float("nan")), "scale_float nan is not"),
    "linear, infinite reciprocal": (linear("INT8", 2.0**-128), "finite reciprocal"),
    "linear with float storage": (edited(linear("INT8", 1.0), storage_type=T.FLOAT8E4M3FN), "E4M3FN is not accepted"),
    "linear, wrong width": (edited(linear("INT4", 1.0), bits=8), "bits 8 != 4"),
    "linear, zero point above": (linear("INT8", 1.0, zero_point=128), "zero_point 128 is outside -128 to 127"),
    "linear, zero point below": (linear("UINT4", 1.0, zero_point=-1), "zero_point -1 is outside 0 to 15"),
    "storage INT16": (edited(packed("INT8", "FLOAT16"), storage_type=T.INT16), "storage_type INT16 is not accepted"),
    "storage E5M2": (edited(packed("INT8", "FLOAT16"), storage_type=T.FLOAT8E5M2), "FLOAT8E5M2 is not accepted"),
    "bits and type differ": (edited(packed("INT4", "FLOAT16"), bits=8), "bits 8 != 4, the width of storage_type INT4"),
    "bits absent": (edited(packed("INT4", "FLOAT16"), bits=0), "bits 0 != 4"),
    "signed but not symmetric": (edited(packed("INT8", "FLOAT16"), symmetric=False), "symmetric is false"),
    "float but not symmetric": (edited(packed("FLOAT4E2M1", "FLOAT16"), symmetric=False), "symmetric is false"),
    "unsigned but symmetric": (edited(packed("UINT8", "FLOAT16"), symmetric=True), "symmetric is true"),
    "unsigned without a term": (packed("UINT8", "FLOAT16"), "needs a zero_point_type or a correction_type"),
    "both terms": (packed("UINT8", "FLOAT16", zero_point=True, correction="FLOAT"), "exclude each other"),
    "signed with a zero point": (packed("INT8", "FLOAT16", zero_point=True), "zero_point_type does not go with"),
    "float with a correction": (packed("FLOAT8E4M3FN", "FLOAT16", correction="FLOAT"), "correction_type does not go"),
    "zero point INT8": (edited(packed("UINT8", "FLOAT16"), zero_point_type=T.INT8), "INT8 is not UINT8"),
    "correction E4M3": (packed("UINT8", "FLOAT16", correction="FLOAT8E4M3FN"), "correction_type FLOAT8E4M3FN is not"),
    "no scale type": (packed("INT8", "UNDEFINED"), "scale_type UNDEFINED is not FLOAT or FLOAT16 or BFLOAT16"),
    "E8M0 scales of integers": (packed("INT8", "FLOAT8E8M0"), "scale_type FLOAT8E8M0 is not"),
    "E4M3 scales of FP8": (packed("FLOAT8E4M3FN", "FLOAT8E4M3FN"), "scale_type FLOAT8E4M3FN is not"),
    "block of nothing": (packed("INT8", "FLOAT16", block=0), "block_size 0 is not positive"),
    "negative block": (packed("INT8", "FLOAT16", block=-8), "block_size -8 is not positive"),
    "group of half a byte": (packed("INT4", "FLOAT16", block=1), "is 4 bits, not whole bytes"),
    "group of a byte and a half": (packed("INT2", "FLOAT16", block=6), "is 12 bits, not whole bytes"),
    "negative axis": (packed("INT8", "FLOAT16", axis=-1), "axis -1 is negative"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_names_what_is_wrong(what: str) -> None:
    proto, reason = REFUSED[what]
    assert any(reason in found for found in problems(proto)), problems(proto)
    with pytest.raises(UnsupportedDeclaration) as caught:
        parse_declaration(proto)
    assert isinstance(caught.value, MutcacheError)
    assert caught.value.requirement is Req.MC_QUANT_006
    assert list(caught.value.reasons) == problems(proto)


def test_all_reasons_are_named_at_once() -> None:
    proto = packed("INT4", "DOUBLE", block=3, axis=-2, data="INT8")
    assert len(problems(proto)) == 4


def test_a_linear_declaration_without_scale_is_refused() -> None:
    proto = linear("INT8", 1.0)
    proto.linear.ClearField("scale_float")
    assert problems(proto) == ["scale_float is missing"]


def test_axis_and_symmetry_decide_nothing_of_a_static_declaration() -> None:
    proto = edited(linear("INT8", 0.5, zero_point=3), axis=-7, symmetric=False)
    assert problems(proto) == []


def test_the_smallest_scale_of_a_static_declaration_has_a_finite_reciprocal() -> None:
    smallest = 2.0**-128 + 2.0**-149
    assert problems(linear("INT8", smallest)) == []


def test_names_of_types_are_numbers_where_there_is_no_name() -> None:
    assert number("FLOAT") == T.FLOAT
    assert "number 77" in problems(edited(packed("INT8", "FLOAT16"), storage_type=77))[0]
