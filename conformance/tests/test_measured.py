"""Cases in which memory is measured, from the script to the report."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fault_table import cases_of, runner
from faulty_memory import HiddenCopy, LargeWorkspace, LeaksAPage, ReservesSecondCache
from hooked_runtime import Sound

from mutcache.requirements import Profile, Req
from mutcache_conformance import mustpass, schema
from mutcache_conformance.case import Bind, Case, Run
from mutcache_conformance.dtypes import dtype_of
from mutcache_conformance.evidence import Basis, Kind
from mutcache_conformance.figures import PER_RUN, SLOPE, WORKSPACE
from mutcache_conformance.meter import Meter, Unmeasurable
from mutcache_conformance.status import CaseResult, Status

MIB = 1 << 20
CASES = {name: case for name, case in cases_of(0).items() if case.profile is Profile.MEMORY}
SIZES, RUNS = "mem-001/chain", "mem-002/update"


def result(adapter: type[Sound], name: str, folder: Path) -> CaseResult:
    with runner(adapter, folder) as one:
        return one.run(CASES[name])


def test_measured_cases_are_those_of_the_profile() -> None:
    assert len(CASES) >= 13
    of_pages = {Req.MC_MEM_003, Req.MC_MEM_004}  # these count for the profile of pages
    for case in cases_of(0).values():
        is_measured = case.id in CASES or case.requirements[0] in of_pages
        assert (case.measure is not None) == is_measured, case.id
    assert {case.requirements[0] for case in CASES.values()} == {Req.MC_MEM_001, Req.MC_MEM_002}


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.id)
def test_caches_that_are_compared_are_large_beside_the_workspace(case: Case) -> None:
    assert case.measure is not None
    storages = {storage.name: math.prod(storage.shape) * dtype_of(storage.dtype).itemsize for storage in case.storages}
    sizes = []
    for session in case.measure.compare:
        [bound] = [step for step in case.script if isinstance(step, Bind) and step.session == session]
        sizes.append(sum(storages[name] for name in bound.mutable.values()))
        # One to set things up, one that is measured, and in the last session one that is limited.
        assert sum(isinstance(step, Run) and step.session == session for step in case.script) >= 3
    assert bool(sizes) == (case.requirements[0] is Req.MC_MEM_001)
    if sizes:
        assert sizes == sorted(sizes)
        assert sizes[0] >= 4 * WORKSPACE
        assert SLOPE * (sizes[-1] - sizes[0]) > 4 * MIB


def test_a_sound_runtime_takes_next_to_nothing(tmp_path: Path) -> None:
    sizes, runs = (result(Sound, name, tmp_path / name) for name in (SIZES, RUNS))
    assert (sizes.status, sizes.reason, runs.status, runs.reason) == (Status.PASS, "", Status.PASS, "")
    assert sizes.memory is not None
    assert runs.memory is not None
    assert [session["cache_bytes"] for session in sizes.memory["sessions"]] == [32 * MIB, 128 * MIB]
    assert all(0 <= session["growth"] < MIB for session in sizes.memory["sessions"])
    assert abs(sizes.memory["slope"]) < SLOPE / 4
    assert sizes.memory["is_limited"]
    assert sizes.memory["per_run"] is None
    assert abs(runs.memory["per_run"]) < PER_RUN / 4
    assert len(runs.memory["curve"]) >= 64


def test_a_copy_is_as_large_as_the_cache(tmp_path: Path) -> None:
    copied = result(HiddenCopy, SIZES, tmp_path)
    assert copied.status is Status.FAIL
    assert copied.memory is not None
    small, large = copied.memory["sessions"]
    assert all(31 * MIB < taken < 33 * MIB for taken in (small["growth"], *small["runs"]))
    assert all(127 * MIB < taken < 129 * MIB for taken in (large["growth"], *large["runs"]))
    assert copied.memory["slope"] == pytest.approx(1, abs=0.02)
    assert not copied.memory["is_limited"]
    assert "with a cache of 32.0 MiB" in copied.reason
    seen = [one for step in copied.evidence.steps for one in step.observations if one.kind is Kind.MEMORY]
    assert [(one.subject, one.holds, one.basis) for one in seen] == [
        ("growth with the cache", False, Basis.OBSERVED),
        ("workspace of a run", False, Basis.OBSERVED),
    ]


def test_a_workspace_of_any_cache_is_no_copy_and_may_be_too_large(tmp_path: Path) -> None:
    large = result(LargeWorkspace, SIZES, tmp_path)
    assert large.memory is not None
    assert abs(large.memory["slope"]) < SLOPE
    assert min(large.memory["sessions"][1]["runs"]) > WORKSPACE
    assert large.reason.startswith("a run takes more than the 8 MiB")


def test_memory_that_is_asked_for_and_not_touched_is_found_by_the_limit(tmp_path: Path) -> None:
    reserves = result(ReservesSecondCache, SIZES, tmp_path)
    assert reserves.status is Status.FAIL
    assert "no more than 8 MiB of memory to be had, was answered with error" in reserves.reason


def test_a_leak_of_a_page_is_a_page_a_run(tmp_path: Path) -> None:
    leaks = result(LeaksAPage, RUNS, tmp_path)
    assert leaks.status is Status.FAIL
    assert leaks.memory is not None
    assert leaks.memory["per_run"] == pytest.approx(4096, rel=0.2)


def test_evidence_has_no_figures_and_is_the_same_every_time(tmp_path: Path) -> None:
    for name in (SIZES, RUNS):
        first, second = (result(Sound, name, tmp_path / f"{number}") for number in range(2))
        assert first.evidence.digest() == second.evidence.digest()


def test_measured_cases_have_a_process_that_did_nothing_else(tmp_path: Path) -> None:
    plain, other = (cases_of(0)[f"dense-001/{word}-rows"] for word in ("first", "last"))
    with runner(Sound, tmp_path) as sound:
        logs = [sound.run(case).log for case in (plain, CASES[SIZES], CASES[RUNS], other, CASES["mem-001/unread"])]
    assert logs == ["main-1", "main-2", "main-2", "main-2", "main-3"]


def test_where_memory_cannot_be_measured_the_profile_cannot_be_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Unmeasurable("there is no /proc")

    monkeypatch.setattr(Meter, "__init__", refuse)
    one = result(Sound, SIZES, tmp_path)
    assert (one.status, one.reason) == (Status.NOT_RUN, "there is no /proc")
    verdict = mustpass.judge(Profile.MEMORY, {one.case: one}, is_selection=False)
    assert verdict.blocking[one.case] is Status.NOT_RUN
    assert verdict.is_conformant is False


def test_figures_stand_in_the_report(tmp_path: Path) -> None:
    for name in (SIZES, RUNS):
        one = result(Sound, name, tmp_path / name)
        document = one.to_json()
        schema.validate(document, "report", "result")
        assert CaseResult.from_json(document).memory == one.memory
