"""A run that was interrupted is taken up again, and comes to what it would have come to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from test_plugin import CONFTEST, IMPORT_PATH, PLUGIN, run, suite, text
from toy_cases import CASES, IMMUTABLE, OVERFLOW, VALID

from mutcache_conformance import journal, provenance
from mutcache_conformance.journal import Journal, JournalError
from mutcache_conformance.report import read_report
from mutcache_conformance.status import CaseResult, Status

__all__ = ["suite"]  # the fixture
pytest_plugins = ["pytester"]

IDENTITY = {"runtime": "toy", "nonce": 7, "options": {"a": "b"}}
#: Members of a result that are another's each time, or say where its log lies.
_PASSING = ("duration", "log")


def result(case: str, status: Status = Status.PASS) -> CaseResult:
    return CaseResult(case, CASES[case].profile, CASES[case].requirements, status, reason="", log="main-2")


def lasting(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what is of the moment."""
    kept = {key: report[key] for key in ("claim", "runtime", "suite", "not_run", "totals", "requirements", "waivers")}
    results = [{key: value for key, value in one.items() if key not in _PASSING} for one in report["results"]]
    for one in results:
        one["reason"] = re.sub("address 0x[0-9a-f]+", "address", one["reason"])
    return {**kept, "results": results}


# The journal


def test_a_journal_is_resumed_where_it_ended(tmp_path: Path) -> None:
    first = Journal(tmp_path, IDENTITY)
    for case in (VALID.id, OVERFLOW.id, VALID.id):
        first.add(result(case))
    first.close()
    second = Journal.resume(tmp_path, dict(IDENTITY))
    assert (list(second.results), second.resumed) == ([VALID.id, OVERFLOW.id], 1)
    second.add(result(VALID.id))
    second.add(result(IMMUTABLE.id, Status.FAIL))
    second.close()
    third = Journal.resume(tmp_path, IDENTITY)
    assert (list(third.results), third.resumed) == ([VALID.id, OVERFLOW.id, IMMUTABLE.id], 2)
    assert third.results[IMMUTABLE.id] == result(IMMUTABLE.id, Status.FAIL)
    third.remove()
    assert not list(tmp_path.iterdir())


def test_a_result_that_was_cut_short_is_none(tmp_path: Path) -> None:
    whole = Journal(tmp_path, IDENTITY)
    whole.add(result(VALID.id))
    whole.add(result(OVERFLOW.id))
    whole.close()
    path = tmp_path / journal.NAME
    data = path.read_bytes()
    *_, last = data.rstrip(b"\n").split(b"\n")
    for cut in (
        data[:-1],
        data[: -len(last)],
        data[: -len(last) // 2],
        data[: -len(last) - 1] + b"\0" * 40 + b"\n",
    ):
        path.write_bytes(cut)
        again = Journal.resume(tmp_path, IDENTITY)
        assert list(again.results) == [VALID.id]
        again.add(result(IMMUTABLE.id))
        again.close()
        assert list(Journal.resume(tmp_path, IDENTITY).results) == [VALID.id, IMMUTABLE.id]


def test_what_the_harness_could_not_do_is_done_again(tmp_path: Path) -> None:
    first = Journal(tmp_path, IDENTITY)
    first.add(result(VALID.id, Status.HARNESS_ERROR))
    first.close()
    second = Journal.resume(tmp_path, IDENTITY)
    assert second.results == {}
    second.add(result(VALID.id))
    second.close()
    assert Journal.resume(tmp_path, IDENTITY).results[VALID.id].status is Status.PASS


def test_another_run_is_not_resumed(tmp_path: Path) -> None:
    Journal(tmp_path, IDENTITY).close()
    with pytest.raises(JournalError) as caught:
        Journal.resume(tmp_path, {**IDENTITY, "nonce": 8, "options": {}})
    assert str(caught.value).splitlines() == [
        "the interrupted run was another one:",
        "  - nonce: 7 then, 8 now",
        '  - options: {"a": "b"} then, {} now',
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no journal of format 1"),
        (b"[]\n", "is no journal of format 1"),
        (b'{"journal": 2, "identity": {}}\n', "is no journal of format 1"),
        (b'{"journal": 1, "identity": {}}\nx\n{}\n', "line 2, is damaged"),
        (b'{"journal": 1, "identity": {}}\n{"result": {}}\n', "a result in the journal is damaged: KeyError"),
    ],
)
def test_a_damaged_journal_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / journal.NAME).write_bytes(content)
    with pytest.raises(JournalError, match=words):
        Journal.resume(tmp_path, {})


