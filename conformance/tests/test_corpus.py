"""Cases as folders: what they hold, that they are always the same, and that the folder alone can be checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_cases import CASES, IMMUTABLE, OVERFLOW, READ_ONLY_LATE, VALID

from mutcache_conformance import case_json, cases, corpus, replay
from mutcache_conformance.case import Case
from mutcache_conformance.corpus import CorpusError
from mutcache_conformance.schema import validate


def expected(case: Case) -> list[dict[str, Any]]:
    document = json.loads(corpus.files_of(case)["expected.json"])
    validate(document, "expected")
    assert document["case_sha256"] == case_json.digest(case)
    steps: list[dict[str, Any]] = document["steps"]
    return steps


def answers(case: Case) -> list[str]:
    return ["|".join(one["answer"] for one in step["outcomes"]) for step in expected(case)]


def named(case_id: str) -> Case:
    return next(case for case in cases.generate() if case.id == case_id)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with the toy cases."""
    assert corpus.write(CASES.values(), tmp_path / "corpus", nonce=0) == len(CASES)
    return tmp_path / "corpus"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# What is expected of steps


def test_an_update_leaves_the_bytes_that_the_specification_says() -> None:
    made = corpus.files_of(VALID)
    load, bind, first, second, release, unload = expected(VALID)
    assert [one["outcomes"] for one in (load, bind, release, unload)] == [[{"answer": "ok"}]] * 4
    (outcome,) = first["outcomes"]
    assert outcome["outputs"] == {"updated": {"is": "cache"}}
    cache = np.arange(64, dtype=np.float32).reshape(2, 8, 4)
    cache[:, 2:5] = np.arange(100, 124, dtype=np.float32).reshape(2, 3, 4)
    assert made[outcome["storages"]["cache"]["file"]] == cache.tobytes()
    assert second["outcomes"] == first["outcomes"]  # the same rows again, and the same file


def test_a_refused_run_leaves_everything_and_what_depends_on_a_refused_load_is_skipped() -> None:
    assert answers(OVERFLOW) == ["ok", "ok", "rejected", "ok", "ok"]
    assert expected(OVERFLOW)[2]["outcomes"] == [{"answer": "rejected"}]
    assert answers(IMMUTABLE) == ["rejected", "skipped"]
    assert answers(READ_ONLY_LATE) == ["ok", "ok", "rejected"]


def test_a_refused_chain_may_leave_any_prefix_of_it() -> None:
    case = named("dense-012/chain-of-three-third-overflows")
    made = corpus.files_of(case)
    steps = expected(case)
    refused = next(step for step in steps if step["outcomes"][0]["answer"] == "rejected")
    left = [made[one["storages"]["cache"]["file"]] for one in refused["outcomes"]]
    before = next(storage.content for storage in case.storages if storage.name == "cache")
    assert left[0] == before
    assert len(set(left)) == len(left) > 1
    # The run that follows starts from each of them.
    after = next(step for step in steps[refused["index"] + 1 :] if step["step"] == "run")
    assert all(one["answer"] == "ok" for one in after["outcomes"])


