"""Laws of the canonical codec: bounded errors, round trips, monotony, and what is not finite."""

from __future__ import annotations

import itertools
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from quantization_models import ALL, BITS, DECODED, FLOATS, PACKED, cast, dtype, hostile, linear, name_of, packed

from mutcache.proto.onnx_ml import QuantizationProto
from mutcache.quantization import decode, encode, parse_declaration

Doubles = NDArray[np.float64]

#: Largest magnitude of a code of symmetric storage.
CODE_MAX: Final = {"INT8": 127, "INT4": 7, "INT2": 1, "FLOAT8E4M3FN": 448, "FLOAT4E2M1": 6}
#: Bits of the mantissa and exponent of the smallest normal number.
MANTISSA: Final = {"FLOAT": (23, -126), "FLOAT16": (10, -14), "BFLOAT16": (7, -126)}
CODES: Final = {"FLOAT8E4M3FN": (3, -6), "FLOAT4E2M1": (1, 0)}
FLOAT_MAX: Final = float(np.finfo(np.float32).max)

declarations = st.sampled_from(sorted(PACKED))
seeds = st.integers(0, (1 << 32) - 1)


def spacing(values: Doubles, mantissa: int, smallest: int) -> Doubles:
    """One unit in the last place of a float type around each value."""
    exponents = np.maximum(np.frexp(values)[1] - 1, smallest)
    exponents[values == 0] = smallest
    return np.asarray(np.ldexp(1.0, exponents - mantissa))


