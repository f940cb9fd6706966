"""Page tables in the harness: how they lie in memory, how they are sent, and how each page is examined."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_cases

from mutcache.proto.onnx_ml import QuantizationProto, TensorProto
from mutcache_conformance import case_json
from mutcache_conformance.case import Measure, Page, PageTable, Storage
from mutcache_conformance.evidence import Basis, Encoding, Kind, PageRecord, StepRecord
from mutcache_conformance.figures import WORKSPACE, Figures, PageFigures, findings
from mutcache_conformance.findings import TableView
from mutcache_conformance.memory import GUARD_BYTES, HarnessError, Memory
from mutcache_conformance.observe_pages import Examination, TableExaminer
from mutcache_conformance.oracle_pages import ContainerForm, PageImage, Pages
from mutcache_conformance.peek import ProcessMemory
from mutcache_conformance.protocol import ProtocolError
from mutcache_conformance.schema import validate
from mutcache_conformance.tables import HeldTable, page_bytes, payload_addresses, payload_groups

UINT8 = 2
DIMS = (2, 4)
#: A declaration under which a page of DIMS has 8 bytes, and one under which it has 16.
BYTES, HALVES = QuantizationProto(data_type=TensorProto.UINT8), QuantizationProto(data_type=TensorProto.FLOAT16)
BYTES.identity.SetInParent()
HALVES.identity.SetInParent()
FORM = ContainerForm(TensorProto.UINT8, DIMS, (), (BYTES, HALVES))


def payloads(count: int, nbytes: int = 8, **more: Any) -> tuple[Storage, ...]:
    return tuple(Storage(f"p{n}", UINT8, (nbytes,), bytes([n % 251]) * nbytes, **more) for n in range(count))


def lent(storages: tuple[Storage, ...], **more: Any) -> PageTable:
    return PageTable("table", tuple(Page(0, DIMS, storage.name) for storage in storages), **more)


def case_of(table: PageTable, *storages: Storage) -> Any:
    return dataclasses.replace(toy_cases.VALID, storages=(*toy_cases.VALID.storages, *storages), tables=(table,))


# Cases


def test_a_case_with_tables_is_saved_and_read(tmp_path: Path) -> None:
    pages = (Page(1, (), "p0", 7, 5), Page(-1, DIMS, "p1", key=1 << 62))
    case = case_of(PageTable("table", pages, "map", 64), *payloads(2))
    case = dataclasses.replace(case, measure=Measure(pages="session"))
    validate(case_json.to_json(case), "case")
    case_json.save(case, tmp_path)
    assert case_json.load(tmp_path) == case


def test_a_case_without_tables_is_what_it_was_before_there_were_any() -> None:
    assert "tables" not in case_json.to_json(toy_cases.VALID)
    measured = dataclasses.replace(toy_cases.VALID, measure=Measure(("session",)))
    assert case_json.to_json(measured)["measure"] == {"compare": ["session"]}


# Memory


def test_a_thousand_payloads_share_a_file_with_guard_bytes_between_them() -> None:
    storages = payloads(1000, 9)
    case = case_of(lent(storages), *storages)
    with Memory(case.storages, alignment=32, together=payload_groups(case)) as memory:
        places = [memory.placements[storage.name] for storage in storages]
        (file,) = {place.file for place in places}
        assert len(memory.files) == 1 + len(toy_cases.VALID.storages)
        assert all(place.offset % 32 == 0 for place in places)
        ends = [4096, *(place.end for place in places)]
        for end, place in zip(ends, places, strict=False):
            assert place.offset - end >= (GUARD_BYTES if end > 4096 else 0)
            assert (file.bytes[end : place.offset] >= 2).all()
            assert file.bytes[place.offset : place.end].tobytes() == place.storage.content


def test_payloads_that_cannot_share_a_file_have_one_of_their_own() -> None:
    shared, sealed = payloads(2), Storage("sealed", UINT8, (8,), bytes(8), writable=False)
    inner = Storage("inner", UINT8, (8,), None, within="p0")
    table = lent((*shared, sealed, inner, shared[0]))
    assert payload_groups(case_of(table, *shared, sealed, inner)) == [["p0", "p1"]]


def test_storage_that_is_added_lies_in_one_more_file() -> None:
    with Memory(payloads(1)) as memory:
        file = memory.add([Storage("x", UINT8, (3,), b"abc"), Storage("y", UINT8, (2,), b"de")])
        places = [memory.placements[name] for name in ("x", "y")]
        assert {place.file for place in places} == {file}
        assert [file.bytes[place.offset : place.end].tobytes() for place in places] == [b"abc", b"de"]
        assert places[1].offset - places[0].end >= GUARD_BYTES
        with pytest.raises(HarnessError, match="2 bytes given"):
            memory.add([Storage("z", UINT8, (3,), b"de")])


# The memory of a process


@pytest.fixture
def process() -> Iterator[ProcessMemory]:
    with ProcessMemory(os.getpid()) as memory:
        if not memory.is_open:
            pytest.skip("no process's memory can be looked into here")
        yield memory


def test_memory_is_read_and_changed_from_outside(process: ProcessMemory) -> None:
    data = ctypes.create_string_buffer(b"abc", 3)
    address = ctypes.addressof(data)
    assert process.read(address, 3) == b"abc"
    assert process.flip(address + 1)
    assert data.raw == bytes([ord("a"), ord("b") ^ 0xFF, ord("c")])


@pytest.mark.parametrize("address", [0, 64, (1 << 64) - 1, 1 << 64])
def test_where_no_memory_is_nothing_is_read(process: ProcessMemory, address: int) -> None:
    assert process.read(address, 1) is None
    assert not process.flip(address)


# Messages


def test_a_table_is_sent_with_its_payloads() -> None:
    storages = payloads(2)
    table = PageTable("table", (Page(3, DIMS, "p1", 7, 9), Page(0, DIMS, "p0", key=2)), "map", 5)
    with Memory(storages) as memory:
        form = HeldTable.of(table, memory.placements).form()
        assert [page["key"] for page in form["pages"]] == ["2", "9"]
        assert [page["nbytes"] for page in form["pages"]] == ["8", "7"]
        assert (form["container"], form["budget"]) == ("map", "5")
        bind = {"id": 1, "op": "bind", "session": "s", "binding": "b", "files": [], "mutable": {}, "outputs": {}}
        validate({**bind, "tables": {"cache": form}}, "protocol", "request-bind")


def test_a_page_without_storage_is_the_cases_fault() -> None:
    with Memory(payloads(1)) as memory, pytest.raises(HarnessError, match="'p1', which there is not"):
        HeldTable.of(lent(payloads(2)), memory.placements)


def test_a_host_tells_where_every_payload_is() -> None:
    with Memory(payloads(2)) as memory:
        tables = {"cache": HeldTable.of(lent(payloads(2)), memory.placements)}
        assert payload_addresses(tables, {"cache": ["1", "2"]}) == {"cache": [1, 2]}
        for told in ({}, {"cache": ["1"]}, {"cache": ["1", "2"], "other": []}):
            with pytest.raises(ProtocolError, match="other payloads"):
                payload_addresses(tables, told)


def test_bytes_of_pages_that_a_run_makes() -> None:
    small, large = (PageImage(number, DIMS, bytes(8 << number), identity=-1) for number in (0, 1))
    other = PageImage(2, DIMS, bytes(8))
    empty, one, two = (Pages("sequence", pages) for pages in ((), (small,), (small, large)))
    assert page_bytes([empty, one, two]) == 8 + 16
    assert page_bytes([two, two]) == 0
    assert page_bytes([one, Pages("sequence", (large,))]) == 8 + 16
    assert page_bytes([one, Pages("sequence", (other,))]) == 8 + 8
    keys = [Pages("map", tuple(PageImage(0, DIMS, bytes(8), key) for key in some)) for some in ((5,), (3, 5))]
    assert page_bytes(keys) == 8


# Figures


def test_pages_may_take_their_bytes_and_a_quarter_and_the_workspace() -> None:
    for growth, problem in ((125 + WORKSPACE, ""), (126 + WORKSPACE, "pages take too much memory")):
        figures = Figures(pages=PageFigures("session", 100, growth))
        (finding,) = findings(figures)
        assert finding.cause == problem
        assert (finding.expected == finding.found) == (not problem)
        assert Figures.from_json(figures.to_json()) == figures


# Evidence


def test_the_record_of_a_page_is_read_back() -> None:
    record = StepRecord(0, "run", answer="done")
    assert "pages" not in record.to_json()
    record.pages.append(PageRecord("cache[3]", 1, 16, "runtime", Encoding.BOUNDED, Basis.REPORTED))
    assert StepRecord.from_json(record.to_json()) == record


# Examination

Told = dict[str, Any]
Tell = Callable[[Told], None]


class Scene:
    """A table of two pages of the caller's, one that a run made before, and what a child tells of it."""

    def __init__(self, memory: Memory, process: ProcessMemory) -> None:
        self.process = process
        self.basis = Basis.OBSERVED
        self.own = [np.full(16, fill, np.uint8) for fill in (7, 9)]  # payloads that runs have made
        base = memory.files[0].bytes.ctypes.data
        table = HeldTable.of(lent(payloads(2)), memory.placements)
        self.lent = [(memory.files[0], base)]
        table = table.at([base + place.offset for place in table.places()])
        made = dataclasses.replace(table.pages[0], quantized_type=1, nbytes=16, place=None)
        made = dataclasses.replace(made, address=self.own[0].ctypes.data, content=self.own[0].tobytes())
        self.table = dataclasses.replace(table, pages=(*table.pages, made))
        self.payloads = {page.address: page for page in self.table.pages}

    def images(self) -> Pages:
        """The table as it must be after a run that changes nothing."""
        return self.table.images(lambda place: place.file.bytes[place.offset : place.end].tobytes()).begin(FORM)

    def told(self, expected: Pages) -> Told:
        """What a child that does right tells."""
        pages = []
        for page in expected.pages:
            was = self.table.pages[page.identity] if page.identity >= 0 else None
            address = was.address if was is not None else self.own[1].ctypes.data
            key = {} if page.key is None else {"key": str(page.key)}
            form = {"quantized_type": page.quantized_type, "dims": list(page.dims), "nbytes": str(len(page.payload))}
            pages.append({**key, **form, "address": str(address)})
        return {"container": expected.container, "pages": pages}

    def examine(self, expected: Pages, told: Mapping[str, Any], **more: Any) -> Examination:
        def read(output: str, offset: int, nbytes: int, *, page: int | None = None) -> bytes:
            assert output == "cache"
            assert page is not None
            address = told["pages"][page]["address"]
            return ctypes.string_at(int(address) + offset, nbytes) if address is not None else blind[page][:nbytes]

        blind = [page.payload for page in expected.pages]
        view = TableView("table", "cache", told, read, self.lent)
        return TableExaminer(view, self.table, self.process, self.basis, step=3).examine(expected, **more)