def test_the_nonce_of_an_interrupted_run_is_known(tmp_path: Path) -> None:
    Journal(tmp_path, IDENTITY).close()
    assert journal.nonce_of(tmp_path) == 7
    (tmp_path / journal.NAME).write_text('{"journal": 1, "identity": {}}\n')
    with pytest.raises(JournalError, match="names no nonce"):
        journal.nonce_of(tmp_path)


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no run has begun there"):
        Journal.resume(tmp_path, IDENTITY)
    (tmp_path / "report.json").touch()
    with pytest.raises(JournalError, match="its report is complete"):
        Journal.resume(tmp_path, IDENTITY)


# The run


INTERRUPTING = """
import os, signal
def pytest_runtest_setup(item):
    if os.environ.get("INTERRUPTED_AT", "no case") in item.name:
        os.kill(os.getpid(), getattr(signal, os.environ["INTERRUPTED_BY"]))
"""


def subprocess_of(suite: pytest.Pytester, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the suite in a process of its own."""
    suite.makeconftest(textwrap.dedent(CONFTEST) + INTERRUPTING)
    return subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGIN, "-q", *options],
        cwd=suite.path,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH, **environment},
        capture_output=True,
        text=True,
        check=False,
        # A job in the background of a shell inherits that SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def interrupted(suite: pytest.Pytester, runtime: str, at: str, by: str = "SIGKILL") -> int:
    """Run the suite in a process that gets a signal when it comes to the case ``at``; returns how it ended."""
    done = subprocess_of(suite, f"--runtime={runtime}", INTERRUPTED_AT=at, INTERRUPTED_BY=by)
    assert done.returncode not in (0, 1), done.stdout + done.stderr
    return done.returncode


def test_a_killed_run_comes_to_the_same_report(suite: pytest.Pytester) -> None:
    runtime = "toy_runtime:Clamping"
    assert run(suite, f"--runtime={runtime}", "--report=whole").ret == 1
    assert interrupted(suite, runtime, "toy-004") == -signal.SIGKILL
    folder = suite.path / "conformance-report"
    assert not (folder / "report.json").exists()
    assert (folder / journal.NAME).read_text().count('"result"') == 3
    ended = run(suite, f"--runtime={runtime}", "--resume=conformance-report")
    assert ended.ret == 1, text(ended)
    ended.assert_outcomes(passed=4, failed=1, skipped=1)
    whole, resumed = read_report(suite.path / "whole/report.json"), read_report(folder / "report.json")
    assert lasting(resumed) == lasting(whole)
    assert (whole["configuration"]["resumed"], resumed["configuration"]["resumed"]) == (0, 1)
    assert not (folder / journal.NAME).exists()
    for one in resumed["results"]:
        assert not one["failure"] or (folder / one["failure"] / "case.json").is_file()
    reason = (folder / "failures/toy-002/overflow/reason.txt").read_text()
    assert reason.count("run it again with") == 1
    assert run(suite, f"--runtime={runtime}", "--report=conformance-report").ret == 1  # and a new run is a new one


def test_what_was_run_is_not_run_again(suite: pytest.Pytester) -> None:
    interrupted(suite, "toy_runtime:Toy", "toy-002")
    path = suite.path / "conformance-report" / journal.NAME
    first, *results = path.read_text().splitlines()
    (line,) = map(json.loads, results)
    line["result"]["duration"] = 1234.5
    path.write_text(f"{first}\n{json.dumps(line)}\n")
    assert run(suite, "--runtime=toy_runtime:Toy", "--resume=conformance-report").ret == 0
    report = read_report(suite.path / "conformance-report/report.json")
    assert [one["duration"] == 1234.5 for one in report["results"]] == [True, False, False, False, False, False]


def test_a_run_that_is_asked_for_otherwise_is_refused(suite: pytest.Pytester) -> None:
    identity: dict[str, Any] = {
        "suite": {key: value for key, value in provenance.suite(CASES.values()).items() if key != "origin"},
        "adapter": provenance.adapter("toy_runtime:Clamping")["source"],
        "runtime": "toy_runtime:Clamping",
        "description": None,
        "runtime options": {},
        "nonce": 0,
        "profiles": [],
        "selection": "",
        "shard": "1/1",
        "case order": "",
        "step timeout": 30.0,
        "case timeout": 120.0,
    }
    folder = suite.mkdir("conformance-report")
    Journal(folder, identity).close()
    otherwise = ["--runtime=toy_runtime:Toy", "--nonce=3", "--step-timeout=3", "--case-timeout=4", "--profile=dense"]
    otherwise += ["--case-order=random:3", "--runtime-option=a=b", "--shard=1/2"]
    done = subprocess_of(suite, "--resume=conformance-report", *otherwise)
    assert done.returncode == 2
    said = done.stdout + done.stderr
    assert "--resume: the interrupted run was another one:" in said
    for line in (
        'runtime: "toy_runtime:Clamping" then, "toy_runtime:Toy" now',
        "nonce: 0 then, 3 now",
        "step timeout: 30.0 then, 3.0 now",
        "case timeout: 120.0 then, 4.0 now",
        'profiles: [] then, ["dense"] now',
        'case order: "" then, "3" now',
        'runtime options: {} then, {"a": "b"} now',
        'selection: "" then, "--shard 1/2" now',
        'shard: "1/1" then, "1/2" now',
        'description: null then, {"runtime": "toy"',
    ):
        assert f"  - {line}" in said
    assert "  - suite" not in said  # which is the same
    assert "  - adapter" not in said
    assert (folder / journal.NAME).is_file()


def test_a_resumed_run_has_the_folder_that_it_had(suite: pytest.Pytester) -> None:
    for options, words in (
        (["--report=other"], "--resume says which report folder it is"),
        ([], "there is nothing to resume in"),
    ):
        done = subprocess_of(suite, "--runtime=toy_runtime:Toy", "--resume=conformance-report", *options)
        assert done.returncode == 2
        assert words in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr


def test_a_run_that_its_user_interrupts_is_reported_and_can_be_resumed_under_xdist(suite: pytest.Pytester) -> None:
    assert interrupted(suite, "toy_runtime:Toy", "toy-003", by="SIGINT") == pytest.ExitCode.INTERRUPTED
    folder = suite.path / "conformance-report"
    report = read_report(folder / "report.json")
    assert report["claim"]["selection"] == "the run was interrupted"
    assert [one["case"] for one in report["results"]] == list(CASES)[:2]
    done = subprocess_of(suite, "--runtime=toy_runtime:Toy", "--resume=conformance-report", "-n2")
    assert done.returncode == 0, done.stdout + done.stderr
    report = read_report(folder / "report.json")
    assert report["claim"]["selection"] == ""
    assert report["claim"]["profiles"][0]["verdict"] == "conformant"
    assert [one["case"] for one in report["results"]] == list(CASES)


def test_a_run_of_all_tests_needs_no_folder(suite: pytest.Pytester) -> None:
    """Without --runtime, nothing has looked at the folder before the first result comes."""
    done = subprocess_of(suite, "-n2")
    assert "INTERNALERROR" not in done.stdout + done.stderr
    assert (suite.path / "conformance-report" / "report.json").is_file()


# Order


def verdicts(report: dict[str, Any]) -> tuple[object, ...]:
    return report["claim"], [(one["case"], one["status"], one["evidence_sha256"]) for one in report["results"]]


def test_in_any_order_the_verdicts_are_the_same(suite: pytest.Pytester) -> None:
    orders, reports = set(), []
    for order in ("suite", "random:1", "random:2", "random:1"):
        ended = run(suite, "--runtime=toy_runtime:Clamping", f"--case-order={order}", "-vv")
        lines = text(ended).splitlines()
        orders.add(tuple(line.partition("[")[2].partition("]")[0] for line in lines if "::test_case[toy" in line))
        reports.append(read_report(suite.path / "conformance-report/report.json"))
        assert reports[-1]["configuration"]["order"] == order
    assert len(orders) == 3
    assert all(verdicts(report) == verdicts(reports[0]) for report in reports)


@pytest.mark.parametrize("order", ["random:x", "backwards"])
def test_an_order_that_there_is_not(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    suite.makeconftest(CONFTEST)
    monkeypatch.setenv("PYTHONPATH", IMPORT_PATH)
    ended = suite.runpytest_subprocess(*PLUGIN, "-q", "--runtime=toy_runtime:Toy", f"--case-order={order}")
    assert ended.ret == 2
    assert "is neither suite nor random:SEED" in text(ended)