def terms(proto: QuantizationProto, payload: NDArray[np.uint8], groups: int) -> tuple[Doubles, Doubles]:
    """Scales and corrections of a SEQUENTIAL payload, [groups, 1] each, read without the code under test."""
    declared = proto.packed_linear
    codes = groups * declared.block_size * declared.bits // 8
    scale_type = name_of(declared.scale_type)
    kinds: dict[str, Any] = {"FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn, "FLOAT8E8M0": ml_dtypes.float8_e8m0fnu}
    kind = np.dtype(kinds[scale_type]) if scale_type in kinds else dtype(scale_type)
    scales = payload[codes : codes + groups * kind.itemsize].view(kind).astype(np.float64)
    if not declared.correction_type:
        return scales[:, None], np.zeros((groups, 1))
    tail = dtype(name_of(declared.correction_type))
    return scales[:, None], payload[payload.size - groups * tail.itemsize :].view(tail).astype(np.float64)[:, None]


def bound(proto: QuantizationProto, payload: NDArray[np.uint8], x: Doubles, found: Doubles) -> Doubles:
    """The specification's bound of the error of each element, in double precision."""
    declared = proto.packed_linear
    storage = name_of(declared.storage_type)
    scale, correction = terms(proto, payload, len(x))
    top = (1 << declared.bits) - 1
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    amax = np.abs(x).max(axis=1, keepdims=True)
    step = np.broadcast_to(scale, x.shape)
    if storage in FLOATS:
        place = np.minimum(np.abs(x) / np.where(scale == 0, 1, scale), CODE_MAX[storage])
        step = scale * spacing(place, *CODES[storage])
    if storage in CODE_MAX:
        excess = np.maximum(0, amax - CODE_MAX[storage] * scale)
    elif declared.zero_point_type:
        excess = np.maximum(0, np.maximum(high, 0) - np.minimum(low, 0) - top * scale)
    else:
        excess = np.maximum(0, correction - low) + np.maximum(0, high - correction - top * scale)
    half_ulp = spacing(np.maximum(np.abs(x), np.abs(found)), *MANTISSA[name_of(proto.data_type)]) / 2
    rounding = 2.0**-22 * (np.abs(x) + np.abs(correction) + top * scale)
    return np.asarray(step / 2 + excess + half_ulp + rounding)


def finite_groups(data: str, seed: int, count: int = 12, size: int = 32) -> NDArray[Any]:
    groups = hostile(data, size, seed, count)
    with np.errstate(invalid="ignore"):
        wide = groups.astype(np.float64)
        keep = np.isfinite(wide).all(axis=1) & (wide.max(axis=1) - wide.min(axis=1) <= FLOAT_MAX)
    return np.asarray(groups[keep])


@settings(deadline=None)
@given(declarations, seeds)
def test_the_error_of_finite_groups_is_within_the_bound(name: str, seed: int) -> None:
    proto = PACKED[name]
    declaration = parse_declaration(proto)
    x = finite_groups(name_of(proto.data_type), seed)
    payload = encode(x, declaration)
    found = decode(payload, declaration, x.shape)
    if proto.packed_linear.layout:  # the parts are read from a SEQUENTIAL payload
        sequential = QuantizationProto.FromString(proto.SerializeToString())
        sequential.packed_linear.layout = 0  # type: ignore[assignment]  # the stub wants a member
        proto, payload = sequential, encode(x, parse_declaration(sequential))
    exact, decoded = x.astype(np.float64), found.astype(np.float64)
    assert np.isfinite(decoded).all()
    assert (np.abs(decoded - exact) <= bound(proto, payload, exact, decoded)).all()


@settings(deadline=None)
@given(
    st.sampled_from([*itertools.product(("INT8", "INT4", "UINT8", "UINT2"), DECODED)]), seeds, st.floats(1e-30, 1e30)
)
def test_the_error_of_a_static_page_is_half_a_step_within_its_range(
    kind: tuple[str, str], seed: int, scale: float
) -> None:
    storage, data = kind
    scale = float(np.float32(scale))
    declaration = parse_declaration(linear(storage, scale, data=data))
    x = finite_groups(data, seed)
    low = -(1 << BITS[storage] - 1) if storage.startswith("INT") else 0
    reach = np.clip(x.astype(np.float64), low * scale, (low + (1 << BITS[storage]) - 1) * scale)
    x = reach.astype(dtype(data))
    found = decode(encode(x, declaration), declaration, x.shape).astype(np.float64)
    exact = x.astype(np.float64)
    half_ulp = spacing(np.maximum(np.abs(exact), np.abs(found)), *MANTISSA[data]) / 2
    # clipping the input to the range may have rounded it out of it by as much again
    assert (np.abs(found - exact) <= scale / 2 + 2 * half_ulp + 2.0**-22 * (np.abs(exact) + 255 * scale)).all()


def round_trips(name: str) -> bool:
    """Whether the specification promises that a decoded page encodes to the same bytes."""
    declared = PACKED[name].packed_linear
    storage, scale = name_of(declared.storage_type), name_of(declared.scale_type)
    if storage in ("INT8", "INT4", "INT2"):
        return scale in DECODED
    return storage in FLOATS


@settings(deadline=None)
@given(st.sampled_from([name for name in sorted(PACKED) if round_trips(name)]), seeds)
def test_canonical_payloads_come_back_from_what_they_decode_to(name: str, seed: int) -> None:
    proto = PACKED[name]
    declaration = parse_declaration(proto)
    data = name_of(proto.data_type)
    x = finite_groups(data, seed)
    found = decode(encode(x, declaration), declaration, x.shape)
    sequential = QuantizationProto.FromString(proto.SerializeToString())
    sequential.packed_linear.layout = 0  # type: ignore[assignment]  # the stub wants a member
    scale, _ = terms(sequential, encode(x, parse_declaration(sequential)), len(x))
    smallest_scale = {"FLOAT16": 2.0**-14, "FLOAT8E4M3FN": 2.0**-6, "FLOAT8E8M0": 2.0**-126}.get(
        name_of(proto.packed_linear.scale_type), 2.0**-126
    )
    decoded = np.abs(found.astype(np.float64))
    is_normal = ((decoded == 0) | (decoded >= 2.0 ** MANTISSA[data][1])).all(axis=1) & (scale[:, 0] >= smallest_scale)
    assume(is_normal.any())
    kept = found[is_normal]
    assert encode(kept, declaration).tobytes() == encode(x[is_normal], declaration).tobytes()


@settings(deadline=None)
@given(declarations, seeds, st.integers(1, 31))
def test_decoded_elements_grow_with_what_was_encoded(name: str, seed: int, place: int) -> None:
    """Two groups with the same extremes, and so the same terms: the larger element does not decode to less."""
    proto = PACKED[name]
    declaration = parse_declaration(proto)
    data = name_of(proto.data_type)
    group = finite_groups(data, seed, count=8)
    assume(len(group))
    x = np.sort(np.concatenate([group[0], group[0]]))
    ends = np.asarray([x[0], x[-1]])
    page = np.empty((len(x), 32), x.dtype)
    page[:] = x[0]
    page[:, :1] = ends[0]
    page[:, place] = x
    page[:, 31 if place != 31 else 30] = ends[1]
    found = decode(encode(page, declaration), declaration, page.shape)[:, place].astype(np.float64)
    assert (np.diff(found) >= 0).all()


NOT_FINITE: Final = [np.nan, -np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("name", PACKED)
def test_a_group_with_something_not_finite_decodes_to_nan_throughout(name: str) -> None:
    declaration = parse_declaration(PACKED[name])
    kind = dtype(name_of(declaration.data_type))
    x = np.linspace(-3, 5, 4 * 64).astype(kind).reshape(4, 64)
    for row, content in enumerate(NOT_FINITE):
        x[row, 32 + 7 * row] = content
    found = decode(encode(x, declaration), declaration, x.shape).astype(np.float64)
    assert np.isnan(found[:, 32:]).all()
    assert np.isfinite(found[:, :32]).all()


NANS: Final = {
    "FLOAT": "00 00 c0 7f",
    "FLOAT16": "00 7e",
    "BFLOAT16": "c0 7f",
    "FLOAT8E4M3FN": "7f",
    "FLOAT8E8M0": "ff",
}


@pytest.mark.parametrize(
    ("storage", "scale"),
    [
        ("INT8", "FLOAT"),
        ("INT4", "FLOAT16"),
        ("INT2", "BFLOAT16"),
        ("FLOAT4E2M1", "FLOAT8E4M3FN"),
        ("FLOAT4E2M1", "FLOAT8E8M0"),
    ],
)
@pytest.mark.parametrize("content", NOT_FINITE, ids=["nan", "-nan", "inf", "-inf"])
def test_the_scale_of_such_a_group_is_the_one_nan(storage: str, scale: str, content: float) -> None:
    x = np.full((1, 8), -2.0, np.float16)
    x[0, 3] = content
    payload = encode(x, parse_declaration(packed(storage, scale, block=8)))
    assert payload.tobytes() == bytes(BITS[storage]) + bytes.fromhex(NANS[scale])


@pytest.mark.parametrize(("zero_point", "correction", "tail"), [(True, "", 1), (False, "FLOAT16", 2)])
def test_the_other_terms_of_such_a_group_are_zero(zero_point: bool, correction: str, tail: int) -> None:
    x = np.full((1, 8), -2.0, np.float16)
    x[0, 3] = -np.inf
    proto = packed("UINT8", "FLOAT16", block=8, zero_point=zero_point, correction=correction)
    assert encode(x, parse_declaration(proto)).tobytes() == bytes(8) + b"\x00\x7e" + bytes(tail)


@pytest.mark.parametrize("data", DECODED)
def test_cast_saturates_and_keeps_nan(data: str) -> None:
    x = np.asarray(
        [[np.inf, -np.inf, np.nan, -np.nan, 448, 464, 465, -6e4, 0, -0.0, 2.0**-10, -(2.0**-11)]], dtype(data)
    )
    codes = encode(x, parse_declaration(cast(data)))
    assert codes.tobytes().hex(" ") == "7e fe 7f 7f 7e 7e 7e fe 00 80 00 80"
    found = decode(codes, parse_declaration(cast(data)), x.shape).astype(np.float32)
    np.testing.assert_array_equal(found, [[448, -448, np.nan, np.nan, 448, 448, 448, -448, 0, -0.0, 0, -0.0]])
    assert np.signbit(found[0, [9, 11]]).all()


@pytest.mark.parametrize("data", DECODED)
def test_static_pages_hold_no_nan_and_saturate(data: str) -> None:
    x = np.asarray([[np.nan, np.inf, -np.inf, 3e4, 0.25, 0.75]], dtype(data))
    declaration = parse_declaration(linear("INT8", 0.5, zero_point=10, data=data))
    codes = encode(x, declaration)
    # code 0 of NaN decodes to (0 - 10) * 0.5; ties go to even before the zero point is added
    assert codes.view(np.int8).tolist() == [0, 127, -128, 127, 10, 12]
    assert decode(codes, declaration, x.shape).astype(np.float32).tolist() == [[-5, 58.5, -69, 58.5, 0, 1]]


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith(("identity", "FLOAT", "cast"))])
def test_zeros_of_any_sign_encode_as_zero(name: str) -> None:
    declaration = parse_declaration(ALL[name])
    x = np.zeros((2, 32), dtype(name_of(declaration.data_type)))
    x[1] = -0.0
    payload = encode(x, declaration)
    assert not payload.any()
    found = decode(payload, declaration, x.shape)
    assert not found.view(np.uint8).any()


