"""Runs in flight: what the suite says of runtimes that do one thing at a time, and of those that do several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fault_table import cases_of, runner
from faulty_threads import Alone, RefusesSecondRun, RunsOneByOne
from hooked_runtime import Sound

from mutcache_conformance.case import Finish, Start
from mutcache_conformance.script import NO_OVERLAP
from mutcache_conformance.status import CaseResult, Status

CASES = {name: case for name, case in cases_of(0).items() if case.overlaps}
SECOND, BESIDE, BIND = "bind-011/second-run", "bind-011/another-session-beside", "bind-005/of-run-in-other-session"


def play(adapter: type[Sound], folder: Path, *names: str) -> list[CaseResult]:
    with runner(adapter, folder / adapter.__name__) as one:
        return [one.run(CASES[name]) for name in names]


def test_every_run_that_is_started_is_finished_in_its_turn() -> None:
    assert len(CASES) >= 16
    for case in CASES.values():
        started = [step.run for step in case.script if isinstance(step, Start)]
        assert started == [step.run for step in case.script if isinstance(step, Finish)], case.id
        assert len(set(started)) == len(started), case.id


def test_a_runtime_that_refuses_a_second_run_passes(tmp_path: Path) -> None:
    results = play(RefusesSecondRun, tmp_path, *CASES)
    assert [(one.case, one.reason) for one in results if one.status is not Status.PASS] == []
    answers = {one.case: [step.answer for step in one.evidence.steps] for one in results}
    assert answers[SECOND] == ["ok", "ok", "started", "started", "done", "rejected", "done", "ok", "ok"]


def test_runs_that_follow_one_another_pass_and_leave_the_same_evidence_every_time(tmp_path: Path) -> None:
    first, second = (play(Sound, tmp_path / f"{number}", SECOND, BESIDE, BIND) for number in range(2))
    assert {one.status for one in (*first, *second)} == {Status.PASS}
    assert [one.evidence.digest() for one in first] == [one.evidence.digest() for one in second]
    assert [step.answer for step in first[0].evidence.steps][2:6] == ["started", "started", "done", "done"]


def test_a_host_that_has_one_run_in_flight_is_unsupported(tmp_path: Path) -> None:
    results = play(Alone, tmp_path, *CASES)
    assert {(one.status, one.reason) for one in results} == {
        (Status.UNSUPPORTED, "the host has no more than one run in flight")
    }
    assert not any(one.evidence.steps for one in results)


def test_what_never_overlapped_is_tried_again_and_shows_nothing(tmp_path: Path) -> None:
    # Its second run waits for the first one, as it may; its bind does too, and so nothing was asked of it at once.
    with runner(RunsOneByOne, tmp_path) as one_by_one:
        second, bind = (one_by_one.run(CASES[name]) for name in (SECOND, BIND))
        twin = one_by_one.run(CASES[CASES[BIND].twin])
        after = one_by_one.run(cases_of(0)["dense-001/first-rows"])
    assert second.status is Status.PASS
    assert (twin.status, twin.cause, twin.attempts) == (Status.UNSUPPORTED, NO_OVERLAP, 5)
    assert bind.status is Status.UNSUPPORTED
    assert (after.status, after.log) == (Status.PASS, second.log)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.twin])
def test_what_is_refused_too_late_to_overlap_shows_nothing_either(name: str, tmp_path: Path) -> None:
    with runner(RunsOneByOne, tmp_path) as one_by_one:
        late = one_by_one.run(replace(CASES[name], twin=""))
    assert (late.status, late.cause) in {(Status.UNSUPPORTED, NO_OVERLAP), (Status.PASS, "")}, late.reason
