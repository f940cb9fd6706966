"""Verification: a sound report passes, and what a tamperer does is found, whatever else he makes again."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forgeries
import pytest
import sealed_reports as sealed
from toy_cases import IMMUTABLE, OPTIONAL, OVERFLOW, READ_ONLY, VALID

from mutcache_conformance import manifest
from mutcache_conformance.verify import UNVERIFIABLE


@pytest.fixture(autouse=True)
def _corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed.replace_corpus(monkeypatch)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The report of a conformant runtime, and that of one that is not."""
    with pytest.MonkeyPatch.context() as patch:
        sealed.replace_corpus(patch)
        yield {name: sealed.make(tmp_path_factory.mktemp(name), f"toy_runtime:{name}") for name in ("Toy", "Clamping")}


@pytest.fixture
def folder(originals: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(originals["Toy"], tmp_path / "report")


@pytest.fixture
def failing(originals: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(originals["Clamping"], tmp_path / "failing")


def test_reports_as_they_were_written_are_sound(folder: Path, failing: Path) -> None:
    for each, verdict in ((folder, "conformant"), (failing, "not conformant")):
        made = sealed.check(each)
        assert made.is_sound, made.problems
        assert made.report is not None
        assert made.report["claim"]["profiles"][0]["verdict"] == verdict
        assert "it is not signed: nobody answers for it" in made.notes


@pytest.mark.parametrize(("mode", "status"), [("exit", "crash"), ("hang", "timeout"), ("garble", "fail")])
def test_what_was_seen_until_a_runtime_came_to_its_end_is_sound(tmp_path: Path, mode: str, status: str) -> None:
    host = Path(__file__).with_name("unruly_host.py")
    runtime = f"cmd:{sys.executable} {host} {mode}-after-run"
    folder = sealed.make(tmp_path / "report", runtime, step_timeout=2.0)
    report = sealed.read(folder)
    result = report["results"][0]
    assert (result["status"], result["evidence"][-1]["answer"]) == (status, "garbage" if mode == "garble" else status)
    assert any(one["kind"] == "contents" for one in result["evidence"][-1]["observations"])
    assert sealed.problems(folder) == []
    result["evidence"][-1]["observations"].pop(0)  # no longer the beginning of what is looked at
    sealed.reseal(folder, report)
    assert any(problem.startswith("evidence: toy-001/update: step 3 (run)") for problem in sealed.problems(folder))


def test_resealing_alone_changes_nothing(folder: Path) -> None:
    before = (folder / "report.json").read_bytes()
    sealed.reseal(folder, sealed.read(folder))
    assert (folder / "report.json").read_bytes() == before
    assert sealed.check(folder).is_sound


# Tampering without making anything again


@pytest.mark.parametrize("name", ["Toy", "Clamping"])
def test_every_altered_member_is_found(originals: dict[str, Path], tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(originals[name], tmp_path / "report")
    report = sealed.read(folder)
    paths = list(sealed.members(report))
    assert len(paths) > 400
    for path in paths:
        value = sealed.get(report, path)
        sealed.put(report, path, forgeries.altered(value))
        sealed.write(folder, report)
        manifest.write(folder)  # so that the report alone must give it away
        assert sealed.problems(folder), path
        sealed.put(report, path, value)


@pytest.mark.parametrize(
    "name", ["report.json", "report.html", "logs/main-1.stderr.txt", "failures/toy-002/overflow/reason.txt"]
)
def test_every_altered_file_is_found(failing: Path, name: str) -> None:
    path = failing / name
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(b" ")
    assert any(name in problem for problem in sealed.problems(failing))


def test_files_that_are_gone_or_added_or_linked_are_found(failing: Path, tmp_path: Path) -> None:
    (failing / "failures/toy-002/overflow/reason.txt").unlink()
    (failing / "extra.txt").touch()
    (tmp_path / "page.html").write_bytes((failing / "report.html").read_bytes())
    (failing / "report.html").unlink()
    (failing / "report.html").symlink_to(tmp_path / "page.html")
    assert [problem for problem in sealed.problems(failing) if problem.startswith("manifest")] == [
        "manifest: extra.txt is not in the manifest",
        "manifest: failures/toy-002/overflow/reason.txt is missing",
        "manifest: report.html is a link",
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"format": 1, "files": [{"path": "../x", "bytes": 0, "sha256": ""}]}']
)
def test_a_manifest_that_is_none(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    assert any("manifest.json is no manifest" in problem for problem in sealed.problems(folder))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_truncated_report_is_found(folder: Path, share: float) -> None:
    data = (folder / "report.json").read_bytes()
    (folder / "report.json").write_bytes(data[: int(share * len(data))])
    manifest.write(folder)
    assert any("truncated" in problem for problem in sealed.problems(folder))


def test_a_member_that_stands_there_twice_is_found(folder: Path) -> None:
    text = (folder / "report.json").read_text()
    (folder / "report.json").write_text(text.replace('"format": 2,', '"format": 1,\n "format": 2,', 1))
    manifest.write(folder)
    assert any("has a member twice" in problem for problem in sealed.problems(folder))


# Tampering by one who makes digests, footer, page and manifest again


def _drop(report: dict[str, Any]) -> None:
    report["results"] = [result for result in report["results"] if result["case"] != OVERFLOW.id]


def _drop_and_list(report: dict[str, Any]) -> None:
    _drop(report)
    report["not_run"] = [OVERFLOW.id]
    report["totals"]["not-run"] = 1
    report["totals"]["pass"] -= 1


def _duplicate(report: dict[str, Any]) -> None:
    report["results"].insert(1, report["results"][0])


def _swap(report: dict[str, Any]) -> None:
    results = report["results"]
    results[0], results[1] = results[1], results[0]


def _swap_contents(report: dict[str, Any]) -> None:
    first, second = report["results"][:2]
    for name in ("evidence", "phase_observed", "status"):
        first[name], second[name] = second[name], first[name]


def _claim_more(report: dict[str, Any]) -> None:
    report["claim"]["profiles"].append({**report["claim"]["profiles"][0], "profile": "flow"})


def _unknown_case(report: dict[str, Any]) -> None:
    report["results"].append({**report["results"][0], "case": "toy-009/made-up"})


def _other_suite(report: dict[str, Any]) -> None:
    report["suite"]["sources_sha256"] = "0" * 64


def _shorten(report: dict[str, Any]) -> None:
    report["results"][0]["evidence"].pop()


def _no_evidence(report: dict[str, Any]) -> None:
    report["results"][0]["evidence"] = []


def _shard(report: dict[str, Any]) -> None:
    report["configuration"]["shard"] = "1/2"


def _waive(report: dict[str, Any]) -> None:
    report["results"][1] |= {"status": "waived", "unwaived": "fail", "reason": "known"}


def _waiver(case: str, **other: str) -> dict[str, Any]:
    return {"cases": [case], "reason": "r", "issue": "https://example.com/1", "expires": "2999-01-01", **other}


def _waiver_in_vain(report: dict[str, Any]) -> None:
    report["waivers"] = [_waiver(OVERFLOW.id)]
    report["results"][1] |= {"status": "fail", "reason": "r", "cause": "c"}


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (_drop, "toy-002/overflow, which profile dense requires, has no result"),
        (_drop_and_list, "toy-002/overflow, which profile dense requires, has no result"),
        (_duplicate, "toy-001/update has 2 results"),
        (_swap, "not in the order of the cases"),
        (_swap_contents, "toy-001/update: step"),
        (_claim_more, "the claimed profiles are"),
        (_unknown_case, "there is no case toy-009/made-up"),
        (_other_suite, "it was made by other files of the suite"),
        (_shorten, "toy-001/update: it ends after step 5 of 6"),
        (_no_evidence, "toy-001/update: the status is pass; the evidence makes it harness-error or not-run"),
        (_shard, "shard 1/2 only"),
        (_waive, "toy-002/overflow is waived, and there is no waiver for it"),
        (_waiver_in_vain, "toy-002/overflow has a waiver, and is not waived"),
    ],
)
def test_resealed_tampering_is_found(folder: Path, tamper: Callable[[dict[str, Any]], None], words: str) -> None:
    report = sealed.read(folder)
    tamper(report)
    sealed.reseal(folder, report)
    found = sealed.problems(folder)
    assert any(words in problem for problem in found), found


@pytest.mark.parametrize(
    "status", ["pass", "crash", "timeout", "unsupported", "not-applicable", "harness-error", "not-run"]
)
def test_a_status_that_the_evidence_does_not_bear_out_is_found(failing: Path, status: str) -> None:
    report = sealed.read(failing)
    (result,) = [result for result in report["results"] if result["status"] == "fail"]
    result["status"] = status
    if status == "pass":
        result |= {"reason": "", "cause": "", "failure": ""}
    sealed.reseal(failing, report)
    assert f"evidence: {result['case']}: the status is {status}; the evidence makes it fail" in sealed.problems(failing)


def test_a_negative_case_cannot_pass_without_its_twin(folder: Path) -> None:
    report = sealed.read(folder)
    twin = next(result for result in report["results"] if result["case"] == VALID.id)
    twin["evidence"][2]["observations"][0]["found"] = "0" * 16
    twin |= {"status": "fail", "reason": "r", "cause": "c"}
    sealed.reseal(folder, report)
    words = f"evidence: {READ_ONLY.id}: it was played, and yet it could not pass (fail)"
    assert words in sealed.problems(folder)


@pytest.mark.parametrize("of", ["two processes", "a worker that was killed"])
def test_what_a_twin_came_to_in_another_process_is_not_held_against_a_case(folder: Path, of: str) -> None:
    report = sealed.read(folder)
    results = {result["case"]: result for result in report["results"]}
    if of == "two processes":
        results[VALID.id]["evidence"][2]["observations"][0]["found"] = "0" * 16
        results[VALID.id] |= {"status": "fail", "reason": "r", "cause": "c", "log": "gw0-1"}
        results[READ_ONLY.id]["log"] = "gw1-1"
        report["configuration"]["workers"] = 2
    else:
        results[VALID.id] |= {"status": "harness-error", "reason": "r", "evidence": [], "log": ""}
    sealed.reseal(folder, report)
    assert not any(problem.startswith(f"evidence: {READ_ONLY.id}") for problem in sealed.problems(folder))


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ({}, "waivers: the waiver of toy-002/overflow expired on 2026-01-01"),
        ({"read": "2026-01-02"}, "waivers: the waiver of toy-002/overflow expired on 2026-01-01"),
        ({"read": "2999-01-01"}, "waivers: the waiver of toy-002/overflow was read on 2999-01-01"),
        ({"read": "2026-01-01"}, ""),
    ],
)
def test_a_waiver_must_hold_on_the_day_on_which_it_was_read(failing: Path, read: dict[str, str], words: str) -> None:
    report = sealed.read(failing)
    report["waivers"] = [_waiver(OVERFLOW.id, expires="2026-01-01", **read)]
    (result,) = [result for result in report["results"] if result["case"] == OVERFLOW.id]
    result |= {"status": "waived", "unwaived": "fail"}
    sealed.reseal(failing, report)
    found = [problem for problem in sealed.problems(failing) if problem.startswith("waivers")]
    assert any(problem.startswith(words) for problem in found) if words else not found