def test_a_zero_scale_has_positive_zero_codes_and_a_scale_keeps_their_sign() -> None:
    x = np.asarray([[-0.0] * 8, [-0.0] * 7 + [448]], np.float16)
    declaration = parse_declaration(packed("FLOAT8E4M3FN", "FLOAT16", block=8))
    assert encode(x, declaration).tobytes().hex(" ") == "00 00 00 00 00 00 00 00 80 80 80 80 80 80 80 7e 00 00 00 3c"
    exponents = parse_declaration(packed("FLOAT4E2M1", "FLOAT8E8M0", block=8))
    # an exponent is never zero: 2**-127 is the scale of nothing
    assert encode(x[:1], exponents).tobytes().hex(" ") == "88 88 88 88 00"


@pytest.mark.parametrize(
    ("scale", "data", "smallest"),
    [("FLOAT16", "FLOAT", 2.0**-24), ("BFLOAT16", "FLOAT", 2.0**-127), ("FLOAT", "FLOAT", 2.0**-127)],
)
def test_scales_underflow_to_zero_where_they_have_no_reciprocal(scale: str, data: str, smallest: float) -> None:
    declaration = parse_declaration(packed("INT2", scale, block=4, data=data))
    x = np.full((2, 4), smallest, dtype(data))
    x[1] /= 4
    found = decode(encode(x, declaration), declaration, x.shape)
    assert found[0].tolist() == [smallest] * 4
    assert not found[1].any()


