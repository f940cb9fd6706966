"""Page tables on a device, with the host shim in its place: the same as on the host, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import Array, host, needs_compiler
from paged_models import (
    FLOAT,
    FLOAT16,
    IDENTITY,
    INT8_PAGE,
    INT64,
    PACKED,
    PAGE,
    UINT8_PAGE,
    container,
    gather,
    identity,
    paged_model,
    paged_update,
    rows,
    scalar,
    static_int8,
    table,
    with_types,
)

from mutcache import BindError, Page, PageTable, RunError, Session
from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache.storage import is_device_array, storage_of
from mutcache_conformance.cases.builder import model, tensor
from mutcache_cupy.backend import KernelBackend

pytestmark = needs_compiler
DEVICE = "cuda:0"
#: Bytes of a page of each type.
SIZES = {IDENTITY: 256, INT8_PAGE: 64, UINT8_PAGE: 64, PACKED: 96}


def on_device(array: Array, offset: int = 0) -> Any:
    """An array on the device, ``offset`` bytes behind an aligned address, with a copy of these elements."""
    device = host()
    buffer = device.empty(offset + array.nbytes)
    found = device.view(buffer, offset, array.dtype, array.shape)
    device.write(found, array)
    return found


def session(made: ModelProto, **options: Any) -> Session:
    return Session(made, backend=KernelBackend(host()), **options)


def page(quantized_type: int, fill: int = 0, offset: int = 0) -> Page:
    payload = np.full(SIZES[quantized_type], fill, np.uint8)
    return Page(quantized_type, PAGE, on_device(payload, offset))


def feeds(page_id: int = 0, position: int = 0, quantized_type: int = IDENTITY, count: int = 1) -> dict[str, Any]:
    return {"page_id": page_id, "values": rows(count), "position": position, "quantized_type": quantized_type}


def contents(pages: PageTable) -> list[tuple[int, int, bytes]]:
    """Every page: its number, its type, its bytes."""
    return [
        (page_id, one.quantized_type, bytes(one.payload.get() if is_device_array(one.payload) else one.payload))
        for page_id, one in pages.items()
    ]


def reader() -> ModelProto:
    """A model that updates a page, and gathers pages."""
    made = model(
        [
            container("cache", mutable=True),
            scalar("page_id"),
            tensor("values", FLOAT, (2, "rows", 8)),
            scalar("position"),
            scalar("quantized_type"),
            tensor("ids", INT64, ["n"]),
        ],
        [paged_update("cache", "updated", quantized_type="quantized_type"), gather("updated", "pages", axis=1)],
        [container("updated", alias_of="cache"), tensor("pages", FLOAT, (2, "all", 8))],
    )
    return with_types(made)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-1, 4), st.integers(-1, 4), st.integers(-1, 4), st.integers(0, 4), st.integers(0, 2**16)),
        max_size=6,
    ),
    st.integers(0, 3),
)
def test_runs_on_a_device_do_what_runs_on_the_host_do(
    updates: list[tuple[int, int, int, int, int]], offset: int
) -> None:
    """Page by page and refusal by refusal, with payloads and values at odd addresses."""
    made = reader()
    tables = table([], made), table([page(PACKED, offset=offset)], made)
    tables[0].put(0, Page(PACKED, PAGE, np.zeros(96, np.uint8)))
    with (
        Session(made) as host_session,
        session(made) as device_session,
        host_session.bind({"cache": tables[0]}) as one,
        device_session.bind({"cache": tables[1]}) as other,
    ):
        for page_id, position, quantized_type, count, seed in updates:
            values = rows(count, seed)
            ids = np.arange(len(tables[0]))[::-1].astype(np.int64)
            given_feeds = {"page_id": page_id, "position": position, "quantized_type": quantized_type, "ids": ids}
            results: list[Any] = []
            for binding, fed in ((one, values), (other, on_device(values, 4 * (seed % 5)))):
                try:
                    results.append(binding.run({**given_feeds, "values": fed})["pages"])
                except RunError as error:
                    results.append((error.requirement, error.message))
            assert contents(tables[0]) == contents(tables[1])
            assert type(results[0]) is type(results[1])
            if isinstance(results[0], np.ndarray):
                np.testing.assert_array_equal(*results)
            else:
                assert results[0] == results[1]
    assert all(is_device_array(one.payload) for one in tables[1].values())


def test_mc_paged_008_a_change_of_type_in_place_keeps_the_payload_and_another_replaces_it() -> None:
    made = table([page(INT8_PAGE, 3)])
    payload = made[0].payload
    with session(paged_model()) as one, one.bind({"cache": made}) as binding:
        outputs = binding.run(feeds(quantized_type=UINT8_PAGE))
        assert outputs["updated"] is made
        assert made[0].payload is payload
        assert payload.get()[8:32].tolist() == [103] * 24  # the rows behind the one that was written
        before = payload.get()
        binding.run(feeds(quantized_type=IDENTITY))
        assert made[0].payload is not payload
        assert storage_of(made[0].payload).device == DEVICE
        np.testing.assert_array_equal(payload.get(), before)  # it returns to its owner as it was


@pytest.mark.parametrize(
    ("changes", "requirement"),
    [
        ({"page_id": 2}, Req.MC_PAGED_004),
        ({"page_id": -1}, Req.MC_PAGED_004),
        ({"position": 4}, Req.MC_PAGED_005),
        ({"position": -1}, Req.MC_PAGED_005),
        ({"quantized_type": 4}, Req.MC_PAGED_006),
    ],
)
def test_a_refused_update_changes_nothing(changes: dict[str, int], requirement: Req) -> None:
    made = table([page(INT8_PAGE, 1)])
    before = contents(made)
    with session(paged_model()) as one, one.bind({"cache": made}) as binding:
        for as_array in (int, np.int64, lambda number: on_device(np.array(number, np.int64))):
            asked = feeds() | {name: as_array(number) for name, number in changes.items()}
            with pytest.raises(RunError) as caught:
                binding.run(asked)
            assert caught.value.requirement is requirement
            assert contents(made) == before
        binding.run(feeds(quantized_type=INT8_PAGE))
    assert contents(made) != before


def test_the_device_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position that changes between the judgement on the host and the launch is refused by the kernel."""
    monkeypatch.setattr("mutcache.ops.paged.PagedCacheUpdate._judge_rows", lambda *_: None)
    made = table([page(INT8_PAGE, 1)])
    before = contents(made)
    with session(paged_model()) as one, one.bind({"cache": made}) as binding:
        for position in (4, -1):
            with pytest.raises(RunError, match="the device refuses rows of a page") as caught:
                binding.run(feeds(position=position, quantized_type=INT8_PAGE))
            assert caught.value.requirement is Req.MC_PAGED_005
    assert contents(made) == before


