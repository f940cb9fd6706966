"""The summary for people."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import pytest
from test_report import finished, outcome
from toy_cases import CASES, IMMUTABLE, OVERFLOW, READ_ONLY, VALID

from mutcache_conformance import mustpass, summary
from mutcache_conformance.evidence import Evidence
from mutcache_conformance.mustpass import Required
from mutcache_conformance.report import Run
from mutcache_conformance.runner import TWIN
from mutcache_conformance.status import CaseResult, Status

COMMAND = (
    "pytest 'conformance/test_toy.py::test_case[toy-001/update]' --runtime=toy_runtime:Toy --nonce=123456789012345"
)


@pytest.fixture(autouse=True)
def _toy_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = tuple(Required(case.id, case.requirements, "") for case in (VALID, OVERFLOW))
    monkeypatch.setattr(mustpass, "required_cases", lambda _: entries)


def failing() -> Run:
    reason = "after step 3 (run), byte 34 of storage 'cache' (element [0, 2, 0]): expected 0xc8 (written by the run), "
    cause = outcome(
        VALID.id, Status.CRASH, f"{reason}found 0x00\nand a second line", rerun=COMMAND, cause="it fell", failure="f/x"
    )
    follower = dataclasses.replace(outcome(OVERFLOW.id, Status.FAIL, "its twin", cause=TWIN), evidence=Evidence())
    return finished(cause, follower, outcome(READ_ONLY.id))


def test_words_of_a_runtime_forge_no_line() -> None:
    evil = "\x1b[2Jone\nprofile conformant\N{RIGHT-TO-LEFT OVERRIDE}"
    result = outcome(VALID.id, Status.CRASH, evil, rerun=evil, cause=evil, failure="f/x")
    run = finished(result, outcome(OVERFLOW.id, Status.UNSUPPORTED, evil))
    assert run.about is not None
    about = dataclasses.replace(run.about, runtime=evil, adapter=evil, checks=(evil,))
    text = summary.render(dataclasses.replace(run, about=about, selection=evil), "r", width=120, color=False)
    assert all(line.isprintable() for line in text.splitlines())
    assert [line for line in text.splitlines() if line.startswith("profile conformant")] == []


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_are_as_wide_as_the_terminal_but_for_commands(width: int) -> None:
    lines = summary.render(failing(), "conformance-report", width=width, color=False).splitlines()
    assert all(len(line) <= width for line in lines if "$" not in line)
    assert lines.count(f"    $ {COMMAND}") == 1
    assert not any(line.endswith(" ") for line in lines)


def test_what_it_tells() -> None:
    text = summary.render(failing(), "conformance-report", width=120, color=False)
    for words in (
        "toy 1  through adapter toy adapter 2",
        "checks that the adapter performs in its stead: MC-BIND-002",
        "dense    not conformant  0 of 2                 1 pass, 1 fail, 1 crash",
        "MC-DENSE-001     0/1  1 crash    ",
        "other requirements with every case passed: 1",
        "1 case crashes: it fell\n  toy-001/update (MC-DENSE-001): A toy.\n    after step 3",
        "    and a second line\n    conformance-report/f/x\n    $ pytest",
        "1 case fails only because the valid twin does: toy-002/overflow",
        "report: conformance-report/report.json",
    ):
        assert words in text
    assert "\x1b" not in text
    assert "\x1b[" in summary.render(failing(), "conformance-report", width=120, color=True)


def test_a_good_score_is_short() -> None:
    run = finished(*(outcome(case) for case in CASES))
    text = summary.render(run, "conformance-report", width=80, color=False)
    assert "conformant  2 of 2" in text
    assert "$" not in text
    assert len(text.splitlines()) < 25


def test_a_selection_says_that_it_is_one() -> None:
    run = finished(outcome(IMMUTABLE.id), selection="-k immutable")
    text = summary.render(run, "conformance-report", width=80, color=False)
    assert "no verdict" in text
    assert "No verdict: not all cases were asked for, or run (-k immutable)." in text


def numbered(numbers: range, cause: str, status: Status = Status.FAIL) -> dict[str, CaseResult]:
    """Results of cases that are numbered, for one cause."""
    return {
        f"toy-{n:03d}/x": dataclasses.replace(
            outcome(VALID.id, status, "x", rerun="pytest x", cause=cause), case=f"toy-{n:03d}/x"
        )
        for n in numbers
    }


def rendered(results: Mapping[str, CaseResult], width: int = 80) -> str:
    cases = tuple(dataclasses.replace(VALID, id=name) for name in results)
    run = dataclasses.replace(finished(), cases=cases, results=results)
    return summary.render(run, "conformance-report", width=width, color=False)


def test_one_cause_is_told_once() -> None:
    text = rendered(numbered(range(100, 103), "less") | numbered(range(200, 600), "more"))
    assert text.count("$ pytest x") == 2
    assert text.index("400 cases fail: more\n  toy-200/x") < text.index("3 cases fail: less\n  toy-100/x")
    assert "  the same: toy-101/x, toy-102/x\n" in text
    named = re.findall(r"toy-[2-5]\d\d/x", text)
    assert f", and {400 - len(named)} more 3 cases fail" in " ".join(text.split())
    assert len(text.splitlines()) < 40


def test_many_causes_are_told_in_brief() -> None:
    results: dict[str, CaseResult] = {}
    for n in range(100, 140):
        results |= numbered(range(n, n + 1), f"cause {n}")
    text = rendered(results)
    assert text.count("$ pytest x") == 6
    assert "1 case fails: cause 117: toy-117/x" in text
    assert "and 22 cases with other causes" in text
    assert "toy-118/x" not in text
    assert len(text.splitlines()) < 70


def test_what_was_skipped_is_told_by_its_reason() -> None:
    text = rendered(numbered(range(100, 150), "", Status.UNSUPPORTED) | numbered(range(150, 160), TWIN, Status.NOT_RUN))
    assert "50 unsupported: x: toy-100/x, toy-101/x, " in text
    assert f"10 not-run: {TWIN}: toy-150/x, " in text
