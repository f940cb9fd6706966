"""PagedCacheUpdate: which bytes it writes, what it allocates, and that a refused one leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from paged_models import (
    FLOAT,
    FLOAT16,
    IDENTITY,
    INT8_PAGE,
    PACKED,
    PAGE,
    UINT8_PAGE,
    gather_model,
    identity,
    identity_page,
    int8_page,
    packed_int8,
    paged_model,
    rows,
    static_int8,
)

from mutcache import Page, PageTable, RunError, Session
from mutcache.proto.onnx_ml import ModelProto, TensorProto
from mutcache.requirements import Req
from mutcache.storage import Array
from mutcache_conformance.cases.builder import tensor

INT64_MAX = (1 << 63) - 1


class Allocator:
    """Counts what it is asked for, and gives no more than ``budget`` bytes; what it gives is not zero."""

    def __init__(self, budget: int = 1 << 20) -> None:
        self.asked: list[int] = []
        self.budget = budget

    def __call__(self, n_bytes: int) -> Array | None:
        self.asked.append(n_bytes)
        if n_bytes > self.budget:
            return None
        self.budget -= n_bytes
        return np.full(n_bytes, 0xAB, np.uint8)


def image(table: PageTable) -> dict[int, tuple[int, int, bytes]]:
    """All that a run may change: of each page the type, the address and the bytes."""
    return {
        page_id: (page.quantized_type, page.payload.ctypes.data, page.payload.tobytes())
        for page_id, page in table.items()
    }


def run(table: PageTable, made: ModelProto, **feeds: Any) -> None:
    feeds = {"page_id": 0, "values": rows(1), "position": 0} | feeds
    if "quantized_type" not in {value.name for value in made.graph.input}:
        feeds.pop("quantized_type", None)
    with Session(made).bind({"cache": table}) as binding:
        binding.run(feeds)


def table_of(made: ModelProto, pages: Any, **options: Any) -> PageTable:
    return PageTable(pages, model=made, value="cache", **options)


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("length", range(5))
def test_exactly_the_rows_are_written(position: int, length: int) -> None:
    """Identity pages are plain arrays, so NumPy says what each byte has to be."""
    made = paged_model(typed=False)
    before, values = rows(4, 3), rows(length, 40)
    neighbour = identity_page(rows(4, 70))
    table = table_of(made, [neighbour, identity_page(before)])
    addresses = [page.payload.ctypes.data for page in table.values()]
    if position + length > 4:
        with pytest.raises(RunError) as refused:
            run(table, made, page_id=1, values=values, position=position)
        assert refused.value.requirement is Req.MC_PAGED_005
        assert refused.value.values["position"] == position
        expected = before
    else:
        run(table, made, page_id=1, values=values, position=position)
        expected = before.copy()
        expected[:, position : position + length] = values
    assert table[1].payload.tobytes() == expected.tobytes()
    assert table[0].payload.tobytes() == rows(4, 70).tobytes()
    assert [page.payload.ctypes.data for page in table.values()] == addresses


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_rows_lie_along_any_axis_of_an_ungrouped_page(axis: int) -> None:
    made = paged_model(allowed=[IDENTITY], values=(None, None, None), axis=axis)
    table = table_of(made, [identity_page(rows(4))])
    expected = rows(4)
    values = np.take(rows(4, 50), [0], axis)
    np.moveaxis(expected, axis, 0)[1:2] = np.moveaxis(values, axis, 0)
    run(table, made, values=values, position=1, quantized_type=IDENTITY)
    assert table[0].payload.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("wanted", "zero", "code"),
    [(IDENTITY, b"\0\0\0\0", np.float32(7).tobytes()), (INT8_PAGE, b"\0", b"\7"), (UINT8_PAGE, b"\0", b"\x6b")],
)
@pytest.mark.parametrize("is_map", [False, True])
def test_a_new_page_is_zero_bytes_but_for_its_rows(wanted: int, zero: bytes, code: bytes, is_map: bool) -> None:
    """Zero bytes, not zero elements: in UINT8_PAGE byte 0 decodes to -100."""
    made = paged_model(is_map=is_map)
    allocator = Allocator()
    number = 1 << 40 if is_map else 0
    table = table_of(made, {} if is_map else [], allocator=allocator)
    run(table, made, page_id=number, values=np.full((2, 1, 8), 7, np.float32), position=2, quantized_type=wanted)
    assert table[number].payload.tobytes() == (zero * 16 + code * 8 + zero * 8) * 2
    assert (table[number].quantized_type, table[number].dims) == (wanted, PAGE)
    assert allocator.asked == [256 if wanted == IDENTITY else 64], "the page, and nothing else"


def test_growing_moves_no_payload() -> None:
    made = paged_model()
    table = table_of(made, [int8_page(rows(4))])
    with Session(made).bind({"cache": table}) as binding:
        images = []
        for number in range(1, 40):
            images.append(image(table))
            binding.run({"page_id": number, "values": rows(4, number), "position": 0, "quantized_type": number % 4})
    final = image(table)
    assert len(final) == 40
    assert all(seen.items() <= final.items() for seen in images)


def test_updates_of_existing_pages_allocate_nothing() -> None:
    made = paged_model()
    allocator = Allocator(0)
    table = table_of(made, [identity_page(rows(4)), int8_page(rows(4))], allocator=allocator)
    for number, wanted in ((0, IDENTITY), (1, INT8_PAGE)):
        run(table, made, page_id=number, quantized_type=wanted)
    assert allocator.asked == []


# Types.


@pytest.mark.parametrize("wanted", range(4))
@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("length", [0, 2])
def test_a_type_change_keeps_the_old_rows(before: int, wanted: int, length: int) -> None:
    """Every declaration holds these numbers exactly, or, in groups of eight, within half a step of 99/127."""
    made = paged_model()
    allocator = Allocator()
    table = table_of(made, [], allocator=allocator)
    values = rows(length, 60)
    run(table, made, values=rows(4), quantized_type=before)
    run(table, made, page_id=1, values=rows(4), quantized_type=before)
    old, other = table[0].payload, image(table)[1]
    kept = old.tobytes()
    allocator.asked.clear()
    run(table, made, values=values, position=1, quantized_type=wanted)
    expected = rows(4)
    expected[:, 1 : 1 + length] = values
    tolerance = 0.5 * 99 / 127 if PACKED in (before, wanted) else 0
    np.testing.assert_allclose(table.decode(0), expected, atol=2 * tolerance, rtol=0)
    assert table[0].quantized_type == wanted
    sizes = {IDENTITY: 256, INT8_PAGE: 64, UINT8_PAGE: 64, PACKED: 96}
    if sizes[before] == sizes[wanted]:
        assert table[0].payload is old
        assert allocator.asked == []
    else:
        assert allocator.asked == [sizes[wanted]]
        assert old.tobytes() == kept, "what is replaced is left as it was"
    assert image(table)[1] == other


def test_naming_the_type_of_the_page_encodes_nothing() -> None:
    """A payload that no encoder writes stays as it is: the groups' codes need not reach 127."""
    made = paged_model()
    codes = np.arange(64, dtype=np.uint8) % 50
    odd = np.concatenate([codes, np.full(8, 3, np.float32).view(np.uint8)])
    table = table_of(made, [Page(PACKED, PAGE, odd.copy())])
    run(table, made, values=rows(0), position=4, quantized_type=PACKED)
    assert table[0].payload.tobytes() == odd.tobytes()
    run(table, made, values=rows(1), position=3, quantized_type=PACKED)
    changed = np.flatnonzero(table[0].payload != odd)
    own = {*range(24, 32), *range(56, 64), *range(64 + 12, 64 + 16), *range(64 + 28, 64 + 32)}
    assert set(changed.tolist()) <= own