@pytest.fixture
def scene(process: ProcessMemory) -> Iterator[Scene]:
    storages = payloads(2)
    with Memory(storages, together=[["p0", "p1"]]) as memory:
        yield Scene(memory, process)


def causes(found: Examination) -> list[str]:
    return [cause for _, cause in found.problems]


def test_a_table_that_is_as_it_must_be(scene: Scene) -> None:
    expected = scene.images()
    found = scene.examine(expected, scene.told(expected))
    assert found.problems == []
    assert [page.owner for page in found.pages] == ["caller", "caller", "runtime"]
    assert {page.basis for page in found.pages} == {Basis.OBSERVED}
    assert {one.kind for one in found.observations} == {Kind.OUTPUT, Kind.ADDRESS, Kind.CONTENTS, Kind.POKE}
    assert found.table.pages == scene.table.pages
    assert [content for _, content in found.held] == [bytes(8), bytes([1]) * 8]


def test_without_addresses_the_adapters_word_is_taken_for_what_runs_made(scene: Scene) -> None:
    expected = scene.images()
    told = scene.told(expected)
    for page in told["pages"][2:]:
        page["address"] = None
    scene.table = dataclasses.replace(
        scene.table, pages=(*scene.table.pages[:2], dataclasses.replace(scene.table.pages[2], address=None))
    )
    found = scene.examine(expected, told)
    assert found.problems == []
    assert [page.basis for page in found.pages] == [Basis.OBSERVED, Basis.OBSERVED, Basis.REPORTED]


