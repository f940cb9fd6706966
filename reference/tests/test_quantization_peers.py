"""The codecs against other libraries, where their definitions coincide, and by how much where they do not.

* ``Q8_0`` of ggml is symmetric INT8 with float16 scales per 32. It takes its codes from the unrounded scale and rounds
  half away from zero; so codes are equal where the scale is exact and there is no tie, and differ by at most one.
* ``Q4_0`` of ggml has no counterpart with a scale per group: it maps the element of largest magnitude to -8, so its
  scale has a sign and a step of amax / 8. Given that scale, its codes are those of a static INT4 page, ties apart.
* ``MXFP4`` of ggml takes the scale from ``log2`` and the nearest value by search, ties to the smaller magnitude: scales
  are equal, codes apart from ties too.
* ml_dtypes casts to E2M1 and E4M3 alike, but for NaN, and but for what is too large for E4M3, which becomes NaN there.
  Its cast to E8M0 rounds to the nearest power of two; a scale takes the exponent as it is.

ggml keeps the first half of a group in the low nibbles; here neighbours share a byte.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from quantization_models import DECODED, cast, dtype, linear, packed

from mutcache.quantization import encode, parse_declaration


def activations(groups: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((groups, 32), np.float32)


def ggml(x: NDArray[np.float32], name: str) -> NDArray[np.uint8]:
    """The blocks that gguf makes of groups, [groups, bytes]."""
    quants = pytest.importorskip("gguf.quants", reason="gguf is not installed")
    constants = pytest.importorskip("gguf.constants")
    blocks = quants.quantize(x, constants.GGMLQuantizationType[name])
    return np.asarray(blocks, np.uint8).reshape(len(x), -1)


def nibbles(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The codes of ggml's blocks of 4 bits, in the order of the elements."""
    return np.concatenate([blocks & 15, blocks >> 4], axis=1)


def int8_codes(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """Codes and scales of symmetric INT8 with float16 scales."""
    payload = encode(x, parse_declaration(packed("INT8", "FLOAT16", data="FLOAT")))
    return payload[: x.size].view(np.int8).reshape(x.shape), payload[x.size :].reshape(len(x), 2)


def test_int8_equals_q8_0_where_the_scale_is_exact_and_nothing_is_a_tie() -> None:
    x = np.clip(activations(2000) * 30, -126, 126)
    x[:, 0] = 127
    x *= np.ldexp(np.float32(1), np.arange(2000, dtype=np.int32)[:, None] % 12 - 6)
    blocks = ggml(x, "Q8_0")
    codes, scales = int8_codes(x)
    assert (blocks[:, :2] == scales).all()
    assert (blocks[:, 2:].view(np.int8) == codes).all()


def test_int8_differs_from_q8_0_in_ties_and_by_one_where_scales_are_rounded() -> None:
    tied = np.zeros((1, 32), np.float32)
    tied[0, :3] = 127, 0.5, -2.5
    codes, _ = int8_codes(tied)
    assert codes[0, :3].tolist() == [127, 0, -2]
    assert ggml(tied, "Q8_0")[0, 2:5].view(np.int8).tolist() == [127, 1, -3]

    x = activations(4000)
    blocks = ggml(x, "Q8_0")
    codes, scales = int8_codes(x)
    assert (blocks[:, :2] == scales).all()
    difference = np.abs(blocks[:, 2:].view(np.int8).astype(int) - codes)
    assert difference.max() == 1


def test_static_int4_equals_q4_0_given_its_scale() -> None:
    x = np.clip(activations(2000) * 3, -7.9, 7.9)
    x[:, 5] = -8
    x *= np.float32(0.25)
    blocks = ggml(x, "Q4_0")
    assert (blocks[:, :2].view(np.float16) == 0.25).all()
    payload = encode(x, parse_declaration(linear("INT4", 0.25, data="FLOAT")))
    codes = np.stack([payload & 15, payload >> 4], axis=-1).reshape(x.shape)
    assert (codes ^ 8 == nibbles(blocks[:, 2:])).all()  # two's complement against an offset of 8


def test_mxfp4_equals_ggml_but_in_ties() -> None:
    x = activations(2000) * np.ldexp(np.float32(1), np.arange(2000, dtype=np.int32)[:, None] % 40 - 20)
    blocks = ggml(x, "MXFP4")
    payload = encode(x, parse_declaration(packed("FLOAT4E2M1", "FLOAT8E8M0", data="FLOAT")))
    codes = np.stack([payload[: x.size // 2] & 15, payload[: x.size // 2] >> 4], axis=-1).reshape(x.shape)
    assert (blocks[:, 0] == payload[x.size // 2 :]).all()
    found = nibbles(blocks[:, 1:])
    is_zero = (codes & 7) == 0  # ggml writes an underflow without its sign
    assert (codes == found)[~is_zero].all()
    assert ((found & 7) == 0)[is_zero].all()


def around_midpoints() -> NDArray[np.float32]:
    """The values of E2M1 and their midpoints, each with both of its float32 neighbours, and both signs."""
    values = np.asarray([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6], np.float32)
    near = np.concatenate([values, np.nextafter(values, np.float32(9)), np.nextafter(values, np.float32(-9))])
    near = np.concatenate([near, -near])
    return np.asarray(near[np.abs(near) <= 6], np.float32)


def test_e2m1_codes_equal_the_cast_of_ml_dtypes() -> None:
    scattered = np.random.default_rng(1).uniform(-6, 6, 30_000).astype(np.float32)
    x = np.concatenate([around_midpoints(), scattered])
    x = np.resize(x, (len(x) // 30, 30))
    ends = np.tile(np.asarray([6, -6], np.float32), (len(x), 1))
    page = np.concatenate([x, ends], axis=1)  # so that each scale is one
    payload = encode(page, parse_declaration(packed("FLOAT4E2M1", "FLOAT16", data="FLOAT")))
    codes = np.stack([payload[: page.size // 2] & 15, payload[: page.size // 2] >> 4], axis=-1).reshape(page.shape)
    assert (payload[page.size // 2 :].view(np.float16) == 1).all()
    assert (codes == page.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)).all()


@pytest.mark.parametrize("data", DECODED)
def test_cast_equals_ml_dtypes_but_for_nan_and_what_is_too_large(data: str) -> None:
    kind = dtype(data)
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits.view(kind) if kind.itemsize == 2 else (bits.astype(np.uint32) << 16 | 0x8000).view(kind)
    codes = encode(x, parse_declaration(cast(data)))
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
        theirs = x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        fits = np.abs(wide) <= 464
    assert (codes[fits] == theirs[fits]).all()
    assert (theirs[np.abs(wide) > 464] & 0x7F == 0x7F).all()
    assert set(codes[np.abs(wide) > 464].tolist()) == {0x7E, 0xFE}
    assert set(codes[np.isnan(wide)].tolist()) == {0x7F}


def test_e8m0_scales_are_no_cast() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, 0] = 7.9  # the exponent of 7.9 is 2, and so is that of E2M1's largest number: the scale is one
    payload = encode(x, parse_declaration(packed("FLOAT4E2M1", "FLOAT8E8M0", data="FLOAT")))
    assert payload[16:].tolist() == [127]
    assert np.float32(7.9 / 4).astype(ml_dtypes.float8_e8m0fnu).view(np.uint8) == 128
