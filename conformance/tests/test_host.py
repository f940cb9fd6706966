"""The Python host: where it maps memory, what it unmaps, and how it answers for an adapter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import toy_cases

from mutcache_conformance.adapter import OutputValue
from mutcache_conformance.adapters import command_of
from mutcache_conformance.case import Page, PageTable, Storage
from mutcache_conformance.child import Answer, Child, ChildGone
from mutcache_conformance.forms import files_of, form_of, forms_of
from mutcache_conformance.memory import PAGE, Memory, Placement
from mutcache_conformance.tables import HeldTable

UINT8 = 2


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    host = Child(command_of("probing_runtime:Probe"), log=tmp_path / "log")
    host.describe({}, timeout=20)
    yield host
    host.kill()


def load(child: Child, session: str) -> Answer:
    model = toy_cases.model()
    with Memory([Storage("model", UINT8, (len(model),), model, writable=False)]) as memory:
        place = memory.placements["model"]
        return child.call(
            "load", timeout=20, files=[place.file], session=session, model=form_of(place), initializers={}
        )


def bind(child: Child, session: str, binding: str, **mutable: Placement) -> dict[str, int]:
    answer = child.call(
        "bind",
        timeout=20,
        files=files_of(mutable.values()),
        session=session,
        binding=binding,
        mutable=forms_of(mutable),
        outputs={},
    )
    assert answer.succeeded, answer
    return {name: int(address) for name, address in answer.body["addresses"].items()}


def run(child: Child, session: str, binding: str, **feeds: Placement) -> Answer:
    return child.call(
        "run", timeout=20, files=files_of(feeds.values()), session=session, binding=binding, feeds=forms_of(feeds)
    )


def mapped(child: Child) -> list[list[str]]:
    """Lines of the child's memory map that stand for our files, with those right before and after them."""
    lines = [line.split() for line in Path(f"/proc/{child.pid}/maps").read_text().splitlines()]
    return [lines[n + step] for n, line in enumerate(lines) if "memfd:mutcache" in str(line) for step in (-1, 0, 1)]


def test_a_file_is_mapped_once_between_guard_pages_and_unmapped_with_its_last_session(child: Child) -> None:
    outer = Storage("outer", UINT8, (64,), bytes(64))
    inner = Storage("inner", UINT8, (8,), bytes(8), within="outer", offset=16)
    with Memory([outer, inner]) as memory:
        places = memory.placements
        assert load(child, "s1").succeeded
        assert load(child, "s2").succeeded
        assert mapped(child) == []  # the model is needed no longer than it is loaded
        first = bind(child, "s1", "b1", cache=places["outer"])
        second = bind(child, "s2", "b2", cache=places["inner"])
        assert second["cache"] == first["cache"] + 16
        assert (first["cache"] - places["outer"].offset) % PAGE == 0
        before, ours, after = mapped(child)
        assert ours[1] == "rw-s"
        assert before[1] == after[1] == "---p"
        assert child.call("unload", timeout=20, session="s1").succeeded
        assert len(mapped(child)) == 3
        assert child.call("unload", timeout=20, session="s2").succeeded
        assert mapped(child) == []


def test_read_only_memory_is_mapped_so(child: Child) -> None:
    with Memory([Storage("x", UINT8, (8,), bytes(8), writable=False)]) as memory:
        load(child, "s1")
        bind(child, "s1", "b1", cache=memory.placements["x"])
        assert mapped(child)[1][1] == "r--s"


@pytest.mark.parametrize(("feed", "offset"), [("read_at", -2 * PAGE), ("read_at", PAGE), ("write_at", PAGE)])
def test_an_access_beyond_the_guard_bytes_ends_the_process(child: Child, feed: str, offset: int) -> None:
    cache = Storage("cache", UINT8, (8,), bytes(8))
    where = Storage("where", 7, (), np.int64(offset).tobytes(), writable=False)
    with Memory([cache, where]) as memory:
        load(child, "s1")
        bind(child, "s1", "b1", cache=memory.placements["cache"])
        with pytest.raises(ChildGone, match="SIGSEGV"):
            run(child, "s1", "b1", **{feed: memory.placements["where"]})


def test_a_read_shows_the_output_as_it_is_now(child: Child) -> None:
    storages = [Storage("cache", UINT8, (8,), bytes(range(8))), Storage("into", UINT8, (3,), bytes(3))]
    with Memory(storages) as memory:
        cache, into = memory.placements["cache"], memory.placements["into"]
        load(child, "s1")
        address = bind(child, "s1", "b1", cache=cache)["cache"]
        number = child.send("run", timeout=20, session="s1", binding="b1", feeds={})
        done = child.wait(number, timeout=20)
        assert done.body["outputs"] == {
            "updated": {"dtype": UINT8, "shape": [8], "nbytes": "8", "address": str(address)}
        }
        cache.file.bytes[cache.offset + 5] = 99
        request = {"run": number, "output": "updated", "offset": "4", "nbytes": "3", "into": form_of(into)}
        assert child.call("read", timeout=20, files=[into.file], **request).succeeded
        assert into.file.bytes[into.offset : into.end].tolist() == [4, 99, 6]
        assert len(mapped(child)) == 3  # the destination is unmapped again
        assert child.call("release", timeout=20, binding="b1").succeeded
        late = child.call("read", timeout=20, files=[into.file], **request)
        assert (late.kind, late.body["message"]) == ("error", "ProtocolError: run 4 has no outputs (any more)")