def tell(number: int, **changes: Any) -> Tell:
    return lambda told: told["pages"][number].update(changes)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda told: told["pages"].pop(), "a table has other pages than it must have"),
        (lambda told: told.update(container="map"), "a table has other pages than it must have"),
        (tell(0, key="0"), "a table has other pages than it must have"),
        (tell(0, quantized_type=1), "a page has another type, other dims or another size than it must have"),
        (tell(1, dims=[8]), "a page has another type, other dims or another size than it must have"),
        (tell(2, nbytes="8"), "a page has another type, other dims or another size than it must have"),
        (tell(0, address="4096"), "a payload has moved"),
        (tell(2, address="4096"), "a payload has moved"),
    ],
    ids=["pages", "container", "key", "type", "dims", "size", "caller's", "runtime's"],
)
def test_what_a_child_tells_is_held_against_what_must_be(scene: Scene, change: Tell, cause: str) -> None:
    expected = scene.images()
    told = scene.told(expected)
    change(told)
    assert causes(scene.examine(expected, told))[0] == cause


def created(scene: Scene) -> Pages:
    """The table with a page more, all zeros but for what nothing says it must be."""
    before = scene.images()
    scene.own[1][:8] = 0
    return dataclasses.replace(before, pages=(*before.pages, PageImage(0, DIMS, bytes(8), identity=-5)))