def test_of_a_large_storage_only_what_is_written() -> None:
    case = named("dense-001/beyond-2-gib")
    written = [
        one["storages"]["cache"]["written"]
        for step in expected(case)
        for one in step["outcomes"]
        if "cache" in one.get("storages", {})
    ]
    offsets = [[int(one["offset"]) for one in ranges] for ranges in written]
    assert all(one == sorted(one) for one in offsets)
    assert max(max(one) for one in offsets) >= 1 << 31
    assert sum(len(one["hex"]) // 2 for ranges in written for one in ranges) < 1 << 20


@pytest.mark.parametrize("area", ["bind-012", "plan-005", "flow-001", "flow-005", "mem-001", "bind-011", "paged-008"])
def test_every_kind_of_case_has_expectations(area: str) -> None:
    of_area = [case for case in cases.generate() if case.id.startswith(f"{area}/")][:3]
    assert of_area
    for case in of_area:
        assert len(expected(case)) == len(case.script)


def test_pages_are_told_with_their_place_and_whether_they_are_determined() -> None:
    pages = [
        page
        for case in cases.generate()
        if case.id.startswith("paged-00")
        for step in expected(case)
        for one in step["outcomes"]
        for table in one.get("tables", {}).values()
        for page in table["pages"]
    ]
    assert {page["exact"] for page in pages} == {True, False}
    assert "" in {page["storage"] for page in pages}  # a page that a run made
    assert len({page["storage"] for page in pages}) > 2


# The folder


def test_the_same_cases_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    corpus.write(list(CASES.values()), tmp_path / "again", nonce=0)
    assert contents(written) == contents(tmp_path / "again")


def test_a_folder_says_all_that_there_is(written: Path) -> None:
    assert corpus.load(written) == CASES
    assert list(corpus.problems(written)) == []
    index = json.loads((written / "corpus.json").read_text())
    assert [entry["case"] for entry in index["cases"]] == list(CASES)
    readme = (written / "README.md").read_text()
    for word in ("case.json", "expected.json", "rejected_in", "row-major", "--check"):
        assert word in readme
    for name in ("case", "corpus", "expected"):
        assert (written / f"schemas/{name}.json").is_file()


def test_it_holds_each_case_as_a_saved_one(written: Path, tmp_path: Path) -> None:
    case_json.save(VALID, tmp_path / "saved")
    exported = contents(written / "cases" / VALID.id)
    for name, data in contents(tmp_path / "saved").items():
        if name == "case.json":
            assert json.loads(exported[name]) == json.loads(data)
        else:
            assert exported[name] == data


def test_what_is_there_is_not_overwritten(written: Path) -> None:
    before = contents(written)
    with pytest.raises(OSError, match="not empty"):
        corpus.write([VALID], written, nonce=0)
    assert contents(written) == before
    assert [path.name for path in written.parent.iterdir()] == ["corpus"]


@pytest.mark.parametrize(
    ("path", "change", "words"),
    [
        (f"cases/{VALID.id}/expected/2.cache.bin", b"\0" * 256, "expected/2.cache.bin is not the file"),
        (f"cases/{VALID.id}/expected/2.cache.bin", None, "expected/2.cache.bin is missing"),
        (f"cases/{VALID.id}/note.txt", b"x", "note.txt is not in the manifest"),
        ("README.md", b"x", "README.md is not the file"),
    ],
)
def test_a_changed_folder_is_found(written: Path, path: str, change: bytes | None, words: str) -> None:
    if change is None:
        (written / path).unlink()
    else:
        (written / path).write_bytes(change)
    assert words in "\n".join(corpus.problems(written))


def test_expected_bytes_are_worked_out_again_whatever_the_manifest_says(written: Path) -> None:
    from mutcache_conformance import manifest

    path = written / "cases" / VALID.id / "expected/2.cache.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    manifest.write(written)
    assert list(corpus.problems(written)) == [
        f"{VALID.id}: expected/2.cache.bin is not what the specification makes of the case"
    ]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("corpus.json", b"{}"),
        ("corpus.json", b"\xff"),
        ("corpus.json", None),
        (f"cases/{VALID.id}/case.json", b"{}"),
        (f"cases/{VALID.id}/case.json", b"[" * 100_000),
        (f"cases/{VALID.id}/cache.bin", b"x"),
        (f"cases/{VALID.id}/model.onnx", None),
    ],
)
def test_what_is_no_corpus_is_refused(written: Path, path: str, content: bytes | None) -> None:
    if content is None:
        (written / path).unlink()
    else:
        (written / path).write_bytes(content)
    with pytest.raises(CorpusError):
        corpus.load(written)


def test_a_missing_twin_is_found(tmp_path: Path) -> None:
    corpus.write([OVERFLOW], tmp_path / "corpus", nonce=0)
    assert list(corpus.problems(tmp_path / "corpus")) == [f"{OVERFLOW.id}: its valid twin {VALID.id} is not there"]


def test_one_case_is_replayed_from_the_folder(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = str(written / "cases" / OVERFLOW.id)
    assert replay.main([home, "--runtime=toy_runtime:Toy", "--out", str(tmp_path / "logs")]) == 0
    assert replay.main([home, "--runtime=toy_runtime:Clamping", "--out", str(tmp_path / "logs")]) == 1
    assert "it must be refused in phase run" in capsys.readouterr().out
    assert list(corpus.problems(written)) == []
