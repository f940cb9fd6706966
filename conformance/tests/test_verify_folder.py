"""The files beside report.json: what is added, hidden or unreadable is found, and nothing ends in a traceback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import sealed_reports as sealed
from toy_cases import OVERFLOW, VALID

from mutcache_conformance import manifest, report

FAILURE = f"failures/{OVERFLOW.id}"
#: Figures of memory that no float holds.
LARGE = {
    "sessions": [{"session": "s", "cache_bytes": 10**400, "growth": 0, "runs": []}],
    "slope": None,
    "is_limited": False,
    "curve": [],
    "per_run": None,
    "pages": None,
}


@pytest.fixture(autouse=True)
def _corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed.replace_corpus(monkeypatch)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The report of a runtime that is not conformant."""
    with pytest.MonkeyPatch.context() as patch:
        sealed.replace_corpus(patch)
        yield sealed.make(tmp_path_factory.mktemp("original"), "toy_runtime:Clamping")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "report")


@pytest.mark.parametrize("name", ["flow.svg", "extra.svg", "readme.txt"])
def test_a_badge_of_no_verdict_is_found(folder: Path, name: str) -> None:
    shutil.copy(folder / "badges/dense.svg", folder / "badges" / name)
    manifest.write(folder)
    assert sealed.problems(folder) == [f"folder: badges/{name} is of no verdict of the report"]


@pytest.mark.parametrize("name", ["page.html.part", "journal.jsonl", "logs/x.part", "dense/report.html", "partial"])
def test_nothing_hides_from_the_manifest(folder: Path, name: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("conformant")
    if path.parent != folder:
        (path.parent / "manifest.json").write_text("{}")
    assert f"manifest: {name} is not in the manifest" in sealed.problems(folder)


def test_a_run_that_can_be_taken_up_again_keeps_its_journal(folder: Path) -> None:
    data = sealed.read(folder)
    data["claim"]["selection"] = "the run was interrupted"
    sealed.reseal(folder, data)
    (folder / "journal.jsonl").write_text("{}")
    assert not sealed.check(folder).problems["manifest"]


def test_a_report_below_is_spoken_of(folder: Path) -> None:
    (folder / "partial").mkdir()
    (folder / "partial/report.html").write_text("conformant")
    made = sealed.check(folder)
    assert made.is_sound
    assert "partial/ is no part of it" in made.notes


@pytest.mark.parametrize("name", ["report.json", "report.html", "manifest.json", "logs/pipe", "statement.json"])
def test_what_is_no_file_is_never_read(folder: Path, name: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    assert sealed.problems(folder) == [f"manifest: {name} is no file"]
    if name == "report.json":
        with pytest.raises(report.ReportError, match="it is no file"):
            report.read_report(path)


def test_a_manifest_is_written_whatever_lies_there(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "dangling").symlink_to(folder / "none")
    (folder / os.fsdecode(b"a\xff")).touch()
    manifest.write(folder)
    listed = {entry["path"] for entry in json.loads((folder / "manifest.json").read_text())["files"]}
    assert "report.json" in listed
    assert not listed & {"pipe", "dangling", os.fsdecode(b"a\xff")}
    (folder / "pipe").unlink()
    (folder / "dangling").unlink()
    assert "manifest: a\N{REPLACEMENT CHARACTER} is not in the manifest" in sealed.problems(folder)


# pytest's account


def _account(folder: Path) -> ET.Element:
    """What pytest writes of the results."""
    root = ET.Element("testsuites")
    counts = {"failures": 0, "errors": 0, "skipped": 0}
    suite = ET.SubElement(root, "testsuite", name="pytest")
    for result in sealed.read(folder)["results"]:
        test = ET.SubElement(suite, "testcase", name=f"test_case[{result['case']}]")
        properties = ET.SubElement(test, "properties")
        ET.SubElement(properties, "property", name="status", value=result["status"])
        if result["status"] == "fail":
            counts["failures"] += 1
            ET.SubElement(test, "failure", message="x")
        elif result["status"] != "pass":
            counts["skipped"] += 1
            ET.SubElement(test, "skipped")
    suite.attrib |= {name: str(count) for name, count in counts.items()}
    return root


def _of(root: ET.Element, case: str) -> ET.Element:
    return next(test for test in root.iter("testcase") if test.get("name") == f"test_case[{case}]")


def _without(tag: str) -> Callable[[ET.Element], None]:
    def change(root: ET.Element) -> None:
        test = _of(root, OVERFLOW.id)
        for found in test.findall(tag):
            test.remove(found)
            if tag == "failure":
                next(root.iter("testsuite")).set("failures", "0")

    return change


def _gone(root: ET.Element) -> None:
    next(root.iter("testsuite")).remove(_of(root, OVERFLOW.id))
    next(root.iter("testsuite")).set("failures", "0")


def _counted(root: ET.Element) -> None:
    next(root.iter("testsuite")).set("failures", "0")


def _failed(root: ET.Element) -> None:
    ET.SubElement(_of(root, VALID.id), "failure")
    next(root.iter("testsuite")).set("failures", "2")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without("failure"), "junit.xml tells of toy-002/overflow as passed, and it is fail"),
        (_without("properties"), "junit.xml says that toy-002/overflow is of no status, report.json fail"),
        (_gone, "junit.xml does not tell of toy-002/overflow"),
        (_counted, "junit.xml counts 0 failures, and tells of others"),
        (_failed, "junit.xml tells of toy-001/update as failure, and it is pass"),
    ],
    ids=["no failure", "no status", "gone", "counts", "failed"],
)
def test_an_account_that_tells_otherwise_is_found(
    folder: Path, change: Callable[[ET.Element], None], words: str
) -> None:
    root = _account(folder)
    for step in (lambda _: None, change):
        step(root)
        ET.ElementTree(root).write(folder / "junit.xml")
        manifest.write(folder)
        assert sealed.problems(folder) == ([] if step is not change else [f"folder: {words}"])


