"""Runs a sample of a report's cases again, and compares what is the same in every run of a deterministic runtime."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mutcache_conformance import provenance
from mutcache_conformance.adapters import command_of
from mutcache_conformance.case import Case
from mutcache_conformance.runner import Configuration, Runner
from mutcache_conformance.status import CaseResult, Status

#: Statuses that say nothing that could be compared.
_SILENT: Final = frozenset({Status.NOT_RUN, Status.HARNESS_ERROR})


@dataclass(frozen=True, slots=True)
class Sample:
    """What came of running cases again.

    Attributes:
        seed: what they were drawn with.
        cases: their ids.
        differences: what is not as the report says.
        notes: what is, and yet a reader should know.
    """

    seed: int
    cases: tuple[str, ...]
    differences: tuple[str, ...]
    notes: tuple[str, ...]


def rerun(report: Mapping[str, Any], cases: Sequence[Case], runtime: str, count: int, seed: int) -> Sample:
    """Run some of a report's cases again.

    Status, phase and evidence are compared, and who the runtime says it is; times, addresses and figures of memory,
    which are never twice the same, are not. Of cases in which things overlap in time only the status is.

    Args:
        report: the content of its report.json; its cases must be ``cases``.
        cases: every case of the report's nonce.
        runtime: as for the suite.
        count: how many cases.
        seed: draws them.

    Raises:
        UnknownRuntime, RuntimeUnavailable: it cannot be started.
    """
    by_id = {case.id: case for case in cases}
    results = {data["case"]: CaseResult.from_json(data) for data in report["results"]}
    candidates = [case for case, result in results.items() if _status(result) not in _SILENT]
    drawn = sorted(random.Random(seed).sample(candidates, min(count, len(candidates))), key=list(by_id).index)
    configuration = report["configuration"]
    differences: list[str] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = Configuration(
            command=command_of(runtime),
            folder=Path(folder),
            options=configuration["options"],
            step_timeout=configuration["step_timeout"],
            case_timeout=configuration["case_timeout"],
        )
        with Runner(settings, by_id) as runner:
            if runner.describe().to_json() != report["runtime"]:
                differences.append("the runtime describes itself differently from what the report says")
            if provenance.adapter(runtime)["source_sha256"] != report["adapter"]["source_sha256"]:
                notes.append("the adapter's files are not those of the report")
            for case in drawn:
                differences += _differences(results[case], runner.run(by_id[case]), by_id[case])
    return Sample(seed, tuple(drawn), tuple(differences), tuple(notes))


def _status(result: CaseResult) -> Status:
    return result.status if result.unwaived is None else result.unwaived


def _differences(told: CaseResult, found: CaseResult, case: Case) -> list[str]:
    if _status(told) is not found.status:
        return [f"{told.case}: the report says {_status(told)}, this run came to {found.status}"]
    if case.overlaps:
        return []
    if told.phase_observed != found.phase_observed:
        return [f"{told.case}: refused first in {told.phase_observed or 'no step'}, now in {found.phase_observed}"]
    if told.evidence.digest() == found.evidence.digest():
        return []
    for before, now in zip(told.evidence.steps, found.evidence.steps, strict=False):
        if before != now:
            return [f"{told.case}: step {now.index + 1} ({now.operation}) left other evidence than the report has"]
    return [
        f"{told.case}: the report has evidence of {len(told.evidence.steps)} steps, not {len(found.evidence.steps)}"
    ]