def test_an_update_of_no_rows_creates_and_converts() -> None:
    made = paged_model()
    table = table_of(made, [])
    run(table, made, values=rows(0), position=4, quantized_type=UINT8_PAGE)
    assert table[0].payload.tobytes() == bytes(64)
    run(table, made, values=rows(0), position=0, quantized_type=IDENTITY)
    np.testing.assert_array_equal(table.decode(0), np.full(PAGE, -100, np.float32))


def test_a_page_keeps_its_type_and_a_new_one_gets_the_only_one() -> None:
    made = paged_model(typed=False, allowed=[INT8_PAGE])
    table = table_of(made, [])
    run(table, made)
    assert table[0].quantized_type == INT8_PAGE
    for options in ({"allowed": [INT8_PAGE, IDENTITY]}, {}):
        made = paged_model(typed=False, **options)  # type: ignore[arg-type]
        table = table_of(made, [int8_page(rows(4))])
        run(table, made, position=3)
        assert table[0].quantized_type == INT8_PAGE
        before = image(table)
        with pytest.raises(RunError) as refused:
            run(table, made, page_id=1)
        assert refused.value.requirement is Req.MC_PAGED_015
        assert image(table) == before


# What is refused. Nothing changes: no byte, no address, no page.

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], Req]] = {
    "negative id": ({}, {"page_id": -1}, Req.MC_PAGED_004),
    "least id": ({}, {"page_id": -INT64_MAX - 1}, Req.MC_PAGED_004),
    "gap": ({}, {"page_id": 3}, Req.MC_PAGED_004),
    "greatest id": ({}, {"page_id": INT64_MAX}, Req.MC_PAGED_004),
    "negative id of a map": ({"is_map": True}, {"page_id": -1}, Req.MC_PAGED_004),
    "negative position": ({}, {"position": -1}, Req.MC_PAGED_005),
    "least position": ({}, {"position": -INT64_MAX - 1}, Req.MC_PAGED_005),
    "greatest position": ({}, {"position": INT64_MAX}, Req.MC_PAGED_005),
    "position behind the end": ({}, {"position": 5, "values": rows(0)}, Req.MC_PAGED_005),
    "too many rows": ({}, {"values": rows(5)}, Req.MC_PAGED_005),
    "overflow in a new page": ({}, {"page_id": 2, "position": 4}, Req.MC_PAGED_005),
    "overflow in a type change": ({}, {"position": 4, "quantized_type": INT8_PAGE}, Req.MC_PAGED_005),
    "type beyond the declarations": ({}, {"quantized_type": 4}, Req.MC_PAGED_006),
    "negative type": ({}, {"quantized_type": -1}, Req.MC_PAGED_006),
    "type not allowed": ({"allowed": [0, 1]}, {"quantized_type": 2}, Req.MC_PAGED_006),
    "decodes to another type": (
        {"types": [identity(), static_int8(), identity(FLOAT16)]},
        {"quantized_type": 2},
        Req.MC_PAGED_007,
    ),
    "groups that do not fit": (
        {"types": [identity(), static_int8(), packed_int8(block=16)]},
        {"quantized_type": 2},
        Req.MC_PAGED_007,
    ),
    "values of another type": ({}, {"values": rows(1).astype(np.float16)}, Req.MC_PAGED_017),
    "scalar with a dimension": ({}, {"page_id": np.array([0])}, Req.MC_PAGED_017),
    "position of another type": ({}, {"position": np.array(0, np.int32)}, Req.MC_PAGED_017),
    "values of another rank": ({}, {"values": rows(1)[0]}, Req.MC_PAGED_017),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_update_leaves_no_trace(what: str) -> None:
    options, feeds, requirement = REFUSED[what]
    made = paged_model(**options)
    pages = [identity_page(rows(4)), int8_page(rows(4, 30))]
    allocator = Allocator()
    table = table_of(made, dict(enumerate(pages)) if options.get("is_map") else pages, allocator=allocator)
    before = image(table)
    with Session(made).bind({"cache": table}) as binding:
        good: dict[str, Any] = {"page_id": 0, "values": rows(1), "position": 0, "quantized_type": IDENTITY}
        with pytest.raises(RunError) as refused:
            binding.run(good | feeds)
        assert refused.value.requirement is requirement
        assert refused.value.hint
        assert image(table) == before
        assert allocator.asked == []
        binding.run(good)


def test_values_of_other_sizes_are_refused() -> None:
    made = paged_model(values=(None, None, None))
    table = table_of(made, [identity_page(rows(4))])
    before = image(table)
    for shape in ((1, 1, 8), (2, 1, 7), (2, 1, 1), (0, 1, 8)):
        for number in (0, 1):
            with pytest.raises(RunError) as refused:
                run(table, made, page_id=number, values=np.zeros(shape, np.float32), quantized_type=IDENTITY)
            assert refused.value.requirement is Req.MC_PAGED_017
    assert image(table) == before


def in_use(table: PageTable) -> Callable[[int], Array]:
    return lambda n_bytes: table[0].payload[:n_bytes]


BAD_MEMORY: dict[str, Callable[[int], Any]] = {
    "none": lambda _: None,
    "something else": bytearray,
    "too little": lambda n_bytes: np.zeros(n_bytes - 1, np.uint8),
    "too much": lambda n_bytes: np.zeros(n_bytes + 1, np.uint8),
    "another type": lambda n_bytes: np.zeros(n_bytes, np.int8),
    "another rank": lambda n_bytes: np.zeros((1, n_bytes), np.uint8),
    "gaps": lambda n_bytes: np.zeros(2 * n_bytes, np.uint8)[::2],
    "read-only": lambda n_bytes: np.frombuffer(bytes(n_bytes), np.uint8),
}


@pytest.mark.parametrize("what", BAD_MEMORY)
@pytest.mark.parametrize(("number", "wanted"), [(1, IDENTITY), (0, INT8_PAGE), (0, PACKED)])
def test_without_memory_the_table_stays_as_it_is(what: str, number: int, wanted: int) -> None:
    made = paged_model()
    table = table_of(made, [identity_page(rows(4))], allocator=BAD_MEMORY[what])
    before = image(table)
    with pytest.raises(RunError) as refused:
        run(table, made, page_id=number, quantized_type=wanted)
    assert refused.value.requirement is Req.MC_PAGED_012
    assert image(table) == before


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, KeyError])
def test_an_allocator_may_raise(error: type[Exception]) -> None:
    def allocate(_: int) -> Array:
        raise error("full")

    made = paged_model()
    table = table_of(made, [], allocator=allocate)
    with pytest.raises(RunError) as refused:
        run(table, made, quantized_type=IDENTITY)
    assert refused.value.requirement is Req.MC_PAGED_012
    assert type(refused.value.__cause__) is error
    assert not table


