"""Failures that are put up with: what a waivers file may say, and what a waiver does to a run."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from test_plugin import CONFTEST, IMPORT_PATH, PLUGIN, run, suite, text
from toy_cases import CASES, OVERFLOW, READ_ONLY, VALID

from mutcache_conformance import adapters, waivers
from mutcache_conformance.report import read_report
from mutcache_conformance.status import CaseResult, Status
from mutcache_conformance.waivers import Waiver, WaiverError

__all__ = ["suite"]  # the fixture
pytest_plugins = ["pytester"]

TODAY = datetime.date(2026, 6, 1)
ISSUE = "https://example.org/issues/7"


def entry(
    cases: str = '"toy-002/overflow"',
    reason: str = '"it clamps"',
    issue: str = f'"{ISSUE}"',
    expires: str = "2999-01-31",
) -> str:
    return f"[[waiver]]\ncases = [{cases}]\nreason = {reason}\nissue = {issue}\nexpires = {expires}\n"


def problems(folder: Path, content: str) -> str:
    file = folder / "waivers.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(WaiverError) as caught:
        waivers.read(file, CASES, TODAY)
    assert str(file) in str(caught.value)
    return "\n".join(caught.value.problems)


def result(status: Status, case: str = OVERFLOW.id) -> CaseResult:
    return CaseResult(case, OVERFLOW.profile, OVERFLOW.requirements, status, reason="it went wrong", cause="wrong")


WAIVER = Waiver((OVERFLOW.id,), "it clamps", ISSUE, datetime.date(2026, 6, 1), TODAY)


def test_a_file_in_order(tmp_path: Path) -> None:
    file = tmp_path / "waivers.toml"
    file.write_text(entry(expires="2026-06-01") + entry('"toy-003/read-only", "toy-001/update"'), encoding="utf-8")
    first, second = waivers.read(file, CASES, TODAY)
    assert first == WAIVER  # its last day is a day on which it holds
    assert second.cases == (READ_ONLY.id, VALID.id)
    assert Waiver.from_json(first.to_json()) == first
    file.write_text("# nothing is wrong\n", encoding="utf-8")
    assert waivers.read(file, CASES, TODAY) == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (entry('"toy-002/overflw"'), "'toy-002/overflw' is no case of this suite; did you mean 'toy-002/overflow'?"),
        (entry('"zzz"'), "'zzz' is no case of this suite"),
        (entry(expires="2026-05-31"), "it has expired: 2026-05-31 is before 2026-06-01 (it clamps: toy-002/overflow)"),
        (entry() + entry(), "case 'toy-002/overflow' is waived more than once"),
        (entry('"toy-001/update", "toy-001/update"'), "case 'toy-001/update' is waived more than once"),
        (entry(cases=""), "'cases' must be a list of case ids"),
        (entry(cases="1"), "'cases' must be a list of case ids"),
        (entry(reason='"  "'), "'reason' must say why"),
        (entry(reason="1"), "'reason' must say why"),
        (entry(issue='"later"'), "'issue' must be the address of an issue"),
        (entry(issue='"https:"'), "'issue' must be the address of an issue"),
        (entry(expires='"2027-01-31"'), "'expires' must be a date without quotes"),
        (entry(expires="2027-01-31T00:00:00Z"), "'expires' must be a date without quotes"),
        (entry() + "until = 1\n", "waiver 1: 'until' is not known"),
        ("[[waiver]]\ncases = []\n", "waiver 1: 'reason' is missing"),
        ("[[waivers]]\n", "'waivers' is not known"),
        ("waiver = 1\n", "a waiver is [[waiver]] with cases ="),
        ("[[waiver]\n", "it is no TOML"),
    ],
)
def test_a_file_that_is_not(tmp_path: Path, content: str, words: str) -> None:
    assert words in problems(tmp_path, content)


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    said = problems(tmp_path, entry('"a"') + entry('"b"', expires="2020-01-01") + "x = 1\n")
    assert said.startswith("waiver 1: 'a' is no case")
    assert "waiver 2: 'x' is not known" in said


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(WaiverError, match="it cannot be read: No such file"):
        waivers.read(tmp_path / "none.toml", CASES, TODAY)
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(WaiverError, match="it is no TOML"):
        waivers.read(tmp_path / "binary", CASES, TODAY)


@pytest.mark.parametrize("status", [Status.FAIL, Status.CRASH, Status.TIMEOUT])
def test_a_failure_is_waived_and_says_what_it_was(status: Status) -> None:
    waived = waivers.apply([WAIVER], result(status))
    assert (waived.status, waived.unwaived) == (Status.WAIVED, status)
    assert waived.reason == f"it clamps ({ISSUE}, until 2026-06-01)\n{status}: it went wrong"
    assert not waived.status.is_failure
    assert waivers.apply([WAIVER], waived) == waived
    assert waivers.unused([WAIVER], {OVERFLOW.id: waived}) == []
    assert CaseResult.from_json(waived.to_json()) == waived


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.FAIL, Status.CRASH, Status.TIMEOUT)])
def test_nothing_else_is(status: Status) -> None:
    assert waivers.apply([WAIVER], result(status)).status is status
    assert waivers.apply([WAIVER], result(Status.FAIL, VALID.id)).status is Status.FAIL


@pytest.mark.parametrize("status", [Status.PASS, Status.UNSUPPORTED, Status.NOT_APPLICABLE])
def test_a_waiver_for_a_case_that_does_not_fail_is_unused(status: Status) -> None:
    (line,) = waivers.unused([WAIVER], {OVERFLOW.id: result(status)})
    assert f"case 'toy-002/overflow' is waived, and its status is {status}" in line


@pytest.mark.parametrize("status", [Status.HARNESS_ERROR, Status.NOT_RUN])
def test_a_case_that_was_not_played_says_nothing_of_its_waiver(status: Status) -> None:
    assert waivers.unused([WAIVER], {OVERFLOW.id: result(status)}) == []
    assert waivers.unused([WAIVER], {}) == []


def test_a_run_in_which_all_that_fails_is_waived(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    suite.path.joinpath("waivers.toml").write_text(entry(), encoding="utf-8")
    ended = run(suite, "--runtime=toy_runtime:Clamping", "--waivers=waivers.toml", "-rs")
    assert ended.ret == 0, text(ended)
    ended.assert_outcomes(passed=4, skipped=2)
    ended.stdout.fnmatch_lines(
        [
            f"1 waived: it clamps ({ISSUE}, until 2999-01-31): toy-002/overflow",
            "dense    not conformant  4 of 5 * 1 waived",
            "Nothing fails but what is waived*",
        ]
    )
    report = read_report(suite.path / "conformance-report/report.json")
    assert report["claim"]["profiles"][0]["verdict"] == "not conformant"
    assert report["claim"]["profiles"][0]["blocking"] == {OVERFLOW.id: "waived"}
    (waived,) = [found for found in report["results"] if found["status"] == "waived"]
    assert (waived["case"], waived["unwaived"]) == (OVERFLOW.id, "fail")
    assert report["waivers"] == [
        {
            "cases": [OVERFLOW.id],
            "reason": "it clamps",
            "issue": ISSUE,
            "expires": "2999-01-31",
            "read": report["claim"]["date"],
        }
    ]
    saved = suite.path / "conformance-report" / waived["failure"]
    assert "run it again with" in (saved / "reason.txt").read_text()


def test_another_failure_still_fails_the_run(suite: pytest.Pytester) -> None:
    suite.path.joinpath("waivers.toml").write_text(entry(), encoding="utf-8")
    ended = run(suite, "--runtime=toy_runtime:Limited", "--waivers=waivers.toml")
    assert ended.ret == 2  # which supports nothing: the waiver is unused
    assert "case 'toy-002/overflow' is waived, and its status is unsupported" in text(ended)


def test_an_unused_waiver_is_an_error(suite: pytest.Pytester) -> None:
    suite.path.joinpath("waivers.toml").write_text(entry(), encoding="utf-8")
    ended = run(suite, "--runtime=toy_runtime:Toy", "--waivers=waivers.toml")
    assert ended.ret == 2
    ended.stdout.fnmatch_lines(
        ["*waivers that are not needed*", "case 'toy-002/overflow' is waived, and its status is pass: take it out *"]
    )
    # Of cases that were not asked for, nothing is said.
    assert run(suite, "--runtime=toy_runtime:Toy", "--waivers=waivers.toml", "-k", "update").ret == 0


def test_a_registered_adapter_has_its_waivers_beside_it(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(adapters.REGISTERED, "clamping", "toy_runtime:Clamping")
    monkeypatch.setattr(adapters, "__file__", str(suite.path / "__init__.py"))
    assert run(suite, "--runtime=clamping").ret == 1
    suite.path.joinpath("clamping.waivers.toml").write_text(entry(), encoding="utf-8")
    assert run(suite, "--runtime=clamping").ret == 0
    assert run(suite, "--runtime=clamping", "--waivers=/dev/null").ret == 1


def test_a_file_that_is_not_in_order_ends_the_run_before_it_begins(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.makeconftest(CONFTEST)
    content = entry(expires="2020-01-01") + entry('"toy-002/overflo"')
    suite.path.joinpath("waivers.toml").write_text(content, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", IMPORT_PATH)
    ended = suite.runpytest_subprocess(*PLUGIN, "-q", "--runtime=toy_runtime:Clamping", "--waivers=waivers.toml")
    assert ended.ret == 2
    assert "waivers.toml is not in order:" in text(ended)
    assert "it has expired: 2020-01-01 is before" in text(ended)
    assert "did you mean 'toy-002/overflow'?" in text(ended)
    assert "Traceback" not in text(ended)
    assert not (suite.path / "conformance-report").exists()
