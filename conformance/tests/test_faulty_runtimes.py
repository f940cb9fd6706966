"""The suite finds every faulty runtime out, by the requirement that it breaks, and by no other means."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault import Fault
from fault_table import FOOT, HEAD, cases_of, find, render, runner
from faulty_hosts import ChangesItsName
from faulty_models import KnowsThePublicCorpus, RejectsEverything
from faulty_pages import DiesWhenAsked
from faulty_runtimes import FAULTS
from hooked_runtime import Sound

from mutcache_conformance.status import Status

TABLE = Path(__file__).parents[1] / "FAULTS.md"
CASES = cases_of(0)


def committed() -> list[str]:
    """The rows of the committed table."""
    text = TABLE.read_text("utf-8")
    assert text.startswith(HEAD)
    assert text.endswith(FOOT)
    return text[len(HEAD) : -len(FOOT)].splitlines(keepends=True)


def test_without_a_fault_all_pass(tmp_path: Path) -> None:
    names = {name for fault in FAULTS for name in (*fault.fails, *fault.untouched)}
    with runner(Sound, tmp_path) as sound:
        results = [sound.run(CASES[name]) for name in sorted(names)]
    assert [(result.case, result.reason) for result in results if result.status is not Status.PASS] == []


def test_there_are_enough_faults_each_with_a_name_and_an_idea() -> None:
    assert len({fault.adapter for fault in FAULTS}) >= 30
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert all(fault.adapter.__doc__ != Sound.__doc__ for fault in FAULTS)


def test_the_table_has_every_fault() -> None:
    assert [row.split(" | ")[:1] for row in committed()] == [[f"| {fault.adapter.__name__}"] for fault in FAULTS]
    assert TABLE.read_text("utf-8") == render(committed())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_by_its_requirement(fault: Fault, tmp_path: Path) -> None:
    assert CASES[fault.fails[0]].requirements[0] is fault.requirement
    found = find(fault, tmp_path)
    assert found.surprises() == []
    stale = "FAULTS.md is stale: run python -m mutcache_tools.generate faults"
    assert found.row() == committed()[FAULTS.index(fault)], stale


@pytest.mark.parametrize("area", ["proto", "alias", "access", "shape", "bind", "dense"])
def test_rejecting_everything_earns_nothing(area: str, tmp_path: Path) -> None:
    negative = next(case for case in CASES.values() if case.is_negative and case.id.startswith(area))
    with runner(RejectsEverything, tmp_path) as faulty:
        for case in (negative, CASES[negative.twin]):
            assert faulty.run(case).status is Status.FAIL


def test_a_table_of_the_public_corpus_is_worth_nothing_elsewhere(tmp_path: Path) -> None:
    names = ["alias-011/read-after", "access-001/output", "proto-003/absent", "shape-002/lower"]
    with runner(KnowsThePublicCorpus, tmp_path / "public") as known:
        assert [known.run(CASES[name]).status for name in names] == [Status.PASS] * len(names)
    with runner(KnowsThePublicCorpus, tmp_path / "other", nonce=7) as unknown:
        assert [unknown.run(cases_of(7)[name]).status for name in names] == [Status.FAIL] * len(names)


def test_a_name_that_changes_ends_the_run(tmp_path: Path) -> None:
    with runner(ChangesItsName, tmp_path) as faulty:
        assert faulty.run(CASES["dense-001/first-rows"]).status is Status.PASS
        faulty.close()
        again = faulty.run(CASES["dense-001/last-rows"])
    assert again.status is Status.NOT_RUN
    assert "could not be started again: it describes itself otherwise: runtime" in again.reason


def test_a_runtime_that_dies_when_it_is_asked_for_its_tables_has_crashed(tmp_path: Path) -> None:
    """It is asked after a refusal, which stands in the record beside its end."""
    with runner(DiesWhenAsked, tmp_path) as faulty:
        result = faulty.run(CASES["paged-005/by-one"])
    assert result.status is Status.CRASH
    assert [step.phase for step in result.evidence.steps if step.answer == "crash"] == ["run"]
