"""The compiled kernels make the same bytes as NumPy's."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantization_models import ALL, hostile, name_of, packed

from mutcache.errors import MutcacheError
from mutcache.quantization import encode, encode_rows, parse_declaration, reencode, use_numba


@pytest.fixture(autouse=True)
def _numpy_again() -> Iterator[None]:
    yield
    use_numba(False)


def agree(name: str, seed: int, groups: int) -> None:
    declaration = parse_declaration(ALL[name])
    x = hostile(name_of(declaration.data_type), 32, seed, groups)
    use_numba(False)
    expected = encode(x, declaration)
    use_numba()
    before = x.tobytes()
    assert encode(x, declaration).tobytes() == expected.tobytes()
    assert x.tobytes() == before


@pytest.mark.parametrize("name", ALL)
def test_compiled_kernels_make_the_same_bytes(name: str) -> None:
    pytest.importorskip("numba", reason="numba is not installed")
    agree(name, seed=5, groups=40)


@settings(deadline=None)
@given(name=st.sampled_from(sorted(ALL)), seed=st.integers(0, (1 << 32) - 1))
def test_compiled_kernels_make_the_same_bytes_of_any_groups(name: str, seed: int) -> None:
    pytest.importorskip("numba", reason="numba is not installed")
    agree(name, seed, groups=6)


@pytest.mark.parametrize(
    ("storage", "scale"), [("FLOAT8E4M3FN", "FLOAT"), ("FLOAT4E2M1", "FLOAT8E8M0"), ("INT4", "FLOAT16")]
)
def test_every_float16_is_encoded_alike(storage: str, scale: str) -> None:
    pytest.importorskip("numba", reason="numba is not installed")
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = every[np.isfinite(every)].reshape(-1, 32)
    page = np.concatenate([x, x[::-1, ::-1]], axis=1)
    declaration = parse_declaration(packed(storage, scale))
    expected = encode(page, declaration)
    use_numba()
    assert encode(page, declaration).tobytes() == expected.tobytes()


@pytest.mark.parametrize("layout", ["SEQUENTIAL", "INTERLEAVED"])
def test_rows_and_changes_of_declaration_take_the_same_way(layout: str) -> None:
    pytest.importorskip("numba", reason="numba is not installed")
    declaration = parse_declaration(packed("INT4", "FLOAT16", axis=2, layout=layout))
    other = parse_declaration(packed("UINT2", "FLOAT16", axis=2, block=64, correction="FLOAT16"))
    dims = (3, 100, 1024)  # more than one chunk
    x = np.random.default_rng(0).standard_normal(dims, np.float32).astype(np.float16)
    expected = encode(x, declaration)
    changed = reencode(expected, declaration, other, dims)
    use_numba()
    payload = np.zeros_like(expected)
    encode_rows(payload, declaration, dims, 1, 0, x[:, :7])
    encode_rows(payload, declaration, dims, 1, 7, x[:, 7:])
    assert payload.tobytes() == expected.tobytes()
    assert reencode(payload, declaration, other, dims).tobytes() == changed.tobytes()


def test_without_numba_the_choice_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "mutcache.quantization.compiled", raising=False)
    with pytest.raises(MutcacheError, match="numba is not installed") as caught:
        use_numba()
    assert "mutcache[numba]" in caught.value.hint