def test_memory_that_is_in_use_is_refused() -> None:
    made = paged_model()
    values = rows(1)
    table = table_of(made, [identity_page(rows(4))])
    stolen = [
        lambda n_bytes: table[0].payload[:n_bytes],
        lambda n_bytes: values.reshape(-1).view(np.uint8)[:n_bytes],
    ]
    before = image(table)
    for allocate in stolen:
        table.allocator = allocate
        with pytest.raises(RunError) as refused:
            run(table, made, page_id=1, values=values, quantized_type=INT8_PAGE)
        assert refused.value.requirement is Req.MC_PAGED_012
    other = table_of(made, [identity_page(rows(4))])
    with Session(made).bind({"cache": other}):
        table.allocator = lambda n_bytes: other[0].payload[:n_bytes]
        with pytest.raises(RunError) as refused:
            run(table, made, page_id=1, quantized_type=INT8_PAGE)
        assert refused.value.requirement is Req.MC_PAGED_012
    assert image(table) == before


def test_an_allocator_that_runs_the_binding_is_refused() -> None:
    made = paged_model()
    feeds = {"page_id": 0, "values": rows(1), "position": 0, "quantized_type": IDENTITY}

    def allocate(_: int) -> Array:
        binding.run(feeds)
        raise AssertionError

    table = table_of(made, [], allocator=allocate)
    with Session(made).bind({"cache": table}) as binding, pytest.raises(RunError) as refused:
        binding.run(feeds)
    assert refused.value.requirement is Req.MC_PAGED_012
    assert isinstance(refused.value.__cause__, RunError)
    assert refused.value.__cause__.requirement is Req.MC_BIND_011