def test_mc_bind_007_pages_of_host_and_device_are_never_mixed() -> None:
    on_host = Page(INT8_PAGE, PAGE, np.zeros(64, np.uint8))
    with session(paged_model()) as one:
        for pages in ([on_host], [page(INT8_PAGE), on_host]):
            with pytest.raises(BindError, match="is on cpu, the session needs it on cuda:0") as caught:
                one.bind({"cache": table(pages)})
            assert caught.value.requirement is Req.MC_BIND_007
    with Session(paged_model()) as one, pytest.raises(BindError, match="is on cuda:0, the session needs it on cpu"):
        one.bind({"cache": table([page(INT8_PAGE)])})


def test_mc_bind_002_a_read_only_payload_on_the_device() -> None:
    device = host()
    payload = device.view(device.empty(64), 0, np.dtype(np.uint8), (64,), writable=False)
    with session(paged_model()) as one, pytest.raises(BindError) as caught:
        one.bind({"cache": table([Page(INT8_PAGE, PAGE, payload)])})
    assert caught.value.requirement is Req.MC_BIND_002


def test_mc_paged_011_overlapping_payloads_on_the_device() -> None:
    device = host()
    buffer = device.empty(256)

    def at(offset: int) -> Page:
        return Page(INT8_PAGE, PAGE, device.view(buffer, offset, np.dtype(np.uint8), (64,)))

    with session(paged_model()) as one, session(paged_model()) as other:
        with pytest.raises(BindError) as caught:
            one.bind({"cache": table([at(0), at(63)])})
        assert caught.value.requirement is Req.MC_PAGED_011
        with one.bind({"cache": table([at(0)])}):
            with pytest.raises(BindError) as caught:
                other.bind({"cache": table([at(32)])})
            assert caught.value.requirement is Req.MC_BIND_005
            other.bind({"cache": table([at(64)])}).release()


def test_mc_bind_004_values_in_a_payload_that_the_run_writes() -> None:
    made = table([page(IDENTITY)])
    values = host().view(made[0].payload, 64, np.dtype(np.float32), (2, 1, 8))
    with session(paged_model()) as one, one.bind({"cache": made}) as binding:
        with pytest.raises(RunError) as caught:
            binding.run(feeds() | {"values": values})
        assert caught.value.requirement is Req.MC_BIND_004
        binding.run(feeds() | {"values": on_device(rows(1))})