def test_subnormal_scales_overshoot_and_codes_are_clamped() -> None:
    """amax / 127 rounds down to a subnormal float16 scale, so that amax itself would have the code 190."""
    declaration = parse_declaration(packed("INT8", "FLOAT16", block=8, data="FLOAT"))
    x = np.asarray([[190 * 2.0**-24, -190 * 2.0**-24, 2.0**-24, 0, 0, 0, 0, 0]], np.float32)
    payload = encode(x, declaration)
    assert payload.view(np.int8)[:3].tolist() == [127, -127, 1]
    assert payload[8:].tobytes() == b"\x01\x00"


def test_scales_and_corrections_saturate() -> None:
    declaration = parse_declaration(packed("UINT8", "FLOAT16", block=2, correction="FLOAT16", data="FLOAT"))
    x = np.asarray([[-3e38, 3e38]], np.float32)  # the spread overflows to infinity
    assert encode(x, declaration).tobytes().hex(" ") == "00 ff ff 7b ff fb"
    found = decode(encode(x, declaration), declaration, x.shape)
    assert found.tolist() == [[-65504.0, 254 * 65504.0]]


def test_the_largest_float16_does_not_decode_to_infinity() -> None:
    """65504 / 127 rounds up to the scale 516, and 127 * 516 is larger than any float16."""
    declaration = parse_declaration(packed("INT8", "FLOAT16", block=8))
    x = np.full((1, 8), 65504, np.float16)
    assert encode(x, declaration)[8:].view(np.float16).tolist() == [516]
    assert decode(encode(x, declaration), declaration, x.shape).tolist() == x.tolist()


def test_infinite_terms_of_foreign_payloads_are_not_clamped() -> None:
    declaration = parse_declaration(packed("INT8", "FLOAT16", block=2))
    payload = np.frombuffer(b"\x01\xff" + np.float16(np.inf).tobytes(), np.uint8)
    assert decode(payload, declaration, (1, 2)).tolist() == [[np.inf, -np.inf]]