def bind_table(child: Child, table: HeldTable) -> Answer:
    return child.call(
        "bind",
        timeout=20,
        files=files_of(table.places()),
        session="s1",
        binding="b1",
        mutable={},
        outputs={},
        tables={"cache": table.form()},
    )


PAYLOADS = [Storage(f"p{number}", UINT8, (8,), bytes([number % 251]) * 8) for number in range(300)]


def pages(memory: Memory, container: Literal["sequence", "map"], budget: int | None = None) -> HeldTable:
    names = [storage.name for storage in PAYLOADS]
    keys = [None if container == "sequence" else (1 << 40) - number for number in range(len(names))]
    made = [Page(3, (2, 4), name, 7, key) for name, key in zip(names, keys, strict=True)]
    return HeldTable.of(PageTable("table", tuple(made), container, budget), memory.placements)


@pytest.mark.parametrize("container", ["sequence", "map"])
def test_page_tables_are_lent_and_shown(child: Child, container: Literal["sequence", "map"]) -> None:
    into = Storage("into", UINT8, (3,), bytes(3))
    with Memory([*PAYLOADS, into], together=[[storage.name for storage in PAYLOADS]]) as memory:
        table, target = pages(memory, container), memory.placements["into"]
        load(child, "s1")
        addresses = bind_table(child, table).body["payloads"]["cache"]
        assert len(mapped(child)) == 3  # one file, however many payloads
        offsets = [place.offset for place in table.places()]
        assert [int(address) - int(addresses[0]) for address in addresses] == [at - offsets[0] for at in offsets]
        number = child.send("run", timeout=20, session="s1", binding="b1", feeds={})
        shown = child.wait(number, timeout=20).body["outputs"]["updated"]
        assert shown["container"] == container
        for page, held, address in zip(shown["pages"], table.pages, addresses, strict=True):
            key = {} if held.key is None else {"key": str(held.key)}
            assert page == {**key, "quantized_type": 3, "dims": [2, 4], "nbytes": "7", "address": address}
        asked = child.send("inspect", timeout=20, binding="b1")
        assert child.wait(asked, timeout=20).body["tables"] == {"cache": shown}
        place = table.places()[271]
        place.file.bytes[place.offset + 5] = 99
        for source, name in ((number, "updated"), (asked, "cache")):
            request = {"run": source, "output": name, "page": 271, "offset": "4", "nbytes": "3"}
            assert child.call("read", timeout=20, files=[target.file], into=form_of(target), **request).succeeded
            assert target.file.bytes[target.offset : target.end].tolist()[1] == 99
        del request["page"]
        answer = child.call("read", timeout=20, files=[target.file], into=form_of(target), **request)
        assert answer.body["message"] == "ProtocolError: a page is read of a table, and of nothing else"


def test_a_budget_reaches_the_adapter(child: Child) -> None:
    with Memory(PAYLOADS, together=[[storage.name for storage in PAYLOADS]]) as memory:
        load(child, "s1")
        assert bind_table(child, pages(memory, "map", 5)).body["what"] == "a budget of 5 bytes"


def test_an_adapter_without_page_tables_says_so(tmp_path: Path) -> None:
    toy = Child(command_of("toy_runtime:Toy"), log=tmp_path / "log")
    toy.describe({}, timeout=20)
    with Memory(PAYLOADS, together=[[storage.name for storage in PAYLOADS]]) as memory:
        load(toy, "s1")
        assert str(bind_table(toy, pages(memory, "sequence"))) == "unsupported: page tables"
    toy.kill()


def test_what_does_not_exist_is_an_error_and_the_host_goes_on(child: Child) -> None:
    for operation, fields in (
        ("release", {"binding": "b9"}),
        ("unload", {"session": "s9"}),
        ("run", {"session": "s9", "binding": "", "feeds": {}}),
    ):
        assert child.call(operation, timeout=20, **fields).kind == "error"
    assert load(child, "s1").succeeded


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no_such_module:Toy", "No module named 'no_such_module'"),
        ("toy_runtime:NoSuchClass", "no attribute 'NoSuchClass'"),
        ("toy_runtime:Broken", "OSError: no licence"),
    ],
)
def test_an_adapter_that_cannot_be_hosted(tmp_path: Path, target: str, words: str) -> None:
    host = Child(command_of(target), log=tmp_path / "log")
    answer = host.call("describe", timeout=20, protocol=1, options={})
    host.kill()
    assert answer.kind == "error"
    assert words in str(answer)


@pytest.mark.parametrize("arguments", [[], ["toy_runtime"], ["toy_runtime:Toy"], ["a:b", "c:d"]])
def test_started_by_hand_it_says_how_it_is_meant(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "mutcache_conformance.host", *arguments]
    folder = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: MUTCACHE_SOCKET=")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("array", [np.float32(5), np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2], np.zeros((2, 0))])
def test_an_output_value_of_numpy(array: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    value = OutputValue.of(array)
    data = np.asarray(array).tobytes()
    assert (value.shape, value.nbytes) == (np.shape(array), len(data))
    assert value.read(0, value.nbytes) == data
    assert value.read(1, 2) == data[1:3]