def allocators() -> dict[str, Callable[[int], Any]]:
    device = host()
    held = device.empty(256)
    return {
        "host memory": lambda nbytes: np.zeros(nbytes, np.uint8),
        "nothing": lambda _: None,
        "too little": lambda nbytes: on_device(np.zeros(nbytes - 1, np.uint8)),
        "other elements": lambda nbytes: on_device(np.zeros(nbytes // 2, np.float16)),
        "read-only": lambda nbytes: device.view(held, 0, np.dtype(np.uint8), (nbytes,), writable=False),
        "every other byte": lambda nbytes: device.view(held, 0, np.dtype(np.uint8), (nbytes,), (2,)),
    }


@pytest.mark.parametrize("name", allocators())
def test_mc_paged_012_an_allocator_that_gives_something_else(name: str) -> None:
    made = table([page(INT8_PAGE)], allocator=allocators()[name])
    before = contents(made)
    with session(paged_model()) as one, one.bind({"cache": made}) as binding:
        with pytest.raises(RunError) as caught:
            binding.run(feeds(page_id=1, quantized_type=INT8_PAGE))
        assert caught.value.requirement is Req.MC_PAGED_012
    assert contents(made) == before


def test_an_allocator_of_the_callers_makes_the_pages() -> None:
    made_by_us: list[Any] = []

    def allocator(nbytes: int) -> Any:
        made_by_us.append(on_device(np.full(nbytes, 0xA5, np.uint8)))
        return made_by_us[-1]

    made = table([], allocator=allocator)
    with session(paged_model()) as one, one.bind({"cache": made}) as binding:
        binding.run(feeds(quantized_type=INT8_PAGE, position=2))
    assert made[0].payload is made_by_us[0]
    assert made_by_us[0].get().reshape(2, 4, 8)[:, :2].tolist() == np.zeros((2, 2, 8)).tolist()


def test_mc_paged_012_no_memory_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> Any:
        raise MemoryError("out of device memory")

    made = table([page(INT8_PAGE, 5)])
    before = contents(made)
    with session(paged_model()) as one, one.bind({"cache": made}) as binding:
        monkeypatch.setattr(host(), "empty", refuse)
        for changes in ({"page_id": 1}, {"quantized_type": UINT8_PAGE}, {"quantized_type": PACKED}):
            with pytest.raises(RunError) as caught:
                binding.run(feeds(quantized_type=INT8_PAGE) | changes)
            assert caught.value.requirement is Req.MC_PAGED_012
        monkeypatch.undo()
        assert contents(made) == before
        binding.run(feeds(quantized_type=INT8_PAGE))


def test_a_fed_table_may_be_on_either_side() -> None:
    made = model(
        [container("cache"), tensor("ids", INT64, ["n"])],
        [gather("cache", "pages", axis=1)],
        [tensor("pages", FLOAT, (2, "all", 8))],
    )
    with_types(made)
    payloads = [np.arange(size, dtype=np.uint8) % 7 for size in (SIZES[INT8_PAGE], SIZES[PACKED])]
    ids = np.array([1, 0, 1])
    with session(made) as one, Session(made) as plain:
        pages = [Page(kind, PAGE, payload) for kind, payload in zip((INT8_PAGE, PACKED), payloads, strict=True)]
        moved = [Page(one.quantized_type, PAGE, on_device(one.payload)) for one in pages]
        found = [one.run({"cache": fed, "ids": ids})["pages"] for fed in (pages, moved, [pages[0], moved[1]])]
        expected = plain.run({"cache": pages, "ids": ids})["pages"]
        for result in found:
            np.testing.assert_array_equal(result, expected)
        with pytest.raises(RunError, match="it is on cuda:0, the session reads arrays on cpu") as caught:
            plain.run({"cache": moved, "ids": ids})
        assert caught.value.requirement is Req.MC_BIND_007
    assert table(moved, made).copy().decode(1).tolist() == table(pages, made).decode(1).tolist()
    assert table(moved, made).nbytes == 160


def test_pages_of_half_floats_gathered_and_read_on_the_host() -> None:
    types = [static_int8(0.5, FLOAT16), identity(FLOAT16)]
    made = model(
        [
            container("cache", FLOAT16, (1, 4, 2), mutable=True),
            scalar("page_id"),
            tensor("values", FLOAT16, (1, "r", 2)),
        ],
        [paged_update("cache", "updated", position="page_id"), gather("updated", "pages", "ids", axis=0)],
        [container("updated", FLOAT16, (1, 4, 2), alias_of="cache"), tensor("pages", FLOAT16, ("n", 4, 2))],
    )
    made.graph.input.add().CopyFrom(tensor("ids", INT64, ["n"]))
    made.quantizations.extend(types)
    pages = table([Page(0, (1, 4, 2), on_device(np.arange(8, dtype=np.uint8)))], made)
    with session(made) as one, one.bind({"cache": pages}) as binding:
        found = binding.run({"page_id": 0, "values": np.array([[[1, -2]]], np.float16), "ids": np.array([0, 0])})
    assert found["pages"].tolist() == [[[1, -2], [1, 1.5], [2, 2.5], [3, 3.5]]] * 2