def test_multiplying_by_the_reciprocal_is_not_dividing() -> None:
    """Codes come from ``x * (1 / s)`` with the stored scale: dividing breaks ties elsewhere."""
    random = np.random.default_rng(0)
    x = random.integers(-126, 126, (4096, 32)) + np.float32(0.5)
    x[:, 0] = 127
    x *= random.uniform(0.1, 1, (4096, 1)).astype(np.float32)
    x = x.astype(np.float32)
    declaration = parse_declaration(packed("INT8", "FLOAT", data="FLOAT"))
    codes = encode(x, declaration)[: x.size].view(np.int8).reshape(x.shape)
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    by_reciprocal = np.rint(x * (np.float32(1) / scale)).astype(np.int8)
    by_division = np.rint(x / scale).astype(np.int8)
    assert (codes == by_reciprocal).all()
    assert (codes != by_division).any()


def test_a_tie_goes_to_the_even_code() -> None:
    declaration = parse_declaration(packed("INT8", "FLOAT16", block=8))
    x = np.asarray([[127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.5]], np.float16)
    assert encode(x, declaration)[:8].view(np.int8).tolist() == [127, 0, 2, 2, 0, -2, -2, 4]


def test_small_groups_of_nvfp4_flush_and_large_ones_saturate() -> None:
    declaration = parse_declaration(packed("FLOAT4E2M1", "FLOAT8E4M3FN", block=16, data="FLOAT"))
    # the smallest E4M3 is 2**-9, and half of it rounds to zero, of which six make the largest element lost
    edge = 6 * 2.0**-10
    x = np.zeros((3, 16), np.float32)
    x[0], x[1], x[2] = edge, np.nextafter(np.float32(edge), np.float32(1)), 5000
    found = decode(encode(x, declaration), declaration, x.shape)
    assert (found[0] == 0).all()
    assert (found[1] != 0).all()
    assert (found[2] == 6 * 448).all()


@pytest.mark.parametrize("size", [8, 16, 32, 64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("storage", BITS)
def test_head_sizes(size: int, storage: str) -> None:
    """Groups of eight and groups of a whole head both fit every head size in use."""
    x = np.random.default_rng(size).standard_normal((2, 3, 5, size), np.float32).astype(np.float16)
    for block in (8, 16, size):
        if size % block:
            continue
        correction = "FLOAT16" if storage.startswith("UINT") else ""
        declaration = parse_declaration(packed(storage, "FLOAT16", block=block, axis=3, correction=correction))
        found = decode(encode(x, declaration), declaration, x.shape)
        groups = x.astype(np.float64).reshape(-1, block)
        reach = np.abs(groups).max(axis=1) if not correction else np.ptp(groups, axis=1) / 2
        error = np.abs(found.astype(np.float64).reshape(-1, block) - groups).max(axis=1)
        steps = {"INT8": 127, "INT4": 7, "INT2": 1, "UINT8": 127.5, "UINT4": 7.5, "UINT2": 1.5}
        limit = reach / (2 * steps[storage]) if storage in steps else reach / (6 if storage == "FLOAT4E2M1" else 28)
        assert (error <= limit * 1.01 + 2.0**-9).all()


@pytest.mark.parametrize("name", [*PACKED, *(name for name in ALL if name.startswith(("cast", "linear")))])
def test_strict_handling_of_floating_point_errors_changes_nothing(name: str) -> None:
    data = name_of(ALL[name].data_type)
    x = hostile(data, 32, 9, 10)
    with np.errstate(all="raise"):
        declaration = parse_declaration(ALL[name])
        decode(encode(x, declaration), declaration, x.shape)


@settings(deadline=None)
@given(seeds)
def test_identity_keeps_every_bit(seed: int) -> None:
    for data in DECODED:
        x = hostile(data, 32, seed, 4)
        declaration = parse_declaration(ALL[f"identity-{data}"])
        assert decode(encode(x, declaration), declaration, x.shape).tobytes() == x.tobytes()
