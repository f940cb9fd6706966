"""Verdicts are computed against the committed lists, and by nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest
from toy_cases import CASES, IMMUTABLE, OPTIONAL, OVERFLOW, READ_ONLY, VALID

from mutcache.requirements import Level, Profile, Req, Subject
from mutcache_conformance import mustpass
from mutcache_conformance.case import Case
from mutcache_conformance.evidence import Basis, Encoding, Evidence, Kind, Observation, PageRecord, StepRecord
from mutcache_conformance.mustpass import Required
from mutcache_conformance.status import CaseResult, Status

REQUIRED = (VALID, OVERFLOW, READ_ONLY, IMMUTABLE)


@pytest.fixture(autouse=True)
def _toy_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = tuple(Required(case.id, case.requirements, "") for case in REQUIRED)
    monkeypatch.setattr(mustpass, "required_cases", lambda _: entries)


def outcome(case: Case, status: Status = Status.PASS, basis: Basis = Basis.OBSERVED) -> CaseResult:
    seen = Observation(Kind.CONTENTS, "cache", "a", "a", basis)
    evidence = Evidence([StepRecord(0, "run", answer="done", observations=[seen])])
    return CaseResult(case.id, case.profile, case.requirements, status, evidence=evidence)


def judge(results: Mapping[str, CaseResult], *, is_selection: bool = False) -> mustpass.Verdict:
    return mustpass.judge(Profile.DENSE, results, is_selection=is_selection)


def all_passed(**changes: Status) -> dict[str, CaseResult]:
    names = {"valid": VALID, "overflow": OVERFLOW, "read_only": READ_ONLY, "immutable": IMMUTABLE, "optional": OPTIONAL}
    return {case.id: outcome(case, changes.get(name, Status.PASS)) for name, case in names.items()}


def test_all_required_cases_pass() -> None:
    verdict = judge(all_passed())
    assert (verdict.is_conformant, verdict.word, verdict.passed, verdict.required) == (True, "conformant", 4, 4)
    assert verdict.counts == {Status.PASS: 5}
    assert verdict.blocking == {}


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASS])
def test_only_a_pass_counts(status: Status) -> None:
    verdict = judge(all_passed(overflow=status))
    assert verdict.is_conformant is False
    assert verdict.blocking == {OVERFLOW.id: status}
    assert verdict.passed == 3


def test_no_profile_is_conformant_with_a_waived_failure_required_or_not() -> None:
    for name, case in (("overflow", OVERFLOW), ("optional", OPTIONAL)):
        verdict = judge(all_passed(**{name: Status.WAIVED}))
        assert (verdict.is_conformant, verdict.blocking) == (False, {case.id: Status.WAIVED})


def test_a_case_that_was_not_run_blocks() -> None:
    results = all_passed()
    del results[OVERFLOW.id]
    assert judge(results).blocking == {OVERFLOW.id: Status.NOT_RUN}


def test_not_applicable_is_capped_by_the_committed_list() -> None:
    assert mustpass.may_be_inapplicable(Profile.DENSE) == {Req.MC_BIND_002, Req.MC_BIND_003}
    assert judge(all_passed(read_only=Status.NOT_APPLICABLE)).is_conformant is True
    assert judge(all_passed(overflow=Status.NOT_APPLICABLE)).is_conformant is False


@pytest.mark.parametrize(
    ("status", "is_conformant"), [(Status.UNSUPPORTED, True), (Status.FAIL, False), (Status.CRASH, False)]
)
def test_a_case_beyond_the_list_may_be_unsupported_but_not_wrong(status: Status, is_conformant: bool) -> None:
    assert judge(all_passed(optional=status)).is_conformant is is_conformant


def test_a_selection_gets_no_verdict() -> None:
    verdict = judge({VALID.id: outcome(VALID)}, is_selection=True)
    assert (verdict.is_conformant, verdict.word, verdict.blocking) == (None, "no verdict", {})
    assert judge({VALID.id: outcome(VALID, Status.UNSUPPORTED)}, is_selection=True).blocking == {
        VALID.id: Status.UNSUPPORTED
    }


def test_memory_read_back_through_the_adapter_is_said() -> None:
    assert not judge(all_passed()).rests_on_reported
    assert judge({**all_passed(), VALID.id: outcome(VALID, basis=Basis.REPORTED)}).rests_on_reported


def test_what_belongs_in_a_list() -> None:
    assert mustpass.is_required(VALID)
    assert not mustpass.is_required(OPTIONAL)
    for requirement in Req:
        entry = requirement.entry
        case = dataclasses.replace(VALID, requirements=(requirement,))
        binds = entry.subject in (Subject.MODEL, Subject.RUNTIME) and entry.level is Level.MUST
        assert mustpass.is_required(case) == (binds and entry.status.value == "final")


def test_lists_are_made_by_profile_in_the_order_of_the_cases() -> None:
    other = dataclasses.replace(VALID, id="toy-060/other", profile=Profile.CONCURRENCY)
    lists = mustpass.make_lists([*CASES.values(), other])
    assert list(lists) == [Profile.DENSE, Profile.CONCURRENCY]
    assert [entry["case"] for entry in lists[Profile.DENSE]["cases"]] == [
        case.id for case in CASES.values() if case is not OPTIONAL
    ]


@pytest.mark.parametrize("status", [Status.FAIL, Status.CRASH, Status.HARNESS_ERROR])
def test_what_a_runtime_should_do_stands_in_the_way_of_nothing_but_an_accident_does(status: Status) -> None:
    advice = dataclasses.replace(OPTIONAL, requirements=(Req.MC_QUANT_004, Req.MC_QUANT_003))
    assert advice.requirements[0].level is Level.SHOULD
    assert not mustpass.is_required(advice)
    verdict = judge({**all_passed(), OPTIONAL.id: outcome(advice, status)})
    assert verdict.blocking == ({} if status is Status.FAIL else {OPTIONAL.id: status})
    assert verdict.counts[status] == 1


def test_encoded_pages_are_counted() -> None:
    kinds = (Encoding.NONE, Encoding.CANONICAL, Encoding.BOUNDED, Encoding.CANONICAL)
    pages = [PageRecord(f"cache[{n}]", 0, 8, "caller", kind, Basis.OBSERVED) for n, kind in enumerate(kinds)]
    encoded = dataclasses.replace(outcome(VALID), evidence=Evidence([StepRecord(0, "run", answer="done", pages=pages)]))
    verdict = judge({**all_passed(), VALID.id: encoded})
    assert verdict.encodings == {Encoding.CANONICAL: 2, Encoding.BOUNDED: 1}
    assert verdict.to_json()["encodings"] == {"canonical": 2, "bounded": 1}
    assert judge(all_passed()).encodings == {}
