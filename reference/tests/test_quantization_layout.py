"""Where bytes lie: sizes, both layouts, bit order, and rows that touch nothing but their own bytes."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import numpy_helper
from quantization_models import ALL, LAYOUTS, T, cast, hostile, identity, linear, name_of, packed

from mutcache.errors import RunError
from mutcache.proto.onnx_ml import PackedLinearUniformProto, QuantizationProto
from mutcache.quantization import (
    PageShapeError,
    decode,
    decode_rows,
    encode,
    encode_rows,
    n_bytes,
    page_problems,
    parse_declaration,
    reencode,
)
from mutcache.requirements import Req


def hexadecimal(payload: NDArray[np.uint8]) -> str:
    return payload.tobytes().hex(" ")


def page(*rows: list[float]) -> NDArray[np.float16]:
    return np.asarray(rows, np.float16)


def test_sequential_parts_follow_each_other() -> None:
    declaration = parse_declaration(packed("INT8", "FLOAT16", block=2))
    # two groups of two; scales 2.0 (0x4000) and 0.5 (0x3800)
    payload = encode(page([254, -2, 63.5, 0.5]), declaration)
    assert hexadecimal(payload) == "7f ff 7f 01 00 40 00 38"


def test_interleaved_parts_stand_together() -> None:
    declaration = parse_declaration(packed("INT8", "FLOAT16", block=2, layout="INTERLEAVED"))
    payload = encode(page([254, -2, 63.5, 0.5]), declaration)
    assert hexadecimal(payload) == "7f ff 00 40 7f 01 00 38"


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        # codes e4 (0, 1, 2, 3 from the low bits) and 1b; scales 1 and 2; corrections -1 and 4
        ("SEQUENTIAL", "e4 1b 00 3c 00 40 00 bc 00 44"),
        ("INTERLEAVED", "e4 00 3c 00 bc 1b 00 40 00 44"),
    ],
)
def test_corrections_come_last_and_codes_fill_bytes_from_the_low_bits(layout: str, expected: str) -> None:
    declaration = parse_declaration(packed("UINT2", "FLOAT16", block=4, correction="FLOAT16", layout=layout))
    assert hexadecimal(encode(page([-1, 0, 1, 2, 10, 8, 6, 4]), declaration)) == expected


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        # min -3, max 12: scale 1, zero point 3; min 0, max 15: scale 1, zero point 0
        ("SEQUENTIAL", "30 f5 f0 21 00 3c 00 3c 03 00"),
        ("INTERLEAVED", "30 f5 00 3c 03 f0 21 00 3c 00"),
    ],
)
def test_zero_points_are_one_byte_a_group(layout: str, expected: str) -> None:
    declaration = parse_declaration(packed("UINT4", "FLOAT16", block=4, zero_point=True, layout=layout))
    assert hexadecimal(encode(page([-3, 0, 2, 12, 0, 15, 1, 2]), declaration)) == expected


def test_negative_codes_are_in_twos_complement() -> None:
    declaration = parse_declaration(packed("INT4", "FLOAT16", block=4))
    assert hexadecimal(encode(page([7, -7, -1, 0]), declaration)) == "97 0f 00 3c"


def test_static_codes_reach_the_lowest_one() -> None:
    declaration = parse_declaration(linear("INT8", 1.0))
    assert hexadecimal(encode(page([-128, -1000, 1000, 2.5]), declaration)) == "80 80 7f 02"


def test_identity_is_the_bytes_of_the_elements() -> None:
    x = np.asarray([[1.0, -0.0], [np.nan, 3.0]], np.float32)
    payload = encode(x, parse_declaration(identity("FLOAT")))
    assert payload.tobytes() == x.tobytes()


@pytest.mark.parametrize(
    "kind",
    [
        ml_dtypes.int4,
        ml_dtypes.uint4,
        ml_dtypes.int2,
        ml_dtypes.uint2,
        ml_dtypes.float4_e2m1fn,
        ml_dtypes.float6_e2m3fn,
        ml_dtypes.float6_e3m2fn,
        ml_dtypes.float8_e5m2,
        np.bool_,
        np.int64,
        np.complex128,
    ],
)
def test_identity_packs_as_onnx_does(kind: Any) -> None:
    x = np.random.default_rng(0).integers(0, 2, (3, 8)).astype(kind)
    if kind is ml_dtypes.int4:
        x = np.arange(-8, 8).astype(kind).reshape(2, 8)
    stored = numpy_helper.from_array(x)
    declaration = parse_declaration(identity(name_of(stored.data_type)))
    payload = encode(x, declaration)
    assert payload.tobytes() == stored.raw_data
    assert decode(payload, declaration, x.shape).tobytes() == x.tobytes()


SIZES = {
    "int8": (packed("INT8", "FLOAT16", axis=3), 2 * 3 * 4 * (64 + 2 * 2)),
    "int4": (packed("INT4", "FLOAT", axis=3), 2 * 3 * 4 * (32 + 2 * 4)),
    "int2 with correction": (packed("UINT2", "FLOAT16", correction="FLOAT", axis=3), 2 * 3 * 4 * (16 + 2 * 2 + 2 * 4)),
    "uint8 with zero point": (packed("UINT8", "BFLOAT16", zero_point=True, axis=3), 2 * 3 * 4 * (64 + 2 * 2 + 2)),
    "mxfp4": (packed("FLOAT4E2M1", "FLOAT8E8M0", axis=3), 2 * 3 * 4 * (32 + 2)),
    "nvfp4-like": (packed("FLOAT4E2M1", "FLOAT8E4M3FN", block=16, axis=3), 2 * 3 * 4 * (32 + 4)),
    "static int4": (linear("INT4", 1.0), 2 * 3 * 4 * 32),
    "cast": (cast(), 2 * 3 * 4 * 64),
    "identity": (identity(), 2 * 3 * 4 * 128),
}


@pytest.mark.parametrize("what", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sizes(what: str, layout: str) -> None:
    proto, expected = SIZES[what]
    if proto.HasField("packed_linear"):
        proto.packed_linear.layout = PackedLinearUniformProto.PackedLayout.Value(layout)
    declaration = parse_declaration(proto)
    assert n_bytes(declaration, (2, 3, 4, 64)) == expected
    assert n_bytes(declaration, (2, 3, 0, 64)) == 0


PROBLEMS = [
    (packed("INT8", "FLOAT16", axis=1), (4, 48), None, "48 of dims [4, 48] is no multiple of 32, the block_size"),
    (packed("INT8", "FLOAT16", axis=1), (2, 4, 64), None, "group axis 1 is not the last one of dims [2, 4, 64]"),
    (packed("INT8", "FLOAT16", axis=0), (), None, "group axis 0 is not the last one"),
    (packed("INT8", "FLOAT16", axis=1), (4, 64), 1, "axis 1 is the group axis"),
    (packed("INT8", "FLOAT16", axis=1), ("rows", 48), None, "48 of dims [rows, 48] is no multiple"),
    (packed("INT8", "FLOAT16", axis=1), (4, 64), 2, "axis 2 is outside dims [4, 64]"),
    (linear("INT4", 1.0), (4, 3), None, "the last size 3 of dims [4, 3] is no multiple of 2"),
    (linear("INT2", 1.0), (), None, "the last size 1 of dims [] is no multiple of 4"),
    (linear("INT4", 1.0), (4, 4), 1, "elements of 4 bits share bytes"),
    (identity(), (4, -1), None, "negative size -1"),
    (identity(), (1 << 40, 1 << 40), None, "> 9223372036854775807"),
]


@pytest.mark.parametrize(("proto", "dims", "axis", "expected"), PROBLEMS)
def test_what_dims_cannot_be(proto: Any, dims: tuple[int, ...], axis: int | None, expected: str) -> None:
    declaration = parse_declaration(proto)
    assert expected in "; ".join(page_problems(declaration, dims, axis))
    if axis is None and all(isinstance(dim, int) for dim in dims):
        with pytest.raises(PageShapeError) as caught:
            n_bytes(declaration, dims)
        assert caught.value.requirement is Req.MC_PAGED_007


def test_sizes_may_be_numbers_of_numpy() -> None:
    declaration = parse_declaration(packed("INT8", "FLOAT16", axis=1))
    assert n_bytes(declaration, tuple(np.asarray([4, 64]))) == 4 * 68
    with pytest.raises(PageShapeError):
        n_bytes(declaration, tuple(np.asarray([4, 48])))


@pytest.mark.parametrize("proto", [cast(), identity(), linear("INT8", 0.5)], ids=["cast", "identity", "linear"])
def test_a_page_may_be_one_number(proto: QuantizationProto) -> None:
    declaration = parse_declaration(proto)
    x = np.asarray(1.5, np.float16)
    found = decode(encode(x, declaration), declaration, ())
    assert found.shape == ()
    assert found == x


@pytest.mark.parametrize("dims", [(None, 64), ("rows", None), ("rows", "size"), (4, 64), (0, 0)])
def test_what_is_not_known_of_dims_is_no_problem(dims: tuple[int | str | None, ...]) -> None:
    assert page_problems(parse_declaration(packed("INT8", "FLOAT16", axis=1)), dims, 0) == []


def test_arrays_that_do_not_fit_are_refused_with_both_sides() -> None:
    declaration = parse_declaration(packed("INT8", "FLOAT16"))
    x = np.zeros((4, 64), np.float16)
    payload = encode(x, declaration)
    frozen = payload.copy()
    frozen.flags.writeable = False
    for refused, expected in (
        (lambda: encode(x.astype(np.float32), declaration), "elements are float32, the declaration decodes to FLOAT16"),
        (lambda: decode(payload[:-1], declaration, x.shape), "271 bytes != 272"),
        (lambda: decode(payload.view(np.int8), declaration, x.shape), "array of int8"),
        (lambda: decode(payload.repeat(2)[::2], declaration, x.shape), "not one contiguous run"),
        (lambda: encode_rows(frozen, declaration, x.shape, 0, 0, x[:1]), "read-only"),
        (lambda: encode_rows(payload, declaration, x.shape, 1, 0, x[:, :1]), "axis 1 is the group axis"),
        (lambda: encode_rows(payload, declaration, x.shape, 0, 0, x[:1, :32]), "in more than axis 0"),
        (lambda: reencode(payload, declaration, parse_declaration(identity("FLOAT")), x.shape), "decodes to FLOAT16"),
        (lambda: reencode(payload, declaration, declaration, x.shape, payload), "overlap"),
    ):
        with pytest.raises(PageShapeError, match="MC-PAGED-007") as caught:
            refused()
        assert expected in caught.value.message
    assert not payload.any()


@pytest.mark.parametrize(("position", "rows"), [(-1, 1), (4, 1), (1, 4), (1 << 63, 1), (np.int64((1 << 63) - 1), 1)])
def test_rows_outside_the_page_are_refused(position: int, rows: int) -> None:
    declaration = parse_declaration(packed("INT8", "FLOAT16"))
    payload = np.zeros(n_bytes(declaration, (4, 64)), np.uint8)
    with pytest.raises(RunError) as caught:
        encode_rows(payload, declaration, (4, 64), 0, position, np.ones((rows, 64), np.float16))
    assert caught.value.requirement is Req.MC_PAGED_005
    assert not payload.any()
    with pytest.raises(RunError):
        decode_rows(payload, declaration, (4, 64), 0, position, int(position) + rows)


#: One declaration of each form, for laws that do not depend on the types of scales.
FORMS = {
    **{f"{storage}-{layout[0]}":
       packed(storage, scale, block=block, axis=2, correction=term, zero_point=zero, layout=layout)
       for layout in LAYOUTS
       for storage, scale, block, term, zero in [
           ("INT8", "FLOAT16", 8, "", False),
           ("INT4", "FLOAT", 16, "", False),
           ("UINT2", "FLOAT16", 8, "BFLOAT16", False),
           ("UINT4", "BFLOAT16", 8, "", True),
           ("FLOAT8E4M3FN", "FLOAT", 8, "", False),
           ("FLOAT4E2M1", "FLOAT8E8M0", 8, "", False),
       ]},
    "linear INT4": linear("INT4", 0.25),
    "linear UINT8": linear("UINT8", 0.25, zero_point=100),
    "cast": cast(),
    "identity": identity(),
}  # fmt: skip


def owned(proto: QuantizationProto, dims: tuple[int, ...], axis: int, rows: range) -> NDArray[np.bool_]:
    """Which bytes of a payload the groups of rows own, counted group by group."""
    packed_linear = proto.packed_linear
    width: dict[int, int] = {T.UNDEFINED: 0, T.UINT8: 1, T.FLOAT8E8M0: 1, T.FLOAT16: 2, T.BFLOAT16: 2, T.FLOAT: 4}
    widths = [
        packed_linear.block_size * packed_linear.bits // 8,
        width[packed_linear.scale_type],
        width[packed_linear.zero_point_type],
        width[packed_linear.correction_type],
    ]
    places = list(np.ndindex(*dims[:-1], dims[-1] // packed_linear.block_size))
    in_rows = [place[axis] in rows for place in places]
    if packed_linear.layout == LAYOUTS.index("INTERLEAVED"):
        return np.repeat(in_rows, sum(widths))
    return np.concatenate([np.repeat(in_rows, width) for width in widths])


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_are_encoded_in_place_at_every_position(name: str, axis: int) -> None:
    declaration = parse_declaration(FORMS[name])
    dims = (2, 3, 16)
    x = hostile("FLOAT16", 16, 3, 6).reshape(dims)
    new = hostile("FLOAT16", 16, 4, 6).reshape(dims)
    for start, stop in itertools.combinations_with_replacement(range(dims[axis] + 1), 2):
        rows = (slice(None),) * axis + (slice(start, stop),)
        payload = encode(x, declaration)
        before = payload.copy()
        encode_rows(payload, declaration, dims, axis, start, new[rows])
        expected = x.copy()
        expected[rows] = new[rows]
        assert payload.tobytes() == encode(expected, declaration).tobytes()
        found = decode_rows(payload, declaration, dims, axis, start, stop)
        whole = decode(payload, declaration, dims)
        assert found.tobytes() == np.ascontiguousarray(whole[rows]).tobytes()
        if stop - start == 0:
            assert payload.tobytes() == before.tobytes()


@pytest.mark.parametrize("name", [name for name in FORMS if FORMS[name].HasField("packed_linear")])
@pytest.mark.parametrize(("axis", "start", "stop"), [(0, 1, 2), (1, 0, 1), (1, 1, 3), (1, 2, 2)])
def test_rows_touch_their_own_bytes_and_no_other(name: str, axis: int, start: int, stop: int) -> None:
    declaration = parse_declaration(FORMS[name])
    dims = (2, 3, 16)
    new = hostile("FLOAT16", 16, 4, 6).reshape(dims)[(slice(None),) * axis + (slice(start, stop),)]
    results = []
    for filling in (0x00, 0xFF):
        payload = np.full(n_bytes(declaration, dims), filling, np.uint8)
        encode_rows(payload, declaration, dims, axis, start, new)
        results.append(payload)
    written = results[0] == results[1]
    assert written.tolist() == owned(FORMS[name], dims, axis, range(start, stop)).tolist()
    assert not results[0][~written].any()
    assert (results[1][~written] == 0xFF).all()


@pytest.mark.parametrize("name", ["linear UINT8", "cast", "identity"])
def test_whole_bytes_can_be_written_along_the_last_axis_too(name: str) -> None:
    declaration = parse_declaration(FORMS[name])
    x = hostile("FLOAT16", 5, 1, 6).reshape(2, 3, 5)
    new = hostile("FLOAT16", 2, 2, 6).reshape(2, 3, 2)
    payload = encode(x, declaration)
    encode_rows(payload, declaration, x.shape, 2, 1, new)
    x[:, :, 1:3] = new
    assert payload.tobytes() == encode(x, declaration).tobytes()
    assert (decode_rows(payload, declaration, x.shape, 2, 1, 3).tobytes()
            == decode(payload, declaration, x.shape)[:, :, 1:3].tobytes())  # fmt: skip


@settings(deadline=None)
@given(
    name=st.sampled_from(sorted(ALL)),
    outer=st.integers(1, 3),
    rows=st.integers(0, 5),
    inner=st.integers(0, 3),
    groups=st.integers(1, 3),
    data=st.data(),
)
def test_a_page_is_its_rows(name: str, outer: int, rows: int, inner: int, groups: int, data: st.DataObject) -> None:
    proto = type(ALL[name]).FromString(ALL[name].SerializeToString())
    if proto.HasField("packed_linear"):
        proto.packed_linear.axis = 3
    declaration = parse_declaration(proto)
    dims = (outer, rows, inner, 32 * groups)
    kind = name_of(declaration.data_type)
    x = hostile(kind, dims[-1], data.draw(st.integers(0, 999)), outer * rows * inner).reshape(dims)
    payload = np.full(n_bytes(declaration, dims), 0x5A, np.uint8)
    position = 0
    while position < rows:
        length = data.draw(st.integers(1, rows - position))
        encode_rows(payload, declaration, dims, 1, position, x[:, position : position + length])
        position += length
    before = x.tobytes()
    assert payload.tobytes() == encode(x, declaration).tobytes()
    assert x.tobytes() == before


@pytest.mark.parametrize("name", ["INT8-S", "UINT2-I", "identity", "linear INT4"])
def test_chunks_do_not_show(name: str) -> None:
    """Pages of more elements than are converted at once, and payloads that start at odd addresses."""
    declaration = parse_declaration(FORMS[name])
    dims = (3, 70, 1024)
    x = np.random.default_rng(0).standard_normal(dims, np.float32).astype(np.float16)
    memory = np.zeros(n_bytes(declaration, dims) + 1, np.uint8)
    payload = memory[1:]
    encode_rows(payload, declaration, dims, 1, 0, x)
    assert payload.tobytes() == encode(x, declaration).tobytes()
    one = tuple(np.concatenate([decode_rows(payload, declaration, dims, 1, at, at + 1) for at in range(70)], axis=1))
    assert np.asarray(one).tobytes() == decode(payload, declaration, dims).tobytes()


@pytest.mark.parametrize(
    ("old", "new"), [*itertools.permutations(["INT8-S", "INT4-I", "UINT2-S", "identity", "cast"], 2)]
)
def test_a_change_of_declaration_decodes_and_encodes(old: str, new: str) -> None:
    before, after = parse_declaration(FORMS[old]), parse_declaration(FORMS[new])
    dims = (3, 40, 512)
    x = np.random.default_rng(1).standard_normal(dims, np.float32).astype(np.float16)
    payload = encode(x, before)
    expected = encode(decode(payload, before, dims), after)
    assert reencode(payload, before, after, dims).tobytes() == expected.tobytes()
    out = np.full(n_bytes(after, dims), 0xFF, np.uint8)
    assert reencode(payload, before, after, dims, out) is out
    assert out.tobytes() == expected.tobytes()


def test_views_of_any_strides_are_encoded() -> None:
    declaration = parse_declaration(packed("INT8", "FLOAT16", axis=2))
    x = hostile("FLOAT16", 64, 0, 24).reshape(4, 6, 64)
    turned = x.transpose(1, 0, 2)[::-1, ::2]
    assert encode(turned, declaration).tobytes() == encode(np.ascontiguousarray(turned), declaration).tobytes()
    for kind in (cast(), identity(), linear("INT8", 0.1)):
        spread = hostile("FLOAT16", 64, 0, 24)[:, ::3]
        assert (
            encode(spread, parse_declaration(kind)).tobytes()
            == encode(spread.copy(), parse_declaration(kind)).tobytes()
        )
