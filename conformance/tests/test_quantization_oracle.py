"""The reference's codec against the oracle's, which shares no code with it: bit for bit, on hostile groups."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from quantization_models import ALL, hostile, linear, name_of, packed

from mutcache.proto.onnx_ml import QuantizationProto
from mutcache.quantization import decode, encode, n_bytes, parse_declaration
from mutcache_conformance.oracle_codec import codec_of

#: Groups of other sizes than 32, and static pages whose terms are not round numbers.
MORE = {
    **{f"{storage}-block-{block}": packed(storage, "FLOAT16", block=block)
       for storage, block in itertools.product(("INT8", "INT4", "INT2", "FLOAT8E4M3FN", "FLOAT4E2M1"), (4, 8, 16))},
    **{f"linear-{storage}-{scale}-{point}": linear(storage, scale, zero_point=point, data="FLOAT")
       for storage, scale, point in [("INT8", 1 / 3, -7), ("UINT4", 1e-38, 15), ("INT2", 3e38, 1), ("UINT8", 0.1, 9)]},
}  # fmt: skip
CASES = {**{name: proto for name, proto in ALL.items() if not name.startswith("identity")}, **MORE}


def oracle_encode(proto: QuantizationProto, x: NDArray[np.generic]) -> bytes:
    codec = codec_of(proto)
    groups = codec.groups(x.shape)
    payload = bytearray(codec.nbytes(x.shape))
    with np.errstate(invalid="ignore"):
        values = x.astype(np.float32).reshape(groups, -1).tolist()
    for group in range(groups):
        sections = codec.encode(values[group])
        for start, width in codec.places(group, groups):
            payload[start : start + width], sections = sections[:width], sections[width:]
    return bytes(payload)


def oracle_decode(proto: QuantizationProto, payload: bytes, dims: tuple[int, ...]) -> NDArray[np.float32]:
    codec = codec_of(proto)
    groups = codec.groups(dims)
    values: list[float] = []
    for group in range(groups):
        values += codec.decode(b"".join(payload[start : start + width] for start, width in codec.places(group, groups)))
    return np.asarray(values, np.float32).reshape(dims)


def agree(proto: QuantizationProto, seed: int, groups: int) -> None:
    declaration = parse_declaration(proto)
    x = hostile(name_of(proto.data_type), 32, seed, groups)
    payload = encode(x, declaration)
    assert payload.tobytes().hex(" ") == oracle_encode(proto, x).hex(" ")
    foreign = np.random.default_rng(seed).integers(0, 256, n_bytes(declaration, x.shape), np.uint8)
    for content in (payload, foreign):
        with np.errstate(invalid="ignore"):
            found = decode(content, declaration, x.shape).astype(np.float32)
        expected = oracle_decode(proto, content.tobytes(), x.shape)
        missing = np.isnan(expected)
        assert (np.isnan(found) == missing).all()
        assert (found.view(np.uint32) == expected.view(np.uint32))[~missing].all()


@pytest.mark.parametrize("name", CASES)
def test_both_codecs_agree(name: str) -> None:
    agree(CASES[name], seed=1, groups=5)


@settings(deadline=None)
@given(st.sampled_from(sorted(CASES)), st.integers(0, (1 << 32) - 1))
def test_both_codecs_agree_on_any_groups(name: str, seed: int) -> None:
    agree(CASES[name], seed, groups=3)
