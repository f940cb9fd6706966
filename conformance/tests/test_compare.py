"""What two reports differ in."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mutcache_conformance.compare import Change, compare
from mutcache_conformance.schema import validate

OBSERVATION = {"kind": "contents", "subject": "cache", "expected": "aa", "found": "aa", "basis": "observed"}
STEP = {"index": 2, "operation": "run", "answer": "done", "phase": "", "requirement": "", "observations": [OBSERVATION]}


def result(status: str = "pass", reason: str = "", **changes: Any) -> dict[str, Any]:
    return {
        "requirements": ["MC-DENSE-001"],
        "status": status,
        "reason": reason,
        "case_sha256": "c",
        "evidence_sha256": "e",
        "evidence": [STEP],
        **changes,
    }


def verdict(profile: str, word: str, passed: int, required: int) -> dict[str, Any]:
    return {
        "profile": profile,
        "verdict": word,
        "passed": passed,
        "required": required,
        "rests_on_reported_evidence": False,
    }


def report(**results: dict[str, Any]) -> dict[str, Any]:
    return {
        "claim": {
            "selection": "",
            "specification": {"version": "1", "requirements_sha256": "r"},
            "profiles": [verdict("dense", "conformant", 3, 3)],
        },
        "runtime": {
            "runtime": "toy",
            "runtime_version": "1",
            "adapter": "toys",
            "adapter_version": "2",
            "device": "cpu",
        },
        "suite": {"cases_sha256": "s"},
        "environment": {"python": "3", "os": "Linux", "cpu": "x", "packages": {"numpy": "2.0"}},
        "configuration": {"nonce": 0, "options": {}},
        "results": [{"case": f"toy-001/{name}", **one} for name, one in results.items()],
        "not_run": [],
    }


def change(before: dict[str, Any] | None, after: dict[str, Any] | None) -> tuple[Change, str] | None:
    """What a report says of one case beside another that never changes."""
    sides = [report(other=result(), **({"one": side} if side is not None else {})) for side in (before, after)]
    comparison = compare(*sides)
    validate(comparison.to_json(), "comparison")
    assert comparison.unchanged == 2 - len(comparison.changes)
    assert comparison.is_broken == any(one.change is Change.BROKEN for one in comparison.changes)
    if not comparison.changes:
        return None
    (found,) = comparison.changes
    assert found.case == "toy-001/one"
    assert (found.before, found.after) == tuple(side["status"] if side else "" for side in (before, after))
    return found.change, found.detail


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("pass", "pass", None),
        ("fail", "fail", None),
        ("pass", "fail", Change.BROKEN),
        ("pass", "crash", Change.BROKEN),
        ("pass", "harness-error", Change.BROKEN),
        ("pass", "unsupported", Change.BROKEN),
        ("pass", "waived", Change.BROKEN),
        ("pass", "not-run", Change.BROKEN),
        ("unsupported", "fail", Change.BROKEN),
        ("waived", "fail", Change.BROKEN),
        ("fail", "pass", Change.FIXED),
        ("waived", "pass", Change.FIXED),
        ("unsupported", "pass", Change.FIXED),
        ("fail", "crash", Change.CHANGED),
        ("fail", "waived", Change.CHANGED),
        ("crash", "unsupported", Change.CHANGED),
        (None, "pass", Change.NEW),
        (None, "fail", Change.NEW),
        ("pass", None, Change.GONE),
        ("fail", None, Change.GONE),
    ],
)
def test_kinds_of_change(before: str | None, after: str | None, kind: Change | None) -> None:
    found = change(*(result(status, f"{status}\nmore") if status else None for status in (before, after)))
    assert (found[0] if found else None) is kind
    if found and after:
        assert found[1] == after  # the first line of the reason


def test_a_case_that_should_have_been_run_is_broken_if_it_was_right() -> None:
    for selection, kind in (("", Change.BROKEN), ("the run was interrupted", Change.BROKEN), ("-k x", Change.GONE)):
        before, after = report(one=result()), report()
        after["not_run"], after["claim"]["selection"] = ["toy-001/one"], selection
        (found,) = compare(before, after).changes
        assert found.change is kind
    before["results"][0]["status"], after["claim"]["selection"] = "fail", ""
    (found,) = compare(before, after).changes
    assert found.change is Change.GONE


def observed(**changes: str) -> dict[str, Any]:
    step = copy.deepcopy(STEP)
    step["observations"][0].update(changes)  # type: ignore[index]  # it is a list of dicts
    return result(evidence=[step], evidence_sha256="f")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (observed(found="bb"), "step 3 (run): contents of cache: found aa before, bb after"),
        (observed(basis="reported"), "step 3 (run): contents of cache: observed before, reported after"),
        (result(evidence=[{**STEP, "phase": "bind"}], evidence_sha256="f"), "phase 'none' before, 'bind' after"),
        (result(evidence=[{**STEP, "observations": []}], evidence_sha256="f"), "1 observations before, 0 after"),
        (result(evidence=[STEP, STEP], evidence_sha256="f"), "1 steps before, 2 after"),
    ],
)
def test_changed_evidence_is_shown(after: dict[str, Any], words: str) -> None:
    found = change(result(), after)
    assert found is not None
    assert found[0] is Change.EVIDENCE
    assert words in found[1]


def test_a_case_that_was_drawn_otherwise_is_compared_by_status_alone() -> None:
    before, after = report(one=result()), report(one={**observed(found="bb"), "case_sha256": "d"})
    comparison = compare(before, after)
    assert (comparison.changes, comparison.unchanged, comparison.incomparable) == ((), 1, 1)


def test_verdicts_and_conditions() -> None:
    before, after = report(), report()
    after["claim"]["profiles"] = [
        verdict("dense", "not conformant", 2, 3),
        verdict("flow", "conformant", 1, 1) | {"rests_on_reported_evidence": True},
    ]
    after["runtime"] |= {"runtime_version": "2", "device": "cuda:0"}
    after["configuration"]["nonce"] = 7
    after["environment"]["packages"] = {"onnx": "1.23"}
    comparison = compare(before, after)
    assert (comparison.before, comparison.after) == ("toy 1", "toy 2")
    assert [(one.what, one.before, one.after) for one in comparison.verdicts] == [
        ("dense", "conformant (3 of 3)", "not conformant (2 of 3)"),
        ("flow", "not claimed", "conformant (1 of 1), on reported evidence (memory of cuda:0)"),
    ]
    assert [(one.what, one.before, one.after) for one in comparison.conditions] == [
        ("device", "cpu", "cuda:0"),
        ("nonce", "0", "7"),
        ("numpy", "2.0", ""),
        ("onnx", "", "1.23"),
    ]


def test_a_runtime_that_never_came_to_describe_itself() -> None:
    before = {**report(), "runtime": None}
    assert compare(before, report()).before == "unknown runtime"


def test_the_gravest_comes_first() -> None:
    before = report(a=result("fail"), b=result(), c=result(), d=result())
    after = report(a=result(), b=observed(found="x"), c=result("fail"), e=result())
    kinds = [one.change for one in compare(before, after).changes]
    assert kinds == [Change.BROKEN, Change.FIXED, Change.EVIDENCE, Change.NEW, Change.GONE]
