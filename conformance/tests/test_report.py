"""Reports: complete, or recognisably not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_cases import CASES, IMMUTABLE, OVERFLOW, READ_ONLY, VALID

from mutcache.requirements import Profile, Req
from mutcache_conformance import mustpass
from mutcache_conformance.adapter import Description
from mutcache_conformance.evidence import Evidence, Kind, Observation, StepRecord
from mutcache_conformance.mustpass import Required
from mutcache_conformance.report import ReportError, Run, coverage, read_report, write
from mutcache_conformance.status import CaseResult, Status

ABOUT = Description("toy", "1", "toy adapter", "2", frozenset({"dtype:DOUBLE"}), checks=("MC-BIND-002",))
CONFIGURATION = {
    "argv": ["conformance", "--runtime=toy"],
    "nonce": 0,
    "step_timeout": 30.0,
    "case_timeout": 60.0,
    "restarts": 9,
    "hangs": 9,
    "options": {"device": "0"},
    "shard": "1/1",
    "order": "suite",
    "resumed": 0,
    "parts": [],
    "workers": 1,
}


@pytest.fixture(autouse=True)
def _toy_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = tuple(Required(case.id, case.requirements, "") for case in (VALID, OVERFLOW))
    monkeypatch.setattr(mustpass, "required_cases", lambda _: entries)


def outcome(case_id: str, status: Status = Status.PASS, reason: str = "", **fields: Any) -> CaseResult:
    case = CASES[case_id]
    steps = [StepRecord(0, "run", ("run",), "done", observations=[Observation(Kind.CONTENTS, "cache", "aé", "aé")])]
    return CaseResult(
        case.id,
        case.profile,
        case.requirements,
        status,
        reason,
        evidence=Evidence(steps),
        duration=0.001,
        case_sha256="0" * 64,
        **fields,
    )


def finished(*results: CaseResult, selection: str = "") -> Run:
    return Run(
        "toy_runtime:Toy",
        ABOUT,
        tuple(CASES.values()),
        {result.case: result for result in results},
        (Profile.DENSE,),
        selection,
        CONFIGURATION,
    )


def test_a_written_report_is_read_back(tmp_path: Path) -> None:
    run = finished(outcome(OVERFLOW.id, Status.FAIL, "because\nof this"), outcome(VALID.id))
    report = read_report(write(run, tmp_path))
    assert [result["case"] for result in report["results"]] == [VALID.id, OVERFLOW.id]
    assert report["not_run"] == [case for case in CASES if case not in (VALID.id, OVERFLOW.id)]
    assert report["claim"]["profiles"][0] == {
        "profile": "dense",
        "verdict": "not conformant",
        "required": 2,
        "passed": 1,
        "counts": {"pass": 1, "fail": 1},
        "blocking": {OVERFLOW.id: "fail"},
        "rests_on_reported_evidence": False,
        "encodings": {},
    }
    assert {key: count for key, count in report["totals"].items() if count} == {"pass": 1, "fail": 1, "not-run": 4}
    assert report["runtime"]["checks"] == ["MC-BIND-002"]
    assert report["configuration"]["runtime"] == "toy_runtime:Toy"
    assert list(report)[-1] == "footer"
    assert report["footer"]["results"] == 2


def test_coverage_counts_every_case_that_names_a_requirement() -> None:
    rows = {row.requirement: row for row in coverage(finished(outcome(VALID.id), outcome(READ_ONLY.id, Status.FAIL)))}
    read_only = rows[Req.MC_BIND_002]
    assert (read_only.passed, read_only.run, len(read_only.cases)) == (0, 1, 2)
    assert rows[Req.MC_DENSE_001].passed == 1
    assert rows[Req.MC_DENSE_004].cases == ()
    assert Req.MC_PROTO_005 not in rows  # of tools
    assert all(requirement.entry.profile is Profile.DENSE for requirement in rows)


def test_success_is_that_nothing_blocks() -> None:
    assert finished(outcome(VALID.id), outcome(OVERFLOW.id)).succeeded
    assert not finished(outcome(VALID.id)).succeeded
    assert finished(outcome(VALID.id), selection="-k update").succeeded
    assert not finished(outcome(VALID.id, Status.UNSUPPORTED), selection="-k update").succeeded


def _without_footer(report: dict[str, Any]) -> None:
    del report["footer"]


def _footer_first(report: dict[str, Any]) -> None:
    footer = report.pop("footer")
    rest = dict(report)
    report.clear()
    report.update({"footer": footer, **rest})


def _status(report: dict[str, Any]) -> None:
    report["results"][1]["status"] = "pass"


def _dropped(report: dict[str, Any]) -> None:
    del report["results"][1]


def _swapped(report: dict[str, Any]) -> None:
    report["results"].reverse()


def _verdict(report: dict[str, Any]) -> None:
    report["claim"]["profiles"][0]["verdict"] = "conformant"


def _evidence(report: dict[str, Any]) -> None:
    report["results"][1]["evidence"][0]["observations"][0]["found"] = "b"


@pytest.mark.parametrize("tamper", [_without_footer, _footer_first, _status, _dropped, _swapped, _verdict, _evidence])
def test_a_changed_report_is_none(tmp_path: Path, tamper: Callable[[dict[str, Any]], None]) -> None:
    path = write(finished(outcome(VALID.id), outcome(OVERFLOW.id, Status.FAIL, "x")), tmp_path)
    report = json.loads(path.read_text())
    tamper(report)
    path.write_text(json.dumps(report))
    with pytest.raises(ReportError, match=r"no footer at its end|not what its footer says"):
        read_report(path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_a_truncated_report_is_none(tmp_path: Path, share: float) -> None:
    path = write(finished(outcome(VALID.id)), tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ReportError, match="truncated"):
        read_report(path)


@pytest.mark.parametrize("text", ["[]", "null", '"footer"', "{}"])
def test_other_json_is_no_report(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(ReportError, match="no footer"):
        read_report(tmp_path / "report.json")


def test_a_report_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="cannot be read: No such file"):
        read_report(tmp_path / "report.json")


def test_what_earlier_runs_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = [
        "failures/toy-002/overflow/case.json",
        "logs/main-1.stderr.txt",
        "logs/notes.txt",
        "failures/mine/a/b.txt",
        "failures/mine/c/case.json",
    ]
    stale = [
        "failures/toy-001/update/case.json",
        "failures/toy-001/update/reason.txt",
        "logs/main-2.stdout.txt",
        "logs/gw0-1.stderr.txt",
    ]
    for name in (*kept, *stale):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    failed = outcome(OVERFLOW.id, Status.FAIL, "x", failure="failures/toy-002/overflow", log="main-1")
    write(finished(failed, outcome(IMMUTABLE.id, log="main-1")), tmp_path)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"report.json", "report.html", "manifest.json", "badges/dense.svg", *kept}