@pytest.mark.parametrize("status", ["pass", "harness-error"])
def test_a_waiver_that_nothing_needs_is_no_problem(folder: Path, status: str) -> None:
    report = sealed.read(folder)
    report["waivers"] = [_waiver(VALID.id)]
    if status == "harness-error":
        report["results"][0] |= {"status": status, "reason": "r", "evidence": []}
    sealed.reseal(folder, report)
    made = sealed.check(folder)
    assert not made.problems["waivers"]
    assert any("is waived, and its status is pass" in note for note in made.notes) is (status == "pass")


def _parts(*shards: str) -> Callable[[dict[str, Any]], None]:
    def forge(report: dict[str, Any]) -> None:
        part = {"argv": [], "environment": report["environment"], "report_sha256": "0" * 64}
        report["configuration"]["parts"] = [{"shard": shard, **part} for shard in shards]

    return forge


@pytest.mark.parametrize("shards", [("1/1",), ("1/2",), ("1/2", "1/2"), ("2/2", "1/2"), ("1/2", "2/2")])
def test_parts_that_a_report_was_not_merged_from(folder: Path, shards: tuple[str, ...]) -> None:
    report = sealed.read(folder)
    _parts(*shards)(report)
    sealed.reseal(folder, report)
    assert any(problem.startswith("verdicts: it was merged") for problem in sealed.problems(folder))