def test_on_a_device_the_adapters_word_is_taken_for_all_pages(scene: Scene) -> None:
    expected = created(scene)
    told = scene.told(expected)
    scene.basis = Basis.REPORTED
    found = scene.examine(expected, told)
    assert found.problems == []
    assert {page.basis for page in found.pages} == {Basis.REPORTED}
    assert {one.basis for one in found.observations} == {Basis.REPORTED}
    # Payloads that runs have made are where nobody else writes.
    assert {one.subject for one in found.observations if one.kind is Kind.POKE} == {"cache[0]", "cache[1]"}


def test_addresses_of_a_device_are_not_those_of_the_process(scene: Scene) -> None:
    expected = created(scene)
    told = scene.told(expected)
    scene.basis = Basis.REPORTED

    def examined(address: int) -> list[str]:
        view = TableView("table", "cache", told, read, scene.lent)
        told["pages"][3]["address"] = str(address)
        return causes(TableExaminer(view, scene.table, scene.process, scene.basis, step=3).examine(expected))

    def read(output: str, offset: int, nbytes: int, *, page: int | None = None) -> bytes:
        del output
        if page in (0, 1):  # which the caller changes from outside
            return ctypes.string_at(int(told["pages"][page]["address"]) + offset, nbytes)
        return expected.pages[page or 0].payload[offset : offset + nbytes]

    assert examined(scene.lent[0][1] + 4096) == []
    assert examined(64) == []
    assert examined(scene.own[0].ctypes.data + 8) == ["payloads overlap"]


def test_a_page_that_a_run_makes_lies_in_memory_of_its_own(scene: Scene) -> None:
    expected = created(scene)
    told = scene.told(expected)
    assert scene.examine(expected, told).problems == []
    told["pages"][3]["address"] = str(scene.lent[0][1] + 4096)
    assert "a payload that a run makes lies in memory of the caller's" in causes(scene.examine(expected, told))
    told["pages"][3]["address"] = str(scene.own[0].ctypes.data + 8)
    assert "payloads overlap" in causes(scene.examine(expected, told))
    told["pages"][3]["address"] = "64"
    assert causes(scene.examine(expected, told)) == ["an address is false"]


def test_bytes_that_are_not_what_they_must_be(scene: Scene) -> None:
    expected = scene.images()
    told = scene.told(expected)
    scene.own[0][3] = 0
    found = scene.examine(expected, told)
    assert causes(found) == ["a run changes bytes of a page that it must not change"]
    assert found.pages[2].encoding is Encoding.WRONG
    assert [(one.subject, one.found[3]) for one in found.comparisons] == [("cache[2]", 0)]


def test_a_page_that_shows_a_copy_of_its_payload(scene: Scene) -> None:
    expected = scene.images()
    told = scene.told(expected)
    copy = scene.own[0].copy()
    view_of = told["pages"][2]["address"]

    def read(output: str, offset: int, nbytes: int, *, page: int | None = None) -> bytes:
        del output
        address = int(told["pages"][page or 0]["address"])
        return ctypes.string_at(copy.ctypes.data if str(address) == view_of else address + offset, nbytes)

    view = TableView("table", "cache", told, read, scene.lent)
    found = TableExaminer(view, scene.table, scene.process, scene.basis, step=3).examine(expected)
    assert causes(found) == ["a page is a copy of its payload"]
    assert scene.own[0].tobytes() == bytes([7]) * 16  # it is as it was before the poke


def test_a_replaced_payload_returns_to_the_caller_untouched(scene: Scene) -> None:
    before = scene.images()
    replaced = PageImage(1, DIMS, bytes(16), identity=-7)
    expected = dataclasses.replace(before, pages=(replaced, *before.pages[1:]))
    told = scene.told(expected)
    scene.own[1][:] = 0
    assert scene.examine(expected, told, retired=before.pages[:1]).problems == []
    place = scene.table.places()[0]
    place.file.bytes[place.offset] = 1
    found = scene.examine(expected, told, retired=before.pages[:1])
    assert causes(found) == ["a payload that was replaced has changed"]
