"""The suite finds every faulty runtime out, by the requirement that it breaks, and by no other means."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from faulty_runtimes import FAULTS, Fault, RejectsEverything
from hooked_runtime import Sound

from mutcache_conformance.cases import generate
from mutcache_conformance.runner import Configuration, Runner
from mutcache_conformance.status import Status

CASES = {case.id: case for case in generate()}


@pytest.fixture(autouse=True)
def _importable_by_children(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(__file__).parent
    roots = [here, here.parent, here.parents[1] / "reference"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, roots)))


def runner(adapter: type[Sound], folder: Path) -> Runner:
    command = [sys.executable, "-m", "mutcache_conformance.host", f"{adapter.__module__}:{adapter.__name__}"]
    return Runner(Configuration(command, folder), CASES)


def test_without_a_fault_all_pass(tmp_path: Path) -> None:
    names = {name for fault in FAULTS for name in (fault.case, *fault.passes)}
    with runner(Sound, tmp_path) as sound:
        results = [sound.run(CASES[name]) for name in sorted(names)]
    assert [(result.case, result.reason) for result in results if result.status is not Status.PASS] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.adapter.__name__}-{fault.requirement}")
def test_a_fault_is_found_by_its_requirement(fault: Fault, tmp_path: Path) -> None:
    case = CASES[fault.case]
    assert case.requirements[0] is fault.requirement
    with runner(fault.adapter, tmp_path) as faulty:
        others = [faulty.run(CASES[name]) for name in fault.passes]
        result = faulty.run(case)
    assert [(other.case, other.reason) for other in others if other.status is not Status.PASS] == []
    assert result.status is Status.FAIL, result
    assert fault.words in result.reason


@pytest.mark.parametrize("area", ["proto", "alias", "access", "shape", "bind", "dense"])
def test_rejecting_everything_earns_nothing(area: str, tmp_path: Path) -> None:
    negative = next(case for case in CASES.values() if case.is_negative and case.id.startswith(area))
    with runner(RejectsEverything, tmp_path) as faulty:
        for case in (negative, CASES[negative.twin]):
            assert faulty.run(case).status is Status.FAIL