def test_a_case_whose_twin_could_not_be_asked_may_fail_and_not_pass(tmp_path: Path) -> None:
    folder = sealed.make(tmp_path / "report", "toy_runtime:Ignoring")
    report = sealed.read(folder)
    statuses = {result["case"]: result["status"] for result in report["results"]}
    assert statuses.pop(IMMUTABLE.id) == "fail"
    assert set(statuses.values()) == {"unsupported"}
    assert sealed.check(folder).is_sound
    accepted = next(result for result in report["results"] if result["case"] == IMMUTABLE.id)
    accepted["evidence"][0] |= {"answer": "rejected", "phase": "check"}
    accepted |= {"status": "pass", "reason": "", "cause": ""}
    sealed.reseal(folder, report)
    assert any(IMMUTABLE.id in problem for problem in sealed.problems(folder))


def test_what_is_not_declared_is_unsupported(folder: Path) -> None:
    report = sealed.read(folder)
    result = next(result for result in report["results"] if result["case"] == OPTIONAL.id)
    assert result["status"] == "unsupported"
    result["status"] = "not-run"
    sealed.reseal(folder, report)
    assert any("toy-006/optional: the status is not-run" in problem for problem in sealed.problems(folder))


@pytest.mark.parametrize("name", ["Toy", "Clamping"])
def test_members_that_can_be_forged_are_those_of_the_list(
    originals: dict[str, Path], tmp_path: Path, name: str
) -> None:
    unnoticed = forgeries.unnoticed(shutil.copytree(originals[name], tmp_path / "report"))
    assert unnoticed <= set(UNVERIFIABLE), sorted(unnoticed - set(UNVERIFIABLE))
    assert unnoticed  # what is listed as unverifiable is so
