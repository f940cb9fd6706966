"""The oracle on page tables: what updates make of them, what it refuses, and how it judges other encoders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mutcache.proto import parse, serialize
from mutcache.requirements import Req
from mutcache_conformance.case import Load, Run
from mutcache_conformance.cases import generate
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.paged_words import Paged
from mutcache_conformance.dtypes import dtype_of
from mutcache_conformance.oracle import OracleRefusal, OracleResult, run_model
from mutcache_conformance.oracle_codec import PackedLinear, codec_of
from mutcache_conformance.oracle_judge import judge_gathered, judge_page
from mutcache_conformance.oracle_pages import PageImage, Pages

KINDS = ("int8", "int4", "fp8", "static-int8", "identity", "int2")
ROW = [float(number % 9 - 4) for number in range(64)]


def paged(**changes: Any) -> Paged:
    return Paged(Draw(0, "test of the oracle"), KINDS, **{"typed": True, **changes})


def pages_of(one: Paged, *kinds: str, keys: Sequence[int] = (), budget: int | None = None) -> Pages:
    table = one.table(*kinds, keys=keys)
    contents = {storage.name: storage.content or b"" for storage in table.payloads}
    images = [PageImage(page.quantized_type, page.dims, contents[page.storage], page.key) for page in table.table.pages]
    return Pages(one.kind, tuple(images), budget)


def run(
    one: Paged, cache: Pages, page_id: int, position: int, length: int, kind: int, gathered: Sequence[int] = ()
) -> OracleResult:
    values = np.array(ROW * length, np.float16).reshape(2, length, 32)
    feeds = {
        "cache": cache,
        "page_id": np.array(page_id, np.int64),
        "values": values,
        "position": np.array(position, np.int64),
        "quantized_type": np.array(kind, np.int64),
        "page_ids": np.array(gathered or [page_id], np.int64),
    }
    return run_model(serialize(one.model()), feeds)


def final(result: OracleResult) -> Pages:
    pages = result.classes["cache"][-1]
    assert isinstance(pages, Pages)
    return pages


def test_an_update_in_place() -> None:
    cache = pages_of(paged(), "int8", "fp8")
    result = run(paged(), cache, 1, 2, 1, KINDS.index("fp8"))
    before, after = cache.pages, final(result).pages
    assert [page.identity for page in after] == [0, 1]
    assert after[0].payload == before[0].payload
    changed = [at for at, (old, new) in enumerate(zip(before[1].payload, after[1].payload, strict=True)) if old != new]
    row = set(range(64, 96)) | set(range(128 + 64, 128 + 96))  # row 2 of each of 2 heads of 4 rows of 32 bytes
    assert changed
    assert set(changed) <= row
    # -4 to 4 are exact in FP8
    assert np.array_equal(result.outputs["gathered"][:, 2], np.array(ROW, np.float16).reshape(2, 32))
    assert result.root_of_output == {"updated_cache": "cache"}
    assert result.retired == {"cache": ()}


def test_a_created_page_is_zero_bytes_but_for_its_rows() -> None:
    result = run(paged(), pages_of(paged(), "int8"), 1, 0, 1, KINDS.index("identity"))
    [_, made] = final(result).pages
    assert made.identity < 0
    elements = np.frombuffer(made.payload, np.float16).reshape(2, 4, 32)
    assert not elements[:, 1:].any()
    assert np.array_equal(elements[:, 0], np.array(ROW, np.float16).reshape(2, 32))


def test_a_changed_page_is_another_one_unless_its_size_is_the_same() -> None:
    cache = pages_of(paged(), "fp8", "int8")
    larger = final(run(paged(), cache, 0, 0, 0, KINDS.index("identity"), [0]))
    assert [page.identity >= 0 for page in larger.pages] == [False, True]
    same = run(paged(), cache, 0, 0, 0, KINDS.index("static-int8"), [0])
    assert [page.identity for page in final(same).pages] == [0, 1]
    assert final(same).pages[0].is_fresh
    retired = run(paged(), cache, 0, 0, 0, KINDS.index("identity"), [0]).retired["cache"]
    assert [(page.identity, page.payload) for page in retired] == [(0, cache.pages[0].payload)]


def test_the_type_that_a_page_has_re_encodes_nothing() -> None:
    cache = pages_of(paged(), "int8")
    odd = bytes([0x80]) + cache.pages[0].payload[1:]  # a code that no encoder makes
    cache = Pages("sequence", (PageImage(0, (2, 4, 32), odd),))
    [page] = final(run(paged(), cache, 0, 3, 1, 0)).pages
    assert page.payload[0] == 0x80


@pytest.mark.parametrize(
    ("page_id", "position", "kind", "requirement"),
    [
        (3, 0, 0, Req.MC_PAGED_004),
        (-1, 0, 0, Req.MC_PAGED_004),
        (1, 3, 1, Req.MC_PAGED_005),
        (1, -1, 1, Req.MC_PAGED_005),
        (1, 2**63 - 1, 1, Req.MC_PAGED_005),
        (1, 0, 6, Req.MC_PAGED_006),
        (1, 0, -1, Req.MC_PAGED_006),
        (1, 0, 3, Req.MC_PAGED_006),
    ],
)
def test_refusals(page_id: int, position: int, kind: int, requirement: Req) -> None:
    one = paged(allowed=("int8", "int4", "fp8"))
    cache = pages_of(one, "int8", "int4")
    with pytest.raises(OracleRefusal) as caught:
        run(one, cache, page_id, position, 2, kind, [0])
    assert caught.value.requirement is requirement
    [only] = caught.value.classes["cache"]
    assert [page.payload for page in only.pages] == [page.payload for page in cache.pages]


def test_absent_pages_cannot_be_gathered() -> None:
    with pytest.raises(OracleRefusal) as caught:
        run(paged(), pages_of(paged(), "int8"), 0, 0, 1, 0, [1])
    assert caught.value.requirement is Req.MC_PAGED_016


def test_a_budget_is_used_up() -> None:
    size = paged().nbytes("int2")
    cache = pages_of(paged(), "int8", budget=size + 1)
    after = final(run(paged(), cache, 1, 0, 1, KINDS.index("int2"), [0]))
    assert after.budget == 1
    with pytest.raises(OracleRefusal) as caught:
        run(paged(), after, 2, 0, 1, KINDS.index("int2"), [0])
    assert caught.value.requirement is Req.MC_PAGED_012
    in_place = run(paged(), after, 0, 0, 1, 0, [0])
    assert final(in_place).budget == 1


def test_maps_are_ordered_by_key() -> None:
    one = paged(kind="map")
    result = run(one, pages_of(one, "int8", "fp8", keys=(4, 9)), 7, 0, 1, 1, [9, 4])
    assert [page.key for page in final(result).pages] == [4, 7, 9]
    with pytest.raises(OracleRefusal) as caught:
        run(one, pages_of(one, "int8", keys=(4,)), -7, 0, 1, 1, [4])
    assert caught.value.requirement is Req.MC_PAGED_004


# Judging


def updated(kind: str, length: int = 1) -> tuple[PageImage, Sequence[Any]]:
    one = paged()
    result = run(one, pages_of(one, kind), 0, 1, length, KINDS.index(kind))
    return final(result).pages[0], one.model().quantizations


def test_canonical_bytes_are_exact() -> None:
    page, quantizations = updated("int8")
    judgement = judge_page(page, page.payload, quantizations)
    assert judgement.is_exact
    assert not judgement.problem


def test_a_code_beside_the_canonical_one_is_within_the_bound_and_two_are_not() -> None:
    page, quantizations = updated("int8")
    at = 32 + 3  # row 1 of head 0: -1 of a scale 4 / 127
    for off, requirement in ((0, None), (1, Req.MC_QUANT_003)):
        found = bytearray(page.payload)
        found[at] = found[at] + off
        assert judge_page(page, bytes(found), quantizations).requirement is requirement
    # Half-away rounding of a tie is within the bound, and not exact: the scale of 127 is 1, and 0.5 a tie.
    one = paged()
    values = np.zeros((2, 1, 32), np.float16)
    values[:, :, 0], values[:, :, 1] = 127, 0.5
    feeds = {
        "cache": pages_of(one, "int8"),
        "page_id": np.array(0, np.int64),
        "values": values,
        "position": np.array(0, np.int64),
        "quantized_type": np.array(0, np.int64),
        "page_ids": np.array([0], np.int64),
    }
    [tied] = final(run_model(serialize(one.model()), feeds)).pages
    found = bytearray(tied.payload)
    assert found[:2] == bytes([127, 0])
    found[1] = 1
    judgement = judge_page(tied, bytes(found), quantizations)
    assert not judgement.problem
    assert not judgement.is_exact


def test_a_neighbour_must_not_change() -> None:
    page, quantizations = updated("int4")
    found = bytearray(page.payload)
    found[0] ^= 1
    assert judge_page(page, bytes(found), quantizations).requirement is Req.MC_PAGED_002
    assert judge_page(page, bytes(found[1:]), quantizations).requirement is Req.MC_QUANT_001


def test_unwritten_rows_of_a_created_page_are_zero() -> None:
    one = paged()
    result = run(one, pages_of(one), 0, 0, 1, KINDS.index("int8"))
    [page] = final(result).pages
    found = bytearray(page.payload)
    found[40] = 1
    assert judge_page(page, bytes(found), one.model().quantizations).requirement is Req.MC_PAGED_003


def test_identity_pages_take_rows_bit_for_bit() -> None:
    page, quantizations = updated("identity")
    found = bytearray(page.payload)
    found[64] ^= 1
    assert judge_page(page, bytes(found), quantizations).requirement is Req.MC_QUANT_003


def test_re_encoded_rows_are_judged_by_what_was_decoded() -> None:
    one = paged()
    cache = pages_of(one, "identity")
    [page] = final(run(one, cache, 0, 0, 0, 0, [0])).pages
    assert page.is_fresh
    found = bytearray(page.payload)
    found[0] = (found[0] + 2) % 256
    judgement = judge_page(page, bytes(found), one.model().quantizations)
    assert judgement.requirement is Req.MC_QUANT_003


def test_a_tainted_group_decodes_to_nan_however_it_is_stored() -> None:
    one = paged()
    cache = pages_of(one, "identity")
    elements = np.frombuffer(cache.pages[0].payload, np.float16).copy()
    elements[5] = np.nan
    cache = Pages("sequence", (PageImage(KINDS.index("identity"), (2, 4, 32), elements.tobytes()),))
    [page] = final(run(one, cache, 0, 0, 0, 0, [0])).pages
    other_nan = bytearray(page.payload)
    scale = 256  # the first scale, behind all codes
    assert other_nan[scale : scale + 2] == bytes([0x00, 0x7E])
    other_nan[scale] = 1
    assert not judge_page(page, bytes(other_nan), one.model().quantizations).problem
    other_nan[scale : scale + 2] = np.float16(1).tobytes()
    judgement = judge_page(page, bytes(other_nan), one.model().quantizations)
    assert judgement.requirement is Req.MC_QUANT_005


def gathered(kind: str) -> tuple[OracleResult, np.ndarray[Any, np.dtype[Any]]]:
    one = paged()
    result = run(one, pages_of(one, kind), 0, 1, 1, KINDS.index(kind))
    return result, result.outputs["gathered"].copy()


def test_decoding_may_be_off_by_one_unit_in_the_last_place() -> None:
    result, found = gathered("int8")
    expected = result.gathered["gathered"]
    assert judge_gathered(expected, found).is_exact
    bits = found.view(np.uint16)
    untouched = next(at for at, value in enumerate(found.reshape(-1)) if value and at not in range(32, 64))
    bits.reshape(-1)[untouched] += 1
    assert not judge_gathered(expected, found).problem
    bits.reshape(-1)[untouched] += 1
    assert judge_gathered(expected, found).requirement is Req.MC_QUANT_002
    assert judge_gathered(expected, found[:, :1]).requirement is Req.MC_QUANT_002


def test_nan_is_nan_whatever_its_bits() -> None:
    one = paged()
    payload = bytearray(pages_of(one, "int8").pages[0].payload)
    payload[256:258] = bytes([0x00, 0x7E])
    cache = Pages("sequence", (PageImage(0, (2, 4, 32), bytes(payload)),))
    result = run(one, cache, 0, 1, 1, 0)
    found = result.outputs["gathered"].copy()
    assert math.isnan(found[0, 0, 0])
    found.view(np.uint16)[0, 0, 0] = 0xFE01
    assert not judge_gathered(result.gathered["gathered"], found).problem
    found[0, 0, 0] = 1
    assert judge_gathered(result.gathered["gathered"], found).requirement is Req.MC_QUANT_002


# The corpus


def other_codes(rounding: Callable[[Fraction], int]) -> Callable[..., int]:
    """An encoder of integer codes that divides by the scale, exactly, and rounds in another way."""
    canonical = PackedLinear._code

    def code(self: PackedLinear, value: float, scale: float, inverse: float, zero_point: int, correction: float) -> int:
        found = canonical(self, value, scale, inverse, zero_point, correction)
        if scale == 0:
            return found
        exact = (Fraction(value) - Fraction(correction)) / Fraction(scale) + zero_point
        largest = (1 << self.bits) - 1 if zero_point or correction else (1 << (self.bits - 1)) - 1
        return max(-largest, min(largest, rounding(exact)))

    return code


def half_away(value: Fraction) -> int:
    return math.floor(abs(value) + Fraction(1, 2)) * (1 if value > 0 else -1)


@pytest.mark.parametrize("kind", ["int8", "int4-float-scale", "int2-symmetric"])
@pytest.mark.parametrize(("rounding", "is_right"), [(half_away, True), (math.floor, False)])
def test_other_encoders_are_told_apart(
    kind: str, rounding: Callable[[Fraction], int], is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the rows of the corpus that are hardest to encode."""
    [case] = [case for case in generate() if case.id == f"quant-003/{kind}"]
    [play] = [step for step in case.script if isinstance(step, Run)]
    [data] = case.models.values()
    storages = {storage.name: storage for storage in case.storages}

    def made() -> PageImage:
        inputs: dict[str, Any] = {
            name: np.frombuffer(storages[one].content or b"", dtype_of(storages[one].dtype)).reshape(
                storages[one].shape
            )
            for name, one in play.feeds.items()
        }
        [table] = case.tables
        [page] = table.pages
        image = PageImage(page.quantized_type, page.dims, storages[page.storage].content or b"")
        inputs["cache"] = Pages(table.container, (image,))
        return final(run_model(data, inputs)).pages[0]

    page = made()
    with monkeypatch.context() as patch:
        patch.setattr(PackedLinear, "_code", other_codes(rounding))
        other = made()
    assert other.payload != page.payload
    judgement = judge_page(page, other.payload, parse(data).quantizations)
    assert judgement.requirement is (None if is_right else Req.MC_QUANT_003)
    assert not judgement.is_exact


def test_nothing_is_computed_from_what_another_decoder_may_decode_otherwise() -> None:
    """Gathers are outputs as they are, unless the pages hold their elements themselves."""
    for case in generate():
        if not case.tables:
            continue
        for data in case.models.values():
            model = parse(data)
            if all(one.WhichOneof("kind") == "identity" for one in model.quantizations):
                continue
            graphs = [model.graph]
            graphs += [one.g for node in model.graph.node for one in node.attribute if one.HasField("g")]
            for graph in graphs:
                read = {node.output[0] for node in graph.node if node.op_type == "PagedCacheGather"}
                for node in graph.node:
                    assert node.op_type in ("SequenceLength", "If") or read.isdisjoint(node.input), case.id


def test_payloads_of_right_tables_have_the_size_of_their_layout() -> None:
    for case in generate():
        if case.is_negative or not case.tables:
            continue
        sizes = {storage.name: math.prod(storage.shape) for storage in case.storages}
        loads = [step.model for step in case.script if isinstance(step, Load)]
        [*_, model] = (parse(case.models[name]) for name in loads)
        for table in case.tables:
            for page in table.pages:
                codec = codec_of(model.quantizations[page.quantized_type])
                assert sizes[page.storage] == codec.nbytes(page.dims), case.id
