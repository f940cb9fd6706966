"""The oracle's codecs against values computed by hand."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import pytest
from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import QuantizationProto
from mutcache_conformance.cases.formats import FORMATS, INTERLEAVED, Format, cast, identity, linear, packed
from mutcache_conformance.oracle_codec import Codec, codec_of
from mutcache_conformance.oracle_floats import BFLOAT16, E2M1, E4M3, FLOAT, FLOAT16, FloatType, quotient, total

NOTHING = Fraction(0)


def made(form: Format, elem: int = Stock.FLOAT16, rank: int = 2) -> Codec:
    return codec_of(form(elem, rank))


def scale16(value: float) -> bytes:
    return struct.pack("<e", value)


# Floating-point types


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        (FLOAT, 1.0, 0x3F800000),
        (FLOAT, -0.0, 0x80000000),
        (FLOAT, 2.0**-149, 1),
        (FLOAT16, 65504.0, 0x7BFF),
        (FLOAT16, 2.0**-24, 1),
        (FLOAT16, -math.inf, 0xFC00),
        (BFLOAT16, 1.0, 0x3F80),
        (E4M3, 448.0, 0x7E),
        (E4M3, 2.0**-9, 1),
        (E4M3, -1.5, 0xBC),
        (E4M3, math.nan, 0x7F),
        (E2M1, 0.5, 1),
        (E2M1, 6.0, 7),
        (E2M1, -4.0, 0xE),
    ],
)
def test_codes_of_numbers(kind: FloatType, value: float, code: int) -> None:
    assert kind.encode(value) == code
    back = kind.decode(code)
    assert back == value or math.isnan(value)
    assert math.copysign(1, back) == math.copysign(1, value)


@pytest.mark.parametrize(
    ("kind", "value", "rounded"),
    [
        (FLOAT16, 2049.0, 2048.0),  # half-way: to the even one
        (FLOAT16, 2051.0, 2052.0),
        (FLOAT16, 65519.99, 65504.0),
        (FLOAT16, 65520.0, math.inf),
        (FLOAT16, 2.0**-25, 0.0),
        (FLOAT16, 2.0**-25 * 1.001, 2.0**-24),
        (BFLOAT16, 1.0 + 2.0**-8, 1.0),
        (FLOAT, 1.0 + 2.0**-24, 1.0),
        (FLOAT, 1.0 + 3 * 2.0**-24, 1.0 + 2.0**-22),
    ],
)
def test_rounding_to_nearest_even(kind: FloatType, value: float, rounded: float) -> None:
    assert kind.rounded(value) == rounded
    assert kind.rounded(-value) == -rounded
    assert kind.rounded(Fraction(value)) == rounded


@pytest.mark.parametrize(
    ("value", "saturated"), [(464.0, 448.0), (1e6, 448.0), (-math.inf, -448.0), (19.0, 20.0), (17.0, 16.0)]
)
def test_saturating_to_e4m3(value: float, saturated: float) -> None:
    assert E4M3.saturated(value) == saturated


@pytest.mark.parametrize(
    ("value", "saturated"), [(0.25, 0.0), (0.26, 0.5), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0), (7, 6.0)]
)
def test_saturating_to_e2m1(value: float, saturated: float) -> None:
    assert E2M1.saturated(float(value)) == saturated


def test_operations_are_rounded_once() -> None:
    assert quotient(1.0, 3.0) == struct.unpack("<f", struct.pack("<I", 0x3EAAAAAB))[0]
    assert total(2.0**24, 1.0) == 2.0**24
    assert total(2.0**24, 1.0000001) == 2.0**24 + 2
    assert math.isinf(quotient(1.0, 2.0**-149))


# Encoding


def test_symmetric_int8() -> None:
    codec = made(packed(Stock.INT8, 4))
    # s = 127 / 127 = 1; 0.5, 1.5 and -2.5 are ties.
    assert codec.encode([127.0, 0.5, 1.5, -2.5]) == bytes([127, 0, 2, 0xFE]) + scale16(1.0)


def test_symmetric_int4_packs_the_first_code_low() -> None:
    codec = made(packed(Stock.INT4, 4, layout=INTERLEAVED))
    # s = 3.5 / 7 = 0.5; codes 7, -7, 1, -2
    assert codec.encode([3.5, -3.5, 0.5, -1.0]) == bytes([0x97, 0xE1]) + scale16(0.5)
    assert codec.decode(bytes([0x97, 0xE1]) + scale16(0.5)) == [3.5, -3.5, 0.5, -1.0]


def test_symmetric_int2_uses_three_codes() -> None:
    codec = made(packed(Stock.INT2, 4))
    # s = 2: 1 is a tie, and so is -1.
    assert codec.encode([2.0, -2.0, 1.0, 1.5]) == bytes([0b01_00_11_01]) + scale16(2.0)


def test_correction() -> None:
    codec = made(packed(Stock.UINT2, 4, correction=Stock.FLOAT16))
    # c = 1, s = (4 - 1) / 3 = 1
    assert codec.encode([1.0, 2.0, 3.0, 4.0]) == bytes([0b11_10_01_00]) + scale16(1.0) + scale16(1.0)
    assert codec.decode(bytes([0b11_10_01_00]) + scale16(1.0) + scale16(1.0)) == [1.0, 2.0, 3.0, 4.0]


def test_zero_point() -> None:
    codec = made(packed(Stock.UINT4, 4, zero_point=Stock.UINT8))
    # from -5 to 10: s = 1, zp = 5
    assert codec.encode([-5.0, 0.0, 10.0, 1.0]) == bytes([0x50, 0x6F]) + scale16(1.0) + bytes([5])
    # nothing below zero: the range is extended to it
    assert codec.encode([7.5, 15.0, 15.0, 15.0]) == bytes([0xF8, 0xFF]) + scale16(1.0) + bytes([0])


def test_scaled_fp8() -> None:
    codec = made(packed(Stock.FLOAT8E4M3FN, 2, Stock.FLOAT))
    assert codec.encode([896.0, -3.0]) == bytes([0x7E, 0xBC]) + struct.pack("<f", 2.0)


def test_mxfp4_takes_the_exponent_of_the_largest() -> None:
    codec = made(packed(Stock.FLOAT4E2M1, 2, Stock.FLOAT8E8M0))
    # 7 has exponent 2, of which the type's largest exponent 2 is taken: s = 1, and 7 saturates at 6.
    assert codec.encode([7.0, -1.0]) == bytes([0xA7]) + bytes([127])
    assert codec.encode([0.0, -0.0]) == bytes([0x80, 0])  # the least scale, and signs of zeros


def test_nvfp4_flushes_what_is_small() -> None:
    codec = made(packed(Stock.FLOAT4E2M1, 2, Stock.FLOAT8E4M3FN))
    assert codec.encode([0.005, -0.005]) == bytes(2)  # 0.005 / 6 is below half of 2**-9: s = +0, all codes +0
    assert codec.encode([1e4, 2688.0]) == bytes([0x77]) + bytes([0x7E])  # the scale saturates at 448


def test_a_scale_without_a_reciprocal_is_zero() -> None:
    codec = made(packed(Stock.INT8, 2, Stock.FLOAT), Stock.FLOAT)
    tiny = 127 * 2.0**-149
    assert codec.encode([tiny, -tiny]) == bytes(6)


def test_the_scale_saturates() -> None:
    codec = made(packed(Stock.INT8, 2), Stock.FLOAT)
    assert codec.encode([3e38, 1.0]) == bytes([127, 0]) + scale16(65504.0)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("form", "payload"),
    [
        (packed(Stock.INT8, 2), bytes([0, 0, 0x00, 0x7E])),
        (packed(Stock.INT8, 2, Stock.BFLOAT16), bytes([0, 0, 0xC0, 0x7F])),
        (packed(Stock.INT8, 2, Stock.FLOAT), bytes([0, 0, 0, 0, 0xC0, 0x7F])),
        (packed(Stock.FLOAT4E2M1, 2, Stock.FLOAT8E4M3FN), bytes([0, 0x7F])),
        (packed(Stock.FLOAT4E2M1, 2, Stock.FLOAT8E8M0), bytes([0, 0xFF])),
        (packed(Stock.UINT8, 2, zero_point=Stock.UINT8), bytes([0, 0, 0x00, 0x7E, 0])),
        (packed(Stock.UINT8, 2, correction=Stock.FLOAT16), bytes([0, 0, 0x00, 0x7E, 0, 0])),
    ],
)
def test_one_number_that_is_not_finite_taints_its_group(form: Format, payload: bytes, special: float) -> None:
    codec = made(form)
    assert codec.encode([1.0, special]) == payload
    assert all(map(math.isnan, codec.decode(payload)))


def test_static_linear() -> None:
    codec = made(linear(Stock.INT8, 0.5, 10))
    assert codec.encode([1.0]) == bytes([12])
    assert codec.encode([0.25]) == bytes([10])  # a tie, before the zero point is added
    assert codec.encode([-1e4]) == bytes([0x80])
    assert codec.encode([math.inf]) == bytes([0x7F])
    assert codec.encode([math.nan]) == bytes([0])
    assert codec.decode(bytes([0])) == [-5.0]


def test_static_codes_of_four_bits_share_a_byte() -> None:
    codec = made(linear(Stock.INT4, 1.0))
    assert codec.size == 2
    assert codec.encode([1.0, -8.0]) == bytes([0x81])
    assert codec.decode(bytes([0x81])) == [1.0, -8.0]


def test_cast() -> None:
    codec = made(cast)
    assert [codec.encode([value])[0] for value in (1.0, -math.inf, math.nan, 500.0, -0.0)] == [
        56,
        0xFE,
        0x7F,
        0x7E,
        0x80,
    ]


def test_identity_has_the_bytes_of_its_elements() -> None:
    codec = made(identity, Stock.BFLOAT16)
    assert codec.encode([1.0, -2.0]) == bytes([0x80, 0x3F, 0x00, 0xC0])


def test_a_finite_number_never_decodes_to_infinity() -> None:
    codec = made(packed(Stock.INT8, 1))
    payload = codec.encode([65504.0])
    assert struct.unpack("<e", payload[1:])[0] * 127 > 65504  # so the decoded product must be clamped
    assert codec.decode(payload) == [65504.0]


# Layout


def test_sequential_places() -> None:
    codec = made(packed(Stock.UINT4, 4, zero_point=Stock.UINT8))
    assert codec.nbytes((2, 8)) == 4 * (2 + 2 + 1)
    assert codec.places(1, 4) == [(2, 2), (8 + 2, 2), (8 + 8 + 1, 1)]


def test_interleaved_places() -> None:
    codec = made(packed(Stock.UINT2, 8, Stock.FLOAT, correction=Stock.BFLOAT16, layout=INTERLEAVED))
    assert codec.nbytes((2, 16)) == 4 * (2 + 4 + 2)
    assert codec.places(3, 4) == [(24, 2), (26, 4), (30, 2)]


def test_sizes_of_pages() -> None:
    sizes = {name: codec_of(form(Stock.FLOAT16, 3)).nbytes((2, 4, 32)) for name, form in FORMATS.items()}
    assert sizes == {
        "int4": 144,
        "fp8": 256,
        "int2": 128,
        "int8": 272,
        "scaled-fp8": 288,
        "mxfp4": 136,
        "nvfp4": 144,
        "static-int8": 256,
        "identity": 512,
    }


# Bounds


def test_the_bound_of_an_integer_code_is_half_a_step_and_rounding() -> None:
    codec = made(packed(Stock.INT8, 2, Stock.FLOAT), Stock.FLOAT)
    bounds = codec.bounds([127.0, 3.25], NOTHING, [127.0, 3.0])
    assert bounds is not None
    half_step, half_ulp = Fraction(1, 2), Fraction(2) ** -23
    assert bounds[1] == half_step + half_ulp + Fraction(2) ** -22 * (Fraction(13, 4) + 255)


def test_the_bound_of_a_float_code_grows_with_the_number() -> None:
    codec = made(packed(Stock.FLOAT8E4M3FN, 2, Stock.FLOAT))
    bounds = codec.bounds([448.0, 1.0], NOTHING, [448.0, 1.0])
    assert bounds is not None
    assert 16 < bounds[0] < 16.5
    assert Fraction(1, 16) < bounds[1] < Fraction(1, 15)


def test_a_group_whose_scale_vanishes_may_lose_everything() -> None:
    codec = made(packed(Stock.FLOAT4E2M1, 2, Stock.FLOAT8E4M3FN))
    bounds = codec.bounds([0.005, 0.0], NOTHING, [0.0, 0.0])
    assert bounds is not None
    assert 0.005 <= bounds[0] < 0.0051


def test_slack_widens_the_bound() -> None:
    for form in FORMATS.values():
        codec = made(form)
        values = [float(number % 7 - 3) for number in range(codec.size)]
        results = codec.decode(codec.encode(values))
        tight, wide = (codec.bounds(values, slack, results) for slack in (NOTHING, Fraction(1, 8)))
        assert tight is not None
        assert wide is not None
        assert all(one + Fraction(1, 8) <= other for one, other in zip(tight, wide, strict=True))


def test_nothing_is_promised_of_a_range_beyond_float32() -> None:
    codec = made(packed(Stock.INT8, 2, Stock.FLOAT), Stock.FLOAT)
    assert codec.bounds([3e38, -3e38], NOTHING, [0.0, 0.0]) is None


def test_there_is_no_codec_for_a_codebook() -> None:
    declaration = QuantizationProto(data_type=Stock.FLOAT)
    declaration.codebook.scale_float = 1.0
    with pytest.raises(ValueError, match="codebook"):
        codec_of(declaration)
