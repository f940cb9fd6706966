"""Checks the files beside report.json, as far as they follow from it: page, failing cases, badges, pytest's account."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from mutcache_conformance import badge, case_json, report_html
from mutcache_conformance.case import Case
from mutcache_conformance.mustpass import Verdict
from mutcache_conformance.status import CaseResult, Status

#: What pytest writes of a test that did not pass, and how it counts these in a suite of tests.
_COUNTED: Final[Mapping[str, str]] = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def page(report: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """The page must be the one that is made of the report."""
    try:
        if (folder / "report.html").read_text(encoding="utf-8") != report_html.render(report, folder):
            yield "report.html does not show what report.json says"
    except (OSError, UnicodeDecodeError) as error:
        yield f"report.html cannot be read: {error}"
    except report_html.PageError as error:
        yield f"no page can be made of report.json: {error}"


def failures(report: Mapping[str, Any], folder: Path, cases: Mapping[str, Case]) -> Iterator[str]:
    """A saved case must be the one that failed."""
    for result in report["results"]:
        name, case = result["failure"], result["case"]
        if not name:
            continue
        try:
            if name != f"failures/{case}":
                yield f"{case}: its failure is said to be in {name}"
            elif case_json.digest(case_json.load(folder / name)) != case_json.digest(cases[case]):
                yield f"{name} holds another case than {case}"
        except Exception as error:
            yield f"{name} cannot be read: {error}"


def badges(verdicts: Iterable[Verdict], folder: Path) -> Iterator[str]:
    """The badges must be those of the verdicts, and say what these do."""
    wanted = {f"{verdict.profile.value}.svg": badge.render(verdict) for verdict in verdicts}
    place = folder / badge.FOLDER
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if path.name not in wanted:
            yield f"{badge.FOLDER}/{path.name} is of no verdict of the report"
    for name, image in wanted.items():
        try:
            if (place / name).read_text(encoding="utf-8") != image:
                yield f"{badge.FOLDER}/{name} does not say what the verdict is"
        except (OSError, UnicodeDecodeError) as error:
            yield f"{badge.FOLDER}/{name} cannot be read: {error}"


def account(results: Iterable[CaseResult], path: Path) -> Iterator[str]:
    """What pytest wrote itself, which is there unless pytest was told to write it elsewhere."""
    if not path.exists():
        return
    try:
        root = ET.parse(path).getroot()
    except Exception as error:  # encodings that there are not, entities without end
        yield f"junit.xml cannot be read: {error}"
        return
    for suite in root.iter("testsuite"):
        for tag, name in _COUNTED.items():
            if suite.get(name) != str(sum(1 for _ in suite.iter(tag))):
                yield f"junit.xml counts {suite.get(name)} {name}, and tells of others"
    told = {(test.get("name") or "").partition("[")[2].removesuffix("]"): test for test in root.iter("testcase")}
    for result in results:
        test = told.get(result.case)
        if test is None:
            yield f"junit.xml does not tell of {result.case}"
            continue
        named = {item.get("value") for item in test.iter("property") if item.get("name") == "status"}
        outcomes = {tag for tag in _COUNTED if test.find(tag) is not None}
        # Of a case whose worker was killed pytest knows nothing but that.
        is_cut = not named and result.status is Status.HARNESS_ERROR
        if named != {result.status} and not is_cut:
            words = " and ".join(sorted(map(str, named))) or "of no status"
            yield f"junit.xml says that {result.case} is {words}, report.json {result.status}"
        elif not outcomes <= _outcomes(result) or (not outcomes and result.status is not Status.PASS):
            words = " and ".join(sorted(outcomes)) or "passed"
            yield f"junit.xml tells of {result.case} as {words}, and it is {result.status}"


def _outcomes(result: CaseResult) -> frozenset[str]:
    """What pytest may write of a result."""
    if result.status is Status.PASS:
        return frozenset()
    is_failure = result.status.is_failure and not result.is_advice
    return frozenset({"failure", "error"} if is_failure else {"skipped"})
