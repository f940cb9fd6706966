"""Page tables under any sequence of updates, against a dictionary of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paged_models import IDENTITY, INT8_PAGE, PAGE, UINT8_PAGE, paged_model

from mutcache import BindError, Page, PageTable, RunError, Session
from mutcache.leases import LEASES
from mutcache.requirements import Req
from mutcache.storage import Array, storage_of

TYPES = (IDENTITY, INT8_PAGE, UINT8_PAGE)
#: Bytes of an element, and what zero bytes decode to.
WIDTH = {IDENTITY: 4, INT8_PAGE: 1, UINT8_PAGE: 1}
ZERO = {IDENTITY: 0.0, INT8_PAGE: 0.0, UINT8_PAGE: -100.0}

MODELS = {is_map: paged_model(is_map=is_map) for is_map in (False, True)}
#: Numbers that every type holds exactly.
NUMBERS = st.integers(-100, 27)
UPDATES = st.fixed_dictionaries(
    {
        "page_id": st.integers(-1, 4),
        "position": st.integers(-1, 5),
        "length": st.integers(0, 4),
        "quantized_type": st.sampled_from((*TYPES, 9)),
        "start": NUMBERS,
    }
)


class Model:
    """What the specification says a table is: types and arrays by page id."""

    def __init__(self, is_map: bool, budget: int) -> None:
        self.is_map = is_map
        self.budget = budget
        self.pages: dict[int, tuple[int, Array]] = {}

    def refusal(self, page_id: int, position: int, length: int, wanted: int) -> set[Req]:
        """Everything that is wrong with an update; it may be refused with any of them."""
        found = set()
        if page_id < 0 or (not self.is_map and page_id > len(self.pages)):
            found.add(Req.MC_PAGED_004)
        if position < 0 or position + length > PAGE[1]:
            found.add(Req.MC_PAGED_005)
        if wanted not in TYPES:
            found.add(Req.MC_PAGED_006)
        elif self.needed(page_id, wanted) > self.budget:
            found.add(Req.MC_PAGED_012)
        return found

    def needed(self, page_id: int, wanted: int) -> int:
        """The bytes that an update allocates."""
        if page_id in self.pages and WIDTH[self.pages[page_id][0]] == WIDTH[wanted]:
            return 0
        return WIDTH[wanted] * int(np.prod(PAGE))

    def update(self, page_id: int, position: int, values: Array, wanted: int) -> None:
        self.budget -= self.needed(page_id, wanted)
        _, page = self.pages.get(page_id, (wanted, np.full(PAGE, ZERO[wanted], np.float32)))
        page[:, position : position + values.shape[1]] = values
        self.pages[page_id] = (wanted, page)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    is_map=st.booleans(), budget=st.integers(0, 1500), updates=st.lists(UPDATES, max_size=8), split=st.integers(0, 8)
)
def test_a_table_is_a_dictionary_of_pages(is_map: bool, budget: int, updates: list[dict[str, int]], split: int) -> None:
    """Also across sessions: the second one goes on with what the first one left."""
    expected = Model(is_map, budget)
    left = budget

    def allocate(n_bytes: int) -> Array | None:
        nonlocal left
        if n_bytes > left:
            return None
        left -= n_bytes
        return np.full(n_bytes, 0x5A, np.uint8)

    made = MODELS[is_map]
    table = PageTable({} if is_map else [], model=made, value="cache", allocator=allocate)
    addresses: dict[int, tuple[int, int]] = {}
    for part in (updates[:split], updates[split:]):
        with Session(made) as session, session.bind({"cache": table}) as binding:
            for one in part:
                step(binding, table, expected, addresses, **one)
                held = {
                    claim.byte_range
                    for group in LEASES.held().values()
                    for claim in group
                    if claim.byte_range.device == "cpu"
                }
                assert held == {storage_of(page.payload).byte_range for page in table.values()}
    assert left == expected.budget


def step(
    binding: Any,
    table: PageTable,
    expected: Model,
    addresses: dict[int, tuple[int, int]],
    *,
    page_id: int,
    position: int,
    length: int,
    quantized_type: int,
    start: int,
) -> None:
    values = np.full((PAGE[0], length, PAGE[2]), start, np.float32)
    wrong = expected.refusal(page_id, position, length, quantized_type)
    images = {number: page.payload.tobytes() for number, page in table.items()}
    feeds = {"page_id": page_id, "values": values, "position": position, "quantized_type": quantized_type}
    if wrong:
        with pytest.raises(RunError) as refused:
            binding.run(feeds)
        assert refused.value.requirement in wrong
        assert {number: page.payload.tobytes() for number, page in table.items()} == images
    else:
        assert binding.run(feeds)["updated"] is table
        expected.update(page_id, position, values, quantized_type)
    assert {number: page.quantized_type for number, page in table.items()} == {
        number: wanted for number, (wanted, _) in expected.pages.items()
    }
    for number, (wanted, page) in expected.pages.items():
        np.testing.assert_array_equal(table.decode(number), page)
        size, address = addresses.get(number, (0, 0))
        found = table[number].payload.ctypes.data
        assert size != WIDTH[wanted] or address == found, "a payload of the same size stays where it is"
        addresses[number] = (WIDTH[wanted], found)


@settings(deadline=None, max_examples=200)
@given(ranges=st.lists(st.tuples(st.integers(0, 512), st.sampled_from([0, 64, 256])), max_size=5))
def test_tables_of_overlapping_payloads_are_refused(ranges: list[tuple[int, int]]) -> None:
    made = paged_model(dims=[2, None, 8])
    memory = np.zeros(1024, np.uint8)
    rows = {0: 0, 64: 4, 256: 4}
    pages = [
        Page(IDENTITY if size == 256 else INT8_PAGE, (2, rows[size], 8), memory[start : start + size])
        for start, size in ranges
        if size
    ]
    sets = [set(range(start, start + size)) for start, size in ranges if size]
    overlap = any(one & other for index, one in enumerate(sets) for other in sets[:index])
    table = PageTable(pages, model=made, value="cache")
    with Session(made) as session:
        if overlap:
            with pytest.raises(BindError) as refused:
                session.bind({"cache": table})
            assert refused.value.requirement is Req.MC_PAGED_011
        else:
            session.bind({"cache": table}).release()