@pytest.mark.parametrize("elem_type", [TensorProto.BOOL, TensorProto.INT32, TensorProto.DOUBLE, TensorProto.BFLOAT16])
def test_identity_pages_hold_every_type_bit_for_bit(elem_type: int) -> None:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(elem_type)
    made = paged_model(elem_type=elem_type, types=[identity(elem_type)], typed=False, allowed=[0])
    random = np.random.default_rng(1)
    values = random.integers(0, 2 if elem_type == TensorProto.BOOL else 255, 16 * dtype.itemsize, np.uint8)
    table = table_of(made, [])
    run(table, made, values=values.view(dtype).reshape(2, 1, 8), position=3)
    held = table[0].payload.reshape(2, 4, -1)
    assert held[:, 3].tobytes() == values.tobytes()
    assert not held[:, :3].any()
    reader = gather_model(elem_type=elem_type, types=[identity(elem_type)])
    pages = Session(reader).run({"cache": table.copy(), "ids": np.array([0])})["pages"]
    assert pages.tobytes() == table[0].payload.tobytes()


@pytest.mark.parametrize(("elem_type", "payload"), [(TensorProto.INT4, "e1 0f"), (TensorProto.UINT2, "0d")])
def test_identity_pages_of_narrow_elements_are_packed(elem_type: int, payload: str) -> None:
    """As ONNX packs them: the first element in the low-order bits."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(elem_type)
    made = paged_model(elem_type=elem_type, types=[identity(elem_type)], typed=False, allowed=[0], dims=(1, 1, 4))
    made.graph.input[2].CopyFrom(tensor("values", elem_type, (1, 1, 4)))
    values = {TensorProto.INT4: [1, -2, -1, 0], TensorProto.UINT2: [1, 3, 0, 0]}[elem_type]  # type: ignore[index]
    table = table_of(made, [])
    run(table, made, values=np.array([[values]], np.int8).astype(dtype))
    assert table[0].payload.tobytes().hex(" ") == payload
    reader = gather_model(elem_type=elem_type, types=[identity(elem_type)], dims=(1, 1, 4))
    pages = Session(reader).run({"cache": table.copy(), "ids": np.array([0])})["pages"]
    assert (pages.dtype, pages.astype(np.int8).tolist()) == (dtype, [[values]])


def test_pages_of_other_ranks() -> None:
    """A page of rank 1 has to name its axis; a page of rank 4 need not."""
    for dims, axis in (((6,), 0), ((1, 2, 3, 4), None)):
        made = paged_model(dims=dims, values=[None] * len(dims), axis=axis, allowed=[IDENTITY])
        table = table_of(made, [])
        at = axis if axis is not None else 2
        values = np.ones((*dims[:at], 1, *dims[at + 1 :]), np.float32)
        run(table, made, values=values, position=1, quantized_type=IDENTITY)
        expected = np.zeros(dims, np.float32)
        np.moveaxis(expected, at, 0)[1] = 1
        assert table[0].payload.tobytes() == expected.tobytes()


def test_values_may_have_gaps() -> None:
    made = paged_model()
    table = table_of(made, [int8_page(rows(4))])
    run(table, made, values=rows(4, 5)[:, ::2], position=1, quantized_type=INT8_PAGE)
    np.testing.assert_array_equal(table.decode(0)[:, 1:3], rows(4, 5)[:, ::2])
    assert made.graph.input[0].type.sequence_type.elem_type.quantized_tensor_type.elem_type == FLOAT
