"""A decoder whose attention reads quantized pages, against the dense decoder and a forward pass in NumPy.

The forward pass is written from the architecture: the weights are all that it has in common with the models.
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray
from onnx import numpy_helper

import mutcache
from mutcache_tools import example_decoder, example_paged_decoder
from mutcache_tools.convert import convert
from mutcache_tools.example_paged_decoder import PAGE_TYPES, PagedDecoder
from mutcache_tools.greedy import MutableDecoder, greedy_tokens

Floats = NDArray[np.float64]

LAYERS, HEADS, HEAD_SIZE, PAGE_SIZE = 2, 2, 32, 8
PROMPT = [1, 5, 9, 7] * 5
COUNT = 40
#: Bytes of a row of a head, worked out from its declaration: codes and scale.
ROW_BYTES = {"identity": 32 * 4, "int8": 32 + 2, "int4": 16 + 2, "int2": 8 + 2, "fp8": 32 + 2, "mxfp4": 16 + 1}
#: How far logits with INT8 pages may be from those with exact keys and values.
#:
#: What is certain is the error of an element in a page: half a step, 1/254 of the largest one in its row, which
#: `test_int8_pages_hold_keys_and_values_within_half_a_step` checks. Through softmax and two layers the worst case of
#: all roundings together exceeds the logits themselves, whose magnitude is below 10, and says nothing. So this is twice
#: the largest error over the 59 steps of this prompt, 0.108.
INT8_LOGITS = 0.216


def dense(dtype: DTypeLike = np.float32) -> mutcache.ModelProto:
    """The decoder with one tensor for each cache, updated in place by CacheUpdate."""
    model = example_decoder.build(layers=LAYERS, heads=HEADS, head_size=HEAD_SIZE, dtype=dtype)
    return convert(mutcache.from_onnx(model), 64)


@pytest.fixture(scope="module")
def weights() -> dict[str, Floats]:
    model = example_decoder.build(layers=LAYERS, heads=HEADS, head_size=HEAD_SIZE)
    return {entry.name: numpy_helper.to_array(entry).astype(np.float64) for entry in model.graph.initializer}


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    """What the dense decoder generates."""
    with MutableDecoder(dense()) as decoder:
        return greedy_tokens(decoder, PROMPT, COUNT)


def heads_of(x: Floats) -> Floats:
    """``[rows, hidden]`` as ``[heads, rows, head_size]``."""
    return x.reshape(-1, HEADS, HEAD_SIZE).transpose(1, 0, 2)


def mixed(query: Floats, keys: Floats, values: Floats, first: int) -> Floats:
    """Causal attention of rows ``first``, ``first + 1``, ... over all rows, as ``[rows, hidden]``."""
    scores = query @ keys.transpose(0, 2, 1)
    rows, columns = np.indices(scores.shape[1:])
    scores = np.where(columns <= rows + first, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    rows_of_heads: Floats = weights @ values
    return rows_of_heads.transpose(1, 0, 2).reshape(-1, HEADS * HEAD_SIZE)


def forward(
    weights: Mapping[str, Floats], tokens: list[int], stored: Callable[[Floats], Floats] = lambda rows: rows
) -> tuple[Floats, list[Floats]]:
    """Logits of every token, and ``[2, heads, rows, head_size]`` of every layer as attention reads it."""
    x = weights["embedding"][tokens] + weights["positions"][: len(tokens)]
    caches = []
    for layer in range(LAYERS):
        query, key, value = (heads_of(x @ weights[f"w.{layer}.{kind}"]) for kind in ("query", "key", "value"))
        cache = stored(np.stack([key, value]))
        caches.append(cache)
        x = x + mixed(query, cache[0], cache[1], 0) @ weights[f"w.{layer}.out"]
    return x @ weights["head"], caches


def held(table: mutcache.PageTable) -> Floats:
    """What all pages of a table decode to, one behind another."""
    return np.concatenate([table.decode(page) for page in table], axis=2).astype(np.float64)


def read_pages(weights: Mapping[str, Floats], token: int, decoder: PagedDecoder) -> Floats:
    """Logits of the token that came last, from what the pages hold after its step."""
    position = decoder.length - 1
    x = (weights["embedding"][token] + weights["positions"][position])[np.newaxis]
    for layer, table in enumerate(decoder.tables.values()):
        keys, values = held(table)[:, :, : decoder.length]
        query = heads_of(x @ weights[f"w.{layer}.query"])
        x = x + mixed(query, keys, values, position) @ weights[f"w.{layer}.out"]
    logits: Floats = (x @ weights["head"])[0]
    return logits


def int8(rows: Floats) -> Floats:
    """Rows as INT8 pages keep them: codes of -127 to 127 times a FLOAT16 scale for each row of a head."""
    scale = (np.abs(rows).max(-1, keepdims=True) / 127).astype(np.float16).astype(np.float64)
    restored: Floats = np.clip(np.rint(rows / scale), -127, 127) * scale
    return restored


def logits_of(decoder: PagedDecoder, tokens: list[int]) -> Floats:
    """Those after each of the tokens, one a step."""
    return np.stack([decoder.step([token]) for token in tokens]).astype(np.float64)


def addresses(decoder: PagedDecoder) -> dict[tuple[str, int], int]:
    return {
        (name, number): page.payload.ctypes.data
        for name, table in decoder.tables.items()
        for number, page in table.items()
    }


@pytest.mark.parametrize("pages", PAGE_TYPES)
@pytest.mark.parametrize("old_pages", [None, "int4"])
def test_the_decoder_is_sound(pages: str, old_pages: str | None) -> None:
    assert mutcache.check_model(example_paged_decoder.build(pages, old_pages)) == []


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_identity_pages_give_the_tokens_of_the_dense_decoder(dtype: DTypeLike) -> None:
    with MutableDecoder(dense(dtype)) as decoder:
        expected = greedy_tokens(decoder, PROMPT, COUNT)
    with PagedDecoder(example_paged_decoder.build("identity", dtype=dtype)) as paged:
        assert greedy_tokens(paged, PROMPT, COUNT) == expected
    assert len(set(expected)) > 10, "tokens that seldom change would show little"


def test_identity_pages_give_the_logits_of_the_forward_pass(weights: Mapping[str, Floats], tokens: list[int]) -> None:
    sequence = PROMPT + tokens[:-1]
    expected, _ = forward(weights, sequence)
    assert list(np.argmax(expected[len(PROMPT) - 1 :], axis=-1)) == tokens
    with PagedDecoder(example_paged_decoder.build("identity")) as decoder:
        found = logits_of(decoder, sequence)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_int8_pages_give_the_tokens_of_exact_ones_and_logits_within_the_bound(
    weights: Mapping[str, Floats], tokens: list[int]
) -> None:
    model = example_paged_decoder.build("int8")
    with PagedDecoder(model) as decoder:
        assert greedy_tokens(decoder, PROMPT, COUNT) == tokens
    sequence = PROMPT + tokens[:-1]
    with PagedDecoder(model) as decoder:
        found = logits_of(decoder, sequence)
    exact, _ = forward(weights, sequence)
    rounded, _ = forward(weights, sequence, int8)
    assert np.abs(found - exact).max() <= INT8_LOGITS
    # All of the error is what rounding to INT8 makes; another code at a tie may move a logit a little.
    assert np.abs(found - rounded).max() <= INT8_LOGITS / 4
    assert np.abs(found - exact).max() > INT8_LOGITS / 4, "nothing was rounded"


def test_int8_pages_hold_keys_and_values_within_half_a_step(weights: Mapping[str, Floats], tokens: list[int]) -> None:
    sequence = PROMPT + tokens[:-1]
    _, (exact, _) = forward(weights, sequence)  # of layer 0, which sees nothing that was rounded
    with PagedDecoder(example_paged_decoder.build("int8")) as decoder:
        decoder.step(sequence)
        found = held(decoder.tables["cache.0"])[:, :, : len(sequence)]
    half = np.abs(exact).max(-1, keepdims=True) / 254
    # A scale is rounded to FLOAT16, by one part in 2048: so are the step and, by 127 steps of it, the largest element.
    assert (np.abs(found - exact) <= half * (1 + 2**-11 + 254 * 2**-11) + 1e-5).all()
    assert (np.abs(found - exact) > half / 2).any()


@pytest.mark.parametrize(("pages", "old_pages"), [(name, None) for name in PAGE_TYPES] + [("int8", "int4")])
def test_attention_reads_what_the_pages_hold(
    weights: Mapping[str, Floats], tokens: list[int], pages: str, old_pages: str | None
) -> None:
    with PagedDecoder(example_paged_decoder.build(pages, old_pages)) as decoder:
        for token in PROMPT + tokens[:-1]:
            found = logits_of(decoder, [token])[0]
            np.testing.assert_allclose(found, read_pages(weights, token, decoder), rtol=0, atol=1e-4)


@pytest.mark.parametrize("pages", PAGE_TYPES)
@pytest.mark.parametrize("length", [1, 8, 9, 27])
def test_tables_have_the_bytes_that_are_declared(pages: str, length: int) -> None:
    with PagedDecoder(example_paged_decoder.build(pages)) as decoder:
        decoder.step([token % 64 for token in range(length)])
        rows = math.ceil(length / PAGE_SIZE) * PAGE_SIZE * 2 * HEADS
        assert {table.nbytes for table in decoder.tables.values()} == {rows * ROW_BYTES[pages]}


def test_a_page_is_created_when_the_last_one_is_full_and_none_moves(tokens: list[int]) -> None:
    with PagedDecoder(example_paged_decoder.build("int8")) as decoder:
        before: dict[tuple[str, int], int] = {}
        for token in tokens:
            decoder.step([token])
            found = addresses(decoder)
            assert found.items() >= before.items()
            assert all(len(table) == math.ceil(decoder.length / PAGE_SIZE) for table in decoder.tables.values())
            for table in decoder.tables.values():
                last = table.decode(len(table) - 1)
                written = decoder.length - (len(table) - 1) * PAGE_SIZE
                assert last[:, :, :written].any(axis=-1).all()
                assert not last[:, :, written:].any()
            before = found
        assert len(set(before.values())) == LAYERS * COUNT / PAGE_SIZE


@pytest.mark.parametrize("recent", [1, 2])
def test_old_pages_become_cheaper_in_the_middle_of_decoding(recent: int, tokens: list[int]) -> None:
    with PagedDecoder(example_paged_decoder.build("int8", "int4", recent=recent)) as decoder:
        seen: dict[tuple[str, int, int], tuple[int, bytes]] = {}  # by table, page and type
        for token in tokens:
            full = {name: {page: table.decode(page) for page in table} for name, table in decoder.tables.items()}
            decoder.step([token])
            for name, table in decoder.tables.items():
                old = max(len(table) - recent, 0)
                assert [page.quantized_type for page in table.values()] == [1] * old + [0] * (len(table) - old)
                rows = PAGE_SIZE * 2 * HEADS
                assert table.nbytes == rows * (old * ROW_BYTES["int4"] + (len(table) - old) * ROW_BYTES["int8"])
                for number in range(old):
                    page = table[number]
                    now = (page.payload.ctypes.data, page.payload.tobytes())
                    assert seen.setdefault((name, number, 1), now) == now, "converted once, and left alone since"
                    before, after = full[name][number], table.decode(number)
                    largest = np.abs(before).max(-1, keepdims=True)
                    assert (np.abs(after - before) <= largest * (1 / 14 + 2**-10)).all()


def test_a_type_of_equal_size_leaves_old_pages_where_they_are(tokens: list[int]) -> None:
    with PagedDecoder(example_paged_decoder.build("fp8", "int8")) as decoder:
        decoder.step(tokens[:PAGE_SIZE])
        before = addresses(decoder)
        decoder.step(tokens[PAGE_SIZE : PAGE_SIZE + 1])
        assert addresses(decoder).items() >= before.items()
        assert {tuple(page.quantized_type for page in table.values()) for table in decoder.tables.values()} == {(1, 0)}


def test_a_step_over_the_end_of_a_page_fails_and_changes_nothing() -> None:
    model = example_paged_decoder.build("int8")
    with PagedDecoder(model) as decoder:
        decoder.step([1, 2, 3, 4, 5])
        tables = {name: mutcache.page_table_to_proto(table) for name, table in decoder.tables.items()}
    with mutcache.Session(model).bind(decoder.tables) as binding, pytest.raises(mutcache.RunError) as caught:
        binding.run({"input_ids": np.array([[6, 7, 8, 9]]), "length": np.array(5)})
    assert caught.value.requirement == mutcache.Req.MC_PAGED_005
    assert {name: mutcache.page_table_to_proto(table) for name, table in decoder.tables.items()} == tables


def test_the_command_writes_the_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "paged.onnx"
    monkeypatch.setattr(sys, "argv", ["example_paged_decoder", str(path), "--pages", "int8", "--old-pages", "int4"])
    example_paged_decoder.main()
    assert mutcache.load(path) == example_paged_decoder.build("int8", "int4")


def test_the_page_shows_what_its_code_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "paged-decoder.rst").read_text(encoding="utf-8")
    block = r"\.\. code-block:: {}\n\n((?:   .*\n|\n)+)"
    shown = re.findall(block.format("python") + block.format("text"), page)
    assert len(shown) == 2
    for name, types in (("identity", ("identity",)), ("int8", ("int8",)), ("mixed", ("int8", "int4"))):
        mutcache.save(example_paged_decoder.build(*types), tmp_path / f"{name}.onnx")
    monkeypatch.chdir(tmp_path)
    for blocks in shown:
        code, output = map(textwrap.dedent, blocks)
        exec(code, {})  # the code of our own page
        assert capsys.readouterr().out == output.strip() + "\n"


def test_the_drawing_shows_what_became_of_each_page() -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    from mutcache_tools.site import page_diagram

    drawn = ElementTree.fromstring(page_diagram.page_tables())
    words = [element.text or "" for element in drawn.iter() if element.tag.endswith("text")]
    rows = PAGE_SIZE * 2 * HEADS
    old, new = (f"{name.upper()}, {rows * ROW_BYTES[name]} bytes" for name in ("int4", "int8"))
    pages = [word for word in words if word.startswith("page ")]
    assert pages == [
        *(f"page {number}: {kind}, 8 of 8 rows" for number, kind in enumerate((old, old, new))),
        *(f"page {number}: {old}, 8 of 8 rows" for number in range(3)),
        f"page 3: {new}, 3 of 8 rows",
    ]
    assert words[-4:] == ["same address", "same address", "replaced", "created"]
    cells = [element for element in drawn.iter() if element.tag.endswith("rect")]
    assert sum("used" in element.attrib["class"] for element in cells) == 24 + 27
