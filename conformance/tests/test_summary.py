"""The summary for people."""

from __future__ import annotations

import dataclasses

import pytest
from test_report import finished, outcome
from toy_cases import CASES, IMMUTABLE, OVERFLOW, READ_ONLY, VALID

from mutcache_conformance import mustpass, summary
from mutcache_conformance.evidence import Evidence
from mutcache_conformance.mustpass import Required
from mutcache_conformance.report import Run
from mutcache_conformance.status import Status

COMMAND = (
    "pytest 'conformance/test_toy.py::test_case[toy-001/update]' --runtime=toy_runtime:Toy --nonce=123456789012345"
)


@pytest.fixture(autouse=True)
def _toy_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = tuple(Required(case.id, case.requirements, "") for case in (VALID, OVERFLOW))
    monkeypatch.setattr(mustpass, "required_cases", lambda _: entries)


def failing() -> Run:
    reason = "after step 3 (run), byte 34 of storage 'cache' (element [0, 2, 0]): expected 0xc8 (written by the run), "
    cause = outcome(VALID.id, Status.CRASH, f"{reason}found 0x00\nand a second line", rerun=COMMAND)
    follower = dataclasses.replace(outcome(OVERFLOW.id, Status.FAIL, "its twin"), evidence=Evidence())
    return finished(cause, follower, outcome(READ_ONLY.id))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_are_as_wide_as_the_terminal_but_for_commands(width: int) -> None:
    lines = summary.render(failing(), "conformance-report", width=width, color=False).splitlines()
    assert all(len(line) <= width for line in lines if "$" not in line)
    assert lines.count(f"  $ {COMMAND}") == 1
    assert not any(line.endswith(" ") for line in lines)


def test_what_it_tells() -> None:
    text = summary.render(failing(), "conformance-report", width=120, color=False)
    for words in (
        "toy 1  through adapter toy adapter 2",
        "checks that the adapter performs in its stead: MC-BIND-002",
        "dense    not conformant  0 of 2                 1 pass, 1 fail, 1 crash",
        "MC-DENSE-001     0/1  ",
        "other requirements with every case passed: 1",
        "crash toy-001/update  MC-DENSE-001",
        "  and a second line",
        "fail only because their valid twins do: 1 (toy-002/overflow)",
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
    assert "No verdict: this was a selection of the cases (-k immutable)." in text


def test_many_failures_are_told_in_brief() -> None:
    many = {f"toy-{n:03d}/x": dataclasses.replace(VALID, id=f"toy-{n:03d}/x") for n in range(100, 150)}
    results = {
        name: dataclasses.replace(outcome(VALID.id, Status.FAIL, "x", rerun="pytest x"), case=name) for name in many
    }
    run = dataclasses.replace(finished(), cases=tuple(many.values()), results=results)
    text = summary.render(run, "conformance-report", width=80, color=False)
    assert text.count("$ pytest x") == 10
    assert "further failures: 40 (toy-110/x, toy-111/x" in text
    assert "toy-121/x" in text
    assert "toy-122/x" not in text