# Nothing that a forger writes ends in a traceback


def _in_compared(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / FAILURE / "compared.json"
        path.write_text(json.dumps([{**one, **values} for one in json.loads(path.read_text())]))

    return change


def _text(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return change


def _in_case(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / FAILURE / "case.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def _in_report(text: str, other: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "report.json"
        found = path.read_text()
        assert text in found
        path.write_text(found.replace(text, other))

    return change


@pytest.mark.parametrize(
    "change",
    [
        _text("junit.xml", b'<?xml version="1.0" encoding="foo-bar"?><testsuites/>'),
        _text("junit.xml", b""),
        _text(f"{FAILURE}/case.json", b"[" * 100_000),
        _text(f"{FAILURE}/case.json", b"[]"),
        _in_case(models=5),
        _in_case(needs=[[1]]),
        _in_report('"selection": ""', '"selection": "\\ud800"'),
        _in_report('"nonce": 0', f'"nonce": {"9" * 5000}'),
        _text("report.json", b'{"a":' + b"[" * 90_000 + b"]" * 90_000 + b',"footer":{}}'),
        _text("report.json", b"\xff\xfe"),
    ],
    ids=[
        "encoding",
        "no account",
        "deep case",
        "listed case",
        "models",
        "needs",
        "half a character",
        "digits",
        "deep report",
        "no UTF-8",
    ],
)
def test_files_that_no_run_writes_are_problems(folder: Path, change: Callable[[Path], None]) -> None:
    change(folder)
    manifest.write(folder)
    found = sealed.problems(folder)
    assert found
    assert not any(problem.startswith("manifest") for problem in found)


@pytest.mark.parametrize(
    "change",
    [
        _text(f"{FAILURE}/compared.json", b"[" * 200_000),
        _in_compared(bytes="lots"),
        _in_compared(differing_bytes=[1]),
        _in_compared(first_difference={"byte": -5000}),
        _in_compared(subject=["x"]),
    ],
    ids=["deep", "bytes", "differing", "first", "subject"],
)
def test_the_page_is_made_without_bytes_that_no_run_saved(folder: Path, change: Callable[[Path], None]) -> None:
    """Such files are not judged; the page that stands there must be the one that is made with them."""
    change(folder)
    sealed.reseal(folder, sealed.read(folder))
    assert sealed.problems(folder) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("claim", "profiles"), [], "$.claim.profiles"),
        (("claim", "date"), "2026-01-01\n", "$.claim.date"),
        (("results", 0, "duration"), 1e308, "$.results[0].duration"),
        (("results", 0, "memory"), LARGE, "$.results[0].memory"),
        (("results", 0, "case"), f"{VALID.id}\n", "$.results[0].case"),
    ],
)
def test_values_that_no_run_writes_do_not_follow_the_schema(
    folder: Path, path: sealed.Path_, value: Any, words: str
) -> None:
    data = sealed.read(folder)
    sealed.put(data, path, value)
    data.pop("footer")
    sealed.write(folder, {**data, "footer": report.footer(data)})
    manifest.write(folder)
    (problem,) = sealed.problems(folder)
    assert problem.startswith("report: ")
    assert words in problem
