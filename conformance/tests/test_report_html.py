"""The page of a report: it says all that matters, needs nothing else, and lets nothing in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import sealed_reports as sealed
from toy_cases import CASES, OVERFLOW

from mutcache_conformance import report_charts, report_html


@pytest.fixture(autouse=True)
def _corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed.replace_corpus(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        sealed.replace_corpus(patch)
        yield sealed.make(tmp_path_factory.mktemp("page"), "toy_runtime:OffByOne")


class _Tags(HTMLParser):
    """Checks that tags nest, and gathers them with their attributes."""

    VOID = frozenset({"meta", "br", "line", "polyline", "link", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _parsed(page: str) -> _Tags:
    tags = _Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return tags


def test_the_page_is_well_formed_and_needs_nothing_else(folder: Path) -> None:
    tags = _parsed((folder / "report.html").read_text("utf-8")).tags
    assert not {tag for tag, _ in tags} & {"script", "link", "img", "iframe", "object"}
    links = [attributes["href"] or "" for tag, attributes in tags if tag == "a"]
    anchors = {attributes["id"] for _, attributes in tags if attributes.get("id")}
    for link in links:
        if link.startswith("#"):
            assert link[1:] in anchors, link
        elif not link.startswith("https://example.com"):
            assert (folder / link).exists(), link
    assert "url(" not in (folder / "report.html").read_text("utf-8")


def test_every_case_and_requirement_stands_in_the_matrix(folder: Path) -> None:
    titles = [attributes.get("title") or "" for _, attributes in _parsed(_page(folder)).tags]
    for case in CASES.values():
        assert any(title.startswith(f"{case.id}: ") for title in titles)
        assert case.requirements[0].value in _page(folder)


def _page(folder: Path) -> str:
    return report_html.render(sealed.read(folder), folder)


def test_a_failure_shows_both_sides_and_their_bytes(folder: Path) -> None:
    report = sealed.read(folder)
    failed = next(result for result in report["results"] if result["failure"])
    page = _page(folder)
    wrong = next(one for step in failed["evidence"] for one in step["observations"] if one["expected"] != one["found"])
    assert wrong["expected"] in page
    assert wrong["found"] in page
    assert re.search(r"at address 0x[0-9a-f]+: expected 0x", page)
    differing = re.findall(r"<b>([0-9a-f]{2})</b>", page)
    first = (folder / failed["failure"] / "compared" / "cache.expected.bin").read_bytes()
    found = (folder / failed["failure"] / "compared" / "cache.found.bin").read_bytes()
    at = next(n for n, (must, is_) in enumerate(zip(first, found, strict=True)) if must != is_)
    assert differing[0] == f"{first[at]:02x}"
    assert failed["rerun"] == "" or failed["rerun"] in page


def test_the_first_sentence_is_the_verdict(folder: Path) -> None:
    report = sealed.read(folder)
    assert "<h1>V N 1 does not conform to the profile dense of the specification.</h1>" in _page(folder)
    report["claim"]["profiles"][0]["verdict"] = "conformant"
    report["product"] = None
    assert "conforms to the profile dense of the specification.</h1>" in report_html.render(report)
    report["claim"]["selection"] = "-k x"
    assert "from which no verdict follows.</h1>" in report_html.render(report)


def test_nothing_of_a_runtime_becomes_markup(folder: Path) -> None:
    evil = "</pre><script>alert(1)</script>\"'&"
    report = sealed.read(folder)
    for result in report["results"]:
        if result["status"] != "pass":
            result["reason"] = result["cause"] = evil
    report["product"] |= {"vendor": evil, "contact": evil}
    report["runtime"] |= {"runtime": evil, "checks": [evil], "capabilities": [evil]}
    page = report_html.render(report, folder)
    assert "<script" not in page
    assert not {tag for tag, _ in _parsed(page).tags} & {"script"}


def test_files_outside_the_failure_are_not_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "failures/toy-002/overflow").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"\xab" * 32)
    told = '[{"subject": "s", "expected": "../../../secret", "found": "../../../secret", "bytes": 32, '
    told += '"differing_bytes": 1, "first_difference": {"byte": 0, "expected": 1, "found": 2}}]'
    (tmp_path / "failures/toy-002/overflow/compared.json").write_text(told)
    report = sealed.read(folder)
    result = next(one for one in report["results"] if one["case"] == OVERFLOW.id)
    result |= {"status": "fail", "failure": "failures/toy-002/overflow", "reason": "r"}
    assert ">ab<" not in report_html.render(report, tmp_path)


MEMORY: dict[str, Any] = {
    "sessions": [
        {"session": "small", "cache_bytes": 1 << 20, "growth": 1000, "runs": [900, 0]},
        {"session": "large", "cache_bytes": 64 << 20, "growth": 63 << 20, "runs": [63 << 20, 63 << 20]},
    ],
    "slope": 1.0,
    "is_limited": False,
    "curve": [[1, 50 << 20], [100, 51 << 20], [200, 52 << 20]],
    "per_run": 10485.0,
}


def test_memory_is_drawn(folder: Path) -> None:
    report = sealed.read(folder)
    report["results"][0]["memory"] = MEMORY
    page = report_html.render(report, folder)
    assert "100.0% of each further byte of cache is taken again; 5.0% is allowed" in page
    assert "10485 bytes stay behind with each run" in page
    (line,) = [attributes for tag, attributes in _parsed(page).tags if tag == "polyline"][:1]
    heights = [float(point.partition(",")[2]) for point in (line["points"] or "").split()]
    assert heights == sorted(heights, reverse=True)  # more memory is higher up
    assert len(set(heights)) == 3


def test_little_noise_is_not_drawn_as_growth() -> None:
    quiet = {"case": "c", "status": "pass", "memory": {**MEMORY, "curve": [[1, 1 << 30], [9, (1 << 30) + 4096]]}}
    chart = report_charts.of(quiet)
    assert chart is not None
    points = [float(point.partition(",")[2]) for point in chart["parts"][0]["curve"]["path"].split()]
    assert abs(points[0] - points[1]) < 1.0


@pytest.mark.parametrize(
    ("nbytes", "words"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (200 << 20, "200 MiB")]
)
def test_sizes_are_told_in_the_unit_that_suits_them(nbytes: int, words: str) -> None:
    assert report_charts.size(nbytes) == words
