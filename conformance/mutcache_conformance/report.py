"""The report of a run: ``report.json``, complete or recognisably not.

Its last member is a footer with the number of results and the SHA-256 of all that stands before it, so that a report
that was cut short, or changed by hand, does not pass for one.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mutcache.requirements import Profile, Req, Subject
from mutcache.requirements import Status as RequirementStatus
from mutcache_conformance import case_json, environment, mustpass
from mutcache_conformance.adapter import Description
from mutcache_conformance.case import Case
from mutcache_conformance.evidence import canonical_json
from mutcache_conformance.mustpass import Verdict
from mutcache_conformance.schema import SchemaError, validate
from mutcache_conformance.status import CaseResult, Status

FORMAT: Final = 1
_LOG: Final = re.compile(r"((?:main|gw\d+)-\d+)\.(?:stdout|stderr)\.txt")


class ReportError(ValueError):
    """A file is no complete report."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the suite, finished.

    Attributes:
        runtime: what ``--runtime`` said.
        about: what the runtime says of itself; None when it never came to that.
        cases: every case of the nonce, in order.
        results: those that were run, by case id.
        profiles: the profiles that are claimed.
        selection: why only some cases were run, or "" when the user asked for all.
        configuration: further settings for the record: argv, nonce, timeouts, options.
    """

    runtime: str
    about: Description | None
    cases: Sequence[Case]
    results: Mapping[str, CaseResult]
    profiles: Sequence[Profile]
    selection: str = ""
    configuration: Mapping[str, Any] = field(default_factory=dict)

    def verdicts(self) -> list[Verdict]:
        """The verdict on each claimed profile."""
        return [mustpass.judge(profile, self.results, is_selection=bool(self.selection)) for profile in self.profiles]

    def ordered_results(self) -> list[CaseResult]:
        """The results in the order of the cases."""
        return [self.results[case.id] for case in self.cases if case.id in self.results]

    def claimed_cases(self) -> list[Case]:
        """The cases of the claimed profiles."""
        return [case for case in self.cases if case.profile in self.profiles]

    @property
    def succeeded(self) -> bool:
        """Whether the exit status is 0: the verdicts, or without one the selected cases, leave nothing to wish for."""
        return all(not verdict.blocking for verdict in self.verdicts())


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was shown of one requirement. Cases count for every requirement that they name."""

    requirement: Req
    counts: Mapping[Status, int]
    cases: int

    @property
    def passed(self) -> int:
        """Cases that passed."""
        return self.counts.get(Status.PASS, 0)

    @property
    def run(self) -> int:
        """Cases that were run."""
        return sum(self.counts.values())


def coverage(run: Run) -> list[Coverage]:
    """Every final requirement of the claimed profiles that binds a model or a runtime, in order."""
    cases = run.claimed_cases()
    table = []
    for requirement in Req:
        entry = requirement.entry
        if entry.status is not RequirementStatus.FINAL or entry.subject is Subject.TOOL:
            continue
        if entry.profile not in run.profiles:
            continue
        ids = [case.id for case in cases if requirement in case.requirements]
        counts = collections.Counter(run.results[case].status for case in ids if case in run.results)
        table.append(Coverage(requirement, {status: counts[status] for status in Status if counts[status]}, len(ids)))
    return table


def build(run: Run) -> dict[str, Any]:
    """The report as JSON, footer included."""
    results = run.ordered_results()
    not_run = [case.id for case in run.claimed_cases() if case.id not in run.results]
    table = coverage(run)
    body = {
        "format": FORMAT,
        "claim": {
            "selection": run.selection,
            "profiles": [verdict.to_json() for verdict in run.verdicts()],
            "unclaimed": [profile.value for profile in mustpass.profiles() if profile not in run.profiles],
        },
        "runtime": None if run.about is None else run.about.to_json(),
        "suite": {
            "requirements_sha256": _digest_of_requirements(),
            "mustpass_sha256": mustpass.digest_of_lists(),
            "cases_sha256": case_json.sha256(canonical_json([case_json.digest(case) for case in run.cases])),
        },
        "environment": environment.describe(),
        "configuration": {"runtime": run.runtime, **run.configuration},
        "results": [result.to_json() for result in results],
        "not_run": not_run,
        "totals": {
            **{status.value: sum(result.status is status for result in results) for status in Status},
            Status.NOT_RUN.value: len(not_run) + sum(result.status is Status.NOT_RUN for result in results),
        },
        "requirements": [
            {
                "requirement": row.requirement.value,
                "cases": row.cases,
                "counts": {status.value: count for status, count in row.counts.items()},
            }
            for row in table
        ],
        "uncovered": [row.requirement.value for row in table if not row.cases],
    }
    return {**body, "footer": _footer(body)}


def write(run: Run, folder: Path) -> Path:
    """Write ``report.json`` into the folder, whole or not at all; what an earlier run left there is removed."""
    report = build(run)
    validate(report, "report")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    temporary = folder / "report.json.part"
    temporary.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    _remove_stale(run, folder)
    return path


def _remove_stale(run: Run, folder: Path) -> None:
    """Remove the logs and failing cases of earlier runs, and nothing that is not such a thing."""
    failures = {result.failure for result in run.results.values()}
    for case in folder.glob("failures/*/*/case.json"):
        if case.parent.relative_to(folder).as_posix() not in failures:
            shutil.rmtree(case.parent)
    logs = {result.log for result in run.results.values()}
    for log in folder.glob("logs/*"):
        name = _LOG.fullmatch(log.name)
        if name is not None and name[1] not in logs:
            log.unlink()


def read_report(path: Path) -> dict[str, Any]:
    """A report that is complete and follows its schema.

    Raises:
        ReportError: it is not; the message says how.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ReportError(f"{path} is truncated, or no report: {error}") from error
    if not isinstance(report, dict) or list(report)[-1:] != ["footer"]:
        raise ReportError(f"{path} has no footer at its end: it is truncated")
    footer = report.pop("footer")
    if footer != _footer(report):
        raise ReportError(f"{path} is not what its footer says: it was changed or cut after it was written")
    report["footer"] = footer
    try:
        validate(report, "report")
    except SchemaError as error:
        raise ReportError(f"{path} does not follow its schema: {error}") from None
    return report


def _footer(body: Mapping[str, Any]) -> dict[str, Any]:
    results = body.get("results")
    return {
        "results": len(results) if isinstance(results, list) else 0,
        "sha256": hashlib.sha256(canonical_json(body)).hexdigest(),
    }


def _digest_of_requirements() -> str:
    """What the specification said: a digest of every requirement's text."""
    return case_json.sha256(canonical_json({req.value: req.entry.text_hash for req in Req}))
