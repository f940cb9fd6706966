"""Running a sample of a report's cases again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sealed_reports as sealed
from toy_cases import CASES, OPTIONAL, OVERFLOW

from mutcache_conformance.adapters import UnknownRuntime
from mutcache_conformance.rerun import Sample, rerun


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        sealed.replace_corpus(patch)
        yield sealed.read(sealed.make(tmp_path_factory.mktemp("rerun"), "toy_runtime:Toy"))


def _rerun(report: dict[str, Any], runtime: str = "toy_runtime:Toy", count: int = 99, seed: int = 1) -> Sample:
    return rerun(report, tuple(CASES.values()), runtime, count, seed)


def test_the_same_runtime_does_the_same(report: dict[str, Any]) -> None:
    sample = _rerun(report)
    assert sample.differences == sample.notes == ()
    assert sample.cases == tuple(CASES)


def test_a_seed_draws_the_same_cases(report: dict[str, Any]) -> None:
    drawn = {seed: _rerun(report, count=2, seed=seed).cases for seed in range(6)}
    assert all(len(set(cases)) == 2 for cases in drawn.values())
    assert len(set(drawn.values())) > 1
    assert _rerun(report, count=2, seed=3).cases == drawn[3]


def test_another_runtime_is_found_out(report: dict[str, Any]) -> None:
    sample = _rerun(report, "toy_runtime:Clamping")
    assert sample.differences == (f"{OVERFLOW.id}: the report says pass, this run came to fail",)
    other = {**report, "runtime": {**report["runtime"], "runtime_version": "2"}}
    assert _rerun(other).differences == ("the runtime describes itself differently from what the report says",)


def test_other_evidence_is_found(report: dict[str, Any]) -> None:
    sample = _rerun(report, "toy_runtime:WrongPhase")
    assert any("step" in line or "refused first" in line or "came to" in line for line in sample.differences)


def test_a_changed_adapter_is_noted(report: dict[str, Any]) -> None:
    changed = {**report, "adapter": {**report["adapter"], "source_sha256": "0" * 64}}
    assert _rerun(changed, count=1).notes == ("the adapter's files are not those of the report",)


def test_what_says_nothing_is_not_drawn(report: dict[str, Any]) -> None:
    results = [
        {**result, "status": "not-run"} if result["case"] != OPTIONAL.id else result for result in report["results"]
    ]
    assert _rerun({**report, "results": results}).cases == (OPTIONAL.id,)


def test_a_runtime_that_there_is_not(report: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UnknownRuntime):
        _rerun(report, f"cmd:{tmp_path}/none")
